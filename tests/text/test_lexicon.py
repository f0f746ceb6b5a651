"""A user's dictionary: respellings, ARPAbet and IPA."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from marstts.errors import DataError
from marstts.text.lexicon import Lexicon, read_lexicon, read_pronunciation, respell
from marstts.text.phones import readable
from marstts.text.rules.engine import Trace


@pytest.mark.parametrize(
    ("pronunciation", "letters"),
    [
        ("win", "win"),
        ("her my oh nee", "her my oh nee"),
        ("N W IH1 N", "nwin"),
        ("S IH0 N AE1 P S AH0", "sinapsa"),
        ("/nw\u026an/", "nwin"),
        ("/\u0283\u0259\u02c8v\u0254\u02d0n/", "shuvawn"),
        ("/t\u0283a\u026a ti\u02d0/", "chigh tee"),
        ("GH", "GH"),
    ],
)
def test_pronunciations_become_letters_for_models_that_read_no_phones(pronunciation: str, letters: str) -> None:
    assert respell(read_pronunciation(pronunciation)) == letters


@pytest.mark.parametrize(
    ("pronunciation", "phones"),
    [
        ("R EH1 K ER0 D", "{R EH1 K ER0 D}"),
        ("R IH0 K AO1 R D", "{R IH0 K AO1 R D}"),
        ("W AA T S", "{W AA1 T S}"),
        ("/ˈɹɛkɚd/", "{R EH1 K ER0 D}"),
        ("/ɹɪˈkɔːrd/", "{R IH0 K AO1 R D}"),
        ("/ʃəˌvɔːnˈiː/", "{SH AH0 V AO2 N IY1}"),
        ("/ˈbʌtn̩/", "{B AH1 T AH0 N}"),
        ("/kˈOkəɹO/".replace("O", "oʊ"), "{K OW1 K ER0 OW0}"),
    ],
)
def test_phones_keep_their_stress(pronunciation: str, phones: str) -> None:
    assert readable(read_pronunciation(pronunciation)) == phones


@pytest.mark.parametrize("pronunciation", ["Q QQ1", "/\u00a7/", "...", "x" * 300])
def test_impossible_pronunciations_are_refused(pronunciation: str) -> None:
    with pytest.raises(DataError):
        read_pronunciation(pronunciation)


def test_a_file_is_read_with_its_comments(tmp_path: Path) -> None:
    path = tmp_path / "words.tsv"
    path.write_text("# names\nNguyen\twin\tignored\n\nlive\t/l\u026av/\nSão Paulo\tsow powlo\n", encoding="utf-8")
    lexicon = read_lexicon(path)
    trace = Trace()
    assert readable(lexicon.apply("Nguyen nguyen LIVE in São Paulo, Nguyen\u2019s city; alive.", trace)) == (
        "win nguyen {L IH1 V} in sow powlo, win's city; alive."
    )
    steps = [(step.rule, step.written, readable(step.read)) for step in trace.steps]
    assert ("lexicon", "LIVE", "{L IH1 V}") in steps


def test_small_letters_stand_for_every_spelling_and_capitals_for_their_own() -> None:
    lexicon = Lexicon({"polish": "pollish", "Polish": "pohlish"})
    assert [lexicon.find(word) for word in ("polish", "POLISH", "Polish", "x")] == [
        "pollish",
        "pollish",
        "pohlish",
        None,
    ]


def test_every_bad_line_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "words.tsv"
    path.write_text("word\nother\tQ QQ1\nfine\tfyne\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"line 1: .*line 2: "):
        read_lexicon(path)


def test_a_missing_or_binary_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"caf\xe9\n")
    os.mkfifo(tmp_path / "pipe")  # which nobody writes to
    expected = {"nope": "no such file", "b": "expected UTF-8", ".": "a folder", "pipe": "a pipe"}
    for name, message in expected.items():
        with pytest.raises(DataError, match=message):
            read_lexicon(tmp_path / name)
    with pytest.raises(DataError, match="a device"):
        read_lexicon("/dev/zero")
