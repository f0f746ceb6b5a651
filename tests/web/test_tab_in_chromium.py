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

ADD_VOICE = """
const [name] = arguments;
import("./voice-list.js").then(({ addVoice, allVoices }) => addVoice(name, Object.values(allVoices())[0].embeddings));
"""
NOTES = "return Object.fromEntries(Object.entries(localStorage).filter(([, note]) => note !== '[]'))"
"""What the browser keeps; of voices that were forgotten it keeps an empty list."""

FORGET_READER = "document.querySelector('[aria-label=\"Delete Reader\"]')?.click()"
KEEP_READER = "document.querySelector('[aria-label=\"Keep Reader in this browser\"]')?.click()"
STORE_OTHERS = """
const kept = JSON.parse(localStorage.getItem("marstts-voices"));
const old = { ...kept[0], name: "Old", model: "mini@000000000000" };
const embeddings = { ...kept[0].embeddings, style: "no" };
const spoiled = [null, 3, { name: "Bad" }, { ...kept[0], name: "Worse", embeddings }];
localStorage.setItem("marstts-voices", JSON.stringify([old, ...spoiled, ...kept]));
"""
CONTROLS = {
    "button",
    "textbox",
    "checkbox",
    "radio",
    "radiogroup",
    "slider",
    "link",
    "meter",
    "progressbar",
    "DisclosureTriangle",
}
FOCUSABLE = "const all = [...document.querySelectorAll('a[href], button, input, textarea, summary, audio')];"
FOCUSED = f"""{FOCUSABLE}
const node = document.activeElement;
const frame = node.id === "text" ? document.getElementById("editor") : node;
const {{ outlineStyle, outlineWidth }} = getComputedStyle(frame);
const box = node.getBoundingClientRect();
const isSeen = (outlineStyle !== "none" && parseFloat(outlineWidth) >= 2) || node.tagName === "AUDIO";
const isInView = box.width > 0 && box.bottom > 0 && box.top < innerHeight;
return [all.indexOf(node), node.outerHTML.slice(0, 120), isSeen && isInView];
"""
NOT_REACHED = f"""{FOCUSABLE}
return all.filter((node, place) => !arguments[0].includes(place) && node.checkVisibility() && !node.disabled
  && !(node.type === "radio" && !node.checked)).map((node) => node.outerHTML.slice(0, 200));
"""
"""Elements in the order of the page; of radio buttons the keyboard reaches the checked one."""

OUTSIDE = """
return [...document.querySelectorAll("main *, header *, footer *, #toast *")].filter((node) => node.checkVisibility())
  .filter((node) => node.getBoundingClientRect().right > innerWidth + 1).map((node) => node.outerHTML.slice(0, 120));
"""
CONTRASTS = """
const part = (color) => (color.match(/[\\d.]+/g) ?? []).map(Number);
const luminance = (color) => part(color).slice(0, 3).map((value) => value / 255)
  .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4))
  .reduce((sum, value, index) => sum + value * [0.2126, 0.7152, 0.0722][index], 0);
const behind = (node) => {
  for (let each = node; each; each = each.parentElement) {
    const color = getComputedStyle(each).backgroundColor;
    if (part(color).length === 3 || part(color)[3] === 1) return color;
  }
  return "rgb(255, 255, 255)";
};
return [...document.querySelectorAll("body *")].filter((node) => node.checkVisibility())
  .filter((node) => !node.closest("#mirror, :disabled, svg"))
  .filter((node) => node.matches("textarea, input") || [...node.childNodes].some((one) => one.data?.trim()))
  .map((node) => {
    const [ink, paper] = [getComputedStyle(node).color, behind(node)].map(luminance);
    return [node.outerHTML.slice(0, 100), (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05)];
  });
"""
"""Each element with a text of its own, and how far its color is from what is behind it (WCAG)."""

TABULATOR, ENTER = "\ue004", "\ue007"
"""Keys, as WebDriver names them."""


