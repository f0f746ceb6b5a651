"""A written form is read alike whatever surrounds it: brackets, quotation marks, a colon, a question mark."""

from __future__ import annotations

import pytest

from marstts.text.normalize import normalize

CARRIERS = ("See {} now.", "See ({}) now.", "See {}, then go.", "See {}.", "Is it {}?", 'See "{}" now.', "See {}: yes.")


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("Dec. 3", "December third"), ("July 4", "July fourth"), ("May 5-7", "May fifth to seventh"),
        ("1/2", "one half"), ("3 3/4", "three and three quarters"), ("1/16", "one sixteenth"),
        ("Gen. 1:1-3", "Genesis one, one to three"), ("Ps. 23:1", "Psalm twenty-three, one"),
        ("src/main.rs", "src slash main dot rs"), ("./run.sh", "dot slash run dot sh"), ("x86", "x eighty-six"),
        ("5+", "five plus"), ("0,75", "zero point seven five"), ("Tues-Thurs", "Tuesday to Thursday"),
        ("phase-IV", "phase four"), ("DNA", "D N A"), ("$5.50", "five dollars and fifty cents"),
        ("9/11", "nine eleven"),
        ("6'2\"", "six foot two"), ("H2O", "H two O"), ("2:30 pm", "two thirty P M"),
        ("192.168.0.1", "dot zero dot one"),
    ],
)  # fmt: skip
def test_forms_are_read_alike_in_every_carrier(written: str, spoken: str) -> None:
    assert [carrier for carrier in CARRIERS if spoken not in normalize(carrier.format(written))] == []


def test_years_of_experience_are_no_chess_moves() -> None:
    assert normalize("I have 5+ years.") == "I have five plus years."
    assert normalize("1. e4 Qxe5+") == "one, e four queen takes e five check"


@pytest.mark.parametrize("text", ["we sat at 5 tables", "the cat sat 10 minutes", "they wed at 5 o'clock"])
def test_verbs_are_no_weekdays(text: str) -> None:
    assert "day" not in normalize(text)


def test_a_minus_in_brackets_is_read() -> None:
    assert "minus b plus or minus" in normalize("x = (-b ± √(b² - 4ac)) / 2a")
    assert normalize("x**2 + y**n") == "x squared plus y to the n"
