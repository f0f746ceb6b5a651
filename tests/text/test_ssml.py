"""SSML: what is honored becomes segments, the rest is named, and no document can hurt."""

from __future__ import annotations

import pytest

from marstts.errors import TextError
from marstts.text.phones import readable
from marstts.text.reading import read_text
from marstts.text.segments import Segment
from marstts.text.ssml import is_ssml, read_ssml


def segments(body: str) -> tuple[Segment, ...]:
    return read_text(f"<speak>{body}</speak>").segments


def test_breaks_are_pauses() -> None:
    spoken = segments('One. <break time="250ms"/>Two.<break strength="strong"/> Three.<break/>')
    assert [(each.text, each.pause_seconds) for each in spoken] == [("One.", 0.25), ("Two.", 0.7), ("Three.", 0.4)]
    [lone] = segments('<break time="2s"/>')
    assert (lone.text, lone.pause_seconds) == ("", 2.0)
    assert segments('<break time="99999s"/>')[0].pause_seconds == 60.0


def test_paragraphs_and_sentences_end() -> None:
    spoken = segments("<p>One</p><p><s>Two</s><s>three 5 km</s></p>")
    assert [each.text.rstrip(".") for each in spoken] == ["One", "Two", "three five kilometers"]
    assert spoken[0].pause_seconds > 0


def test_rate_and_voice_belong_to_their_segments() -> None:
    first, second, third = segments('Plain. <prosody rate="fast">Quick <voice name="anna">and hers.</voice></prosody>')
    assert (first.rate, first.voice) == (1.0, None)
    assert (second.rate, second.voice) == (1.25, None)
    assert (third.rate, third.voice) == (1.25, "anna")


@pytest.mark.parametrize(("rate", "value"), [("slow", 0.8), ("150%", 1.5), ("+20%", 1.2), ("-20%", 0.8), ("1.5", 1.5)])
def test_rates_are_names_or_shares(rate: str, value: float) -> None:
    assert segments(f'<prosody rate="{rate}">Words.</prosody>')[0].rate == pytest.approx(value)


@pytest.mark.parametrize(
    ("body", "spoken"),
    [
        ('<sub alias="World Wide Web">WWW</sub> is old.', "World Wide Web is old."),
        ('<say-as interpret-as="characters">ab1</say-as>!', "A, B, one!"),
        ('<say-as interpret-as="spell-out">NASA</say-as>.', "N, A, S, A."),
        ('<say-as interpret-as="digits">2024</say-as>.', "two zero two four."),
        ('<say-as interpret-as="cardinal">1984</say-as>.', "one thousand nine hundred and eighty-four."),
        ('<say-as interpret-as="ordinal">5</say-as>.', "fifth."),
        ('<say-as interpret-as="date" format="dmy">3/4/2025</say-as>.', "April third, twenty twenty-five."),
        ('<say-as interpret-as="date">3/4/2025</say-as>.', "March fourth, twenty twenty-five."),
        ('<phoneme alphabet="ipa" ph="nw\u026an">Nguyen</phoneme>.', "{N W IH1 N}."),
        ('<phoneme alphabet="x-arpabet" ph="N W IH1 N">Nguyen</phoneme>.', "{N W IH1 N}."),
        ("a &lt;= b &amp; c.", "a less than or equal to b and c."),
    ],
)
def test_elements_are_replaced_by_their_spoken_words(body: str, spoken: str) -> None:
    assert readable(" ".join(each.text for each in segments(body))) == spoken


def test_what_is_not_honored_is_named_and_its_text_kept() -> None:
    reading = read_text('<speak><foo>Kept</foo> <prosody pitch="high">too</prosody>.</speak>')
    assert reading.sentences == ("Kept too.",)
    assert "foo, prosody pitch" in reading.warnings[0]


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ("<speak>a", "well-formed"),
        ('<!DOCTYPE s [<!ENTITY a "b">]><speak>&a;</speak>', "without entities"),
        ('<!DOCTYPE s [<!ENTITY a SYSTEM "file:///etc/passwd">]><speak>&a;</speak>', "without entities"),
        ("<speak>" + "<p>" * 60 + "x" + "</p>" * 60 + "</speak>", "deep"),
        ('<speak><break time="soon"/></speak>', "'soon'"),
        ('<speak><break strength="loud"/></speak>', "'loud'"),
        ('<speak><prosody rate="900%">x</prosody></speak>', "900%"),
        ('<speak><prosody rate="quick">x</prosody></speak>', "'quick'"),
        ('<speak><phoneme alphabet="ipa" ph="\u00a7">x</phoneme></speak>', "phoneme"),
        ("<speak>" + "x" * (5 * 2**20) + "</speak>", "at most"),
    ],
)
def test_impossible_documents_are_refused_in_one_sentence(document: str, complaint: str) -> None:
    with pytest.raises(TextError, match=complaint) as error:
        read_text(document)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [("<speak>a</speak>", True), ('<?xml version="1.0"?>\n<speak version="1.1">', True), ("<speaker>", False),
     ("I <speak>", False), ("", False)],
)  # fmt: skip
def test_ssml_is_known_by_its_start(text: str, is_one: bool) -> None:
    assert is_ssml(text) == is_one


def test_a_namespace_changes_nothing() -> None:
    document = '<speak xmlns="http://www.w3.org/2001/10/synthesis" version="1.1">Hi <break time="1s"/></speak>'
    assert [(each.text.strip(), each.pause_seconds) for each in read_ssml(document).segments] == [("Hi", 1.0)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('<break time="1s"/><prosody rate="90%">Hi.</prosody>', [("", 1.0), ("Hi.", 0.0)]),
        ('<break time="2s"/><voice name="Anna">Hello.</voice>', [("", 2.0), ("Hello.", 0.0)]),
        ('<voice name="Anna"><break strength="weak"/>Hello.</voice>', [("", 0.2), ("Hello.", 0.0)]),
        ('<p><s>One.</s></p><break time="3s"/>', [("One.", 3.4)]),
        ('Go.<break time="1s"/><prosody rate="slow"><break time="1s"/>Now.</prosody><break time="1s"/>',
         [("Go.", 2.0), ("Now.", 1.0)]),
    ],
)  # fmt: skip
def test_breaks_at_the_beginning_and_the_end_are_kept(body: str, expected: list[tuple[str, float]]) -> None:
    assert [(each.text, pytest.approx(each.pause_seconds)) for each in segments(body)] == expected


@pytest.mark.parametrize("name", ["Anna", "my voice 2", "\u00c9lise", "../x"])
def test_any_name_of_a_voice_is_carried_through(name: str) -> None:
    assert [each.voice for each in segments(f'One. <voice name="{name}">Two.</voice> Three.')] == [None, name, None]
