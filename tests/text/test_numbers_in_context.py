"""Numbers whose neighbors decide how they are read: units and names, notes, units with stops, durations, chapters."""

from __future__ import annotations

import pytest

from marstts.text.normalize import normalize


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("1984 A New Dawn", "nineteen eighty-four A New Dawn"),
        ("4 A students came.", "four A students came."),
        ("7 K Avenue", "seven K Avenue"),
        ("A 401 K plan", "A four hundred and one K plan"),
        ("9 L Road, 2 J Lane", "nine L Road, two J Lane"),
        ("In 2010 A man left.", "In twenty ten A man left."),
        ("The 5 W questions", "The five W questions"),
        ("Two 3 V signs", "Two three V signs"),
        ("Top 10 A-list stars", "Top ten A-list stars"),
        ("5 V-neck shirts, 3 W-2 forms", "five V-neck shirts, three W-two forms"),
        ("8 K-pop songs", "eight K-pop songs"),
        ("a 5 V supply and a 10 A fuse", "a five volt supply and a ten amp fuse"),
        ("12 V DC, 3 L of oil", "twelve volts D C, three liters of oil"),
        ("300 K in the lab", "three hundred kelvins in the lab"),
        ("It draws 2 A and gives 50 J.", "It draws two amps and gives fifty joules."),
        ("65W PD or 1.5 A Max", "sixty-five watts P D or one point five amps Max"),
    ],
)  # fmt: skip
def test_a_capital_after_a_number_is_a_unit_only_among_words_of_measures(written: str, spoken: str) -> None:
    assert normalize(written) == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("The ship sank.7 Then it rained.", "The ship sank. Then it rained."),
        ('She said "No."3 He left.', 'She said "No." He left.'),
        ('So "liberty"4 was lost.', 'So "liberty" was lost.'),
        ("It ended in 1945.2 Peace came.", "It ended in nineteen forty-five. Peace came."),
        ("Why?12 Nobody knew.3,4 Nobody.", "Why? Nobody knew. Nobody."),
        ("They rowed.\u00b2 It rained.\u00b3", "They rowed. It rained."),
        ("Really?!3 He left...4 Then rain.", "Really?! He left... Then rain."),
        ("The anchor\u00b9 held.", "The anchor held."),
        ("He fell (p. 12).5 Then rain.", "He fell, page twelve. Then rain."),
        ("From 1914-1918.4 The war", "From nineteen fourteen to nineteen eighteen. The war"),
        ("It weighs 1912.5 Newtons.", "It weighs one thousand nine hundred and twelve point five Newtons."),
        ("It cost 5.2 Then 3.", "It cost five point two Then three."),
        ("See Fig.2 A dog.", "See figure two A dog."),
    ],
)
def test_the_mark_of_a_note_is_not_read(written: str, spoken: str) -> None:
    assert normalize(written) == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("60 m.p.h. in town", "sixty miles per hour in town"),
        ("It does 30 m.p.g. Then stop.", "It does thirty miles per gallon. Then stop."),
        ("5 m.s. later, 3 k.m. on", "five milliseconds later, three kilometers on"),
        ("at 80 k.p.h. or 2 k.g.", "at eighty kilometers per hour or two kilograms."),
        ("60 k.m.h. and 5 k.w.h. in all", "sixty kilometers per hour and five kilowatt hours in all"),
        ("at 5 p.m. and 6 a.m.", "at five P M and six A M."),
    ],
)
def test_units_with_stops_are_units(written: str, spoken: str) -> None:
    assert normalize(written) == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("0:12:45", "twelve minutes and forty-five seconds"),
        ("1:05:00 long", "one hour and five minutes long"),
        ("2:00:00", "two hours"),
        ("The run took 3:04:05.", "The run took three hours four minutes and five seconds."),
        ("00:00:09", "nine seconds"),
        ("a clip of 0:30", "a clip of thirty seconds"),
        ("It took 7:30.", "It took seven minutes and thirty seconds."),
        ("1:02:03.5", "one hour two minutes and three point five seconds"),
        ("a 2:59:30 marathon", "a two fifty-nine thirty marathon"),
        ("At 9:05:30 it rang.", "At nine oh five and thirty seconds it rang."),
        ("At 7:30 we ate.", "At seven thirty we ate."),
        ("23:59:59", "twenty-three fifty-nine and fifty-nine seconds"),
        ("At 7:05, 8:10:30, and 9:20.", "At seven oh five, eight ten and thirty seconds, and nine twenty."),
        ("0:45, 1:30:20", "forty-five seconds, one hour thirty minutes and twenty seconds"),
    ],
)
def test_durations_name_their_hours_and_minutes(written: str, spoken: str) -> None:
    assert normalize(written) == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("Chapter 01", "Chapter one"),
        ("Lesson 05, track 03", "Lesson five, track three"),
        ("PART 002", "PART two"),
        ("02", "two"),
        ("03: The Start", "three: The Start"),
        ("01. Wash.", "one, Wash."),
        ("007", "zero zero seven"),
        ("Room 05", "Room zero five"),
    ],
)
def test_the_number_of_a_chapter_has_no_zero_before_it(written: str, spoken: str) -> None:
    assert normalize(written) == spoken
