"""Tags and marks in plain text: what is no speech goes, sentences end where blocks do, and voices change."""

from __future__ import annotations

import time

import pytest

from marstts.text.normalize import normalize
from marstts.text.reading import read_stream, read_text
from marstts.text.tags import without_tags

READINGS = [
    # content that is no speech
    ("<think>He greets me.</think>Hi there.", ["Hi there."]),
    ("<think>\nOne.\n\nTwo <b>x</b>.\n</think>\n\nDone.", ["Done."]),
    ('Now.<tool_call>\n{"name": "f"}\n</tool_call> Later.', ["Now.", "Later."]),
    ("Red<style>p { color: red }</style>wine<script>if (a < b) x()</script>.", ["Red wine."]),
    ("See <svg viewBox='0 0 1 1'><text>no</text></svg> here.", ["See here."]),
    ("A <math alttext='x^2'></math> b.", ["A x squared b."]),
    ("So <math><mi>x</mi><mo>=</mo><mn>2</mn></math> holds.", ["So x equals two holds."]),
    ("So <m:math xmlns:m='a'><m:msqrt><m:mi>x</m:mi></m:msqrt></m:math> is.", ["So the square root of x is."]),
    ("e<sup>-x</sup>, Na<sup>+</sup>, Cl<sup>-</sup> ions", ["e to the minus x, Na plus, Cl minus ions"]),
    ("<video controls src='a.mp4'>No video.</video>Yes.", ["Yes."]),
    ("<ruby>Tokyo<rp>(</rp><rt>toukyou</rt><rp>)</rp></ruby> shines.", ["Tokyo shines."]),
    ("One <!-- <b>two</b> --> three.", ["One three."]),
    ("<|assistant|>Hello there.<|im_end|>", ["Hello there."]),
    ('<sub alias="World Wide Web">WWW</sub> is old.', ["World Wide Web is old."]),
    ("<reasoning>cut off in the mid", []),
    ('<function=get_time>\n<parameter=zone>\nUTC\n</parameter>\n</function>\nIt is noon.', ["It is noon."]),
    ('<m:tool_use id="1">{"a": 2}</m:tool_use>Done.', ["Done."]),
    # content that is speech
    ('See <a title="a > b" href=x>this</a> one.', ["See this one."]),
    ("<img alt='2>1'/>Then <b data-x='>' class=\"y\">so</b>.", ["Then so."]),
    ('<p title="5 > 3, it\'s">Yes.</p><q title=it\'s>No.</q>', ["Yes.", "No."]),
    ("Replace <function> with yours.", ["Replace function with yours."]),
    ("<answer>It is 5 km.</answer>", ["It is five kilometers."]),
    ("<plan>Go up. Go down.</plan> End.", ["Go up.", "Go down.", "End."]),
    ('<prosody rate="slow">Go</prosody> <emphasis>now</emphasis>.', ["Go now."]),
    ("<custom-note id='3'>Kept.</custom-note>", ["Kept."]),
    ("So <i>very</i> un<b>believ</b>able.", ["So very unbelievable."]),
    # blocks
    ("<ol><li>Wash</li><li>Boil</li></ol>Then <em>eat</em>.", ["Wash.", "Boil.", "Then eat."]),
    ("<h2>News</h2>It rains.", ["News.", "It rains."]),
    ("<blockquote>Be still</blockquote>He was.", ["Be still.", "He was."]),
    ("<dl><dt>dog</dt><dd>an animal</dd></dl>", ["dog.", "an animal"]),
    ("<table><tr><th>City</th><td>Rome</td></tr></table>", ["City.", "Rome"]),
    ("<p>first</p><p>second</p>", ["first.", "second"]),
    ("Dear Ann,<br>It rains.<br/>Yours", ["Dear Ann, It rains.", "Yours"]),
    # no tags
    ("Replace <name> and <title> with yours.", ["Replace name and title with yours."]),
    ("if a<b and c>d, stop", ["if a less than b and c greater than d, stop"]),
    ("Use the `<br>` tag.", ["Use the 'br' tag."]),
    ("The <style> tag is old. It stays.", ["The tag is old.", "It stays."]),
    ("I <3 you, 2 < 3.", ["I you, two less than three."]),
    # raised and lowered
    ("10<sup>3</sup> m and x<sup>2</sup>", ["ten cubed meters and x squared"]),
    ("M<sup>c</sup>Lean of S<sup>t</sup> Anne knows x<sub>n</sub>", ["McLean of Saint Anne knows x n"]),
    ("the 21<sup>st</sup> of CO<sub>2</sub>", ["the twenty-first of C O two"]),
    ("It sank.<sup>1</sup> In 1912<sup>2</sup> too.", ["It sank.", "In nineteen twelve too."]),
    ("The bow<sup><a href='#n'>3</a></sup> broke.<sup>*</sup>", ["The bow broke."]),
]  # fmt: skip


