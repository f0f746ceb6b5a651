"""A visitor of the page in the tab: a host for a site, headless Chromium, and what a person does with the page.

Upstream: a folder that `marstts web` wrote.  Downstream: `tab_bars.py`, `tab_words.py`.
"""

from __future__ import annotations

import functools
import http.server
import json
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import websocket
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

SWITCHES = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--mute-audio", "--disable-dev-shm-usage",
    "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-extensions",
    "--disable-sync", "--autoplay-policy=no-user-gesture-required", "--remote-allow-origins=*",
)  # fmt: skip
WAIT_SECONDS = 600.0

SPEAK = """
const [text, voice, done] = arguments;
const byId = (id) => document.getElementById(id);
if (voice) byId(`voice-${voice}`).click();
byId("text").value = text;
byId("text").dispatchEvent(new Event("input"));
const before = document.querySelector("#takes li");
const found = { made: null, playing: null, total: null };
const started = performance.now();
const since = () => (performance.now() - started) / 1000;
byId("speak").click();
const timer = setInterval(() => {
  const bad = byId("toast").classList.contains("bad");
  const row = document.querySelector("#takes li");
  if (!bad && (!row || row === before)) return;
  const bar = row?.querySelector("input");
  if (bar && bar.max > 0.01) found.made ??= since();
  if (bar && bar.value > 0) found.playing ??= since();
  const isMade = row && !row.querySelector("[title='Download WAV']").disabled;
  if (isMade) found.total ??= since();
  if (!bad && !(isMade && found.playing)) return;
  clearInterval(timer);
  const warning = bad ? byId("status").textContent : row.querySelector(".warning").textContent;
  done({ ...found, seconds: Number(bar?.max ?? 0), warning, isBad: bad });
}, 4);
"""
"""Speaks; gives seconds from the click: to the first audio, to its playing, to the end of making; and of the audio."""

WAV = """
const done = arguments[0];
const plain = URL.createObjectURL;
URL.createObjectURL = (blob) => {
  URL.createObjectURL = plain;
  const reader = new FileReader();
  reader.onload = () => done(reader.result.split(",")[1]);
  reader.readAsDataURL(blob);
  return "#";
};
document.querySelector("#takes [title='Download WAV']").click();
"""
"""The newest take as a WAV file, base64."""


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves files, and says nothing."""

    extensions_map = http.server.SimpleHTTPRequestHandler.extensions_map | {
        ".mjs": "text/javascript", ".js": "text/javascript", ".wasm": "application/wasm",
    }  # fmt: skip

    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def serving(site: Path) -> Iterator[str]:
    """The address of a site."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=site))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


class Visitor:
    """Opens the page and uses it."""

    def __init__(self, browser: Any, address: str) -> None:
        self.browser, self.address = browser, address

    def open(self, ready: str = "cloning") -> float:
        """Open the page and wait until it is ready to speak, or to clone, too -> seconds."""
        started = time.monotonic()
        self.browser.get(self.address)
        while self.run("return document.body.dataset.ready") not in (ready, "cloning"):
            status = self.run("return document.getElementById('status').textContent")
            assert not self.run("return document.getElementById('toast').classList.contains('bad')"), status
            assert time.monotonic() < started + WAIT_SECONDS, "the page does not get ready"
            time.sleep(0.02)
        return time.monotonic() - started

    def run(self, script: str, *arguments: object) -> Any:
        return self.browser.execute_script(script, *arguments)

    def speak(self, text: str, voice: str = "") -> dict[str, Any]:
        """What `SPEAK` gives."""
        found: dict[str, Any] = self.browser.execute_async_script(SPEAK, text, voice)
        assert not found["isBad"], found["warning"]
        return found

    def wav(self) -> str:
        """The newest take as a WAV file, base64."""
        return str(self.browser.execute_async_script(WAV))

    def clone(self, recording: Path, name: str) -> float:
        """Make a voice of a recording -> seconds."""
        self.browser.find_element("id", "file").send_keys(str(recording))
        field = self.browser.find_element("id", "name")
        field.clear()
        field.send_keys(name)
        if not self.browser.find_element("id", "agreed").is_selected():
            self.browser.find_element("id", "agreed").click()
        started = time.monotonic()
        self.browser.find_element("id", "clone").click()
        while not self.run("return !!document.getElementById(arguments[0])", f"voice-{name}"):
            status = self.run("return document.getElementById('status').textContent")
            assert not self.run("return document.getElementById('toast').classList.contains('bad')"), status
            time.sleep(0.02)
        return time.monotonic() - started

    @property
    def version(self) -> str:
        return f"Chromium {self.browser.capabilities['browserVersion']}"


