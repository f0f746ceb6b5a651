"""The synthetic corpus: transcribed English in many voices and styles that can be rebuilt from open speech engines.

Upstream: sentences (one a line) and the engines of `tts_engines`.  Downstream: `utterances.jsonl`, see `data.manifest`.
Every utterance is a function of (its number, the seed, the sentences), so an interrupted build resumes, and all
machines build the same corpus. Held out: some speakers of every base voice, and sentences chosen by their letters.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from pydantic import Field

from marstts import audio
from marstts.errors import DataError, require
from marstts.io.config import Config
from marstts.io.files import atomic_path, lock_folder
from marstts.io.hash_order import hash_number
from marstts.io.jsonl import Torn, open_appender, read_rows
from marstts_lab.data.corpora import speakers
from marstts_lab.data.corpora import tts_engines as engines
from marstts_lab.data.corpora.speakers import SAMPLE_RATE, STYLES, SyntheticSpeaker, draw_rng
from marstts_lab.data.corpora.tts_engines import BASE_VOICES
from marstts_lab.data.manifest import Utterance, as_row
from marstts_lab.data.sentence_files import lines_of
from marstts_lab.data.workers import Processes, Progress, load_nothing, run_in_order

log = logging.getLogger(__name__)

MANIFEST, REJECTS = "utterances.jsonl", "rejects.jsonl"

ALLOWED_TEXT = re.compile(r"\"?[A-Za-z][A-Za-z ,.?!;:'\"-]*")
HELD_OUT_TEST, HELD_OUT_VALIDATION = 30, 30
"""One sentence in 30 is for tests only, another one in 30 for validation only."""
MIN_SECONDS, MAX_SECONDS = 0.7, 15.0
CHUNK = 8
"""Utterances that a worker gets at a time."""


class SyntheticConfig(Config):
    """The content of the corpus."""

    base_voices: tuple[str, ...] = Field(min_length=1)
    """Names of base voices (see `tts_engines.BASE_VOICES`)."""

    speakers_per_voice: int = Field(12, ge=2, le=10_000)
    """Speakers drawn from each base voice; the first keeps the engine's voice."""

    held_out_per_voice: int = Field(1, ge=0, le=10_000)
    """Speakers of each base voice, drawn like the others, that only the test split contains."""

    train_hours: float = Field(12.0, gt=0, le=100_000)
    validation_utterances: int = Field(300, ge=0, le=10**6)
    test_utterances_per_speaker: int = Field(42, ge=0, le=10**6)

    regular_fraction: float = Field(0.5, gt=0, le=1)
    """Fraction of the regular style; the other six styles share the rest evenly."""

    band_limited_fraction: float = Field(0.06, ge=0, lt=1)
    """Fraction of training utterances with 16 or 8 kHz bandwidth, which the quality prefix distinguishes."""

    joined_fraction: float = Field(0.0, ge=0, le=1)
    """Fraction of utterances that are two sentences."""

    max_characters: int = Field(110, gt=0)
    min_characters: int = Field(8, ge=0)
    seed: int = Field(0, ge=0)


@dataclass(frozen=True)
class UtteranceSpec:
    """One utterance to be rendered."""

    id: str
    speaker: SyntheticSpeaker
    style: str
    text: str
    split: str
    source_rate: int
    """24000 for full band; 16000 or 8000 where the band is limited."""
    seed: int


@dataclass(frozen=True)
class SyntheticReport:
    """The outcome of a build."""

    utterances: int
    seconds: float
    rejects: int
    made_now: int