def without_update_checks(asked: list[str]) -> list[str]:
    """Without the service worker's script: Chromium looks by itself, while one visits, whether it has changed."""
    return [path for path in asked if path != "/tab/service-worker.js"]


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
    """As `make site` writes it: the page in `tab/`, and the first page of the documents, here its link alone."""
    folder = tmp_path_factory.mktemp("host") / "site"
    write_site(folder / "tab", "mini", node_modules)
    first = (REPOSITORY / "docs" / "index.md").read_text(encoding="utf-8")
    (folder / "index.html").write_text("\n".join(line for line in first.splitlines() if "<a " in line))
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
        self.browser.get(f"{self.host.address}/tab/")
        self.wait_until(ready)

    def come_from_the_first_page(self) -> None:
        self.browser.get(f"{self.host.address}/")
        self.browser.find_element("css selector", "a").click()
        self.wait_until("cloning")

    def wait_until(self, ready: str) -> None:
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

    def agree(self) -> None:
        """Say that the speaker agreed, unless that was said."""
        if not self.find("agreed").is_selected():
            self.find("agreed").click()

    def speak(self, text: str) -> None:
        """Speak, and wait until all is made."""
        before = len(self.all("#takes li"))
        self.type("text", text)
        self.find("speak").click()
        self.wait(lambda: len(self.all("#takes li")) > before)
        self.wait(lambda: self.all("#takes [title='Download WAV']")[0].is_enabled())

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
def opened(browser: Any, host: Host) -> Visitor:
    """A page that is loaded once, from the site's first page, and one sentence spoken."""
    visitor = Visitor(browser, host)
    visitor.come_from_the_first_page()
    visitor.speak(TEXT)
    return visitor


@pytest.fixture
def visitor(opened: Visitor) -> Visitor:
    """Somebody who has heard a sentence, whichever test comes first: processes take tests from each other."""
    opened.wait(lambda: not opened.all("#takes .play[aria-pressed=true]"))
    opened.browser.get_log("browser")
    opened.run("document.getElementById('pronunciations').open = true")
    return opened


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


def test_a_take_plays_again_from_where_one_seeks(visitor: Visitor) -> None:
    position = "return Number(document.querySelector('#takes input').value)"
    visitor.run(
        "const bar = document.querySelector('#takes input'); bar.value = 0.2; bar.dispatchEvent(new Event('input'))"
    )
    assert visitor.run(position) == 0.2
    visitor.all("#takes .play")[0].click()
    visitor.wait(lambda: visitor.run(position) > 0.4)
    visitor.all("#takes .play")[0].click()
    assert visitor.run(position) > 0.4 and not visitor.all("#takes .play[aria-pressed=true]")


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
    visitor.run(FORGET_READER)
    visitor.run("localStorage.clear()")
    asked = len(visitor.host.asked)
    visitor.find("record").click()
    visitor.wait(lambda: visitor.find("time").text.startswith("0:05"))
    visitor.find("record").click()
    visitor.type("name", "Reader")
    visitor.agree()
    started = time.monotonic()
    visitor.find("clone").click()
    visitor.wait(lambda: "can speak now" in visitor.status)
    print(f"cloned in {time.monotonic() - started:.1f} s")
    assert visitor.find("chosen").text == "with the voice Reader"
    assert visitor.run(NOTES) == {}
    visitor.speak("Hello from a clone.")
    visitor.run(KEEP_READER)
    voices = json.loads(visitor.run("return localStorage.getItem('marstts-voices')"))
    kept = {voice["name"]: set(voice["embeddings"]) for voice in voices}
    assert kept["Reader"] == {"identity", "style", "timbre"}
    assert visitor.run("return indexedDB.databases().then((all) => all.length)") == 0
    assert without_update_checks(visitor.host.asked[asked:]) == []


def test_problems_are_one_sentence(visitor: Visitor) -> None:
    visitor.run("window.given = navigator.mediaDevices.getUserMedia")
    deny = "navigator.mediaDevices.getUserMedia = () => Promise.reject(new DOMException('', arguments[0]))"
    for name, said in (("NotAllowedError", "does not allow the microphone"), ("NotFoundError", "No microphone")):
        visitor.run(deny, name)
        visitor.find("record").click()
        visitor.wait(lambda said=said: said in visitor.status, refused=True)
    visitor.run("navigator.mediaDevices.getUserMedia = window.given")
    for text, said in (("☃ ☃", "nothing to speak"), ("[voice: nobody] Hello.", "no voice called nobody")):
        visitor.type("text", text)
        visitor.find("speak").click()
        visitor.wait(lambda said=said: said in visitor.status, refused=True)
        assert "\n" not in visitor.status
    visitor.find("dismiss").click()


