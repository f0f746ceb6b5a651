"""The studio corpus: transcribed, many-voiced, many-styled English that anyone can rebuild from open speech engines.

Upstream: sentences (one a line) and the engines of `engines`.  Downstream: `utterances.jsonl`, see `data.manifest`.
Every utterance is a function of (its number, the seed, the sentences), so a stopped build goes on where it stood and
two machines build the same corpus. Held out: some speakers of every base voice, and sentences chosen by their letters.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import multiprocessing
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import soundfile
from pydantic import Field

from marstts import audio
from marstts.config import Config
from marstts.data.corpora import engines, speakers
from marstts.data.corpora.engines import BASE_VOICES
from marstts.data.corpora.speakers import SAMPLE_RATE, STYLES, StudioSpeaker, draw_rng
from marstts.data.manifest import Utterance
from marstts.errors import DataError

SPEAKABLE = re.compile(r"[A-Za-z][A-Za-z ,.?!;:'-]*")
HELD_OUT_TEST, HELD_OUT_VALIDATION = 30, 30
"""One sentence in 30 is for tests only, another one in 30 for validation only."""
MIN_SECONDS, MAX_SECONDS = 0.7, 15.0


class StudioConfig(Config):
    """What the corpus holds."""

    bases: tuple[str, ...]
    """Names of base voices (see `engines.BASE_VOICES`)."""

    speakers_per_base: int = Field(12, ge=2)
    """People drawn from each base voice; the first keeps the engine's own voice."""

    held_out_per_base: int = Field(1, ge=0)
    """People of each base, drawn like the others, that only the test split hears."""

    train_hours: float = Field(12.0, gt=0)
    validation_utterances: int = 300
    test_utterances_per_speaker: int = 42

    regular_share: float = Field(0.5, gt=0, le=1)
    """Share of the regular style; the other six share the rest evenly."""

    band_limited_share: float = Field(0.06, ge=0, lt=1)
    """Training utterances reduced to 16 or 8 kHz bandwidth, so that the quality prefix means something."""

    max_characters: int = 110
    min_characters: int = 8
    seed: int = 0


@dataclass(frozen=True)
class Order:
    """One utterance to be made."""

    id: str
    speaker: StudioSpeaker
    style: str
    text: str
    split: str
    source_rate: int
    """24000 for full band; 16000 or 8000 where the band is cut on purpose."""
    seed: int


def build(
    config: StudioConfig, sentence_files: list[tuple[Path, float]], output: Path, workers: int,
    say: Callable[[str], None] = print,
) -> None:  # fmt: skip
    """Make the corpus in `output`; goes on where an earlier call stopped. Skipped utterances land in rejects.jsonl."""
    engines.check_installed(config.bases)
    sentences = read_sentences(sentence_files, config)
    output.mkdir(parents=True, exist_ok=True)
    manifest, rejects = output / "utterances.jsonl", output / "rejects.jsonl"
    done = {json.loads(line)["id"] for path in (manifest, rejects) if path.exists() for line in path.open()}
    seconds = 0.0
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers) as pool, manifest.open("a") as kept, rejects.open("a") as refused:
        waiting = ((order, output) for order in plan(config, sentences) if order.id not in done)
        for number, (utterance, reason) in enumerate(pool.imap(make, waiting, chunksize=8), start=1):
            if reason:
                refused.write(json.dumps({"id": utterance.id, "text": utterance.text, "reason": reason}) + "\n")
                continue
            kept.write(json.dumps(asdict(utterance)) + "\n")
            seconds += utterance.seconds
            if number % 500 == 0:
                kept.flush()
                say(f"{number} utterances, {seconds / 3600:.2f} hours")


def read_sentences(files: list[tuple[Path, float]], config: StudioConfig) -> dict[str, list[tuple[str, float]]]:
    """Sentences per split with their drawing weight. Files hold a sentence a line, or source<TAB>sentence; may be .gz.

    A file's sentences share its weight; sources within a file share it by the square root of their sizes.
    """
    splits: dict[str, list[tuple[str, float]]] = {"train": [], "validation": [], "test": []}
    for path, weight in files:
        if not path.is_file():
            raise DataError(f"{path}: no such file of sentences")
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8") as lines:
            groups: dict[str, list[str]] = {}
            for line in lines:
                source, _, text = line.strip().rpartition("\t")
                text = text.replace("--", ",").replace(" ,", ",").strip()
                if config.min_characters <= len(text) <= config.max_characters and SPEAKABLE.fullmatch(text):
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
    """By its letters alone, so that no spelling variant of a held-out sentence is trained on."""
    letters = re.sub(r"[^a-z]", "", text.lower())
    place = int.from_bytes(hashlib.sha256(letters.encode()).digest()[:4], "little") % (
        HELD_OUT_TEST * HELD_OUT_VALIDATION
    )
    if place % HELD_OUT_TEST == 0:
        return "test"
    return "validation" if place % HELD_OUT_TEST == 1 else "train"


