"""Mining: a model speaks in a recording's voice, and then in the voice of its output; a bad second take is a failure.

Reverse inference optimization (RIO, arXiv:2407.02243), as MARS6 (arXiv:2501.05787) uses it: a recording lends its voice
to any text (*forward*); the output lends its voice to the words of the recording (*cycle*). The recording is the ground
truth of the cycle, so no human needs to rate the takes.

Upstream: a bundle (`synthesis.loading`), a manifest, a file of sentences.
Downstream: `data.mined_takes`, then `pairs`.
Deviations: every take is kept, whatever its quality, and none is sampled again: failures are what is looked for.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import logging
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic import Field

from marstts.bundle import load_bundle
from marstts.data.manifest import Utterance, read_manifest
from marstts.data.mined_takes import PLAN_FILE, MiningProvenance, PlannedTake, read_takes, shard_path
from marstts.data.progress import Progress
from marstts.data.sentence_files import NO_GZIP
from marstts.data.workers import Executor
from marstts.errors import DataError
from marstts.io.config import Config
from marstts.io.files import lock_folder
from marstts.io.jsonl import read_rows, write_rows
from marstts.io.provenance import begin_or_resume, write_provenance
from marstts.io.reading import decode_text, read_regular_file
from marstts.metrics.testset import folder_digest, group_by_speaker, round_robin, take_seed
from marstts.preference.cycles import CycleGenerator
from marstts.synthesis.loading import load
from marstts.synthesis.prepared_text import has_words
from marstts.text.normalize import normalize

log = logging.getLogger(__name__)

MAX_TEXT_BYTES = 2**30


class MineConfig(Config):
    """Recordings that lend their voices, and settings of the takes."""

    max_references: int = Field(200, gt=0)
    """Most recordings, drawn evenly from the speakers, no transcript twice."""

    texts_per_reference: int = Field(1, gt=0)
    samples_per_text: int = Field(1, gt=0)
    """Cycles of the same recording and text, with different seeds."""

    split: str = "train"
    styles: tuple[str, ...] = ("regular",)
    min_source_rate: int = Field(24_000, ge=0)
    """Hz; recordings of less bandwidth are not used."""

    min_seconds: float = Field(1.5, ge=0.0, allow_inf_nan=False)
    max_seconds: float = Field(8.0, gt=0.0, allow_inf_nan=False)
    max_characters: int = Field(100, gt=0)
    """Longer texts are left out."""

    deep_clone: bool = False
    """Both halves continue from a prefix (recording and transcript); else they have the voice's embeddings only."""

    top_p: float | None = Field(None, ge=0.0, le=1.0)
    """Top-p of all takes (default: the first attempt of the model's backoff)."""

    samples_per_shard: int = Field(32, gt=0)
    """Takes in a batch, and in a file."""

    seed: int = Field(0, ge=0)


@dataclass(frozen=True)
class MineReport:
    """The outcome of a run."""

    takes: int
    generated_now: int
    errors: int
    """Takes whose cycle could not be generated."""


@dataclass(frozen=True)
class MiningShard:
    """Takes to be generated in one batch, and their file."""

    path: Path
    plans: tuple[PlannedTake, ...]

    @property
    def name(self) -> str:
        """Name of the file."""
        return self.path.name


def mine(
    model: str, references: Path, texts: Path, output: Path, config: MineConfig, *, executor: Executor
) -> MineReport:
    """Generate the planned takes into `output`; finished shards are kept, and do not depend on the executor.

    A plan, once made, stays: recordings that were added to the manifest later are not used. ConfigError or DataError
    where `output` was made from something else; DataError where another process works in it.
    """
    with lock_folder(output, DataError):
        plans = open_plan(model, references, texts, output, config)
        size = config.samples_per_shard
        shards = [
            MiningShard(shard_path(output, index), tuple(plans[start : start + size]))
            for index, start in enumerate(range(0, len(plans), size))
        ]
        missing = [shard for shard in shards if not shard.path.is_file()]
        log.info("%s: %d takes planned, %d of %d shards are finished", output, len(plans),
                 len(shards) - len(missing), len(shards))  # fmt: skip
        progress = Progress(log, "shards", len(missing))
        for _ in executor.run(missing, partial(open_generator, model, config), generate_shard):
            progress.advance()
        found = [take for shard in shards for take in read_takes(shard.path)]
    return MineReport(
        takes=len(found),
        generated_now=sum(len(shard.plans) for shard in missing),
        errors=sum(take.error is not None for take in found),
    )


