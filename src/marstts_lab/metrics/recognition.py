"""Open-vocabulary recognition: transcribes a take and counts its edits against the text (WER, CER).

Upstream: takes, as waveforms, and plain words (`words.plain_words`, the one normalizer).  Downstream: `panel`.

The paper's recognizer is Whisper-base: MARS6 (arXiv:2501.05787), Sec. V. Here it is in CTranslate2's format; its
weights are a folder, or are downloaded on first use. pocketsphinx needs no download, but misses errors that people
hear; error rates of different recognizers are not comparable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from marstts.audio import Waveform, resample
from marstts.errors import CheckpointError, ConfigError, require
from marstts_lab.metrics import sphinx
from marstts_lab.metrics.hub import fetch_model, package_version
from marstts_lab.metrics.words import plain_words

FASTER_WHISPER_SIZE = "base"
FASTER_WHISPER_FILES = (("model.bin",), ("config.json",), ("tokenizer.json",), ("vocabulary.txt", "vocabulary.json"))


@dataclass(frozen=True)
class Edits:
    """Substitutions, insertions and deletions from a text of `length` units to a transcript."""

    errors: int
    length: int


class Recognizer(Protocol):
    """Transcribes speech."""

    @property
    def name(self) -> str:
        """Name with its version, for reports."""
        ...

    def transcribe(self, waveform: Waveform) -> list[str]:
        """Plain words of the transcript, empty if there are none; resamples by itself."""
        ...


class SphinxRecognizer:
    """pocketsphinx with its default trigram language model; about five times real time on one core."""

    def __init__(self) -> None:
        self.name = f"pocketsphinx {package_version('pocketsphinx')}"
        self._decoder = sphinx.new_decoder(lm=sphinx.model_path("en-us/en-us.lm.bin"))

    def transcribe(self, waveform: Waveform) -> list[str]:
        """Plain words of the transcript; the level of the recording does not matter."""
        sphinx.decode(self._decoder, sphinx.prepare(waveform))
        return plain_words(" ".join(sphinx.decoded_words(self._decoder)))


def faster_whisper_model(source: str) -> str:
    """The hub's name of a size of Whisper; a folder, and anything with a slash, is taken as it is."""
    return source if "/" in source or Path(source).is_dir() else f"Systran/faster-whisper-{source}"


class FasterWhisperRecognizer:
    """Whisper by `faster-whisper` (CTranslate2, 8-bit on CPUs), about five times real time on one core.

    `source` is a folder with converted weights, a size such as `base`, or a name on the hub. Beam 5 at temperature 0,
    so that equal audio has equal transcripts.
    """

    def __init__(self, source: str = FASTER_WHISPER_SIZE) -> None:
        package = require("faster_whisper", "eval")
        self.name = f"faster-whisper {source} ({package_version('faster-whisper')})"
        folder = fetch_model(faster_whisper_model(source), FASTER_WHISPER_FILES)
        try:
            self._model = package.WhisperModel(str(folder), device="cpu", compute_type="int8", cpu_threads=1)
        except (RuntimeError, ValueError) as error:  # CTranslate2's, for files of another kind
            reason = " ".join(str(error).split())[:300]
            raise CheckpointError(f"{source}: Whisper's weights cannot be read: {reason}") from error

    def transcribe(self, waveform: Waveform) -> list[str]:
        """Plain words of the transcript."""
        segments, _ = self._model.transcribe(
            resample(waveform, 16000).samples,
            language="en",
            beam_size=5,
            temperature=0.0,  # without the default's random second attempts
            condition_on_previous_text=False,
        )
        return plain_words(" ".join(segment.text for segment in segments))


RECOGNIZERS: Mapping[str, Callable[..., Recognizer]] = {
    "sphinx": SphinxRecognizer,
    "faster-whisper": FasterWhisperRecognizer,
}
"""Recognizers by the name of their metric."""

WITH_WEIGHTS = ("faster-whisper",)
"""Recognizers whose weights may be chosen."""


def check_recognizer(choice: str) -> str:
    """The recognizer's name of `NAME` or `NAME=WEIGHTS`; ConfigError for anything else."""
    name, equals, source = choice.partition("=")
    if name not in RECOGNIZERS:
        raise ConfigError(f"there is no recognizer {name!r}; expected one of {', '.join(RECOGNIZERS)}")
    if equals and (name not in WITH_WEIGHTS or not source):
        raise ConfigError(f"{choice!r}: expected weights after '=', and only for {' or '.join(WITH_WEIGHTS)}")
    return name


def open_recognizer(choice: str) -> Recognizer:
    """The recognizer of `NAME` or `NAME=WEIGHTS`, such as `faster-whisper=folder/whisper-base`.

    Raises ConfigError for unknown names, MissingExtraError or CheckpointError where its package or weights are missing.
    """
    name = check_recognizer(choice)
    source = choice[len(name) + 1 :]
    return RECOGNIZERS[name](source) if source else RECOGNIZERS[name]()


def word_edits(text: Sequence[str], transcript: Sequence[str]) -> Edits:
    """Fewest edits in words (jiwer); `text` must not be empty."""
    result = require("jiwer", "eval").process_words(" ".join(text), " ".join(transcript))
    return Edits(result.substitutions + result.insertions + result.deletions, len(text))


def character_edits(text: Sequence[str], transcript: Sequence[str]) -> Edits:
    """Fewest edits in characters, the spaces between words included (jiwer); `text` must not be empty."""
    joined = " ".join(text)
    result = require("jiwer", "eval").process_characters(joined, " ".join(transcript))
    return Edits(result.substitutions + result.insertions + result.deletions, len(joined))