def test_everything_has_a_name_and_fits_a_phone(visitor: Visitor) -> None:
    """With the longest words, too: in the text, in the list of pronunciations, in a voice's name, in a message."""
    word = "Pneumono" * 30
    visitor.type("text", f"{word} called.")
    visitor.wait(lambda: visitor.run("return document.querySelector('#readings button')?.textContent.length > 200"))
    visitor.run("document.querySelector('#readings button').click()")
    name = "X" * 64
    visitor.run(ADD_VOICE, name)
    visitor.wait(lambda: name in visitor.find("chosen").text)
    visitor.run("import('./dom.js').then(({ show }) => show('W'.repeat(300)))")
    visitor.wait(lambda: "WWW" in visitor.status)
    assert visitor.run(UNNAMED) == []
    assert visitor.run("return document.querySelectorAll('#takes li').length") > 0
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    visitor.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        assert visitor.run("return document.documentElement.scrollWidth") <= 390
        assert visitor.run(OUTSIDE) == []
    finally:
        visitor.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        visitor.find("dismiss").click()
        visitor.find("say-reset").click()
        visitor.run(f"document.querySelector('[aria-label=\"Delete {name}\"]').click()")


def test_names_of_controls_are_those_that_a_screen_reader_says(visitor: Visitor) -> None:
    """As Chromium computes them for assistive technology."""
    visitor.browser.execute_cdp_cmd("Accessibility.enable", {})
    nodes = visitor.browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    said = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in nodes
        if not node.get("ignored") and node.get("role", {}).get("value") in CONTROLS
    ]
    assert all(name.strip() for _, name in said), said
    for one in (
        ("textbox", "Text"), ("button", "Speak"), ("button", "Another version"), ("radiogroup", "Voice"),
        ("button", "Record"), ("button", "Choose a file"), ("textbox", "Name of the voice"),
        ("checkbox", "The speaker agreed to this voice being cloned."), ("button", "Clone"), ("button", "Play"),
        ("button", "Remove this take"), ("slider", "Position in seconds"),
    ):  # fmt: skip
        assert one in said, (one, said)


def test_the_tabulator_reaches_all_controls_in_their_order_and_shows_where_it_is(visitor: Visitor) -> None:
    from selenium.webdriver import ActionChains

    reached: list[int] = []
    unseen = []
    for _ in range(120):
        ActionChains(visitor.browser).send_keys(TABULATOR).perform()
        place, name, is_seen = visitor.run(FOCUSED)
        if place in reached[:-1]:
            break
        if place >= 0 and place not in reached:  # else it is at the page's end, or inside of an audio element
            reached.append(place)
            unseen += [] if is_seen else [name]
    assert unseen == []
    assert visitor.run(NOT_REACHED, reached) == []
    first = reached.index(min(reached))
    assert reached[first:] + reached[:first] == sorted(reached)


