"""Repeated words ("no, no, no"): how well they are counted in audio, and how often mini says a wrong number.

Usage: python tools/repeated_words.py [--words N] [--output JSON]

`counting`: the engines of the corpus read a word two, three and four times, and `word_counts` is asked whether it was
three times; pocketsphinx, with a grammar of one word, is asked as well. `takes`: mini says each word two to four times
in the packaged voices, as written and as `mars6.spelling` spells it, by the first attempt alone and with backoff and
repair; pocketsphinx counts. Needs the extras eval and synthetic, and the
engines. No word was used to choose limits or spellings.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pronunciations import add_pronunciations
from word_sentences import speak_once

from marstts.audio import Waveform
from marstts.errors import MarsError
from marstts.mars6.spelling import Spelling
from marstts.synthesis.clone.packaged import packaged_names
from marstts.synthesis.loading import load
from marstts.synthesis.synthesizer import Synthesizer
from marstts.synthesis.words.attention_path import SentencePlaces
from marstts.synthesis.words.word_counts import find_runs, syllable_peaks
from marstts_lab.benchmark.report import gather_metadata, print_json
from marstts_lab.data.corpora.tts_engines import BASE_VOICES
from marstts_lab.metrics import sphinx
from marstts_lab.metrics.intervals import ratio_interval

WORDS = (
    "gone", "stay", "cold", "home", "jump", "push", "back", "slow", "mine", "move", "dance", "light", "night", "sleep",
    "more", "good", "ring", "yes", "fast", "blue", "never", "sorry", "maybe", "hurry", "over", "really", "louder",
    "closer",
)  # fmt: skip
COPIES = (2, 3, 4)

Speak = Callable[[str], list[Waveform]]
"""A text -> one take in each voice."""


def repeat(word: str, count: int) -> str:
    """The text that says a word this many times."""
    return ", ".join([word] * count).capitalize() + "."


class LoopRecognizer:
    """pocketsphinx with a grammar that knows one word: how often is it said?"""

    def __init__(self, word: str) -> None:
        self._decoder = sphinx.new_decoder()
        add_pronunciations(self._decoder, [word])
        self._decoder.add_jsgf_string("loop", f"#JSGF V1.0; grammar loop; public <said> = ( {word} )+ ;")
        self._decoder.activate_search("loop")

    def count(self, waveform: Waveform) -> int:
        """The number of times that the word is recognized."""
        sphinx.decode(self._decoder, sphinx.prepare(waveform))
        return len([word for word in sphinx.decoded_words(self._decoder) if not word.startswith("<")])


def measure_counting(words: Iterable[str], recognizers: Mapping[str, LoopRecognizer]) -> dict[str, Any]:
    """Shares of recordings that are called miscounted where three words are expected, by the number of words said."""
    found: dict[int, list[tuple[bool, bool]]] = {copies: [] for copies in COPIES}
    for word in words:
        [run] = find_runs(SentencePlaces.of(repeat(word, 3), np.array([[0, 1]])))
        for voice in BASE_VOICES.values():
            for copies in COPIES:
                try:
                    recording = voice.speak(repeat(word, copies), voice, 1.0, 1.0)
                except (MarsError, FileNotFoundError):
                    continue  # the engine is not installed
                by_peaks = run.miscount(len(syllable_peaks(recording))) is not None
                found[copies].append((by_peaks, recognizers[word].count(recording) != 3))
    return {
        f"said {copies} times": {
            "recordings": len(rows),
            "called wrong by syllables": share(row[0] for row in rows),
            "called wrong by pocketsphinx": share(row[1] for row in rows),
        }
        for copies, rows in found.items()
    }


def measure_takes(speak: Speak, words: list[str], recognizers: Mapping[str, LoopRecognizer]) -> dict[str, Any]:
    """Shares of takes in which pocketsphinx counts more or less words than there are in the text."""
    table: dict[str, Any] = {}
    for copies in COPIES:
        spoken = [(word, waveform) for word in words for waveform in speak(repeat(word, copies))]
        counts = [recognizers[word].count(waveform) - copies for word, waveform in spoken]
        table[f"{copies} words"] = {
            "takes": len(counts),
            "too many": share(count > 0 for count in counts),
            "too few": share(count < 0 for count in counts),
        }
    return table


def first_attempts(synthesizer: Synthesizer, text: str) -> list[Waveform]:
    """The text in each packaged voice, spoken once: without backoff and repair."""
    voices = [synthesizer.open_voice(name) for name in packaged_names()]
    spoken = speak_once(synthesizer, [text] * len(voices), voices)
    return [
        synthesizer.session.decode(
            synthesizer.session.model.codes(take.generated.tokens, take.request.rng, take.request.prompt), voice
        )
        for take, voice in zip(spoken, voices, strict=True)
    ]


def checked_takes(synthesizer: Synthesizer, text: str) -> list[Waveform]:
    """The text in each packaged voice, as `speak` says it."""
    voices = [synthesizer.open_voice(name) for name in packaged_names()]
    results = synthesizer.speak_many([text] * len(voices), voices, seeds=[0] * len(voices))
    return [result.speech.waveform for result in results if result.speech is not None]


def share(found: Iterable[bool]) -> str:
    """The share of what is true, with its 95 % interval."""
    values = np.array(list(found), float)
    interval = ratio_interval(values, np.ones(len(values)))
    assert interval is not None
    return interval.format(3)


def main() -> None:
    """Parse, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=int, default=len(WORDS))
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    words = list(WORDS[: options.words])
    recognizers = {word: LoopRecognizer(word) for word in words}
    mini = load("mini")
    model: Any = mini.session.model
    as_written = replace(mini, session=replace(mini.session, model=replace(model, spelling=Spelling.AS_WRITTEN)))
    systems: dict[str, Speak] = {
        "commas, first attempt": partial(first_attempts, as_written),
        "colons, first attempt": partial(first_attempts, mini),
        "colons, counted": partial(checked_takes, mini),
    }
    result = {
        **gather_metadata("python tools/repeated_words.py", ["mini"]),
        "counting": measure_counting(words, recognizers),
        "takes": {name: measure_takes(speak, words, recognizers) for name, speak in systems.items()},
    }
    print_json(result, options.output)


if __name__ == "__main__":
    main()
