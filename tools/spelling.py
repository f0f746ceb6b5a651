"""Spelling: error rates of capitals, initialisms and dashes, as they are written and as `mars6.spelling` spells them.

Usage: python tools/spelling.py [--sentences N] [--output JSON]

Held-out sentences are spoken by mini in small letters, in capitals, and in capitals that are spelled simply; sentences
with an initialism, with dashes for commas, and with quotation marks, in both ways. The packaged voices take turns,
seeds are the same. Error rates are pocketsphinx's. Of interjections that are whole sentences, it is counted how often
pocketsphinx recognizes no word at all. Of letters A ("plan A"), it is counted how often forced alignment finds the
article's vowel instead of the letter's name. Needs the extra eval.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from word_sentences import held_out_sentences
from word_times import WIDE_BEAMS

from marstts.benchmark.report import gather_metadata, print_json
from marstts.mars6.spelling import DASH, LONE_INTERJECTIONS, PAUSE, Spelling
from marstts.metrics import sphinx
from marstts.metrics.intervals import bootstrap_difference, ratio, ratio_interval
from marstts.metrics.recognition import SphinxRecognizer, character_edits
from marstts.metrics.words import has_repetition, is_truncated, plain_words
from marstts.synthesis.clone.voices import packaged_names
from marstts.synthesis.loading import load
from marstts.synthesis.synthesizer import Synthesizer

SEED = 9
LONGEST = 60
"""Characters of a sentence."""

INTERJECTION_SEEDS = 4

FRAMES = (
    "The {} met on Monday.", "She works for the {}.", "We read about the {} today.", "Do you know the {}?",
    "They bought a new {}.", "Last week the {} was here.",
)  # fmt: skip
INITIALISMS = (
    "N B A", "J F K", "H R", "M P", "R A F", "Y M C A", "L P", "C D", "X M L", "U R L", "F A Q", "G D P", "I Q",
    "W T O", "S U V", "B M W", "K L M", "Z D F", "D J", "E P A", "L E D", "N G O", "P O W", "Q E D",
)  # fmt: skip

LETTER_A = (
    "Plan A failed.", "We need vitamin A every day.", "She went to plan A.", "He got an A in math.",
    "Hepatitis A is rare.", "Take exit A now.", "The answer is A.", "Choose option A or wait.",
)  # fmt: skip
ARTICLE = "a"
"""The entry of pocketsphinx's dictionary with the article's vowel; the letter's name is "a(2)"."""


def measure(synthesizer: Synthesizer, texts: list[str], spelling: Spelling) -> tuple[np.ndarray, float]:
    """(texts, 2) errors and characters, and the share that the recognizer flags."""
    model: Any = synthesizer.model
    spoken = replace(synthesizer, model=replace(model, spelling=spelling))
    recognizer, rows, flagged = SphinxRecognizer(), [], []
    voices = [synthesizer.open_voice(name) for name in packaged_names()]
    for index, text in enumerate(texts):
        words = plain_words(text)
        transcript = recognizer.transcribe(spoken.speak(text, voices[index % len(voices)], seed=index).waveform)
        edits = character_edits(words, transcript)
        rows.append((edits.errors, edits.length))
        flagged.append(has_repetition(words, transcript) or is_truncated(words, transcript))
    return np.array(rows, float), float(np.mean(flagged))


def quote_word(text: str, index: int) -> str:
    """The text with quotation marks around one of its words, neither the first nor the last."""
    words = text.split()
    place = 1 + index % max(1, len(words) - 2)
    bare = words[place].rstrip(",;:")
    words[place] = f'"{bare}"{words[place][len(bare) :]}'
    return " ".join(words)


def count_unrecognized(synthesizer: Synthesizer, spelling: Spelling) -> dict[str, Any]:
    """Takes of each lone interjection in every packaged voice, and the number in which no word is recognized."""
    model: Any = synthesizer.model
    spoken, recognizer = replace(synthesizer, model=replace(model, spelling=spelling)), SphinxRecognizer()
    counts = {}
    for interjection in LONE_INTERJECTIONS:
        text = f"{interjection.capitalize()}."
        takes = [spoken.speak(text, name, seed=seed) for name in packaged_names() for seed in range(INTERJECTION_SEEDS)]
        counts[text] = sum(not recognizer.transcribe(take.waveform) for take in takes)
    return {"takes of each": len(packaged_names()) * INTERJECTION_SEEDS, "no word recognized": counts}


def count_articles(synthesizer: Synthesizer, spelling: Spelling) -> dict[str, int]:
    """Takes with a letter A in every packaged voice: aligned ones, and those in which it sounds like the article."""
    model: Any = synthesizer.model
    spoken = replace(synthesizer, model=replace(model, spelling=spelling))
    decoder = sphinx.new_decoder(**WIDE_BEAMS)
    counts: Counter[str] = Counter()
    for text in LETTER_A:
        decoder.set_align_text(" ".join(plain_words(text)))
        for name in packaged_names():
            pcm = sphinx.prepare(spoken.speak(text, name, seed=0).waveform)
            try:
                sphinx.decode(decoder, pcm)
            except RuntimeError:
                continue
            found = [each.word for each in decoder.seg() or [] if sphinx.base_form(each.word) == ARTICLE]
            counts.update(found[-1:])
    return {"aligned takes": counts.total(), "said as the article": counts[ARTICLE]}


def compare(synthesizer: Synthesizer, texts: list[str]) -> dict[str, Any]:
    """Error rate and flagged share in both spellings, and the difference."""
    found = {spelling: measure(synthesizer, texts, spelling) for spelling in Spelling}
    table: dict[str, Any] = {
        spelling.value: {"cer": ratio_interval(rows[:, 0], rows[:, 1]).format(3), "flagged": round(flagged, 3)}
        for spelling, (rows, flagged) in found.items()
    }
    difference = bootstrap_difference(found[Spelling.SIMPLE][0], found[Spelling.AS_WRITTEN][0], ratio)
    return {"texts": len(texts), **table, "difference": difference.format(3)}


def main() -> None:
    """Parse, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=100)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    synthesizer = load("mini")
    sentences = [text for text in held_out_sentences(100_000, SEED) if len(text) <= LONGEST][: options.sentences]
    letters = [
        FRAMES[(index + shift) % len(FRAMES)].format(name) for shift in (0, 1) for index, name in enumerate(INITIALISMS)
    ]
    paused = [text for text in held_out_sentences(100_000, SEED) if PAUSE in text and len(text) <= 70]
    dashed = [text.replace(PAUSE, DASH) for text in paused[: options.sentences // 2]]
    plain, flagged = measure(synthesizer, sentences, Spelling.AS_WRITTEN)
    result = {
        **gather_metadata("python tools/spelling.py"),
        "small letters": {"cer": ratio_interval(plain[:, 0], plain[:, 1]).format(3), "flagged": round(flagged, 3)},
        "capitals": compare(synthesizer, [sentence.upper() for sentence in sentences]),
        "initialisms": compare(synthesizer, letters),
        "dashes": compare(synthesizer, dashed),
        "a quoted word": compare(synthesizer, [quote_word(text, index) for index, text in enumerate(sentences)]),
        "quoted sentences": compare(synthesizer, [f'"{text}"' for text in sentences]),
        "interjections": {spelling.value: count_unrecognized(synthesizer, spelling) for spelling in Spelling},
        "letter A": {spelling.value: count_articles(synthesizer, spelling) for spelling in Spelling},
    }
    print_json(result, options.output)


if __name__ == "__main__":
    main()