def open_generator(model: str, config: MineConfig) -> CycleGenerator:
    """The generator of a worker, by a packaged model's name or a bundle's folder."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    return CycleGenerator(load(model), deep_clone=config.deep_clone, top_p=config.top_p)


def generate_shard(shard: MiningShard, generator: CycleGenerator) -> Path:
    """Generate and write a shard."""
    generator.write(shard.plans, shard.path)
    return shard.path


def open_plan(model: str, references: Path, texts: Path, output: Path, config: MineConfig) -> list[PlannedTake]:
    """The plan of `output`, made now if there is none; ConfigError or DataError if it was made from something else."""
    record = make_provenance(model, texts, config)
    utterances = read_manifest(references)
    plan = output / PLAN_FILE
    if not plan.is_file():
        plans = make_plan(utterances, references.parent, read_texts(texts, config.max_characters), config)
        write_provenance(output, record)
        write_rows(plan, plans)
        return plans
    begin_or_resume(output, record, {"model_digest": "model", "texts": "file of texts", "config": "configuration"})
    plans = read_rows(PlannedTake, plan, unique=("id",))
    planned = {one.reference for one in plans}
    known = {utterance.id: normalize(utterance.text) for utterance in utterances if utterance.id in planned}
    unknown = [one.reference for one in plans if known.get(one.reference) != one.transcript]
    if unknown:
        raise DataError(
            f"{references}: {len(unknown)} recordings of the plan in {output} are not in it, the first is "
            f"{unknown[0]!r}; give the manifest it was made from, or choose a new --output"
        )
    return plans


def make_provenance(model: str, texts: Path, config: MineConfig) -> MiningProvenance:
    """The provenance of takes that would be generated now."""
    bundle = load_bundle(model)
    return MiningProvenance(
        model=model,
        model_digest=folder_digest(bundle.folder),
        codec=bundle.codec.spec.name,
        encoders={role: encoder.name for role, encoder in bundle.encoders.items()},
        texts=hashlib.sha256(read_regular_file(texts, MAX_TEXT_BYTES, DataError)).hexdigest()[:16],
        config=config.model_dump(mode="json"),
    )


def make_plan(
    utterances: Sequence[Utterance], folder: Path, texts: Sequence[str], config: MineConfig
) -> list[PlannedTake]:
    """Every cycle to be generated, by reference; a function of the manifest, the texts and the configuration."""
    chosen = choose_references(utterances, config)
    if not chosen:
        raise DataError(
            f"{folder}: no recording of split {config.split!r}, styles {', '.join(config.styles)}, "
            f"{config.min_seconds:g} to {config.max_seconds:g} s and {config.min_source_rate} Hz; ask for others"
        )
    plans = []
    for utterance in chosen:
        for number in range(config.texts_per_reference):
            index = take_seed(config.seed, f"{utterance.id} text {number}") % len(texts)
            for sample in range(config.samples_per_text):
                name = f"{utterance.id}~{number}.{sample}"
                plans.append(
                    PlannedTake(
                        id=name,
                        reference=utterance.id,
                        audio=(folder / utterance.audio).resolve(),
                        transcript=normalize(utterance.text),
                        speaker=utterance.speaker,
                        style=utterance.style,
                        text=texts[index],
                        seed=take_seed(config.seed, name),
                    )
                )
    return plans


def choose_references(utterances: Sequence[Utterance], config: MineConfig) -> list[Utterance]:
    """Recordings that fit the configuration, the speakers in turn."""
    fit = [
        utterance
        for utterance in utterances
        if utterance.split == config.split
        and utterance.style in config.styles
        and utterance.source_rate >= config.min_source_rate
        and config.min_seconds <= utterance.seconds <= config.max_seconds
    ]
    groups = group_by_speaker(fit)
    chosen = round_robin([groups[speaker] for speaker in sorted(groups)], config.max_references)
    return [utterance for utterance in chosen if has_words(normalize(utterance.text))]


def read_texts(path: Path, max_characters: int) -> list[str]:
    """The different sentences of a file, normalized, in file order.

    One a line, or source<TAB>sentence; may be gzipped. DataError if there is none of at most `max_characters`.
    """
    content = read_regular_file(path, MAX_TEXT_BYTES, DataError)
    if path.suffix == ".gz":
        content = unzip(content, path)
    texts = dict.fromkeys(
        normalize(line.rpartition("\t")[2]).strip() for line in decode_text(content, str(path), DataError).splitlines()
    )
    found = [text for text in texts if has_words(text) and len(text) <= max_characters]
    if not found:
        raise DataError(f"{path}: no sentence of at most {max_characters} characters in it")
    return found


def unzip(content: bytes, path: Path) -> bytes:
    """The content of a gzipped file of at most MAX_TEXT_BYTES; DataError where it is none."""
    try:
        with gzip.open(io.BytesIO(content)) as file:
            found = file.read(MAX_TEXT_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: {NO_GZIP}") from error
    if len(found) > MAX_TEXT_BYTES:
        raise DataError(f"{path}: expected at most {MAX_TEXT_BYTES} bytes of sentences")
    return found