def build(
    config: SyntheticConfig, sentence_files: Sequence[tuple[Path, float]], output: Path, executor: Processes
) -> SyntheticReport:
    """Build the corpus in `output`, resuming an interrupted build. Utterances that fail are listed in rejects.jsonl.

    DataError, before any work, where an engine is missing or another process works in `output`.
    """
    speakers.open_vocoder()
    require("pyloudnorm", "synthetic")
    engines.check_installed(config.base_voices)
    sentences = read_sentences(sentence_files, config)
    with lock_folder(output, DataError):
        kept, rejected = finished_rows(Utterance, output / MANIFEST), finished_rows(dict[str, Any], output / REJECTS)
        done = {utterance.id for utterance in kept} | {row.get("id") for row in rejected}
        waiting = [spec for spec in plan(config, sentences) if spec.id not in done]
        seconds, rejects = sum((utterance.seconds for utterance in kept), 0.0), len(rejected)
        progress = Progress(log, "utterances", len(waiting))
        with open_appender(output / MANIFEST) as add, open_appender(output / REJECTS) as add_reject:
            work = partial(render_to_file, output)
            for utterance, reason in run_in_order(executor, waiting, load_nothing, work, chunk_size=CHUNK):
                if reason:
                    rejects += 1
                    add_reject({"id": utterance.id, "text": utterance.text, "reason": reason})
                else:
                    seconds += utterance.seconds
                    add(as_row(utterance))
                progress.advance(f"{seconds / 3600:.2f} h")
    return SyntheticReport(len(kept) + len(waiting) - rejects + len(rejected), seconds, rejects, len(waiting))


def finished_rows(model: Any, path: Path) -> list[Any]:
    """The rows of an earlier build; an unfinished last line is dropped, and rendered again."""
    return read_rows(model, path, torn=Torn.DROP, unique=("id",)) if path.is_file() else []


def read_sentences(files: Sequence[tuple[Path, float]], config: SyntheticConfig) -> dict[str, list[tuple[str, float]]]:
    """Sentences per split with their sampling weight. Files hold a sentence or source<TAB>sentence a line; may be .gz.

    A file's sentences share its weight; sources within a file share it by the square root of their sizes.
    """
    splits: dict[str, list[tuple[str, float]]] = {"train": [], "validation": [], "test": []}
    for path, weight in files:
        groups: dict[str, list[str]] = {}
        for line in lines_of(path):
            source, _, text = line.strip().rpartition("\t")
            text = text.replace("--", ",").replace(" ,", ",").strip()
            if config.min_characters <= len(text) <= config.max_characters and ALLOWED_TEXT.fullmatch(text):
                groups.setdefault(source, []).append(text)
        roots = sum(len(group) ** 0.5 for group in groups.values())
        for group in groups.values():
            for text in group:
                splits[split_of_sentence(text)].append((text, weight / roots / len(group) ** 0.5))
    for split, found in splits.items():
        if not found:
            raise DataError(f"the sentence files leave nothing for the {split} split; give more sentences")
    return splits


def split_of_sentence(text: str) -> str:
    """The split of a sentence by its letters alone, so that no spelling variant of a held-out one is trained on."""
    letters = re.sub(r"[^a-z]", "", text.lower())
    place = hash_number(letters) % (HELD_OUT_TEST * HELD_OUT_VALIDATION)
    if place % HELD_OUT_TEST == 0:
        return "test"
    return "validation" if place % HELD_OUT_TEST == 1 else "train"


def draw_speakers(config: SyntheticConfig) -> tuple[list[SyntheticSpeaker], list[SyntheticSpeaker]]:
    """Draw training and held-out speakers. Held-out draws are spread over the vocal-tract range of a base voice."""
    known: list[SyntheticSpeaker] = []
    held_out: list[SyntheticSpeaker] = []
    total = config.speakers_per_voice + config.held_out_per_voice
    spacing = total / (config.held_out_per_voice + 1)
    chosen = {round(spacing * (k + 1)) for k in range(config.held_out_per_voice)}
    for number in range(total):
        for name in config.base_voices:
            speaker = speakers.draw_speaker(BASE_VOICES[name], number, total, config.seed)
            (held_out if number in chosen else known).append(speaker)
    return known, held_out


