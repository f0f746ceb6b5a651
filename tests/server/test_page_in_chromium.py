"""The page in a real browser with a fake microphone: speak, listen, download, open, record, clone, delete."""

from __future__ import annotations

import base64
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from api_server import LiveServer, live_server, wait_until
from test_page import epub

from marstts.audio import Waveform, read, resample, write
from marstts.http.server import Server
from marstts.server.app import create_app
from marstts.server.settings import ServeSettings
from marstts.synthesis.loading import load
from scripted import LOUD, SILENT, ScriptedPrompt, ScriptedTake, good, scripted_synthesizer

pytestmark = [pytest.mark.slow, pytest.mark.end_to_end]

SWITCHES = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--mute-audio", "--disable-dev-shm-usage",
    "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-extensions",
    "--disable-sync", "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream",
    "--autoplay-policy=no-user-gesture-required",
)  # fmt: skip
SPOKEN_BY_THE_MICROPHONE = Path(__file__).parents[1] / "audio" / "sense-0930.flac"
RATE = 24_000
TEXT = "Dr. Ray paid $5 today. Nobody called."
WAIT_SECONDS = 60.0
CONTROL, ENTER, ESCAPE = "\ue009", "\ue007", "\ue00c"
"""Keys, as WebDriver names them."""

DROP = """
const bytes = Uint8Array.from(atob(arguments[2]), (letter) => letter.charCodeAt(0));
const dataTransfer = new DataTransfer();
dataTransfer.items.add(new File([bytes], arguments[1]));
const drop = new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true });
document.getElementById(arguments[0]).dispatchEvent(drop);
"""
NOTE_MARKED_WORDS = """
window.marked = [];
new MutationObserver(() => {
  const word = document.querySelector("#mirror .word")?.textContent;
  if (word && window.marked.at(-1) !== word) window.marked.push(word);
}).observe(document.getElementById("mirror"), { childList: true });
"""
STOP_IN_PART_2 = """
const offer = document.getElementById("continue");
new MutationObserver(() => {
  if (offer.textContent === "Continue in part 2") document.getElementById("stop").click();
}).observe(offer, { childList: true });
"""
ANSWER_WITH = """
const body = JSON.stringify({ error: { message: arguments[1] } });
window.fetch = async () => new Response(body, { status: arguments[0], headers: arguments[2] });
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    settings = ServeSettings(voices_folder=tmp_path_factory.mktemp("voices"))
    with live_server(load("mini"), settings) as server:
        yield server


@pytest.fixture(scope="module")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory, downloads: Path):
    """Chromium with a microphone that plays three seconds of a reader, again and again."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    from selenium.webdriver.chrome.service import Service

    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("needs chromium and chromedriver: apt-get install chromium chromium-driver")
    folder = tmp_path_factory.mktemp("chromium")
    speech = resample(read(SPOKEN_BY_THE_MICROPHONE), RATE)
    write(Waveform(np.append(speech.samples, np.zeros(RATE // 2, np.float32)), RATE), folder / "microphone.wav")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for switch in (
        *SWITCHES,
        f"--use-file-for-fake-audio-capture={folder / 'microphone.wav'}",
        f"--user-data-dir={folder / 'profile'}",
    ):
        options.add_argument(switch)
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield browser
    finally:
        browser.quit()


class PageUser:
    """Types and presses buttons, and reads the page."""

    def __init__(self, browser, server: LiveServer, path: str = "/") -> None:
        self.browser, self.address = browser, f"{server.address}{path}"
        self.open()

    def open(self) -> None:
        self.browser.get(self.address)
        self.wait(lambda: len(self.all(".voice")) >= 8)

    def find(self, name: str):
        return self.browser.find_element("id", name)

    def all(self, css: str) -> list[Any]:
        return self.browser.find_elements("css selector", css)

    def run(self, script: str, *arguments: object) -> Any:
        return self.browser.execute_script(script, *arguments)

    def press(self, css: str) -> None:
        """Press what a label or a name of a class finds, as the keyboard does."""
        self.run("arguments[0].click()", self.all(css)[0])

    def press_label(self, label: str) -> None:
        self.press(f"[aria-label='{label}']")

    def type(self, name: str, text: str) -> None:
        self.find(name).clear()
        self.find(name).send_keys(text)

    def set(self, name: str, value: object) -> None:
        """Set a slider or a number."""
        field = self.find(name)
        script = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input', { bubbles: true }))"
        self.run(script, field, str(value))

    def drop(self, name: str, file_name: str, content: bytes) -> None:
        self.run(DROP, name, file_name, base64.b64encode(content).decode())

    def wait(self, condition: Callable[[], object]) -> None:
        started = time.monotonic()
        while not condition():
            assert time.monotonic() < started + WAIT_SECONDS, f"waited in vain; the page says {self.status!r}"
            time.sleep(0.05)

    def speak(self, text: str = TEXT) -> None:
        """Speak, and wait until all is generated."""
        self.type("text", text)
        self.find("speak").click()
        self.wait_until_generated()

    def wait_until_generated(self) -> None:
        self.wait(lambda: self.all("#takes li") and self.button("WAV").is_enabled())

    def button(self, label: str, take: int = 0):
        """A button of a take; the newest take is 0."""
        return self.all(f"#takes [title='Download {label}']")[take]

    @property
    def is_playing(self) -> bool:
        return bool(self.all("#takes .play[aria-pressed=true]"))

    @property
    def position(self) -> float:
        """Second of the newest take that plays."""
        return float(self.all("#takes input")[0].get_attribute("value"))

    @property
    def status(self) -> str:
        return self.find("status").text


@pytest.fixture
def user(browser, server: LiveServer, downloads: Path) -> Iterator[PageUser]:
    for path in downloads.iterdir():
        path.unlink()
    browser.get_log("browser")  # what earlier pages met is taken out
    browser.execute_cdp_cmd("Storage.clearDataForOrigin", {"origin": server.address, "storageTypes": "local_storage"})
    user = PageUser(browser, server)
    yield user
    browser.get("about:blank")
    for voice in uploaded(server):
        httpx.delete(f"{server.address}/v1/audio/voices/{voice['id']}")


def uploaded(server: LiveServer) -> list[dict[str, Any]]:
    """The cloned voices."""
    voices = httpx.get(f"{server.address}/v1/audio/voices").json()["voices"]
    return [voice for voice in voices if "kind" in voice]


def downloaded(folder: Path, suffix: str, start: str = "") -> Path:
    """The file of this suffix, and beginning, that was downloaded last, when it is complete."""
    started = time.monotonic()
    while not (found := [path for path in folder.glob(f"{start}*.{suffix}") if path.stat().st_size]):
        assert time.monotonic() < started + WAIT_SECONDS
        time.sleep(0.05)
    return max(found, key=lambda path: path.stat().st_mtime)


def as_wav(samples: np.ndarray, path: Path) -> bytes:
    write(Waveform(samples.astype(np.float32), RATE), path)
    return path.read_bytes()


def test_speech_can_be_downloaded_as_soon_as_it_is_generated(user: PageUser, server: LiveServer, downloads: Path):
    user.speak("Hello there. Nobody answered.")
    for label in ("WAV", "SRT", "MP3"):
        user.button(label).click()
    wav, mp3 = read(downloaded(downloads, "wav")), read(downloaded(downloads, "mp3"))
    spoken = server.service.synthesizer.stream("Hello there. Nobody answered.", "ada")
    np.testing.assert_allclose(wav.samples, np.concatenate([chunk.samples for chunk in spoken]), atol=1e-3)
    assert abs(mp3.seconds - wav.seconds) < 0.2
    assert "Nobody answered." in downloaded(downloads, "srt").read_text()
    assert [entry for entry in user.browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_the_words_that_play_are_marked_as_they_are_written(user: PageUser):
    user.run(NOTE_MARKED_WORDS)
    user.speak()
    user.wait(lambda: not user.is_playing)
    marked, words = user.run("return window.marked"), TEXT.split()
    assert [word for word in words if word in marked] == marked and len(marked) >= len(words) / 2, marked
    assert not user.all("#mirror .word"), "no mark stays at the end"


def test_a_click_on_a_word_plays_from_there(user: PageUser):
    user.speak()
    user.wait(lambda: user.is_playing or user.position == 0)
    if not user.is_playing:
        user.press("#takes .play")
    for word in ("called", "$5"):
        user.run("document.getElementById('text').setSelectionRange(arguments[0], arguments[0])", TEXT.index(word) + 1)
        user.press("#text")
        user.wait(lambda: not user.is_playing or user.position > 0)
        marked = user.run("return [...document.querySelectorAll('#mirror .word')].map(mark => mark.textContent)")
        assert not marked or TEXT.index(marked[0]) >= TEXT.index(word)


def test_takes_are_listed_and_each_can_be_played_sought_and_removed(user: PageUser):
    user.speak()
    user.find("again").click()
    user.wait(lambda: len(user.all("#takes li")) == 2)
    user.wait_until_generated()
    user.find("text").send_keys(ESCAPE)
    about = [take.text for take in user.all("#takes .about")]
    assert "version 2" in about[0] and "version 1" in about[1]
    user.run(
        "const bar = document.querySelector('#takes input'); bar.value = 0.5; bar.dispatchEvent(new Event('input'))"
    )
    assert user.position == 0.5 and not user.is_playing
    user.press("#takes .play")
    user.wait(lambda: user.is_playing and user.position > 0.5)
    user.press("#takes .play")
    assert not user.is_playing and user.position > 0.5, "it continues from there the next time"
    user.press_label("Remove this take")
    assert len(user.all("#takes li")) == 1 and "version 1" in user.all("#takes .about")[0].text


def test_a_stopped_take_can_be_downloaded(user: PageUser, server: LiveServer):
    user.type("text", "This is a long text that goes on for a while. " * 8)
    user.find("speak").click()
    user.wait(lambda: user.is_playing and user.position > 0)
    user.find("stop").click()
    user.wait(lambda: server.service.admission.num_active == 0 and not user.is_playing)
    assert "stopped" in user.all("#takes .about")[0].text and user.button("WAV").is_enabled()
    assert not user.find("stop").is_displayed() and not user.all("#mirror .word")


def test_speed_shortens_the_speech(user: PageUser):
    lengths = []
    for speed in (1, 1.5):
        user.set("speed", speed)
        user.speak("Hello there, nobody answered.")
        lengths.append(float(user.all("#takes input")[0].get_attribute("max")))
    assert lengths[1] == pytest.approx(lengths[0] / 1.5, rel=0.1)


def test_the_keyboard_speaks_and_stops(user: PageUser):
    user.type("text", "This is a long text that goes on for a while. " * 8)
    user.find("text").send_keys(CONTROL + ENTER)
    user.wait(lambda: user.is_playing)
    user.find("text").send_keys(ESCAPE)
    user.wait(lambda: not user.is_playing)


def test_text_and_settings_are_kept_over_a_reload_and_recordings_are_not(user: PageUser):
    user.type("text", "Kept over a reload.")
    user.set("speed", 1.25)
    user.set("version", 7)
    user.press("#voice-emma")
    user.find("record").click()
    user.wait(lambda: user.find("time").text >= "0:01")
    user.find("record").click()
    user.wait(lambda: user.find("recordings").is_displayed())
    user.open()
    values = [user.find(name).get_attribute("value") for name in ("text", "speed", "version")]
    assert values == ["Kept over a reload.", "1.25", "7"] and user.find("voice-emma").is_selected()
    assert not user.find("recordings").is_displayed()
    assert user.run("return Object.keys(localStorage).length") == 1
    assert len(user.run("return localStorage.getItem('marstts')")) < 200


def test_a_voice_has_a_preview(user: PageUser):
    name = "linda"
    user.press_label(f"Preview {name}")
    user.wait(lambda: user.all(f"[aria-label='Stop {name}']"))
    user.press_label(f"Stop {name}")
    assert user.all(f"[aria-label='Preview {name}']") and not user.all("#takes li")


def test_texts_and_books_can_be_dropped(user: PageUser):
    book = "Chapter 1\n\nA day.\n\nChapter 2\n\nB."
    for name, content, parts, text in (
        ("notes.txt", b"The clocks were striking.", [], "The clocks were striking."),
        ("book.epub", epub(), ["Morning", "Evening"], "Morning\n\nThe clocks were striking."),
        ("a.txt", book.encode(), ["Chapter 1", "Chapter 2"], "Chapter 1\n\nA day."),
    ):
        user.drop("editor", name, content)
        user.wait(lambda text=text: user.find("text").get_attribute("value") == text)
        assert user.find("book").is_displayed() == bool(parts)
        assert not parts or [option.text for option in user.all("#part option")] == parts


PASTED = "The clocks struck, and nobody in the long street answered. " * 180
"""10,620 characters."""


def shown_parts(user: PageUser) -> list[str]:
    """The text of each part of the open book, as it is shown."""
    texts = []
    for index in range(len(user.all("#part option"))):
        show_part(user, index)
        texts.append(user.find("text").get_attribute("value"))
    return texts


def show_part(user: PageUser, index: int) -> None:
    script = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('change'))"
    user.run(script, user.find("part"), str(index))


def paste(user: PageUser, text: str) -> None:
    """Put a text in the place of the selection, as a paste does."""
    user.run(
        """document.getElementById("text").focus();
        document.getElementById("text").dispatchEvent(new ClipboardEvent("paste", { bubbles: true }));
        document.execCommand("insertText", false, arguments[0]);""",
        text,
    )


def test_a_pasted_text_of_any_length_is_divided_and_no_word_is_lost(user: PageUser):
    user.run("document.getElementById('text').select()")
    paste(user, PASTED)
    user.wait(lambda: user.find("book").is_displayed())
    parts = shown_parts(user)
    assert len(parts) == 3 and all(len(part) <= 4096 for part in parts)
    assert " ".join(parts).split() == PASTED.split() and "3 parts" in user.status


def test_a_long_text_pasted_into_a_book_goes_into_its_part(user: PageUser):
    user.drop("editor", "a.txt", b"Chapter 1\n\nA day.\n\nChapter 2\n\nB.")
    user.wait(lambda: len(user.all("#part option")) == 2)
    show_part(user, 1)
    user.run("document.getElementById('text').setSelectionRange(1e6, 1e6)")
    paste(user, " " + PASTED)
    user.wait(lambda: len(user.all("#part option")) > 2)
    parts = shown_parts(user)
    assert parts[0] == "Chapter 1\n\nA day." and parts[1].startswith("Chapter 2\n\nB.")
    assert " ".join(parts[1:]).split() == ["Chapter", "2", "B.", *PASTED.split()]


def test_another_text_in_the_place_of_all_closes_the_book(user: PageUser):
    user.drop("editor", "book.epub", epub())
    user.wait(lambda: user.find("book").is_displayed())
    user.run("document.getElementById('text').select()")
    paste(user, "Another text.")
    assert not user.find("book").is_displayed()
    assert user.find("text").get_attribute("value") == "Another text."


def test_a_whole_book_is_spoken_and_downloaded_as_one_file(user: PageUser, downloads: Path):
    user.drop("editor", "book.epub", epub())
    user.wait(lambda: user.find("book").is_displayed())
    user.run("document.getElementById('text').setSelectionRange(1e6, 1e6)")
    user.find("text").send_keys(" An added word.")
    show_part(user, 1)
    user.press("#speak-all")
    user.wait(lambda: user.find("part").get_attribute("value") == "0")
    user.wait(lambda: user.find("part").get_attribute("value") == "1")  # the page is turned
    user.wait_until_generated()
    assert "A Small Book, 2 parts" in user.all("#takes .about")[0].text
    for label in ("WAV", "SRT", "MP3"):
        user.button(label).click()
    wav, srt = read(downloaded(downloads, "wav", "a-small-book")), downloaded(downloads, "srt", "a-small-book")
    assert abs(read(downloaded(downloads, "mp3", "a-small-book")).seconds - wav.seconds) < 0.3
    captions = re.sub(r"\s+", " ", re.sub(r"\d+\n[\d:,]+ --> [\d:,]+\n", "", srt.read_text()))
    assert captions.index("striking") < captions.index("added") < captions.index("answered")
    last_end = [
        float(m) for m in re.findall(r"--> 00:00:(\d+,\d+)".replace(",", "."), srt.read_text().replace(",", "."))
    ]
    assert wav.seconds / 2 < last_end[-1] <= wav.seconds


def test_the_reading_of_a_book_goes_on_after_a_stop_and_a_reload(browser, tmp_path: Path):
    with live_server(scripted_synthesizer(good), ServeSettings(voices_folder=tmp_path)) as server:
        user = PageUser(browser, server)
        text = "\n\n".join(f"Chapter {number}\n\nThe ship left at dawn." for number in (1, 2, 3))
        user.drop("editor", "a.txt", text.encode())
        user.wait(lambda: len(user.all("#part option")) == 3)
        assert not user.find("continue").is_displayed()
        user.run(STOP_IN_PART_2)
        user.press("#speak-all")
        user.wait(lambda: user.find("continue").text == "Continue in part 2" and not user.is_playing)
        user.open()  # again
        user.wait(lambda: user.find("continue").is_displayed())
        assert [option.text for option in user.all("#part option")] == ["Chapter 1", "Chapter 2", "Chapter 3"]
        user.press("#continue")
        user.wait_until_generated()
        user.wait(lambda: not user.find("continue").is_displayed())  # it was read to its end
        assert "2 parts" in user.all("#takes .said")[0].text and user.find("part").get_attribute("value") == "2"
        browser.get("about:blank")


def test_a_place_of_another_book_is_not_offered(user: PageUser):
    user.run("localStorage.setItem('marstts-place', JSON.stringify({ title: 'Another', part: 1, from: 3 }))")
    user.drop("editor", "book.epub", epub())
    user.wait(lambda: user.find("book").is_displayed())
    assert not user.find("continue").is_displayed()
    user.run("localStorage.setItem('marstts-place', JSON.stringify({ title: 'A Small Book', part: 1, from: 1e9 }))")
    user.open()
    user.wait(lambda: user.find("continue").is_displayed())
    user.press("[aria-label='Close the book']")
    user.open()
    assert not user.find("book").is_displayed()


def test_a_part_that_cannot_be_spoken_is_passed_over_in_a_book(user: PageUser):
    user.drop("editor", "a.txt", b"Chapter 1\n\nA day.\n\nChapter 2\n\nB.\n\nChapter 3\n\nC.")
    user.wait(lambda: len(user.all("#part option")) == 3)
    show_part(user, 1)
    user.type("text", "***")
    user.press("#speak-all")
    user.wait_until_generated()
    assert user.all("#takes p.warning")[0].text.startswith("Chapter 2: ")
    assert "cut off" not in user.all("#takes .about")[0].text


def test_a_flawed_sentence_can_be_said_again(browser, tmp_path: Path, downloads: Path):
    is_flawed = threading.Event()
    is_flawed.set()

    def second_is_silent(attempt: int, prompt: ScriptedPrompt) -> ScriptedTake:
        if "dog" in prompt.text:
            return ScriptedTake(25, SILENT if is_flawed.is_set() else LOUD)
        return ScriptedTake(20)

    settings = ServeSettings(voices_folder=tmp_path / "voices")
    with live_server(scripted_synthesizer(second_is_silent), settings) as server:
        user = PageUser(browser, server)
        user.speak("the cat sat on the mat. the dog sat on the rug. the bird sat on the roof.")
        assert len(user.all(".flaws button")) == 1
        assert "the dog sat on the rug" in user.all(".flaws .warning")[0].text
        length = float(user.all("#takes input")[0].get_attribute("max"))
        user.press(".flaws button")
        user.wait(lambda: user.all(".flaws button:enabled"))
        assert len(user.all(".flaws button")) == 1, "it is flawed again"
        is_flawed.clear()
        user.press(".flaws button")
        user.wait(lambda: not user.all(".flaws button"))
        user.button("WAV").click()
        heard = read(downloaded(downloads, "wav", "the-cat-sat-on"))
        assert heard.seconds == pytest.approx(length, abs=0.5)
        window = heard.samples[: len(heard.samples) // 20 * 20].reshape(20, -1)
        assert (np.abs(window).max(axis=1) > 0.05).mean() > 0.8, "no sentence is silent"
        browser.get("about:blank")


class BelowAPath:
    """Passes on what is below /tts/, without this, as a proxy does; it has nothing at other addresses."""

    def __init__(self, app) -> None:
        self.app = app

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] == "http":
            inside = scope["path"].startswith("/tts/")
            scope = scope | {"path": scope["path"].removeprefix("/tts") if inside else "/nothing"}
        await self.app(scope, receive, send)


def test_the_page_works_below_a_path_of_a_proxy(browser, tmp_path: Path):
    app = create_app(scripted_synthesizer(good), ServeSettings(voices_folder=tmp_path / "voices"))

    app.add_middleware(BelowAPath)
    with Server(app, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve)
        thread.start()
        wait_until(lambda: server.server.started or not thread.is_alive())
        try:
            browser.get_log("browser")  # entries of the pages before
            user = PageUser(browser, LiveServer(server.address.rstrip("/"), app.state.service), "/tts/")
            user.speak("the cat sat on the mat.")
            assert f"{server.address}tts/v1/audio/speech" in user.find("curl").get_attribute("textContent")
            user.find("record").click()
            user.wait(lambda: user.find("time").text != "")
            user.find("record").click()
            user.wait(lambda: user.find("recordings").is_displayed())
            assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
            browser.get("about:blank")
        finally:
            server.stop()
            thread.join(timeout=20)
            app.state.service.close()


def test_a_dropped_file_that_is_no_text_is_refused_and_the_text_stays(user: PageUser):
    user.type("text", "It stays.")
    user.drop("editor", "photo.png", b"\x89PNG\r\n\x1a\n\0\0\0\0")
    user.wait(lambda: user.status.startswith("photo.png"))
    assert user.find("text").get_attribute("value") == "It stays."


def test_what_is_read_otherwise_is_shown_beside_the_text(user: PageUser):
    user.type("text", TEXT)
    user.wait(lambda: len(user.all("#readings div")) == 2)
    rows = user.run(
        "return [...document.querySelectorAll('#readings div')].map(r => [...r.children].map(c => c.textContent))"
    )
    assert rows == [["Dr.", "Doctor"], ["$5", "five dollars"]]
    assert [mark.get_attribute("textContent") for mark in user.all("#mirror .otherwise")] == ["Dr.", "$5"]


def record(user: PageUser, seconds: float) -> None:
    user.find("record").click()
    user.wait(lambda: user.find("time").text != "" and float(user.find("level").get_attribute("value")) > 0.02)
    time.sleep(seconds)
    user.find("record").click()
    user.wait(lambda: user.find("recordings").is_displayed())


def clone(user: PageUser, name: str) -> None:
    user.type("name", name)
    user.type("consent", "I recorded my own voice.")
    user.press("#agreed")
    user.find("clone").click()
    user.wait(lambda: "can speak now" in user.status)


def test_a_recording_is_cloned_by_its_sound_alone(user: PageUser, server: LiveServer):
    record(user, 3.0)
    assert user.find("advice").text.startswith("Good") and not user.find("level").is_displayed()
    user.type("name", "Anna")
    user.type("consent", "I recorded my own voice.")
    user.find("clone").click()
    assert not uploaded(server), "the box of consent is not checked"
    clone(user, "Anna")
    [voice] = uploaded(server)
    assert (voice["name"], voice["kind"], voice["consent"]) == ("Anna", "shallow", "I recorded my own voice.")
    assert user.find(f"voice-{voice['id']}").is_selected()


def test_a_recording_of_other_words_than_the_transcript_costs_nothing(user: PageUser, server: LiveServer):
    record(user, 3.0)
    user.press("#deep")
    assert user.find("transcript").get_attribute("value") == user.find("prompt").text
    clone(user, "Anna")
    [voice] = uploaded(server)
    assert voice["kind"] == "shallow" and "not found with certainty" in user.status


def test_a_recording_with_its_own_words_is_a_deep_clone(user: PageUser, server: LiveServer, tmp_path: Path):
    words = "The ship left the harbor at dawn."
    samples = server.service.synthesizer.speak(words, "kal").samples
    user.drop("clone-form", "kal.wav", as_wav(samples, tmp_path / "kal.wav"))
    user.wait(lambda: user.find("recordings").is_displayed())
    user.press("#deep")
    user.type("transcript", words)
    clone(user, "Anna")
    [voice] = uploaded(server)
    assert voice["kind"] == "deep" and "not found" not in user.status


def test_a_bad_recording_is_named_at_once(user: PageUser, tmp_path: Path):
    speech = resample(read(SPOKEN_BY_THE_MICROPHONE), RATE).samples
    for gain, seconds, said in ((30.0, 3.0, "Too loud"), (0.02, 3.0, "Very quiet"), (1.0, 0.8, "Too short")):
        samples = np.clip(gain * speech, -1, 1)[: int(seconds * RATE)]
        user.drop("clone-form", "recording.wav", as_wav(samples, tmp_path / "recording.wav"))
        user.wait(lambda said=said: user.find("advice").text.startswith(said))


def test_a_file_that_is_no_recording_is_refused(user: PageUser):
    user.drop("clone-form", "notes.txt", b"The clocks were striking.")
    user.wait(lambda: user.status.startswith("notes.txt: expected a recording"))
    assert not user.find("recordings").is_displayed()


def test_deleting_a_voice_can_be_undone(user: PageUser, server: LiveServer, amiable: Waveform, tmp_path: Path):
    recording = {"audio_sample": as_wav(resample(amiable, RATE).samples, tmp_path / "anna.wav")}
    address = f"{server.address}/v1/audio/voices"
    voice = httpx.post(address, files=recording, data={"name": "Anna", "consent": "me"}, timeout=60).json()
    user.open()
    user.press_label("Delete Anna")
    assert not user.all("[aria-label='Delete Anna']")
    user.find("undo").click()
    assert user.all("[aria-label='Delete Anna']") and user.find(f"voice-{voice['id']}").is_selected()
    user.press_label("Delete Anna")
    user.browser.get("about:blank")  # it is deleted when the page is left
    user.wait(lambda: not uploaded(server))


def test_a_voice_can_be_renamed_with_the_keyboard(
    user: PageUser, server: LiveServer, amiable: Waveform, tmp_path: Path
):
    recording = {"audio_sample": as_wav(resample(amiable, RATE).samples, tmp_path / "anna.wav")}
    address = f"{server.address}/v1/audio/voices"
    voice = httpx.post(address, files=recording, data={"name": "Anna", "consent": "me"}, timeout=60).json()
    user.open()
    user.press(f"#voice-{voice['id']}")
    for typed, name in (("Berta" + ESCAPE, "Anna"), ("ada" + ENTER, "Anna"), ("Zoë B." + ENTER, "Zoë B.")):
        user.press_label("Rename Anna")
        user.browser.switch_to.active_element.send_keys(typed)
        if typed.startswith("ada"):
            user.wait(lambda: "choose another one" in user.status)
            user.press_label("Leave the name as it is")
        user.wait(lambda name=name: user.all(f"[aria-label='Rename {name}']"))
        assert [voice["name"] for voice in uploaded(server)] == [name]
        assert user.run("return document.activeElement.ariaLabel") == f"Rename {name}"
    assert user.find(f"voice-{voice['id']}").is_selected() and not user.all("[aria-label='Rename ada']")


def test_several_recordings_make_one_voice(user: PageUser, server: LiveServer, tmp_path: Path):
    speech = resample(read(SPOKEN_BY_THE_MICROPHONE), RATE).samples
    wavs = [as_wav(samples, tmp_path / "a.wav") for samples in (0.9 * speech, speech[::-1].copy(), speech[: RATE // 2])]
    for count, wav in enumerate(wavs, start=1):
        user.drop("clone-form", "recording.wav", wav)
        user.wait(lambda count=count: len(user.all("#recordings li")) == count)
    assert user.find("advice").text.startswith("Too short")
    user.press("#recordings li:last-child [aria-label='Remove this recording']")
    assert len(user.all("#recordings li")) == 2
    record(user, 3.0)
    assert len(user.all("#recordings li")) == 3
    user.press("#recordings li:nth-child(2) [aria-label='Remove this recording']")
    user.run(
        """window.sent = [];
        const send = window.fetch;
        window.fetch = (path, options) => {
          if (options?.body instanceof FormData) window.sent.push(options.body.getAll("audio_sample").length);
          return send(path, options);
        };"""
    )
    clone(user, "Anna")
    assert user.run("return window.sent") == [2] and not user.find("recordings").is_displayed()
    [voice] = uploaded(server)
    assert (voice["name"], voice["kind"]) == ("Anna", "shallow")


def test_a_recording_with_a_fault_is_replaced_by_the_next(user: PageUser, tmp_path: Path):
    speech = resample(read(SPOKEN_BY_THE_MICROPHONE), RATE).samples
    for samples, said in ((speech[: RATE // 2], "Too short"), (0.9 * speech, "Good")):
        user.drop("clone-form", "recording.wav", as_wav(samples, tmp_path / "recording.wav"))
        user.wait(lambda said=said: user.find("advice").text.startswith(said))
        assert len(user.all("#recordings li")) == 1


def test_an_error_is_one_sentence(user: PageUser):
    for status, message, headers, shown in (
        (400, "input: expected at most 9 characters.", {}, "Expected at most 9 characters."),
        (403, "This voice belongs to another key.", {}, "This voice belongs to another key."),
        (429, "The server is busy.", {"Retry-After": "7"}, "The server is busy. Try again in 7 s."),
        (507, "The server cannot keep this.", {}, "The server cannot keep this."),
        (502, None, {}, "The server answered with status 502."),
    ):
        user.run(ANSWER_WITH, status, message, headers)
        user.find("speak").click()
        user.wait(lambda shown=shown: user.status == shown)
        box = user.find("status").rect
        assert box["y"] + box["height"] <= user.run("return scrollY + innerHeight") and not user.all("#takes li")


def test_a_message_does_not_catch_the_clicks_of_what_it_covers(user: PageUser):
    user.run(ANSWER_WITH, 500, "Expected less.", {})
    user.find("speak").click()
    user.wait(lambda: "Expected less." in user.status)
    at_message = """const { x, y, height } = document.getElementById("toast").getBoundingClientRect();
        return document.elementFromPoint(x + 4, y + height / 2).closest("#toast") === null;"""
    assert user.run(at_message)
    user.find("dismiss").click()
    assert user.status == ""


def test_a_key_is_asked_for_and_used(user: PageUser):
    user.run(ANSWER_WITH, 401, "Expected an API key.", {})
    user.find("speak").click()
    user.wait(lambda: user.find("key-form").is_displayed())
    assert "type it at the top" in user.status
    user.run("""window.fetch = async (path, { headers }) => { window.sent = headers.Authorization;
        return new Response('{"voices": []}'); }""")
    user.type("key", "secret")
    user.press("#key-form button")
    user.wait(lambda: not user.find("key-form").is_displayed())
    assert user.run("return window.sent") == "Bearer secret"


def test_the_page_fits_its_window_in_light_and_dark(user: PageUser):
    emulate = user.browser.execute_cdp_cmd
    try:
        for width, num_columns, scheme in ((390, 1, "light"), (900, 2, "dark")):
            shape = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": True}
            emulate("Emulation.setDeviceMetricsOverride", shape)
            emulate("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
            assert user.run("return document.documentElement.scrollWidth") <= width
            lefts = {user.find(name).rect["x"] for name in ("speech-form", "clone-form")}
            assert len(lefts) == num_columns
            ink, page = (
                user.run(f"return getComputedStyle(document.body).{name}.match(/\\d+/g).map(Number)")
                for name in ("color", "backgroundColor")
            )
            assert (sum(ink) > sum(page)) == (scheme == "dark")
    finally:
        emulate("Emulation.clearDeviceMetricsOverride", {})
        emulate("Emulation.setEmulatedMedia", {"features": []})


def test_every_field_has_a_label_and_every_button_a_name(user: PageUser):
    unnamed = user.run(
        "return [...document.querySelectorAll('input, select, textarea, button')]"
        ".filter((e) => !(e.labels?.length || e.ariaLabel || e.textContent.trim())).map((e) => e.outerHTML)"
    )
    assert unnamed == []
