"""A real browser without a screen, used by the keyboard alone, and a page to be used."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.ui import WebDriverWait

from marstts.evaluation.listening.host import Host
from marstts.evaluation.listening.web import PageServer

SWITCHES = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--mute-audio", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-extensions", "--disable-sync",
    "--hide-scrollbars",
)  # fmt: skip
DESKTOP, PHONE = (1100, 900), (390, 844)
PATIENCE_SECONDS = 60.0
"""On a busy machine."""


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
    try:
        yield browser
    finally:
        browser.quit()


@contextmanager
def served(host: Host) -> Iterator[PageServer]:
    """The page of a host, in a thread."""
    with PageServer(host, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve)
        thread.start()
        try:
            yield server
        finally:
            server.stop()
            thread.join(timeout=30)


class Person:
    """Presses keys, and looks at the page."""

    def __init__(self, browser: WebDriver) -> None:
        self.browser = browser

    def press(self, keys: str) -> None:
        ActionChains(self.browser).send_keys(keys).perform()

    def look(self, script: str) -> object:
        return self.browser.execute_script(f"return {script}")

    def wait(self, script: str) -> None:
        """Until the expression is true in the page."""
        WebDriverWait(self.browser, PATIENCE_SECONDS, 0.05).until(lambda _: self.look(script), script)

    def see(self, view: str) -> None:
        self.wait(f"document.querySelector('#view').dataset.view === '{view}'")

    def hear(self) -> None:
        """Play everything on the page to its end."""
        for count in range(1, int(str(self.look("document.querySelectorAll('.player').length"))) + 1):
            self.wait("!document.querySelector('.play:disabled')")
            self.press(" ")
            self.wait(f"document.querySelectorAll('.heard').length >= {count}")

    def rate(self, choose: Callable[[int], int], position: int) -> None:
        """Hear a trial and answer it; the page has to go on to the next."""
        self.see("trial")
        assert self.look("document.querySelector('.main').disabled")
        self.hear()
        self.press(str(choose(position)))
        assert not self.look("document.querySelector('.main').disabled")
        self.look("document.querySelector('h1').dataset.left = 'yes'")
        self.press("\ue007")  # Enter
        self.wait("!document.querySelector('h1').dataset.left")

    def resize(self, size: tuple[int, int]) -> None:
        """A viewport of so many CSS pixels, whatever the window."""
        shape = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", shape)