def plan(config: SyntheticConfig, sentences: dict[str, list[tuple[str, float]]]) -> Iterator[UtteranceSpec]:
    """All utterances: validation and test first (they are few), then training up to the hours, by estimate."""
    known, held_out = draw_speakers(config)
    for number in range(config.validation_utterances):
        yield draw_utterance("validation", number, known[number % len(known)], config, sentences)
    for number in range(config.test_utterances_per_speaker * len(held_out)):
        yield draw_utterance("test", number, held_out[number % len(held_out)], config, sentences)
    seconds, number = 0.0, 0
    while seconds < config.train_hours * 3600:
        spec = draw_utterance("train", number, known[number % len(known)], config, sentences)
        seconds += len(spec.text) / 14.5 / STYLES[spec.style].rate + 2 * speakers.EDGE_SECONDS
        number += 1
        yield spec


def draw_utterance(
    split: str, number: int, speaker: SyntheticSpeaker, config: SyntheticConfig,
    sentences: dict[str, list[tuple[str, float]]],
) -> UtteranceSpec:  # fmt: skip
    """Utterance `number` of a split: style and sentence drawn by its number. Test styles alternate in pairs, so that
    each utterance has another of the same speaker and style."""
    rng = draw_rng("order", split, number, config.seed)
    others = [style for style in STYLES if style != "regular"]
    if split == "test":
        style = list(STYLES)[number // max(1, config.held_out_per_voice * len(config.base_voices)) % len(STYLES)]
    else:
        style = "regular" if rng.uniform() < config.regular_fraction else others[rng.integers(len(others))]
    limited = split == "train" and rng.uniform() < config.band_limited_fraction
    return UtteranceSpec(
        id=f"{speaker.id}-{split}-{number:06d}",
        speaker=speaker,
        style=style,
        text=draw_text(sentences[split], config.joined_fraction, rng),
        split=split,
        source_rate=int(rng.choice([8000, 16000])) if limited else SAMPLE_RATE,
        seed=config.seed,
    )


def draw_text(weighted: list[tuple[str, float]], joined_fraction: float, rng: np.random.Generator) -> str:
    """A sentence, or two of them."""
    text = draw_sentence(weighted, rng)
    if not joined_fraction or rng.uniform() >= joined_fraction:
        return text
    ended = text if text[-1] in '.?!"' else f"{text.rstrip(' ,;:-')}."
    return f"{ended} {draw_sentence(weighted, rng)}"


def draw_sentence(weighted: list[tuple[str, float]], rng: np.random.Generator) -> str:
    """A sentence by weight, through a few rejections rather than a table: the list is long and the weights are few."""
    largest = max(weight for _, weight in weighted[:: max(1, len(weighted) // 1000)])
    while True:
        text, weight = weighted[rng.integers(len(weighted))]
        if rng.uniform() * largest <= weight:
            return text


def render_to_file(output: Path, spec: UtteranceSpec, models: None = None) -> tuple[Utterance, str]:
    """Render an utterance to its FLAC file; (utterance, "") or (utterance, the reason why it is rejected)."""
    path = Path("audio") / spec.speaker.id / f"{spec.id}.flac"
    utterance = Utterance(
        id=spec.id, audio=str(path), text=spec.text, speaker=spec.speaker.id, style=spec.style, seconds=0.0,
        source_rate=spec.source_rate, split=spec.split, license=BASE_VOICES[spec.speaker.base].license,
    )  # fmt: skip
    try:
        waveform = speakers.render(spec.speaker, spec.style, spec.text, draw_rng("render", spec.id, spec.seed))
        if spec.source_rate < SAMPLE_RATE:
            waveform = audio.resample(audio.resample(waveform, spec.source_rate), SAMPLE_RATE)
    except DataError as error:
        return utterance, str(error)
    if not MIN_SECONDS <= waveform.seconds <= MAX_SECONDS:
        return utterance, f"lasts {waveform.seconds:.2f} s; kept are {MIN_SECONDS} to {MAX_SECONDS} s"
    with atomic_path(output / path, DataError) as temporary:
        soundfile.write(temporary, waveform.samples, SAMPLE_RATE, subtype="PCM_16", format="FLAC")
    return replace(utterance, seconds=round(waveform.seconds, 3)), ""
