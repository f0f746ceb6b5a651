"""The page in a real browser: it speaks, clones, works offline, and asks its host for nothing but its files."""

from __future__ import annotations

import functools
import http.server
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marstts import audio
from marstts.audio import Waveform, read, resample, write
from marstts.web.site import write_site

pytestmark = [pytest.mark.slow, pytest.mark.end_to_end, pytest.mark.timeout(900)]

SWITCHES = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--mute-audio", "--disable-dev-shm-usage",
    "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-extensions",
    "--disable-sync", "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream",
    "--autoplay-policy=no-user-gesture-required",
)  # fmt: skip
REPOSITORY = Path(__file__).parents[2]
SPOKEN_BY_THE_MICROPHONE = REPOSITORY / "tests" / "audio" / "sense-0930.flac"
WAIT_SECONDS = 240.0
"""On a busy machine: the parts are compiled, too."""

TEXT = "Dr. Ray paid $5 today. Nobody called."
NOTE_MARKED_WORDS = """
window.marked = [];
new MutationObserver(() => {
  const word = document.querySelector("#mirror .word")?.textContent;
  if (word && window.marked.at(-1) !== word) window.marked.push(word);
}).observe(document.getElementById("mirror"), { childList: true });
"""
UNNAMED = """
return [...document.querySelectorAll("button, input, textarea, audio, meter, progress")]
  .filter((node) => !node.hidden && !node.closest("[hidden]"))
  .filter((node) => !(node.ariaLabel || node.labels?.length || node.textContent.trim() || node.title))
  .map((node) => node.outerHTML);
"""


def without_update_checks(asked: list[str]) -> list[str]:
    """Without the service worker's script: Chromium looks by itself, while one visits, whether it has changed."""
    return [path for path in asked if path != "/service-worker.js"]


class Host:
    """A web host of the plainest kind, which notes what it is asked for."""

    def __init__(self, folder: Path) -> None:
        self.asked: list[str] = []
        host = self

        class Handler(http.server.SimpleHTTPRequestHandler):
            extensions_map = http.server.SimpleHTTPRequestHandler.extensions_map | {
                ".mjs": "text/javascript", ".js": "text/javascript", ".wasm": "application/wasm",
            }  # fmt: skip

            def do_GET(self) -> None:
                host.asked.append(self.path)
                super().do_GET()

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder))
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def stop(self) -> None:
        if self.thread.is_alive():
            self.server.shutdown()
            self.server.server_close()
            self.thread.join(timeout=30)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, node_modules: Path) -> Path:
    folder = tmp_path_factory.mktemp("host") / "site"
    write_site(folder, "mini", node_modules)
    return folder


