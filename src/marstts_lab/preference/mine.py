"""Mining: a model speaks in a recording's voice, and then in the voice of its output; a bad second take is a failure.

Reverse inference optimization (RIO, arXiv:2407.02243), as MARS6 (arXiv:2501.05787) uses it: a recording lends its voice
to any text (*forward*); the output lends its voice to the words of the recording (*cycle*). The recording is the ground
truth of the cycle, so no human needs to rate the takes.

Upstream: a bundle (`synthesis.loading`), a manifest, a file of sentences.
Downstream: `data.mined_takes`, then `pairs`.
Deviations: every take is kept, whatever its quality, and none is sampled again: failures are what is looked for.
"""

from __future__ import annotations

import hashlib
import logging
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from pydantic import Field

from marstts import audio
from marstts.audio import Waveform
from marstts.bundle import load_bundle
from marstts.codec.base import Codes
from marstts.errors import DataError, MarsError
from marstts.generation.loop import generate
from marstts.io.config import Config
from marstts.io.files import lock_folder
from marstts.io.jsonl import read_rows, write_rows
from marstts.io.provenance import begin_or_resume, write_provenance
from marstts.io.reading import printable_name, read_regular_file
from marstts.synthesis.clone import ReferenceWarning, clone
from marstts.synthesis.loading import load
from marstts.synthesis.prepared_text import has_words
from marstts.synthesis.synthesizer import Synthesizer
from marstts.text.normalize import normalize
from marstts.voice import Voice
from marstts_lab.data.held_out_people import refuse_test_people
from marstts_lab.data.manifest import Utterance, as_whole_file, read_chosen
from marstts_lab.data.mined_takes import (
    PLAN_FILE,
    GeneratedHalf,
    Half,
    MinedTake,
    MiningProvenance,
    PlannedTake,
    read_takes,
    shard_path,
    write_takes,
)
from marstts_lab.data.sentence_files import lines_of
from marstts_lab.data.workers import Executor, Progress
from marstts_lab.evaluation.testset import group_by_speaker, model_digest, round_robin, take_seed

log = logging.getLogger(__name__)

MAX_TEXT_BYTES = 2**30

