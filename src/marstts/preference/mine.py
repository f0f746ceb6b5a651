"""Mining: a model speaks in someone's voice, and then in the voice of what it said. Where the second is bad, it failed.

Reverse inference optimisation (RIO, arXiv:2407.02243), as MARS6 (arXiv:2501.05787) uses it: a recording lends its voice
to any text (*forward*); the outcome lends its voice to the words of the recording (*cycle*). The recording is known, so
the cycle has a right answer. No one needs to say which takes are good.

Upstream: a bundle (`synthesis.loading`), a manifest, a file of sentences.  Downstream: `takes`, then `rank`.
Deviations: every take is kept, whatever it sounds like, and none is tried again: failures are what is looked for.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from pydantic import Field

from marstts import audio
from marstts.audio import Waveform
from marstts.checkpoint import load_bundle
from marstts.codec.base import Codes
from marstts.config import Config
from marstts.data.manifest import Utterance, read_manifest
from marstts.data.pairs import write_atomically
from marstts.data.workers import Engine
from marstts.errors import ConfigError, DataError, MarsError
from marstts.evaluation.systems import folder_digest, take_seed
from marstts.evaluation.testset import deal_sentences, group_by_speaker
from marstts.mars6.generate import Generated, generate
from marstts.mars6.patches import unpatchify
from marstts.mars6.prompt import build_prompt
from marstts.preference.takes import (
    CLAIM_FILE,
    PLAN_FILE,
    Claim,
    Leg,
    PlannedTake,
    Spoken,
    Take,
    read_claim,
    read_lines,
    read_takes,
    shard_path,
    write_lines,
    write_takes,
)
from marstts.synthesis.clone import ReferenceWarning
from marstts.synthesis.loading import load
from marstts.synthesis.synthesizer import Synthesizer, has_words
from marstts.text.normalize import normalize
from marstts.voice import Voice


class MineConfig(Config):
    """Which recordings lend their voices, and how the takes are spoken."""

    references: int = Field(200, gt=0)
    """Recordings at most, dealt evenly over speakers, no transcript twice."""

    texts_per_reference: int = Field(1, gt=0)
    takes_per_text: int = Field(1, gt=0)
    """Cycles of the same recording and text, with different seeds."""

    split: str = "train"
    styles: tuple[str, ...] = ("regular",)
    min_source_rate: int = 24_000
    """Hz; only recordings of at least this true rate: good ones are wanted."""

    min_seconds: float = 1.5
    max_seconds: float = 8.0
    max_characters: int = Field(100, gt=0)
    """Longer texts are left out."""

    deep: bool = False
    """Whether both halves go on from a prefix (recording and transcript), or know the voice by its embeddings only."""

    top_p: float | None = Field(None, ge=0.0, le=1.0)
    """Of all takes (default: where the model's own backoff starts)."""

    takes_per_shard: int = Field(32, gt=0)
    """Spoken side by side, and written together."""

    seed: int = Field(0, ge=0)


@dataclass(frozen=True)
class MineReport:
    """What a run did."""

    takes: int
    made_now: int
    problems: int
    """Takes whose cycle could not be spoken."""


@dataclass(frozen=True)
class Shard:
    """Takes to be spoken side by side, and where they go."""

    index: int
    path: Path
    plans: tuple[PlannedTake, ...]


def mine(
    model: str,
    references: Path,
    texts: Path,
    output: Path,
    config: MineConfig,
    *,
    engine: Engine,
    say: Callable[[str], None] = print,
) -> MineReport:
    """Speak what is planned into `output`; finished shards are kept, and do not depend on who spoke them.

    A plan, once made, stays: of a manifest that has grown since, what is new is not used.
    """
    plans = open_plan(model, references, texts, output, config)
    size = config.takes_per_shard
    shards = [
        Shard(index, shard_path(output, index), tuple(plans[start : start + size]))
        for index, start in enumerate(range(0, len(plans), size))
    ]
    missing = [shard for shard in shards if not shard.path.is_file()]
    say(f"{output}: {len(plans)} takes planned, {len(shards) - len(missing)} of {len(shards)} shards finished before")
    spoken = engine.run(missing, partial(Miner.open, model, config), speak_shard) if missing else ()
    for done, path in enumerate(spoken, 1):
        say(f"{path.name} written ({done} of {len(missing)})")
    found = [take for shard in shards for take in read_takes(shard.path)]
    return MineReport(
        takes=len(found),
        made_now=sum(len(shard.plans) for shard in missing),
        problems=sum(take.problem is not None for take in found),
    )


def open_plan(model: str, references: Path, texts: Path, output: Path, config: MineConfig) -> list[PlannedTake]:
    """The plan of `output`, made now if there is none; ConfigError or DataError if it was made from something else."""
    output.mkdir(parents=True, exist_ok=True)
    claim = make_claim(model, texts, config)
    utterances = read_manifest(references)
    claims, plan = output / CLAIM_FILE, output / PLAN_FILE
    if not plan.is_file():
        plans = make_plan(utterances, references.parent, read_texts(texts, config.max_characters), config)
        write_atomically(claims, (claim.model_dump_json(indent=2) + "\n").encode())
        write_lines(plans, plan)
        return plans
    found = read_claim(output)
    parts = {"model": "model_digest", "file of texts": "texts", "configuration": "config"}
    changed = [name for name, field in parts.items() if getattr(found, field) != getattr(claim, field)]
    if changed:
        raise ConfigError(f"{output}: was begun with another {' and '.join(changed)}; choose a new --output")
    plans = read_lines(PlannedTake, plan)
    wanted = {one.reference for one in plans}
    known = {utterance.id: normalize(utterance.text) for utterance in utterances if utterance.id in wanted}
    strange = [one.reference for one in plans if known.get(one.reference) != one.transcript]
    if strange:
        raise DataError(
            f"{references}: {len(strange)} recordings of the plan in {output} are not in it, the first is "
            f"{strange[0]!r}; give the manifest it was made from, or choose a new --output"
        )
    return plans


def make_claim(model: str, texts: Path, config: MineConfig) -> Claim:
    """What takes made now would be made by."""
    bundle = load_bundle(model)
    return Claim(
        model=model,
        model_digest=folder_digest(bundle.folder),
        codec=bundle.codec.spec.name,
        identity_encoder=bundle.identity_encoder.name,
        style_encoder=bundle.style_encoder.name,
        texts=hashlib.sha256(read_bytes(texts)).hexdigest()[:16],
        config=config.model_dump(mode="json"),
    )


def make_plan(
    utterances: Sequence[Utterance], folder: Path, texts: Sequence[str], config: MineConfig
) -> list[PlannedTake]:
    """Every cycle to be spoken, reference by reference; a function of the manifest, the texts and the configuration."""
    chosen = choose_references(utterances, config)
    if not chosen:
        raise DataError(
            f"{folder}: no recording of split {config.split!r}, styles {', '.join(config.styles)}, "
            f"{config.min_seconds:g} to {config.max_seconds:g} s and {config.min_source_rate} Hz; ask for others"
        )
    plans = []
    for utterance in chosen:
        for number in range(config.texts_per_reference):
            place = take_seed(config.seed, f"{utterance.id} text {number}") % len(texts)
            for take in range(config.takes_per_text):
                name = f"{utterance.id}~{number}.{take}"
                plans.append(
                    PlannedTake(
                        id=name,
                        reference=utterance.id,
                        audio=(folder / utterance.audio).resolve(),
                        transcript=normalize(utterance.text),
                        speaker=utterance.speaker,
                        style=utterance.style,
                        text=texts[place],
                        seed=take_seed(config.seed, name),
                    )
                )
    return plans


def choose_references(utterances: Sequence[Utterance], config: MineConfig) -> list[Utterance]:
    """Good recordings, one speaker after the other."""
    fit = [
        utterance
        for utterance in utterances
        if utterance.split == config.split
        and utterance.style in config.styles
        and utterance.source_rate >= config.min_source_rate
        and config.min_seconds <= utterance.seconds <= config.max_seconds
    ]
    decks = group_by_speaker(fit)
    dealt = deal_sentences([decks[speaker] for speaker in sorted(decks)], config.references)
    return [utterance for utterance in dealt if has_words(normalize(utterance.text))]


def read_texts(path: Path, max_characters: int) -> list[str]:
    """The different sentences of a file, as the model reads them, in file order.

    One a line, or source<TAB>sentence; may be gzipped. DataError if there is none of at most `max_characters`.
    """
    content = read_bytes(path)
    try:
        lines = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise DataError(f"{path}: expected sentences, one a line, but {error}") from error
    texts = dict.fromkeys(normalize(line.rpartition("\t")[2]).strip() for line in lines)
    found = [text for text in texts if has_words(text) and len(text) <= max_characters]
    if not found:
        raise DataError(f"{path}: no sentence of at most {max_characters} characters in it")
    return found


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: expected a file of sentences, one a line, but {error}") from error


def speak_shard(shard: Shard, miner: Miner) -> Path:
    """What a worker does with a shard."""
    return miner(shard)


class Miner:
    """A model that speaks cycles, a shard at a time."""

    def __init__(self, synthesizer: Synthesizer, config: MineConfig) -> None:
        self.synthesizer, self.config = synthesizer, config
        self.top_p = synthesizer.sampling.top_p if config.top_p is None else config.top_p

    @classmethod
    def open(cls, model: str, config: MineConfig) -> Miner:
        """With a packaged model's name, or a bundle's folder."""
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        return cls(load(model), config)

    def __call__(self, shard: Shard) -> Path:
        """Speak a shard and write it."""
        synthesizer = self.synthesizer
        sizes = synthesizer.stepper.config.identity_size, synthesizer.stepper.config.style_size
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReferenceWarning)  # about recordings of a corpus nobody waits for
            write_takes(self.cycles(shard.plans), shard.path, synthesizer.codec.spec.patch_layout, sizes)
        return shard.path

    def cycles(self, plans: Sequence[PlannedTake]) -> list[Take]:
        """Both halves of every cycle; what goes wrong is told in the take."""
        problems: dict[str, str] = {}
        truths = {plan.id: self.truth(plan, problems) for plan in plans}
        recordings = {plan.id: self.voice(plan, plan.audio, plan.transcript, problems) for plan in plans}
        forward = self.speak_leg(Leg.FORWARD, {plan: recordings[plan.id] for plan in plans})
        voices = {
            plan: None if (one := forward.get(plan.id)) is None else self.voice_of_take(plan, one, problems)
            for plan in plans
        }
        cycle = self.speak_leg(Leg.CYCLE, voices)
        return [
            Take(
                plan=plan,
                top_p=self.top_p,
                truth=truths[plan.id],
                forward=forward.get(plan.id),
                cycle=cycle.get(plan.id),
                problem=problems.get(plan.id),
            )
            for plan in plans
        ]

    def truth(self, plan: PlannedTake, problems: dict[str, str]) -> Codes:
        """The codes of the recording as it is, none where it cannot be read."""
        try:
            return self.synthesizer.codec.encode(audio.read(plan.audio))
        except MarsError as error:
            problems[plan.id] = str(error)
            return tuple(np.zeros(0, np.int64) for _ in self.synthesizer.codec.spec.patch_layout)

    def voice(
        self, plan: PlannedTake, reference: Path | Waveform, transcript: str, problems: dict[str, str]
    ) -> Voice | None:
        """Cloned as for speaking, or why not."""
        if plan.id in problems:
            return None
        try:
            return self.synthesizer.clone(reference, transcript if self.config.deep else None)
        except MarsError as error:
            problems[plan.id] = str(error)
            return None

    def voice_of_take(self, plan: PlannedTake, spoken: Spoken, problems: dict[str, str]) -> Voice | None:
        """The voice of what was said in the first half."""
        return self.voice(plan, self.synthesizer.decode(spoken.codes), plan.text, problems)

    def speak_leg(self, leg: Leg, voices: dict[PlannedTake, Voice | None]) -> dict[str, Spoken]:
        """One half of every cycle whose voice is there, side by side."""
        ready = [(plan, voice) for plan, voice in voices.items() if voice is not None]
        if not ready:
            return {}
        synthesizer, rate = self.synthesizer, self.synthesizer.codec.spec.patch_rate
        texts = [plan.text if leg is Leg.FORWARD else plan.transcript for plan, _ in ready]
        prompts = [
            build_prompt(text, voice, synthesizer.tokenizer, synthesizer.stepper.config, synthesizer.quality)
            for text, (_, voice) in zip(texts, ready, strict=True)
        ]
        generated = generate(
            synthesizer.stepper,
            prompts,
            top_p=[self.top_p] * len(prompts),
            limits=[synthesizer.backoff.limits(text, rate) for text in texts],
            rngs=[np.random.default_rng((plan.seed, leg is Leg.CYCLE)) for plan, _ in ready],
            sampling=synthesizer.sampling,
        )
        return {plan.id: self.spoken(voice, one) for (plan, voice), one in zip(ready, generated, strict=True)}

    def spoken(self, voice: Voice, generated: Generated) -> Spoken:
        """The voice that was prompted with, and the codes that came out."""
        config = self.synthesizer.stepper.config
        nothing: Codes = tuple(np.zeros(0, np.int64) for _ in config.patch_layout)
        return Spoken(
            identity=voice.identity,
            style=voice.style,
            prefix=nothing if voice.prefix is None else voice.prefix.codes,
            codes=unpatchify(generated.tokens, config.patch_layout, config.codebook_size),
            stop=generated.stop,
        )
