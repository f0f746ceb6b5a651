"""The page in a real browser, from the first key to the last, on a desktop and on a phone."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from listening_browser import DESKTOP, PHONE, PageUser, open_browser, quick_clock, served
from marstts_listening_test.analysis import analyze
from marstts_listening_test.config import read_listening_test
from marstts_listening_test.preference import open_preference_plan
from marstts_listening_test.rating import open_rating_plan
from marstts_listening_test.service import SessionService
from marstts_listening_test.store import AnswerStore, read_records
from simulated_listeners import opinion

pytestmark = [pytest.mark.slow, pytest.mark.end_to_end]  # a browser plays the recordings

ENTER = "\ue007"


@pytest.fixture(scope="module")
def person():
    with open_browser() as browser:
        yield PageUser(browser)


@pytest.fixture
def small(config_file: Path) -> SessionService:
    """Fifteen recordings a listener: one sentence of three systems in both parts, examples, checks."""
    text = config_file.read_text(encoding="utf-8").replace(
        "per_system = 4", "per_system = 1\nattention_checks = 1\nrepeats = 0"
    )
    config_file.write_text(text, encoding="utf-8")
    config = read_listening_test(config_file)
    plan = open_rating_plan(config)
    store = AnswerStore(config.database, plan.digest)
    yield SessionService(plan, store, quick_clock)
    store.close()


def test_a_listener_takes_the_whole_test_by_keyboard_and_resumes_by_link_on_a_phone(person, small):
    with served(small) as server:
        person.resize(DESKTOP)
        person.browser.get(server.address)
        person.wait_for_view("welcome")
        assert person.evaluate("document.title") == "Voices & <how> natural they are"
        assert person.evaluate("document.querySelector('header p').textContent") == "Voices & <how> natural they are"
        assert person.evaluate("document.querySelectorAll('how').length") == 0
        assert "tests@example.org" in str(person.evaluate("document.querySelector('.contact').textContent"))
        person.press(ENTER)
        person.wait_for_view("volume")
        assert person.evaluate("document.querySelector('.main').disabled")
        person.play_all()
        person.press(ENTER)
        check_headphones(person, small)

        trials = small.store.trials(0)
        rng = random.Random(0)
        choices = [opinion(trial, rng) for trial in trials]
        person.wait_for_view("part")
        person.press(ENTER)
        for position in range(4):
            person.rate(choices.__getitem__, position)
        assert (
            person.evaluate("['now', 'max'].map((one) => find('#progress').getAttribute('aria-value' + one)).join()")
            == f"4,{len(trials)}"
        )
        assert person.evaluate("document.activeElement.tagName") == "H1"  # a screen reader reads it next
        link = str(person.evaluate("document.querySelector('#link').value"))

        person.browser.get(server.address)  # this browser stored its link
        person.wait_for_view("trial")
        assert person.evaluate("location.href") == link
        person.browser.execute_script("localStorage.clear()")
        person.resize(PHONE)
        person.browser.get("about:blank")
        person.browser.get(link)
        for position in range(4, len(trials)):
            person.wait("['part', 'trial'].includes(document.querySelector('#view').dataset.view)")
            if person.evaluate("document.querySelector('#view').dataset.view") == "part":
                person.press(ENTER)
            person.rate(choices.__getitem__, position)
            assert fits(person)
        person.wait_for_view("done")
        assert person.evaluate("document.querySelector('.code').textContent") == small.store.find(link[-22:]).code

        assert small.store.choices(0) == choices
        [record] = read_records(small.store.path)
        assert analyze([record], small.plan.config.rules, small.plan.config.headphones).checks[0].counts
        origins = person.evaluate(
            "[...new Set(performance.getEntriesByType('resource').map((e) => new URL(e.name).origin))]"
        )
        assert [origin for origin in origins if origin != "null"] == [server.address.rstrip("/")]
        assert [entry for entry in person.browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def check_headphones(person, service):
    """Answer six trials of tones by digits; choices are disabled until the tones were played."""
    tones = service.plan_tones(service.store.find(str(person.evaluate("link"))))
    for number, tone in enumerate(tones, 1):
        person.wait(f"document.querySelector('.step')?.textContent === 'Headphones, {number} of 6'")
        assert person.evaluate("document.querySelector('fieldset').disabled")
        person.wait("!document.querySelector('.play:disabled')")
        person.press(" ")
        person.wait("!document.querySelector('fieldset').disabled")
        person.press(str(tone.quiet + 1))
        person.press(ENTER)


def fits(person) -> bool:
    """Whether the page needs no horizontal scrolling, and all targets are large enough for a thumb."""
    return bool(
        person.evaluate(
            "document.documentElement.scrollWidth <= innerWidth && "
            "[...document.querySelectorAll('.play, .main, label')]"
            ".every((one) => one.getBoundingClientRect().height >= 44)"
        )
    )


def test_a_developer_compares_two_folders_by_keyboard_and_reads_the_result(person, recordings, tmp_path):
    folders = [recordings / "takes" / name for name in ("mini", "robot")]
    plan = open_preference_plan(*folders, limit=2, seed=0, sample_rate=None)
    store = AnswerStore(tmp_path / "ab.sqlite", plan.digest)
    with served(SessionService(plan, store)) as server:
        person.resize(DESKTOP)
        person.browser.get(server.address)
        person.wait_for_view("welcome")
        person.press(ENTER)
        person.wait_for_view("part")
        person.press(ENTER)
        trials = store.trials(0)
        for position in range(2):
            person.rate(lambda position: 1 if trials[position].system == "A" else 2, position)
        person.wait_for_view("done")
        assert str(person.evaluate("document.querySelector('.text').textContent")).startswith(
            "B better: 0, A better: 2"
        )
    store.close()
