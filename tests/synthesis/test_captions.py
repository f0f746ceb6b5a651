"""Caption files: what is in them, and that other readers' rules are kept."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import pytest

from marstts.errors import ConfigError
from marstts.synthesis.words.captions import check_captions, cues, write_captions
from marstts.synthesis.words.word_times import Word


def word(written: str, start: float, end: float) -> Word:
    return Word(written=written, spoken=written.lower(), start=start, end=end, confidence=0.9)


WORDS = [word("Dr.", 0.0, 0.3), word("Smith", 0.3, 0.6), word("left.", 0.7, 1.2), word('"Why?"', 1.6, 61.25)]


def test_json_holds_every_field(tmp_path):
    write_captions(WORDS, tmp_path / "w.json", seconds=62.0)
    assert json.loads((tmp_path / "w.json").read_text())[2] == {
        "written": "left.", "spoken": "left.", "start": 0.7, "end": 1.2, "confidence": 0.9,
    }  # fmt: skip


def test_srt_numbers_its_cues_and_separates_them(tmp_path):
    write_captions(WORDS, tmp_path / "w.srt", seconds=62.0)
    assert (tmp_path / "w.srt").read_text() == (
        '1\n00:00:00,000 --> 00:00:01,200\nDr. Smith left.\n\n2\n00:00:01,600 --> 00:01:01,250\n"Why?"\n'
    )


def test_vtt_marks_the_words_within_a_cue(tmp_path):
    write_captions([*WORDS[:3], word("<b>&", 2.0, 2.5)], tmp_path / "w.vtt", seconds=3.0)
    text = (tmp_path / "w.vtt").read_text()
    assert text.startswith("WEBVTT\n\n00:00:00.000 --> 00:00:01.200\nDr. <00:00:00.300>Smith <00:00:00.700>left.\n\n")
    assert "&lt;b&gt;&amp;" in text


def test_textgrid_intervals_cover_the_audio_without_gaps(tmp_path):
    write_captions(WORDS, tmp_path / "w.TextGrid", seconds=62.0)
    text = (tmp_path / "w.TextGrid").read_text()
    bounds = [
        (float(low), float(high), name)
        for low, high, name in re.findall(r'xmin = (\S+)\s+xmax = (\S+)\s+text = "((?:[^"]|"")*)"', text)
    ]
    assert bounds[0][0] == 0 and bounds[-1][1] == 62.0
    assert all(before[1] == after[0] for before, after in pairwise(bounds))
    assert f"intervals: size = {len(bounds)}" in text
    assert [name for _, _, name in bounds if name] == ["Dr.", "Smith", "left.", '""Why?""']


def test_a_stop_without_a_pause_ends_no_cue():
    assert [[shown.written for shown in cue] for cue in cues(WORDS)] == [["Dr.", "Smith", "left."], ['"Why?"']]


def test_long_lines_are_divided():
    many = [word("wonderful", number * 0.3, number * 0.3 + 0.3) for number in range(20)]
    assert max(len(" ".join(shown.written for shown in cue)) for cue in cues(many)) <= 42


@pytest.mark.parametrize("name", ["w.txt", "w", "missing/w.srt"])
def test_other_names_are_refused(tmp_path, name):
    with pytest.raises(ConfigError, match=r"expected a name|no folder"):
        check_captions(tmp_path / name)
