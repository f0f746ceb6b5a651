"""Names and rare words that a dictionary respells are recognized more often, by pocketsphinx, than their spelling."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from marstts.synthesis.backoff import BackoffConfig
from marstts.synthesis.loading import load
from marstts.synthesis.speaking import Speaking
from marstts.synthesis.synthesizer import Synthesizer
from marstts.text.lexicon import Lexicon, read_entry
from marstts_lab.metrics import sphinx
from scripted import with_parts

NAMES = {
    "Nguyen": ("W IH1 N", "N UW Y EH N"),
    "Niamh": ("N IY1 V", "N IY AE M"),
    "Worcester": ("W UH1 S T ER0", "W AO R S EH S T ER"),
    "Leicester": ("L EH1 S T ER0", "L AY S EH S T ER"),
    "Goethe": ("G ER1 T AH0", "G OW TH"),
    "Thames": ("T EH1 M Z", "TH EY M Z"),
    "Cholmondeley": ("CH AH1 M L IY0", "CH OW L M AA N D L IY"),
    "hyperbole": ("HH AY0 P ER1 B AH0 L IY0", "HH AY P ER B OW L"),
    "colonel": ("K ER1 N AH0 L", "K OW L OW N EH L"),
    "Yosemite": ("Y OW0 S EH1 M AH0 T IY0", "Y OW S M AY T"),
}
"""Phones of each as it is said, and as a reader would say it who knows only its letters."""

MIN_GAIN = 4

pytestmark = [pytest.mark.slow]


@pytest.fixture(scope="module")
def decoder() -> Any:
    pytest.importorskip("pocketsphinx")
    decoder = sphinx.new_decoder(lw=1.0, wip=1.0, beam=1e-60, wbeam=1e-40, pbeam=1e-60)
    for word, (said, spelled) in NAMES.items():
        decoder.add_word(f"{word.lower()}_said", re.sub("[0-2]", "", said), False)
        decoder.add_word(f"{word.lower()}_spelled", spelled, True)
    return decoder


def recognized(decoder: Any, synthesizer: Synthesizer, word: str) -> bool:
    """Whether the word sounds as it is said rather than as it is spelled."""
    speech = synthesizer.speak(f"They said {word} again.", "ada")
    choices = f"( {word.lower()}_said | {word.lower()}_spelled )"
    decoder.add_jsgf_string("c", f"#JSGF V1.0; grammar c; public <s> = they said {choices} again ;")
    decoder.activate_search("c")
    sphinx.decode(decoder, sphinx.prepare(speech.waveform))
    return f"{word.lower()}_said" in sphinx.decoded_words(decoder)


def test_a_dictionary_improves_how_names_are_recognized(decoder: Any) -> None:
    plain = with_parts(load(), backoff=BackoffConfig(attempts=1))
    entries = dict(read_entry(f"{word}\t{said}") for word, (said, _) in NAMES.items())
    respelled = replace(plain, usual=Speaking(lexicon=Lexicon(entries)))
    without, with_entries = ([recognized(decoder, each, word) for word in NAMES] for each in (plain, respelled))
    assert sum(with_entries) >= sum(without) + MIN_GAIN, (without, with_entries)
    assert sum(with_entries) >= 0.7 * len(NAMES)