def roster(config: StudioConfig) -> tuple[list[StudioSpeaker], list[StudioSpeaker]]:
    """(speakers to train on, speakers held out). Held-out draws are spread over the vocal-tract range of a base."""
    known: list[StudioSpeaker] = []
    held_out: list[StudioSpeaker] = []
    total = config.speakers_per_base + config.held_out_per_base
    spacing = total / (config.held_out_per_base + 1)
    chosen = {round(spacing * (k + 1)) for k in range(config.held_out_per_base)}
    for number in range(total):
        for name in config.bases:
            speaker = speakers.draw_speaker(BASE_VOICES[name], number, total, config.seed)
            (held_out if number in chosen else known).append(speaker)
    return known, held_out


def plan(config: StudioConfig, sentences: dict[str, list[tuple[str, float]]]) -> Iterator[Order]:
    """All orders: validation and test first (they are few), then training until the hours are full, by estimate."""
    known, held_out = roster(config)
    for number in range(config.validation_utterances):
        yield order("validation", number, known[number % len(known)], config, sentences)
    for number in range(config.test_utterances_per_speaker * len(held_out)):
        yield order("test", number, held_out[number % len(held_out)], config, sentences)
    seconds, number = 0.0, 0
    while seconds < config.train_hours * 3600:
        next_order = order("train", number, known[number % len(known)], config, sentences)
        seconds += len(next_order.text) / 14.5 / STYLES[next_order.style].rate + 2 * speakers.EDGE_SECONDS
        number += 1
        yield next_order


def order(
    split: str, number: int, speaker: StudioSpeaker, config: StudioConfig,
    sentences: dict[str, list[tuple[str, float]]],
) -> Order:  # fmt: skip
    """Utterance `number` of a split: style and sentence drawn by its number. Test styles alternate in pairs, so that
    each utterance has another of the same speaker and style."""
    rng = draw_rng("order", split, number, config.seed)
    others = [style for style in STYLES if style != "regular"]
    if split == "test":
        style = list(STYLES)[number // max(1, config.held_out_per_base * len(config.bases)) % len(STYLES)]
    else:
        style = "regular" if rng.uniform() < config.regular_share else others[rng.integers(len(others))]
    limited = split == "train" and rng.uniform() < config.band_limited_share
    return Order(
        id=f"{speaker.id}-{split}-{number:06d}",
        speaker=speaker,
        style=style,
        text=draw_sentence(sentences[split], rng),
        split=split,
        source_rate=int(rng.choice([8000, 16000])) if limited else SAMPLE_RATE,
        seed=config.seed,
    )


def draw_sentence(weighted: list[tuple[str, float]], rng: np.random.Generator) -> str:
    """By weight, through a few rejections rather than a table: the list is long and the weights are few."""
    heaviest = max(weight for _, weight in weighted[:: max(1, len(weighted) // 1000)])
    while True:
        text, weight = weighted[rng.integers(len(weighted))]
        if rng.uniform() * heaviest <= weight:
            return text


def make(job: tuple[Order, Path]) -> tuple[Utterance, str]:
    """Render one order and write its FLAC file; (utterance, "") or (utterance, why it was refused)."""
    wanted, output = job
    path = Path("audio") / wanted.speaker.id / f"{wanted.id}.flac"
    utterance = Utterance(
        id=wanted.id, audio=str(path), text=wanted.text, speaker=wanted.speaker.id, style=wanted.style, seconds=0.0,
        source_rate=wanted.source_rate, split=wanted.split, licence=BASE_VOICES[wanted.speaker.base].licence,
    )  # fmt: skip
    try:
        waveform = speakers.render(
            wanted.speaker, wanted.style, wanted.text, draw_rng("render", wanted.id, wanted.seed)
        )
        if wanted.source_rate < SAMPLE_RATE:
            waveform = audio.resample(audio.resample(waveform, wanted.source_rate), SAMPLE_RATE)
    except DataError as error:
        return utterance, str(error)
    if not MIN_SECONDS <= waveform.seconds <= MAX_SECONDS:
        return utterance, f"lasts {waveform.seconds:.2f} s; kept are {MIN_SECONDS} to {MAX_SECONDS} s"
    (output / path).parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(output / path, waveform.samples, SAMPLE_RATE, subtype="PCM_16")
    return Utterance(**{**asdict(utterance), "seconds": round(waveform.seconds, 3)}), ""
