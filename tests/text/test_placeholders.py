"""Placeholders of templates are read as their names; arguments, sets and respellings are none."""

from __future__ import annotations

import pytest

from marstts.text.reading import read_text


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("Dear ${name}, hello.", "Dear name, hello."),
        ("Hi {{first_name}}!", "Hi first name!"),
        ("Hi {{ user.firstName | title }}!", "Hi user first name!"),
        ("Hello {userName}, welcome.", "Hello user name, welcome."),
        ("You owe {total_amount:.2f} by ${due-date:-Monday}.", "You owe total amount by due date."),
        ("Dear ${firstName}${lastName}, hello.", "Dear first name last name, hello."),
        ("Dear [Name]{first_name}, hello.", "Dear Name first name, hello."),
        ("%{count} of #{total} files", "count of total files"),
    ],
)
def test_a_placeholder_is_read_as_its_name(written: str, spoken: str) -> None:
    reading = read_text(written)
    assert " ".join(reading.sentences) == spoken
    assert reading.warnings == ()


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("Mr. [Nguyen]{win} left.", "Mister win left."),
        (r"Here $\frac{ab}{cd}$ is small.", "Here a b over c d is small."),
        ("[Square] {curly}.", "Square, curly."),
    ],
)
def test_other_braces_are_read_as_before(written: str, spoken: str) -> None:
    assert " ".join(read_text(written).sentences) == spoken