@pytest.mark.parametrize(("written", "sentences"), READINGS)
def test_tags_are_read(written: str, sentences: list[str]) -> None:
    assert list(read_text(written).sentences) == sentences


@pytest.mark.parametrize("size", [1, 3, 7])
def test_pieces_change_nothing(size: int) -> None:
    for written, _ in READINGS:
        pieces = [written[start : start + size] for start in range(0, len(written), size)]
        assert "".join(without_tags(pieces)) == "".join(without_tags([written]))
        read = [segment for passage in read_stream(pieces) for segment in passage.segments]
        assert read == list(read_text(written).segments), written


@pytest.mark.parametrize(
    ("written", "segments"),
    [
        ('Wait<break time="0.5s" /> now.', [("Wait", 0.5), ("now.", 0.0)]),
        ("One.<break time='250ms'></break>Two.", [("One.", 0.25), ("Two.", 0.0)]),
        ('<break time="2s"/>Hi.', [("", 2.0), ("Hi.", 0.0)]),
        ('End.<break strength="strong"/>', [("End.", 0.7)]),
        ("Hi [pause:60s][pause:60s] you.", [("Hi", 120.0), ("you.", 0.0)]),
        ("[PAUSE:2s][Pause] Hi.", [("", 2.5), ("Hi.", 0.0)]),
        ("[note][pause:1s] Hi.", [("note,", 1.0), ("Hi.", 0.0)]),
        ("[pause:1s]: ab.cd/", [("", 1.0), ("ab dot cd", 0.0)]),
    ],
)
def test_a_break_is_a_pause(written: str, segments: list[tuple[str, float]]) -> None:
    assert [(each.text, each.pause_seconds) for each in read_text(written).segments] == segments


@pytest.mark.parametrize(
    ("written", "spoken", "left_out"),
    [
        ("[laugh] Well, [sighs softly] yes.", "Well, yes.", ["[laugh]", "[sighs softly]"]),
        ("Come here (whispers), quick.", "Come here, quick.", ["(whispers)"]),
        ("So <chuckle> it is.", "So it is.", ["[chuckle]"]),
        ("[tone: sad] He left. [Excited] Look!", "He left. Look!", ["[tone: sad]", "[Excited]"]),
        ("[clear throat] Hm. [in a whisper] So.", "Hm. So.", ["[clear throat]", "[in a whisper]"]),
        ("(laughs nervously) No.", "No.", ["(laughs nervously)"]),
        ("[sigh][laughs] Oh. [cough][sobs] No.", "Oh. No.", ["[sigh]", "[laughs]", "[cough]"]),
    ],
)
def test_stage_directions_are_left_out_with_one_warning(written: str, spoken: str, left_out: list[str]) -> None:
    reading = read_text(written)
    assert " ".join(reading.sentences) == normalize(written) == spoken
    [warning] = reading.warnings
    assert all(each in warning for each in left_out)


@pytest.mark.parametrize(
    "text", ["He sang (music is free).", "It was (softly) said.", "I know [sic] that.", "Sing (it)."]
)
def test_other_brackets_are_read(text: str) -> None:
    assert len(normalize(text).replace(",", "").split()) == len(text.split())
    assert read_text(text).warnings == ()


@pytest.mark.parametrize(
    ("written", "segments"),
    [
        ("[voice:Bob] Hi. You? [voice:Ann Lee]Fine.", [("Hi.", "Bob"), ("You?", "Bob"), ("Fine.", "Ann Lee")]),
        ("One.\n\n[voice: bob]\n\nTwo.\n\nThree.", [("One.", None), ("Two.", "bob"), ("Three.", "bob")]),
        ("[Voice:x]A cat. [voice:default]A dog.", [("A cat.", "x"), ("A dog.", None)]),
        ("[voice:a][pause:1s] Now.", [("", "a"), ("Now.", "a")]),
        ("So [it][voice:b] is.", [("So, it,", None), ("is.", "b")]),
    ],
)
def test_a_mark_changes_the_voice_of_what_follows(written: str, segments: list[tuple[str, str | None]]) -> None:
    assert [(each.text, each.voice) for each in read_text(written).segments] == segments
    assert "voice" not in normalize(written).lower()


@pytest.mark.parametrize("text", ["[Anna]: Hello there.", "[2]: See above."])
def test_a_speaker_before_a_colon_is_no_definition_of_a_link(text: str) -> None:
    assert read_text(text).sentences
    assert read_text("[1]: http://a.bc/d\n\nYes.").sentences == ("Yes.",)


@pytest.mark.parametrize(
    "unit", ["<", "<a ", "<svg>", "<sup>", "<x>", "</", "<!--", "<think>", "<|", "<sub alias='a'>", "a<b ", "<a b='"]
)
def test_time_is_linear_in_tags(unit: str) -> None:
    def seconds(length: int) -> float:
        started = time.process_time()
        "".join(without_tags([(unit * length)[:length]]))
        return time.process_time() - started

    assert seconds(80_000) < 10 * seconds(20_000) + 0.2