@contextmanager
def visiting(site: Path) -> Iterator[Visitor]:
    """A visitor of a site, in a browser that knows nothing of it yet."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    with serving(site) as address, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for switch in (*SWITCHES, f"--user-data-dir={profile}"):
            options.add_argument(switch)
        browser = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        browser.set_script_timeout(WAIT_SECONDS)
        try:
            yield Visitor(browser, address)
        finally:
            browser.quit()


class Memory:
    """What the page and its workers hold, by Chromium's own protocol, and its processes, by the kernel."""

    def __init__(self, browser: Any) -> None:
        self.processes = processes_below(browser.service.process.pid)
        debugger = browser.capabilities["goog:chromeOptions"]["debuggerAddress"]
        with urlopen(f"http://{debugger}/json/list") as response:
            (page,) = (each for each in json.load(response) if each["type"] == "page")
        self.socket = websocket.create_connection(page["webSocketDebuggerUrl"], timeout=60)
        self.sent = 0
        self.sessions = {"page": ""}
        self.call("Target.setAutoAttach", autoAttach=True, waitForDebuggerOnStart=False, flatten=True)
        self.call("Runtime.enable")  # until the workers have come, too

    def call(self, method: str, session: str = "", **parameters: object) -> dict[str, Any]:
        """The answer of a method; notes the workers that are named meanwhile."""
        self.sent += 1
        message = {"id": self.sent, "method": method, "params": parameters}
        self.socket.send(json.dumps(message | ({"sessionId": session} if session else {})))
        while True:
            found = json.loads(self.socket.recv())
            if found.get("method") == "Target.attachedToTarget" and found["params"]["targetInfo"]["type"] == "worker":
                name = Path(found["params"]["targetInfo"]["url"]).stem
                if name.endswith("-worker"):  # not the runtime's threads, which share the memory of the first
                    self.sessions[name] = found["params"]["sessionId"]
            if found.get("id") == self.sent:
                assert "error" not in found, found
                result: dict[str, Any] = found["result"]
                return result

    def measure(self) -> dict[str, float]:
        """MiB after a garbage collection: JavaScript and buffers, WebAssembly included, of each thread; processes."""
        found: dict[str, float] = {}
        for name, session in self.sessions.items():
            self.call("HeapProfiler.collectGarbage", session)
            heap = self.call("Runtime.getHeapUsage", session)
            found[f"{name}_heap"] = heap["usedSize"] / 2**20
            found[f"{name}_buffers"] = heap.get("backingStorageSize", 0.0) / 2**20
            found[f"{name}_wasm"] = self.wasm_bytes(session) / 2**20
        for kind, process in self.processes.items():
            status = Path(f"/proc/{process}/status").read_text()
            found[f"{kind}_resident"] = float(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) / 1024
        return {name: round(value, 2) for name, value in found.items()}

    def wasm_bytes(self, session: str) -> float:
        """Bytes of all WebAssembly memories of a thread."""
        prototype = self.call("Runtime.evaluate", session, expression="WebAssembly.Memory.prototype")
        objects = self.call("Runtime.queryObjects", session, prototypeObjectId=prototype["result"]["objectId"])
        identifier = objects["objects"]["objectId"]
        declaration = "function () { return this.reduce((sum, { buffer }) => sum + (buffer?.byteLength ?? 0), 0); }"
        found = self.call(
            "Runtime.callFunctionOn", session,
            functionDeclaration=declaration, objectId=identifier, returnByValue=True,
        )  # fmt: skip
        self.call("Runtime.releaseObject", session, objectId=identifier)
        return float(found["result"].get("value", 0.0))


def processes_below(parent: int) -> dict[str, int]:
    """The browser's process and the largest renderer's below a process, by kind."""
    parents, kinds, sizes = {}, {}, {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            arguments = (folder / "cmdline").read_text().replace("\0", " ")
            sizes[int(folder.name)] = int((folder / "statm").read_text().split()[1])
        except OSError:  # it has ended
            continue
        kinds[int(folder.name)] = "renderer" if "--type=renderer" in arguments else (
            "browser" if "chromium" in arguments and "--type=" not in arguments else ""
        )  # fmt: skip
    found: dict[str, int] = {}
    for process, kind in kinds.items():
        if kind and parent in ancestors(process, parents) and sizes[process] > sizes.get(found.get(kind, -1), -1):
            found[kind] = process
    return found


def ancestors(process: int, parents: dict[int, int]) -> Iterator[int]:
    """Parents of a process, one after another."""
    while process := parents.get(process, 0):
        yield process