@pytest.fixture(scope="module")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory, downloads: Path) -> Iterator[Any]:
    """Chromium with a microphone that plays some seconds of a reader, again and again."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    from selenium.webdriver.chrome.service import Service

    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("needs chromium and chromedriver: apt-get install chromium chromium-driver")
    folder = tmp_path_factory.mktemp("chromium")
    speech = resample(read(SPOKEN_BY_THE_MICROPHONE), 24_000)
    write(Waveform(np.append(speech.samples, np.zeros(12_000, np.float32)), 24_000), folder / "microphone.wav")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for switch in (
        *SWITCHES,
        f"--use-file-for-fake-audio-capture={folder / 'microphone.wav'}",
        f"--user-data-dir={folder / 'profile'}",
    ):
        options.add_argument(switch)
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(driver))
    browser.set_script_timeout(WAIT_SECONDS)
    try:
        yield browser
    finally:
        browser.quit()


class Visitor:
    """Opens the page, types and presses buttons, and reads it."""

    def __init__(self, browser: Any, host: Host) -> None:
        self.browser, self.host = browser, host

    def open(self, ready: str = "cloning") -> None:
        self.browser.get(f"{self.host.address}/")
        self.wait(lambda: self.run("return document.body.dataset.ready") in (ready, "cloning"))

    def run(self, script: str, *arguments: object) -> Any:
        return self.browser.execute_script(script, *arguments)

    def find(self, name: str) -> Any:
        return self.browser.find_element("id", name)

    def all(self, css: str) -> list[Any]:
        return self.browser.find_elements("css selector", css)

    @property
    def status(self) -> str:
        return self.find("status").text

    @property
    def is_refused(self) -> bool:
        return bool(self.run("return document.getElementById('toast')?.classList.contains('bad') ?? false"))

    def wait(self, condition: Callable[[], object], *, refused: bool = False) -> None:
        started = time.monotonic()
        while not condition():
            assert time.monotonic() < started + WAIT_SECONDS, f"waited in vain; the page says {self.status!r}"
            assert refused or not self.is_refused, self.status
            time.sleep(0.05)

    def type(self, name: str, text: str) -> None:
        self.find(name).clear()
        self.find(name).send_keys(text)

    def speak(self, text: str) -> None:
        """Speak, and wait until all is made."""
        self.type("text", text)
        self.find("speak").click()
        self.wait(lambda: (made := self.all("#takes [title='Download WAV']")) and made[0].is_enabled())

    def download(self, label: str, folder: Path) -> Path:
        """The file of the newest take."""
        before = set(folder.iterdir())
        self.all(f"#takes [title='Download {label}']")[0].click()  # downloads without a gesture are blocked
        suffix = f".{label.lower()}"
        self.wait(lambda: {path for path in set(folder.iterdir()) - before if path.suffix == suffix})
        (path,) = (path for path in set(folder.iterdir()) - before if path.suffix == suffix)
        return path


@pytest.fixture(scope="module")
def host(site: Path) -> Iterator[Host]:
    host = Host(site)
    yield host
    host.stop()


@pytest.fixture(scope="module")
def visitor(browser: Any, host: Host) -> Visitor:
    visitor = Visitor(browser, host)
    visitor.open()
    return visitor


def test_a_sentence_is_spoken_with_its_words_and_nothing_is_asked_of_the_host(
    visitor: Visitor, downloads: Path
) -> None:
    asked = len(visitor.host.asked)
    visitor.browser.get_log("performance")
    visitor.run(NOTE_MARKED_WORDS)
    visitor.speak(TEXT)
    wav = read(visitor.download("WAV", downloads))
    assert 1.5 < wav.seconds < 8.0 and audio.loudness_lufs(wav) > -40
    srt = visitor.download("SRT", downloads).read_text(encoding="utf-8")
    assert "$5" in srt and "Nobody called." in srt
    visitor.wait(lambda: not visitor.all("#takes .play[aria-pressed=true]"))
    marked = visitor.run("return window.marked")
    words = TEXT.split()
    assert len(marked) >= len(words) / 2 and [word for word in words if word in marked] == marked
    assert without_update_checks(visitor.host.asked[asked:]) == []
    sent = [json.loads(entry["message"])["message"] for entry in visitor.browser.get_log("performance")]
    addresses = [each["params"]["request"]["url"] for each in sent if each["method"] == "Network.requestWillBeSent"]
    assert not [each for each in addresses if not each.startswith(("blob:", visitor.host.address))], addresses
    assert [entry for entry in visitor.browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_no_script_of_the_page_can_reach_another_host(visitor: Visitor, tmp_path: Path) -> None:
    other = Host(tmp_path)
    try:
        found = visitor.browser.execute_async_script(
            "const done = arguments[1]; fetch(arguments[0]).then(() => done('reached'), (error) => done(error.name))",
            other.address,
        )
        assert found == "TypeError" and other.asked == []
    finally:
        other.stop()
    policies = visitor.browser.execute_async_script(
        "const done = arguments[0]; Promise.all(['speech-worker.js', 'reader-worker.js'].map((file) => fetch(file)))"
        ".then((all) => done(all.map(({ headers }) => headers.get('Content-Security-Policy'))))"
    )
    assert all("connect-src 'self'" in policy for policy in policies), "the workers are bound by it, too"


def test_a_pronunciation_is_changed_by_a_click(visitor: Visitor) -> None:
    visitor.type("text", "Nguyen called.")
    visitor.run("document.getElementById('pronunciations').open = true")
    word = "[...document.querySelectorAll('#readings button')].find((each) => each.textContent.startsWith('Nguyen'))"
    visitor.wait(lambda: visitor.run(f"return {word} !== undefined"))
    visitor.run(f"{word}.click()")  # in one step, for the words are drawn again when they are read again
    visitor.type("say", "QQ1 X")
    visitor.find("say-use").click()
    visitor.wait(lambda: visitor.is_refused, refused=True)
    assert "ARPAbet" in visitor.status
    visitor.find("dismiss").click()
    visitor.type("say", "W IH1 N")
    visitor.find("say-use").click()
    visitor.wait(lambda: visitor.run(f"return {word}?.ariaPressed === 'true'"))
    assert "W IH1 N" in visitor.run(f"return {word}.textContent")
    visitor.run(f"{word}.click()")
    visitor.find("say-reset").click()
    visitor.wait(lambda: visitor.run(f"return {word}?.ariaPressed === 'false'"))


def test_a_recording_becomes_a_voice_that_speaks_and_is_kept_only_when_asked(visitor: Visitor) -> None:
    asked = len(visitor.host.asked)
    visitor.find("record").click()
    visitor.wait(lambda: visitor.find("time").text.startswith("0:05"))
    visitor.find("record").click()
    visitor.type("name", "Reader")
    visitor.find("agreed").click()
    started = time.monotonic()
    visitor.find("clone").click()
    visitor.wait(lambda: "can speak now" in visitor.status)
    print(f"cloned in {time.monotonic() - started:.1f} s")
    assert visitor.find("chosen").text == "with the voice Reader"
    assert visitor.run("return localStorage.length") == 0
    visitor.speak("Hello from a clone.")
    visitor.run("document.querySelector('[aria-label=\"Keep Reader in this browser\"]').click()")
    kept = json.loads(visitor.run("return localStorage.getItem('marstts-voices')"))
    assert [voice["name"] for voice in kept] == ["Reader"] and set(kept[0]["embeddings"]) == {
        "identity", "style", "timbre",
    }  # fmt: skip
    assert visitor.run("return indexedDB.databases().then((all) => all.length)") == 0
    assert without_update_checks(visitor.host.asked[asked:]) == []


def test_problems_are_one_sentence(visitor: Visitor) -> None:
    visitor.run("window.speak = navigator.mediaDevices.getUserMedia")
    deny = "navigator.mediaDevices.getUserMedia = () => Promise.reject(new DOMException('', arguments[0]))"
    for name, said in (("NotAllowedError", "does not allow the microphone"), ("NotFoundError", "No microphone")):
        visitor.run(deny, name)
        visitor.find("record").click()
        visitor.wait(lambda said=said: said in visitor.status, refused=True)
    for text, said in (("☃ ☃", "nothing to speak"), ("[voice: nobody] Hello.", "no voice called nobody")):
        visitor.type("text", text)
        visitor.find("speak").click()
        visitor.wait(lambda said=said: said in visitor.status, refused=True)
        assert "\n" not in visitor.status
    visitor.find("dismiss").click()


def test_everything_has_a_name_and_fits_a_phone(visitor: Visitor) -> None:
    assert visitor.run(UNNAMED) == []
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    visitor.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        assert visitor.run("return document.documentElement.scrollWidth") <= 390
    finally:
        visitor.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_keys_alone_speak_and_stop(visitor: Visitor) -> None:
    before = len(visitor.all("#takes li"))
    visitor.type("text", "One two three four five six seven eight nine ten, and so on until it is stopped.")
    visitor.find("text").send_keys("\ue009\ue007")  # Ctrl+Enter
    visitor.wait(lambda: len(visitor.all("#takes li")) > before and visitor.find("stop").is_displayed())
    visitor.find("text").send_keys("\ue00c")  # Escape
    visitor.wait(lambda: not visitor.find("stop").is_displayed())
    assert not visitor.is_refused


def test_a_second_visit_needs_no_host_and_may_use_threads(visitor: Visitor, browser: Any, host: Host) -> None:
    host.stop()
    asked = len(host.asked)
    visitor.open(ready="speaking")
    assert len(host.asked) == asked
    assert visitor.run("return crossOriginIsolated") is (os.name == "posix")
    assert [each for each in visitor.all(".voice") if "Reader" in each.text and "kept" in each.text]
    visitor.speak("Hello again.")
