"""Reading: sentences from text that comes in pieces, with what each rule read and what was left out."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from types import FrameType

import pytest

from marstts.text.language import describe_left_out, foreign_language
from marstts.text.lexicon import Lexicon
from marstts.text.normalize import normalize
from marstts.text.reading import Manner, as_typed, read_stream, read_text, stream_sentences
from marstts.text.segments import Pauses
from marstts.text.sentences import split_sentences

MARKS = frozenset(".,?!;:'\" -")
NUM_RANDOM_TEXTS = 40

TEXT = """# A Title

Dr. Smith paid $5.50 on 12/25/2024 at 9:30 a.m. and left. "Is it 5'10\\"?" she asked. See [the docs. Now](http://x.y/z).

- first item
- second item

The end came at last, as every end comes, with a long line that was wrapped by hand at seventy
Characters or so, and goes on here. Then: 1,000 km.
"""


def pieces_of(text: str, rng: random.Random, longest: int) -> list[str]:
    pieces = []
    while text:
        size = rng.randrange(1, longest + 1)
        pieces.append(text[:size])
        text = text[size:]
    return pieces


@pytest.mark.parametrize("longest", [1, 7, 60])
def test_sentences_do_not_depend_on_the_pieces_that_a_text_comes_in(longest: int) -> None:
    forms = (Path(__file__).parent / "written_forms.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
    text = TEXT + "".join(forms[longest::25])
    assert list(stream_sentences(pieces_of(text, random.Random(longest), longest))) == list(stream_sentences([text]))


def test_a_sentence_is_given_before_the_text_ends() -> None:
    seen: list[str] = []

    def pieces():
        yield "This is the first sentence of a text. This is"
        assert seen == ["This is the first sentence of a text."]
        yield " the second one."

    for sentence in stream_sentences(pieces()):
        seen.append(sentence)
    assert seen[1:] == ["This is the second one."]


def test_structure_becomes_sentences() -> None:
    sentences = read_text(TEXT).sentences
    assert sentences[0] == "A Title."
    assert "first item." in sentences and "second item." in sentences
    assert "See the docs. Now." in " ".join(sentences)
    assert not [sentence for sentence in sentences if "http" in sentence or "x dot y" in sentence]
    assert any("at seventy Characters or so" in sentence for sentence in sentences)  # wrapped prose goes on


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Line one\nLine two", ["Line one.", "Line two"]),
        ("A line\nthat goes on", ["A line that goes on"]),
        ("Roses are red,\nViolets are blue.", ["Roses are red, Violets are blue."]),
        ("We need:\n- eggs\n- milk", ["We need.", "eggs.", "milk"]),
        ("One\r\nTwo\rThree\u2028Four", ["One.", "Two.", "Three.", "Four"]),
        ("1. First\n2. Second", ["one, First.", "two, Second"]),
        ("| a | b |\n|---|---|\n| 1 | 2 |", ["a, b.", "one, two"]),
        ("Run:\n```sh\nls\n```\nDone.", ["Run.", "ls.", "Done."]),
        ("[one](http://a.b) and ![two](c.png) and <http://d.com>", ["one and two and d dot com"]),
        ("**Bold. Still bold** and _this_.", ["Bold.", "Still bold and this."]),
        ("> quoted\n\n---\n\nplain", ["quoted.", "plain"]),
        ("snake_case and 2 * 3 * 4", ["snake case and two times three times four"]),
    ],
)  # fmt: skip
def test_line_ends_and_marks_are_read_as_structure(text: str, sentences: list[str]) -> None:
    assert list(read_text(text).sentences) == sentences


def test_every_step_names_its_rule() -> None:
    reading = read_text("Dr. Li paid $5. See DNA.")
    steps = {step.written: (step.rule, step.read) for passage in reading.passages for step in passage.steps}
    assert steps["Dr."] == ("abbreviation.title", "Doctor")
    assert steps["$5"] == ("money.symbol", "five dollars")
    assert steps["DNA"] == ("initialism", "D N A")


def test_pauses_are_silence_and_never_words() -> None:
    first, second, third = read_text("One. [pause:1.5s] Two [pause:250ms] three.").segments
    assert (first.text, first.pause_seconds) == ("One.", 0.0) or first.pause_seconds == 1.5
    assert [segment.pause_seconds for segment in (first, second, third) if segment.pause_seconds] == [1.5, 0.25]
    assert normalize("One [pause:1.5s] two.") == "One, two."
    [lone] = read_text("[pause]").segments
    assert (lone.text, lone.pause_seconds) == ("", 0.5)


def test_a_heading_is_followed_by_a_pause() -> None:
    heading, words = read_text("# Title\n\nWords.").segments
    assert heading.pause_seconds > 0 and words.pause_seconds == 0


def test_overrides_and_lexicon_determine_how_a_word_is_spoken() -> None:
    lexicon = Lexicon({"nguyen": "win", "GIF": "jif", "new york": "noo york"})
    spoken = " ".join(read_text("Nguyen's GIF of New York, a gif by [Hermione]{her my oh nee}.", lexicon).sentences)
    assert spoken == "win's jif of noo york, a gif by her my oh nee."
    assert normalize("[Hermione]{her my oh nee} spoke.") == "her my oh nee spoke."


def test_what_cannot_be_read_is_named() -> None:
    [warning] = read_text("Hello Привет 你好 🎉.").warnings
    assert "Cyrillic letters (\u041f \u0440" in warning
    assert "Chinese characters" in warning and "🎉 party popper" in warning
    assert describe_left_out([]) is None


def test_naming_many_different_characters_takes_linear_time() -> None:
    started = time.process_time()
    assert "\u2026" in str(
        describe_left_out(["".join(map(chr, range(0x4E00, 0x4E00 + 20_000))), *map(chr, range(0xAC00, 0xD7A3))])
    )
    assert time.process_time() - started < 2.0


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Guten Morgen, ich bin der neue Lehrer und das ist nicht mein Buch.", "German"),
        ("Je ne sais pas où est le livre que tu as acheté pour moi.", "French"),
        ("El perro no está en la casa y los niños se van con su madre.", "Spanish"),
        ("The dog is in the house and the children go with their mother.", None),
        ('He said "c\'est la vie" and went on with his day in the city.', None),
        ("Me gusta mucho esta casa.", "Spanish"),
        ("Non so che cosa dire.", "Italian"),
        ("Selamat pagi, apa kabar anda hari ini? Saya tidak bisa.", "Indonesian"),
        ("Yes yes yes, I know, I know, I know.", None),
        ("<speak><s>She said.</s><s>He did.</s><s>They sang.</s></speak>", None),
        ("e.g., apples; i.e., fruit; 1e3, 2e4, 3e5 o o o", None),
        ("L, D, J, S, N: 90s music, the '60s, 5 m/s and 9 s.", None),
        ("OK", None),
        ("Des Moines, Los Angeles, San Jose, El Paso, La Jolla.", None),
        ("De Niro, Van Gogh and El Greco in Las Vegas", None),
        ("Le Mans, La Haye, Les Halles", None),
    ],
)
def test_other_languages_are_noticed(text: str, language: str | None) -> None:
    assert foreign_language(text) == language
    assert any(str(language) in warning for warning in read_text(text).warnings) == (language is not None)


def test_random_characters_are_stable() -> None:
    rng = random.Random(14)
    characters = "abcXYZIV019 .,:;-/+*#@%$€'\"()[]=<>!?&°½²—"
    for _ in range(NUM_RANDOM_TEXTS):
        text = "".join(rng.choice(characters) for _ in range(40))
        spoken = normalize(text)
        assert normalize(spoken) == spoken, text


def test_random_forms_are_stable() -> None:
    rng = random.Random(13)
    rows = (Path(__file__).parent / "written_forms.tsv").read_text(encoding="utf-8").split()
    for _ in range(NUM_RANDOM_TEXTS):
        text = " ".join(rng.choice(rows)[: rng.randrange(1, 12)] for _ in range(rng.randrange(1, 15)))
        spoken = normalize(text)
        assert normalize(spoken) == spoken, text


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit", ["½", "½ + ", "word ", "5 km, ", "$1", "DNA ", "1:", "[a](b) ", "- x\n", "A", "😀", "(", "^2"]
)
def test_a_long_text_is_read_in_seconds(unit: str) -> None:
    text = unit * (4_000 // len(unit))
    started = time.process_time()
    split_sentences(normalize(text))
    assert time.process_time() - started < 2.0


def test_long_text_without_sentence_ends_is_cut_between_words() -> None:
    passages = list(read_stream(["so it went on " * 2_000]))
    assert len(passages) > 10
    assert (
        " ".join(segment.text for passage in passages for segment in passage.segments).split()
        == ("so it went on " * 2_000).split()
    )


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("One. Two.\n\nThree.", [("One.", "sentence"), ("Two.", "paragraph"), ("Three.", "sentence")]),
        ("One.\n\n* * *\n\nTwo.", [("One.", "paragraph"), ("", "scene"), ("Two.", "sentence")]),
        ("One.\n\n---\nTwo.\n\n⁂\n\nThree.",
         [("One.", "paragraph"), ("", "scene"), ("Two.", "paragraph"), ("", "scene"), ("Three.", "sentence")]),
        ("Title\n---\nText", [("Title.", "sentence"), ("Text", "sentence")]),
        ("<p>One.</p><hr/><p>Two</p>", [("One.", "paragraph"), ("", "scene"), ("Two", "paragraph")]),
        ("---\nOne.\n\n* * *\n", [("One.", "paragraph")]),
        ("One\ntwo.\n\n", [("One two.", "paragraph")]),
    ],
)  # fmt: skip
def test_paragraphs_and_scenes_end_with_a_segment(written: str, expected: list[tuple[str, str]]) -> None:
    assert [(each.text, each.boundary.value) for each in read_text(written).segments] == expected


def test_pauses_of_paragraphs_and_scenes_are_options() -> None:
    text = "# Title\n\nOne. Two.\n\n* * *\n\nThree.\n\n[pause:1s]\n\n- four\n- five"
    usual = [each.pause_seconds for each in read_text(text).segments]
    assert usual == [0.5, 0.0, 0.4, 1.2, 0.4, 1.4, 0.0, 0.0]
    pauses = Pauses(sentence=0.35, heading=0.4, paragraph=0.5, scene=0.8)
    others = [each.pause_seconds for each in read_text(text, manner=Manner(pauses=pauses)).segments]
    assert others == [0.1, 0.05, 0.2, 0.3, 0.2, 1.2, 0.0, 0.0]


def test_ssml_states_its_pauses_itself() -> None:
    segments = read_text("<speak><p>One.</p><p>Two.</p></speak>").segments
    assert {(each.boundary.value, each.pause_seconds) for each in segments} == {("sentence", 0.4)}


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("It cost $5. SHE paid in 1999!", ("It cost $5.", "SHE paid in 1999!")),
        ("The  BBC's - well-known - man\nsaid: no.", ("The BBC's - well-known - man said: no.",)),
        ("A \u2013 dash… [pause:0.5s] Then 20%.", ("A \u2013 dash…", "Then 20%.")),
    ],
)
def test_a_text_can_be_read_as_it_was_typed(text: str, sentences: tuple[str, ...]) -> None:
    reading = read_text(text, manner=Manner(spell=as_typed))
    assert reading.sentences == sentences and not any(passage.left_out for passage in reading.passages)
    assert read_text(text).sentences != sentences


SUBTITLE = "1\n00:00:01,000 --> 00:00:02,000\nHello there.\n\n"


@pytest.mark.parametrize(
    "text",
    [
        *[unit * 300 for unit in ("1\n\n", "1\n", "12\n\n", "- a\n", "A\n\n", "12. \n", "|\n", "<p>x</p>\n", SUBTITLE)],
        *[
            unit * 300
            for unit in ("(Smith, 2020) ", "$x^2$ ", "1. e4 e5 ", "| a | b |\n", "# A\n\n", "\\\n", "555-12 ")
        ],
        "".join(f"{number}\n\n" for number in range(1000, 1600)),
        "".join(f"{number}. item {number}\n" for number in range(100, 500)),
    ],
)
def test_a_text_of_short_lines_costs_few_calls_a_character(text: str) -> None:
    """A call costs about 0.1 µs: 32 a character are 3 s of a million characters. The count is the same everywhere."""
    read_text("Warm 1 up.")
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        read_text(text)
    finally:
        sys.setprofile(None)
    assert calls < 32 * len(text)
