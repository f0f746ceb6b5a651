"""The page in a real browser with a fake microphone: choose, type, listen, download, record, clone, delete."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from api_server import LiveServer, live_server
from fastapi.testclient import TestClient

from marstts.audio import Waveform, read, write
from marstts.server.app import create_app
from marstts.server.page import TYPES
from marstts.server.settings import ServeSettings
from marstts.server.voice_store import NAME_CHARACTERS
from marstts.synthesis.loading import load

SWITCHES = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--mute-audio", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-extensions", "--disable-sync",
    "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream",
    "--autoplay-policy=no-user-gesture-required",
)  # fmt: skip
TRANSCRIPT = "he might even have been made amiable himself"
NOTE_MARKED_WORDS = """
window.marked = [];
new MutationObserver((changes) => {
  for (const { target } of changes) {
    const text = target.textContent;
    if (target.classList.contains("word") && window.marked.at(-1) !== text) window.marked.push(text);
  }
}).observe(document.getElementById("reading"), { subtree: true, attributes: true, attributeFilter: ["class"] });
"""
CLONED_TEXT = "The weather is going to be good in the morning."
DESKTOP, PHONE = (1100, 900), (390, 844)
WAIT_SECONDS = 60.0


def test_the_page_and_its_files_need_no_key_and_name_no_other_site(synthesizer):
    with TestClient(create_app(synthesizer, ServeSettings(api_keys=("secret",)))) as client:
        page = client.get("/")
        assert page.headers["content-type"].startswith("text/html")
        assert "<style" not in page.text and not re.search(r"<script(?![^>]*src=)|\son\w+=", page.text)
        for name, kind in TYPES.items():
            response = client.get(f"/page/{name}")
            assert response.status_code == 200 and response.headers["content-type"].startswith(kind.partition(";")[0])
            assert not re.search(r"(https?:)?//[a-z0-9-]+\.[a-z]", response.text)
        imported = re.findall(r'from "\./([\w.-]+)"', "".join(client.get(f"/page/{name}").text for name in TYPES))
        assert set(imported) <= set(TYPES)
        assert client.get("/page/nothing.js").status_code == 404


def test_the_fields_of_the_page_take_as_much_as_the_server_does(synthesizer):
    with TestClient(create_app(synthesizer, ServeSettings())) as client:
        found = dict(re.findall(r'id="(\w+)"[^>]* maxlength="(\d+)"', client.get("/").text))
    limits = ServeSettings().limits
    assert {name: int(length) for name, length in found.items()} == {
        "text": limits.input_characters,
        "transcript": limits.transcript_characters,
        "consent": limits.consent_characters,
        "name": NAME_CHARACTERS,
    }


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    with live_server(load("mini"), ServeSettings(voices_folder=tmp_path / "voices")) as server:
        yield server


@pytest.fixture
def browser(tmp_path: Path, reference: Waveform):
    """Chromium with a fake microphone that plays the reference from its start, again and again."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    from selenium.webdriver.chrome.service import Service

    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("needs chromium and chromedriver: apt-get install chromium chromium-driver")
    microphone = tmp_path / "microphone.wav"
    silence = np.zeros(reference.sample_rate, np.float32)
    write(Waveform(np.concatenate([reference.samples, silence]), reference.sample_rate), microphone)
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for switch in (*SWITCHES, f"--use-file-for-fake-audio-capture={microphone}"):
        options.add_argument(switch)
    options.add_experimental_option("prefs", {"download.default_directory": str(tmp_path)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield browser
    finally:
        browser.quit()


class PageUser:
    """Types and presses buttons, and reads the page."""

    def __init__(self, browser, server: LiveServer) -> None:
        self.browser = browser
        browser.get(server.address + "/")
        self.wait(lambda: len(self.find("voice").find_elements("tag name", "option")) > 0)

    def find(self, name: str):
        return self.browser.find_element("id", name)

    def wait(self, condition) -> None:
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.browser, WAIT_SECONDS, poll_frequency=0.05).until(lambda _: condition())

    def type(self, name: str, text: str) -> None:
        self.find(name).clear()
        self.find(name).send_keys(text)

    def press(self, name: str) -> None:
        from selenium.webdriver.common.keys import Keys

        self.find(name).send_keys(Keys.ENTER)

    @property
    def status(self) -> str:
        return self.find("status").text

    @property
    def sees_status(self) -> bool:
        """Whether the status lies within the window."""
        box = self.find("status").rect
        top = self.browser.execute_script("return scrollY")
        return box["y"] >= top and box["y"] + box["height"] <= top + self.browser.execute_script("return innerHeight")


def judge(spoken: Waveform, reference: Waveform) -> None:
    """Fail unless a recognizer finds the words, and the cloned voice is nearer to its reference than to others."""
    pytest.importorskip("pocketsphinx")
    pytest.importorskip("resemblyzer")
    from marstts.metrics.identity import Resemblyzer, compare_speakers, level
    from marstts.metrics.recognition import SphinxRecognizer, word_edits

    edits = word_edits(CLONED_TEXT.lower().rstrip(".").split(), SphinxRecognizer().transcribe(spoken))
    encoder, mini = Resemblyzer(), load("mini")
    others = [encoder.embed(level(mini.speak(CLONED_TEXT, name).waveform)) for name in ("ada", "kal", "emma")]
    compared = compare_speakers(encoder.embed(level(spoken)), encoder.embed(level(reference)), others)
    print(edits, compared)
    assert edits.errors <= edits.length / 2, edits
    assert compared.num_correct >= 2, compared


@pytest.mark.slow
def test_a_user_listens_clones_the_microphone_and_deletes_the_voice(
    browser, server: LiveServer, tmp_path: Path, reference: Waveform
):
    user = PageUser(browser, server)
    user.type("text", "Hello there.")
    user.press("speak")
    user.wait(lambda: user.find("download").is_displayed())
    assert "First audio after" in user.status
    assert user.find("reading").text.strip() == "Hello there."
    assert user.find("reading").find_element("class name", "playing").text == "Hello there."
    user.find("code").find_element("tag name", "summary").click()
    user.wait(lambda: "curl " in user.find("curl").text)
    assert '"input":"Hello there."' in user.find("curl").text and 'input="Hello there."' in user.find("python").text
    user.find("download").click()
    user.wait((tmp_path / "speech.wav").exists)
    downloaded = read(tmp_path / "speech.wav")
    spoken = np.concatenate([chunk.samples for chunk in server.service.synthesizer.stream("Hello there.", "ada")])
    np.testing.assert_allclose(downloaded.samples, spoken, atol=1e-4)
    user.press("record")
    user.wait(lambda: float(user.find("level").get_attribute("value") or 0) > 0.02)
    browser.execute_async_script("setTimeout(arguments[0], 3000)")
    user.press("record")
    user.wait(lambda: user.find("preview").is_displayed())
    user.type("transcript", TRANSCRIPT)
    user.type("name", "Anna")
    user.type("consent", "I recorded my own voice.")
    user.press("clone")
    assert not server.service.voices.uploaded(), "the box of consent is not checked"
    user.find("agreed").click()
    user.press("clone")
    user.wait(lambda: "can speak now" in user.status)
    assert user.sees_status
    [voice] = server.service.voices.uploaded()
    assert (voice.name, voice.is_deep, voice.consent) == ("Anna", True, "I recorded my own voice.")
    assert user.find("voice").get_attribute("value") == voice.id
    user.type("text", CLONED_TEXT)
    browser.execute_script(NOTE_MARKED_WORDS)
    user.press("speak")
    user.wait(lambda: user.find("reading").text.strip() == CLONED_TEXT and not user.find("stop").is_enabled())
    words = [word.text for word in user.find("reading").find_elements("css selector", "span span")]
    assert words == CLONED_TEXT.split(), "every word is found in the sentence"
    assert user.find("reading").find_element("class name", "word").text == words[-1]
    marked = browser.execute_script("return window.marked")
    assert [word for word in words if word in marked] == marked and len(marked) >= len(words) / 2, marked
    user.find("download").click()
    user.wait((tmp_path / "speech (1).wav").exists)
    judge(read(tmp_path / "speech (1).wav"), reference)
    user.press("delete")
    user.wait(lambda: "deleted" in user.status)
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


@pytest.mark.slow
def test_stop_stops_and_errors_are_shown(browser, server: LiveServer):
    user = PageUser(browser, server)
    user.type("text", "This is a long text that goes on for a while. " * 8)
    user.press("speak")
    user.wait(lambda: user.find("stop").is_enabled() and "First audio" in user.status)
    user.press("stop")
    user.wait(lambda: server.service.admission.num_active == 0)
    assert not user.find("stop").is_enabled()
    user.type("text", "...")
    user.press("speak")
    user.wait(lambda: "nothing to speak" in user.status)


@pytest.mark.slow
@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_the_page_fits_its_window_and_every_field_has_a_label(browser, server: LiveServer, size):
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False},
    )
    PageUser(browser, server)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= size[0]
    unlabeled = browser.execute_script(
        "return [...document.querySelectorAll('input, select, textarea')]"
        ".filter((field) => field.labels.length === 0).map((field) => field.id)"
    )
    assert unlabeled == []