def test_the_focus_stays_where_a_control_goes_away(visitor: Visitor) -> None:
    visitor.run(ADD_VOICE, "Berta")
    visitor.wait(lambda: "Berta" in visitor.find("chosen").text)
    focused = "return document.activeElement.ariaLabel ?? document.activeElement.id"
    for _ in range(2):
        visitor.browser.find_element("css selector", "[aria-label$='Berta in this browser']").send_keys(ENTER)
        visitor.wait(lambda: "Berta in this browser" in visitor.run(focused))
    visitor.browser.find_element("css selector", "[aria-label='Delete Berta']").send_keys(ENTER)
    visitor.wait(lambda: visitor.run(focused).startswith("voice-"))
    visitor.type("text", "Nguyen called.")
    word = "[...document.querySelectorAll('#readings button')].find((each) => each.textContent.startsWith('Nguyen'))"
    visitor.wait(lambda: visitor.run(f"return {word} !== undefined"))
    visitor.run(f"{word}.click()")
    assert visitor.run(focused) == "say"
    visitor.find("say-reset").send_keys(ENTER)
    visitor.wait(lambda: visitor.run(f"return document.activeElement === {word}"))
    visitor.speak("Good.")
    count = len(visitor.all("#takes li"))
    visitor.all("[aria-label='Remove this take']")[0].send_keys(ENTER)
    visitor.wait(lambda: len(visitor.all("#takes li")) == count - 1)
    assert visitor.run("return document.activeElement !== document.body")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_stand_out_in_light_and_dark(visitor: Visitor, scheme: str) -> None:
    emulate = visitor.browser.execute_cdp_cmd
    emulate("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    try:
        found = visitor.run(CONTRASTS)
        assert len(found) > 25
        assert [each for each in found if each[1] < 4.5] == []
        ink, page = visitor.run(
            "const { color, backgroundColor } = getComputedStyle(document.body);"
            "return [color, backgroundColor].map((one) => Number(one.match(/\\d+/)[0]))"
        )
        assert (ink > page) == (scheme == "dark")
    finally:
        emulate("Emulation.setEmulatedMedia", {"features": []})


STOP_AT_THE_NEXT_TAKE = """
window.stopped_at_a_take = false;
new MutationObserver((changes, observer) => {
  if (!changes.some(({ addedNodes }) => addedNodes.length)) return;
  observer.disconnect();
  document.getElementById('stop').click();
  window.stopped_at_a_take = true;
}).observe(document.getElementById('takes'), { childList: true });
"""
"""In the page itself: a fast processor has the first audio before the driver could ask for a stop."""


def test_what_is_stopped_before_its_first_audio_leaves_no_take(visitor: Visitor) -> None:
    """At once, while its text is read, and while its first patches are made."""
    before = len(visitor.all("#takes li"))
    set_text = "document.getElementById('text').value = arguments[0]; document.getElementById('speak').click();"
    stop = "document.getElementById('stop').click();"
    visitor.run(set_text + stop, "One two three.")
    visitor.run(set_text, "One two three four five. " * 700)
    visitor.wait(lambda: visitor.find("stop").is_displayed())
    assert len(visitor.all("#takes li")) == before, "it is still read"
    visitor.run(stop)
    visitor.wait(lambda: not visitor.find("stop").is_displayed())
    visitor.run(STOP_AT_THE_NEXT_TAKE + set_text, "One two three.")
    visitor.wait(lambda: visitor.run("return window.stopped_at_a_take"))
    visitor.wait(lambda: not visitor.find("stop").is_displayed() and len(visitor.all("#takes li")) == before)
    visitor.speak("Now it speaks.")
    assert len(visitor.all("#takes li")) == before + 1


def test_a_recording_of_many_minutes_is_refused_before_it_is_decoded(visitor: Visitor, tmp_path: Path) -> None:
    write(Waveform(np.zeros(8_000 * 660, np.float32), 8_000), tmp_path / "long.wav")
    visitor.find("file").send_keys(str(tmp_path / "long.wav"))
    visitor.type("name", "   ")
    visitor.agree()
    visitor.find("clone").click()
    visitor.wait(lambda: "a name" in visitor.status, refused=True)
    visitor.type("name", "Long")
    visitor.find("clone").click()
    visitor.wait(lambda: "longer than 10 minutes" in visitor.status, refused=True)
    visitor.find("dismiss").click()


def test_keys_alone_speak_and_stop(visitor: Visitor) -> None:
    before = len(visitor.all("#takes li"))
    visitor.type("text", "One two three four five six seven eight nine ten, and so on until it is stopped. " * 20)
    visitor.find("text").send_keys("\ue009\ue007")  # Ctrl+Enter
    visitor.wait(lambda: len(visitor.all("#takes li")) > before and visitor.find("stop").is_displayed())
    visitor.find("text").send_keys("\ue00c")  # Escape
    visitor.wait(lambda: not visitor.find("stop").is_displayed())
    assert not visitor.is_refused


def test_a_second_visit_needs_no_host_and_may_use_threads(visitor: Visitor, browser: Any, host: Host) -> None:
    visitor.run(ADD_VOICE, "Reader")
    visitor.wait(lambda: "Reader" in visitor.find("chosen").text)
    visitor.run(KEEP_READER)
    host.stop()
    asked = len(host.asked)
    visitor.run(STORE_OTHERS)
    visitor.open(ready="speaking")
    assert len(host.asked) == asked
    assert visitor.run("return crossOriginIsolated") is (os.name == "posix")
    assert [each for each in visitor.all(".voice") if "Reader" in each.text and "kept" in each.text]
    assert visitor.find("voice-Reader").is_selected(), "what other pages of the host wrote is no voice"
    assert not visitor.find("voice-Old").is_enabled() and visitor.all("[aria-label='Delete Old']")
    assert visitor.run("return document.querySelectorAll('.voice').length") == visitor.run(
        "return import('./voice-list.js').then(({ allVoices }) => Object.keys(allVoices()).length)"
    ) + 1  # fmt: skip
    visitor.speak("Hello again.")
    visitor.run("localStorage.clear()")
