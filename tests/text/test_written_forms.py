"""Written forms that people and chat models send: the list that is measured, and a longer one of our own."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from marstts.text.language import foreign_language
from marstts.text.normalize import normalize
from marstts.text.reading import read_text
from marstts.text.sentences import split_sentences

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
pytestmark = pytest.mark.slow

MIN_RIGHT_RATIO = 0.97
MIN_UNSEEN_RATIO = 0.9


def rows() -> list[tuple[str, str]]:
    lines = (HERE / "written_forms.tsv").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("\t") for line in lines if "\t" in line]
    return [(written.replace("\\n", "\n"), spoken) for written, spoken in pairs]


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("text_reading", ROOT / "tools" / "text_reading.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def readings() -> list[tuple[str, str, str]]:
    """Each form, how it is spoken, and what is read."""
    return [(written, spoken, normalize(written)) for written, spoken in rows()]


def test_forms_are_read_as_a_reader_reads_them(readings: list[tuple[str, str, str]]) -> None:
    assert len(readings) > 700
    assert [row for row in readings if row[1] != " ‖ ".join(split_sentences(row[2]))] == []


def test_no_line_of_our_own_seems_to_be_in_another_language(benchmark: ModuleType) -> None:
    written = [row[0] for row in rows()]
    written += [each for path in (HERE / "unseen").glob("*.tsv") for each, _ in benchmark.read_list(path)]
    assert len(written) > 3000
    assert [each for each in written if foreign_language(each)] == []


def test_the_measured_list_is_read_right(benchmark: ModuleType) -> None:
    texts = benchmark.read_list(ROOT / "tools" / "text_reading.tsv")
    wrong = [written for written, right in texts if not benchmark.is_right(normalize(written), right)]
    assert len(texts) > 100
    assert len(wrong) <= (1 - MIN_RIGHT_RATIO) * len(texts), wrong


def test_lists_that_were_unseen_when_they_were_written(benchmark: ModuleType) -> None:
    """Some of each list; `tools/text_reading.py` reads them whole."""
    texts = [row for path in sorted((HERE / "unseen").glob("*.tsv")) for row in benchmark.read_list(path)[::6]]
    wrong = [written for written, right in texts if not benchmark.is_right(normalize(written), right)]
    assert len(texts) > 300
    assert len(wrong) <= (1 - MIN_UNSEEN_RATIO) * len(texts), wrong


def test_the_measure_distinguishes_right_from_wrong(benchmark: ModuleType) -> None:
    assert benchmark.is_right("It is Twenty-Five, OK.", ["it is twenty five ok"])
    assert benchmark.is_right("one hundred one", ["one hundred and one"])
    assert not benchmark.is_right("a equals b", ["a less than or equal to b"])


def test_api_and_normalizer_give_the_same_sentences(readings: list[tuple[str, str, str]]) -> None:
    assert [row for row in readings[::20] if list(read_text(row[0]).sentences) != split_sentences(row[2])] == []


def test_reading_what_was_read_changes_nothing(readings: list[tuple[str, str, str]]) -> None:
    assert [read for _, _, read in readings[::20] if normalize(read) != read] == []


@pytest.mark.parametrize(
    ("written", "meaning"),
    [
        ("a <= b", "less than or equal"), ("a >= b", "greater than or equal"), ("a != b", "not equal"),
        ("a ≤ b", "less than or equal"), ("a ≥ b", "greater than or equal"), ("a ≠ b", "not equal"),
        ("a < b", "less than"), ("a > b", "greater than"), ("!done", "not done"), ("a -> b", "a to b"),
        ("a && b", "a and b"), ("a || b", "a or b"), ("~5 km", "about five"), ("±5", "plus or minus five"),
        ("-5", "minus five"), ("<5", "less than five"), (">5", "more than five"), ("5!=6", "not equal"),
        ("5<=6", "less than or equal"), ("x<5", "less than five"), ("10^-3", "minus three"), ("w/o it", "without"),
        ("7 - 2 = 5", "seven minus two"), ("x = -3", "minus three"), ("a / b = c", "divided by"), ("5² m", "squared"),
    ],
)  # fmt: skip
def test_nothing_changes_meaning(written: str, meaning: str) -> None:
    assert meaning in normalize(written)


@pytest.mark.parametrize(
    "text",
    [
        "It was an illusory feat. A magical one.", "The Sun from space.", "Ask the admin. He knows.", "Mon Dieu!",
        "He hired a temp. She came.", "Wed and happy, they left.", "It was long. Five people left.",
        "He sat. Sun rose.", "It was the lab. Five people came.", "Photo by A. Lee.",
    ],
)  # fmt: skip
def test_words_are_not_taken_for_abbreviations(text: str) -> None:
    assert normalize(text).rstrip(".") == text.rstrip(".")


@pytest.mark.parametrize(
    ("written", "spoken"), [("2023 A. Lee", "twenty twenty-three A. Lee"), ("b4 and m8", "b four and m eight")]
)
def test_initials_and_squares_are_no_units_or_words(written: str, spoken: str) -> None:
    assert normalize(written) == spoken