RECORDINGS = "recordings"
"""Folder of the references that are segments of longer files."""


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
    """Hz; recordings of less bandwidth are used only where there are no others, with a warning."""

    min_seconds: float = Field(1.5, ge=0.0, allow_inf_nan=False)
    max_seconds: float = Field(8.0, gt=0.0, allow_inf_nan=False)
    max_characters: int = Field(100, gt=0)
    """Longer texts are left out."""

    cycle: bool = True
    """False: forward takes alone, all that the scheme `forward_takes` needs, in half of the time."""

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
    model: str, references: Sequence[Path], texts: Path, output: Path, config: MineConfig, *, executor: Executor
) -> MineReport:
    """Generate the planned takes into `output`; finished shards are kept, and do not depend on the executor.

    `references` are manifests. A plan, once made, stays: recordings that were added to them later are not used.
    ConfigError or DataError where `output` was made from something else; DataError where another process works in it.
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
    return CycleGenerator(load(model), cycle=config.cycle, deep_clone=config.deep_clone, top_p=config.top_p)


def generate_shard(shard: MiningShard, generator: CycleGenerator) -> Path:
    """Generate and write a shard."""
    generator.write(shard.plans, shard.path)
    return shard.path


def open_plan(
    model: str, references: Sequence[Path], texts: Path, output: Path, config: MineConfig
) -> list[PlannedTake]:
    """The plan of `output`, made now if there is none; ConfigError or DataError if it was made from something else."""
    record = make_provenance(model, texts, config)
    plan = output / PLAN_FILE
    if not plan.is_file():
        chosen = [as_whole_file(u, Path(), output / RECORDINGS) for u in choose_references(references, config)]
        plans = make_plan(chosen, Texts(texts, config.max_characters), config)
        write_provenance(output, record)
        write_rows(plan, plans)
        return plans
    begin_or_resume(output, record, {"model_digest": "model", "texts": "file of texts", "config": "configuration"})
    plans = read_rows(PlannedTake, plan, unique=("id",))
    planned = {one.reference for one in plans}
    found = read_references(references, lambda utterance: utterance.id in planned)
    known = {utterance.id: normalize(utterance.text) for utterance in found}
    unknown = [one.reference for one in plans if known.get(one.reference) != one.transcript]
    if unknown:
        raise DataError(
            f"{show_paths(references)}: {len(unknown)} recordings of the plan in {output} are not in it, the first is "
            f"{unknown[0]!r}; give the manifest it was made from, or choose a new --output"
        )
    return plans


def make_provenance(model: str, texts: Path, config: MineConfig) -> MiningProvenance:
    """The provenance of takes that would be generated now."""
    bundle = load_bundle(model)
    return MiningProvenance(
        model=model,
        model_digest=model_digest(bundle.folder),
        codec=bundle.codec.spec.name,
        encoders={role: encoder.name for role, encoder in bundle.encoders.items()},
        texts=hashlib.sha256(read_regular_file(texts, MAX_TEXT_BYTES, DataError)).hexdigest()[:16],
        config=config.model_dump(mode="json"),
    )


def make_plan(chosen: Sequence[Utterance], texts: Texts, config: MineConfig) -> list[PlannedTake]:
    """Every cycle to be generated, by reference; a function of its arguments."""
    plans = []
    for utterance in chosen:
        for number in range(config.texts_per_reference):
            text = texts.draw(take_seed(config.seed, f"{utterance.id} text {number}"))
            for sample in range(config.samples_per_text):
                name = f"{utterance.id}~{number}.{sample}"
                plans.append(
                    PlannedTake(
                        id=name,
                        reference=utterance.id,
                        audio=Path(utterance.audio).resolve(),
                        transcript=normalize(utterance.text),
                        speaker=utterance.speaker,
                        style=utterance.style,
                        text=text,
                        seed=take_seed(config.seed, name),
                    )
                )
    return plans


def choose_references(manifests: Sequence[Path], config: MineConfig) -> list[Utterance]:
    """Recordings that fit the configuration, the speakers in turn; DataError where there are none, or where people whom
    models are judged on are among them, for the takes are trained on."""
    fit = read_references(manifests, partial(is_reference, config, config.min_source_rate))
    if not fit and (fit := read_references(manifests, partial(is_reference, config, 0))):
        log.warning("%s: all recordings have a bandwidth below %d Hz, and so will the speech of a model that is "
                    "trained on these takes", show_paths(manifests), config.min_source_rate)  # fmt: skip
    refuse_test_people(((one.speaker, (one.id, one.audio)) for one in fit), show_paths(manifests))
    groups = group_by_speaker(fit)
    chosen = round_robin([groups[speaker] for speaker in sorted(groups)], config.max_references)
    spoken = [utterance for utterance in chosen if has_words(normalize(utterance.text))]
    if not spoken:
        raise DataError(
            f"{show_paths(manifests)}: no recording of split {config.split!r}, styles {', '.join(config.styles)} and "
            f"{config.min_seconds:g} to {config.max_seconds:g} s; ask for others"
        )
    return spoken


def is_reference(config: MineConfig, min_source_rate: int, utterance: Utterance) -> bool:
    """Return True for a recording that fits the configuration and has at least this bandwidth."""
    return (
        utterance.split == config.split
        and utterance.style in config.styles
        and utterance.source_rate >= min_source_rate
        and config.min_seconds <= utterance.seconds <= config.max_seconds
    )


def read_references(manifests: Sequence[Path], wanted: Callable[[Utterance], bool]) -> list[Utterance]:
    """The wanted utterances of all manifests, with absolute paths; of several, ids begin with the manifest's folder."""
    return [one for manifest in manifests for one in read_placed(manifest, len(manifests) > 1, wanted)]


def read_placed(manifest: Path, is_one_of_several: bool, wanted: Callable[[Utterance], bool]) -> list[Utterance]:
    """The wanted utterances of one of the manifests."""
    folder = manifest.absolute().parent
    prefix = f"{folder.name}." if is_one_of_several else ""

    def place(one: Utterance) -> Utterance:
        return replace(one, id=prefix + one.id, audio=str(folder / one.audio))

    return [place(one) for one in read_chosen(manifest, lambda one: wanted(place(one)))]


def show_paths(paths: Sequence[Path]) -> str:
    """Paths for a message."""
    return ", ".join(printable_name(path) for path in paths)


class Texts:
    """The different sentences of a file: one a line, or source<TAB>sentence; may be gzipped."""

    def __init__(self, path: Path, max_characters: int) -> None:
        """DataError where the file cannot be read."""
        self.path, self.max_characters = path, max_characters
        self.written = list(dict.fromkeys(line.strip().rpartition("\t")[2] for line in lines_of(path)))

    def draw(self, seed: int) -> str:
        """A normalized sentence with words, of at most `max_characters`: the first from a drawn one on.

        Only what is drawn is normalized: a file has many sentences, and each takes some milliseconds.  DataError
        where there is no such sentence.
        """
        for number in range(len(self.written)):
            text = normalize(self.written[(seed + number) % len(self.written)]).strip()
            if has_words(text) and len(text) <= self.max_characters:
                return text
        raise DataError(f"{self.path}: no sentence of at most {self.max_characters} characters in it")


# Cycles: both halves of mined takes, generated in one batch each.


