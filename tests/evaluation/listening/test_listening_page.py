"""The page in a real browser, from the first key to the last, on a desk and on a phone."""

from __future__ import annotations

import csv
import random
import re
from pathlib import Path

import pytest
from listening_browser import DESKTOP, PHONE, Person, open_browser, served
from simulated_listeners import opinion

from marstts.evaluation.listening.analysis import analyse
from marstts.evaluation.listening.config import read_listening_test
from marstts.evaluation.listening.host import Host
from marstts.evaluation.listening.preference import open_preference
from marstts.evaluation.listening.session import open_session
from marstts.evaluation.listening.store import Store, read_attendance
from marstts.evaluation.listening.turk import export_sessions, read_results

ENTER = "\ue007"


@pytest.fixture(scope="module")
def person():
    with open_browser() as browser:
        yield Person(browser)


@pytest.fixture
def small(config_file: Path) -> Host:
    """Fifteen recordings a listener: one sentence of three systems in both parts, three and two examples, traps."""
    text = config_file.read_text(encoding="utf-8").replace("per_system = 4", "per_system = 1\ntraps = 1\nrepeats = 0")
    config_file.write_text(text, encoding="utf-8")
    config = read_listening_test(config_file)
    sheet = open_session(config)
    store = Store(config.database, sheet.digest)
    yield Host(sheet, store)
    store.close()


def test_a_listener_takes_the_whole_test_by_keyboard_and_goes_on_by_link_on_a_phone(person, small):
    with served(small) as server:
        person.resize(DESKTOP)
        person.browser.get(server.address)
        person.see("welcome")
        assert person.look("document.title") == "Voices & <how> natural they are"
        assert person.look("document.querySelector('header p').textContent") == "Voices & <how> natural they are"
        assert person.look("document.querySelectorAll('how').length") == 0
        assert "tests@example.org" in str(person.look("document.querySelector('.contact').textContent"))
        person.press(ENTER)
        person.see("volume")
        assert person.look("document.querySelector('.main').disabled")
        person.hear()
        person.press(ENTER)
        check_headphones(person, small)

        trials = small.store.trials(0)
        rng = random.Random(0)
        choices = [opinion(trial, rng) for trial in trials]
        person.see("part")
        person.press(ENTER)
        for position in range(4):
            person.rate(choices.__getitem__, position)
        assert (
            person.look("['now', 'max'].map((one) => find('#progress').getAttribute('aria-value' + one)).join()")
            == f"4,{len(trials)}"
        )
        assert person.look("document.activeElement.tagName") == "H1"  # what a screen reader reads next
        link = str(person.look("document.querySelector('#link').value"))

        person.browser.get(server.address)  # this browser remembers its link, another one needs it
        person.see("trial")
        assert person.look("location.href") == link
        person.browser.execute_script("localStorage.clear()")
        person.resize(PHONE)
        person.browser.get("about:blank")
        person.browser.get(link)
        for position in range(4, len(trials)):
            person.wait("['part', 'trial'].includes(document.querySelector('#view').dataset.view)")
            if person.look("document.querySelector('#view').dataset.view") == "part":
                person.press(ENTER)
            person.rate(choices.__getitem__, position)
            assert fits(person)
        person.see("done")
        assert person.look("document.querySelector('.code').textContent") == small.store.find(link[-22:]).code

        assert small.store.choices(0) == choices
        [attendance] = read_attendance(small.store.path)
        assert analyse([attendance], small.sheet.config.rules, small.sheet.config.headphones).verdicts[0].counts
        origins = person.look(
            "[...new Set(performance.getEntriesByType('resource').map((e) => new URL(e.name).origin))]"
        )
        assert [origin for origin in origins if origin != "null"] == [server.address.rstrip("/")]
        assert [entry for entry in person.browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def check_headphones(person, host):
    """Six times: a digit for the quiet tone, before anything was played nothing can be chosen."""
    tones = host.plan_tones(host.store.find(str(person.look("link"))))
    for place, tone in enumerate(tones, 1):
        person.wait(f"document.querySelector('.step')?.textContent === 'Headphones, {place} of 6'")
        assert person.look("document.querySelector('fieldset').disabled")
        person.wait("!document.querySelector('.play:disabled')")
        person.press(" ")
        person.wait("!document.querySelector('fieldset').disabled")
        person.press(str(tone.quiet + 1))
        person.press(ENTER)


def fits(person) -> bool:
    """No scrolling sideways, and targets that a thumb can hit."""
    return bool(
        person.look(
            "document.documentElement.scrollWidth <= innerWidth && "
            "[...document.querySelectorAll('.play, .main, label')]"
            ".every((one) => one.getBoundingClientRect().height >= 44)"
        )
    )


def test_a_developer_compares_two_folders_by_keyboard_and_reads_the_result(person, recordings, tmp_path):
    folders = [recordings / "takes" / name for name in ("mini", "robot")]
    sheet = open_preference(*folders, limit=2, seed=0, sample_rate=None)
    store = Store(tmp_path / "ab.sqlite", sheet.digest)
    with served(Host(sheet, store)) as server:
        person.resize(DESKTOP)
        person.browser.get(server.address)
        person.see("welcome")
        person.press(ENTER)
        person.see("part")
        person.press(ENTER)
        trials = store.trials(0)
        for position in range(2):
            person.rate(lambda place: 1 if trials[place].system == "A" else 2, position)
        person.see("done")
        assert str(person.look("document.querySelector('.text').textContent")).startswith("B better: 0, A better: 2")
    store.close()


def test_a_worker_fills_in_the_form_for_mechanical_turk(person, small, tmp_path):
    folder = tmp_path / "turk"
    export_sessions(small.sheet, folder, folder.as_uri(), 1)
    with (folder / "inputs.csv").open(encoding="utf-8", newline="") as file:
        [inputs] = csv.DictReader(file)
    layout = (folder / "hit.html").read_text(encoding="utf-8")
    page = folder / "filled.html"
    page.write_text(re.sub(r"\$\{(\w+)\}", lambda variable: inputs[variable[1]], layout), encoding="utf-8")
    person.resize(PHONE)
    target = "https://workersandbox.mturk.com"
    person.browser.get(f"{page.as_uri()}?assignmentId=A1&turkSubmitTo={target}")
    assert person.look("document.querySelector('form').action") == f"{target}/mturk/externalSubmit"
    person.press("\t")  # a browser plays nothing for who has not touched the page
    person.browser.execute_script(
        "document.querySelectorAll('audio')[6].play()"
    )  # the first after six times three tones
    person.wait("document.querySelectorAll('audio')[6].ended")
    person.browser.execute_script(
        "document.querySelectorAll('fieldset').forEach((one) => one.querySelector('input[value=\"3\"]').click())"
    )
    sent = person.look("Object.fromEntries(new FormData(document.querySelector('form')))")
    assert sent["assignmentId"] == "A1" and person.look("document.querySelector('form').checkValidity()")

    results = tmp_path / "results.csv"
    row = {"WorkerId": "W", "Input.session": inputs["session"], **{f"Answer.{name}": sent[name] for name in sent}}
    results.write_text("\n".join(",".join(part) for part in (row, row.values())), encoding="utf-8")
    [attendance] = read_results(results, folder / "key.json")
    assert [answer.choice for answer in attendance.answers] == [3] * attendance.asked
    heard = [answer.seconds >= answer.audio_seconds for answer in attendance.answers]
    assert heard == [True] + [False] * (attendance.asked - 1)
