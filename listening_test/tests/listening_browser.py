"""A real browser without a screen, controlled by the keyboard alone, and a served page."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.ui import WebDriverWait

from marstts.http.server import Server
from marstts_listening_test.service import SessionService
from marstts_listening_test.web import open_server

SWITCHES = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--mute-audio", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-extensions", "--disable-sync",
    "--hide-scrollbars",
)  # fmt: skip
DESKTOP, PHONE = (1100, 900), (390, 844)
MAX_WAIT_SECONDS = 60.0
"""Longest wait for a change of the page, on a busy machine."""

PLAYBACK_RATE = 8
"""Recordings play to their end, in an eighth of their time; `quick_clock` runs as much faster."""

QUICK_PLAYBACK = f"""
const play = HTMLMediaElement.prototype.play
HTMLMediaElement.prototype.play = function () {{ this.playbackRate = {PLAYBACK_RATE}; return play.call(this) }}
"""


def quick_clock() -> float:
    """Seconds, for the service."""
    return PLAYBACK_RATE * time.time()


@contextmanager
def open_browser() -> Iterator[WebDriver]:
    """Chromium without a screen; the test is skipped where there is none."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("needs chromium and chromedriver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for switch in SWITCHES:
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(driver))
    browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": QUICK_PLAYBACK})
    try:
        yield browser
    finally:
        browser.quit()


@contextmanager
def served(service: SessionService) -> Iterator[Server]:
    """A server of the page, in a thread."""
    with open_server(service, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve)
        thread.start()
        try:
            yield server
        finally:
            server.stop()
            thread.join(timeout=30)


class PageUser:
    """A user who presses keys and reads the page."""

    def __init__(self, browser: WebDriver) -> None:
        self.browser = browser

    def press(self, keys: str) -> None:
        ActionChains(self.browser).send_keys(keys).perform()

    def evaluate(self, script: str) -> object:
        return self.browser.execute_script(f"return {script}")

    def wait(self, script: str) -> None:
        """Wait until the expression is true in the page."""
        WebDriverWait(self.browser, MAX_WAIT_SECONDS, 0.05).until(lambda _: self.evaluate(script), script)

    def wait_for_view(self, view: str) -> None:
        self.wait(f"document.querySelector('#view').dataset.view === '{view}'")

    def play_all(self) -> None:
        """Play everything on the page to its end."""
        for count in range(1, int(str(self.evaluate("document.querySelectorAll('.player').length"))) + 1):
            self.wait("!document.querySelector('.play:disabled')")
            self.press(" ")
            self.wait(f"document.querySelectorAll('.played').length >= {count}")

    def rate(self, choose: Callable[[int], int], position: int) -> None:
        """Play a trial and answer it; the page must show the next one."""
        self.wait_for_view("trial")
        assert self.evaluate("document.querySelector('.main').disabled")
        self.play_all()
        self.press(str(choose(position)))
        assert not self.evaluate("document.querySelector('.main').disabled")
        self.evaluate("document.querySelector('h1').dataset.left = 'yes'")
        self.press("\ue007")  # Enter
        self.wait("!document.querySelector('h1').dataset.left")

    def resize(self, size: tuple[int, int]) -> None:
        """Set the viewport in CSS pixels, whatever the window."""
        shape = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", shape)