def clone_any(synthesizer: Synthesizer, reference: Path | Waveform, transcript: str | None = None) -> Voice:
    """The voice of a reference, whether it holds speech or not: the output of a weak model must not be excluded."""
    return clone(
        reference,
        transcript,
        codec=synthesizer.session.codec,
        encoders=synthesizer.session.encoders,
        keep_reference=False,
        min_speech_ratio=0.0,
    )


class CycleGenerator:
    """Generates cycles with a model, many in a batch."""

    def __init__(
        self, synthesizer: Synthesizer, *, cycle: bool = True, deep_clone: bool = False, top_p: float | None = None
    ) -> None:
        self.synthesizer, self.cycle, self.deep_clone = synthesizer, cycle, deep_clone
        self.top_p = synthesizer.session.sampling.top_p if top_p is None else top_p

    def write(self, plans: Sequence[PlannedTake], path: Path) -> None:
        """Generate planned takes and write their shard."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReferenceWarning)  # of corpus recordings: too many to read
            takes = self.generate_cycles(plans)
        sizes = {role: encoder.size for role, encoder in self.synthesizer.session.encoders.items()}
        write_takes(takes, path, self.synthesizer.session.codec.spec.patch_layout, sizes)

    def generate_cycles(self, plans: Sequence[PlannedTake]) -> list[MinedTake]:
        """Both halves of every cycle, or the first alone; errors are kept in the take."""
        errors: dict[str, str] = {}
        ground_truths = {plan.id: self.encode_ground_truth(plan, errors) for plan in plans}
        voices = {plan: self.clone(plan, plan.audio, plan.transcript, errors) for plan in plans}
        forward = self.generate_half(Half.FORWARD, voices)
        cloned = {
            plan: None if (one := forward.get(plan.id)) is None else self.clone_output(plan, voice, one, errors)
            for plan, voice in voices.items()
            if self.cycle
        }
        cycle = self.generate_half(Half.CYCLE, cloned)
        return [
            MinedTake(
                plan=plan,
                top_p=self.top_p,
                ground_truth=ground_truths[plan.id],
                forward=forward.get(plan.id),
                cycle=cycle.get(plan.id),
                error=errors.get(plan.id),
            )
            for plan in plans
        ]

    def encode_ground_truth(self, plan: PlannedTake, errors: dict[str, str]) -> Codes:
        """The codes of the recording, none where it cannot be read."""
        try:
            return self.synthesizer.session.codec.encode(audio.read(plan.audio))
        except MarsError as error:
            errors[plan.id] = str(error)
            return self.no_codes()

    def clone(
        self, plan: PlannedTake, reference: Path | Waveform, transcript: str, errors: dict[str, str]
    ) -> Voice | None:
        """The voice of a reference, as in synthesis, or None and an error."""
        if plan.id in errors:
            return None
        try:
            return clone_any(self.synthesizer, reference, transcript if self.deep_clone else None)
        except MarsError as error:
            errors[plan.id] = str(error)
            return None

    def clone_output(
        self, plan: PlannedTake, voice: Voice | None, half: GeneratedHalf, errors: dict[str, str]
    ) -> Voice | None:
        """The voice of the output of the first half, which was generated in `voice`."""
        assert voice is not None, "nothing is generated without a voice"
        return self.clone(plan, self.synthesizer.session.decode(half.codes, voice), plan.text, errors)

    def generate_half(self, half: Half, voices: Mapping[PlannedTake, Voice | None]) -> dict[str, GeneratedHalf]:
        """One half of every cycle that has a voice, in one batch."""
        ready = [(plan, voice) for plan, voice in voices.items() if voice is not None]
        if not ready:
            return {}
        model, rate = self.synthesizer.session.model, self.synthesizer.session.codec.spec.patch_rate
        texts = [plan.text if half is Half.FORWARD else plan.transcript for plan, _ in ready]
        rngs = [np.random.default_rng((plan.seed, half is Half.CYCLE)) for plan, _ in ready]
        prompts = [model.prompt(text, voice) for text, (_, voice) in zip(texts, ready, strict=True)]
        generated = generate(
            model.engine,
            prompts,
            top_p=[self.top_p] * len(ready),
            limits=[self.synthesizer.session.backoff.limits(text, rate) for text in texts],
            rngs=rngs,
            sampling=model.sampling,
        )
        return {
            plan.id: GeneratedHalf(
                embeddings=voice.embeddings,
                prefix=self.no_codes() if voice.prefix is None else voice.prefix.codes,
                codes=model.codes(one.tokens, rng, prompt),
                stop=one.stop,
            )
            for (plan, voice), one, rng, prompt in zip(ready, generated, rngs, prompts, strict=True)
        }

    def no_codes(self) -> Codes:
        """Codes of no patches."""
        return tuple(np.zeros(0, np.int64) for _ in self.synthesizer.session.codec.spec.patch_layout)
