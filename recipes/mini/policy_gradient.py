"""Policy gradient of a MARS6 by its own takes: codes become unlikely of which recognizers miss the words.

Usage: [torchrun --nproc-per-node 2] python recipes/mini/policy_gradient.py PARENT MANIFEST OUTPUT --names FOLDER
           [--without FILE] [--recognizer tiny.en] [--config policy_gradient.toml]

PARENT: folder of a bundle.  MANIFEST: `utterances.jsonl` of people who lend their voices.  OUTPUT: a run folder for
`marstts export OUTPUT --template PARENT`, with the `--phones` of PARENT.  --names: folder of the package `names`.
--without: texts, one a line, that are kept for tests, as those with a name of `text/test_names.txt` are.  --recognizer:
a size or folder of faster-whisper, another one than the judges'.  Running it again resumes; 13 s of two cores a step.

Each step samples takes of some texts, in one voice for each text, with the weights of that step, and follows the policy
gradient once. Group-relative advantages (GRPO, arXiv:2402.03300), but for each token of the text instead of each take:
the log-probability that a Whisper gives the token, less the mean over the takes of the text; it counts for the codes of
level 0, which hold the words, in the patches where the token is said. With one advantage for a take, the same number of
takes changed nothing beyond noise. Beside it, and in the same way: the goodness of pronunciation of each word by the
codec's phone recognizer, the semitones by which the end of a yes/no question rises, and by how much a heteronym is
nearer to the phones of its use ("a record") than to those of the other one. Only parameters of `trained` learn, and
the divergence from the initial model is a loss, so that what no judge asks for stays.
"""

from __future__ import annotations

import argparse
import random
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import soxr
import torch
from heteronyms import MAX_MARGIN, expected_labels, uses
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor
from torch import distributed as torch_distributed
from torch.nn.functional import kl_div

import marstts
from marstts import models
from marstts.audio import Waveform, audible_span
from marstts.bundle import load_bundle
from marstts.codec.base import Codes, PhoneRecognizingCodec
from marstts.errors import ConfigError, require
from marstts.generation.engine import EngineKind
from marstts.generation.loop import generate
from marstts.generation.request import StopReason
from marstts.io.config import Config, read_config, write_config
from marstts.io.precision import Precision, WeightFormat, autocast
from marstts.mars6 import bundled
from marstts.mars6.config import Mars6Config, eos_patch
from marstts.mars6.model import Mars6
from marstts.mars6.objective import level_targets
from marstts.mars6.prompt import Mars6Prompt
from marstts.mars6.speech import Mars6Speech
from marstts.synthesis.model_session import ModelSession
from marstts.synthesis.speech import EDGE_BELOW_PEAK_DB, MAX_TAIL_SECONDS
from marstts.synthesis.words.pronunciation import SpokenWord, accepted_labels, goodness, spoken_phones
from marstts.text.intonation import rises_at_end
from marstts.text.normalize import normalize
from marstts.text.phones import as_characters
from marstts.text.pronunciation.heteronyms import UsedWord, in_context
from marstts.text.pronunciation.uses import Use
from marstts.text.pronunciation.words import WORD, phones_of
from marstts.voice import Voice
from marstts_lab.training.distributed import init_distributed, is_main, rank, world_size
from marstts_lab.training.loop import LoopConfig, run
from marstts_lab.training.mars6.batches import PADDING, TrainingBatch, pad_rows
from marstts_lab.training.mars6.run_folder import CONFIG_FILE, EMA, MODEL, TOKENIZER_FILE
from marstts_lab.training.optim import (
    OptimizerConfig,
    learning_rate,
    make_ema,
    make_optimizer,
    optimizer_step,
    update_ema,
)
from marstts_lab.training.provenance import record_training

WORD_LEVEL = 0
"""The level of the codec whose codes hold the words."""

LEAST_LOG_PROB, LEAST_GOODNESS, MAX_ADVANTAGE, MAX_SUM = -6.0, -4.0, 2.0, 3.0
"""Bounds in nats: of a token's log-probability, of a word's goodness for each phone, of an advantage, and of the sum
where several advantages share a patch."""

RISE_BOUNDS, RISE_UNIT, RISE_SECONDS = (-6.0, 4.0), 2.5, 0.5
"""Semitones of a question's end between which more is better, those that count as a nat, and the seconds before the end
that they count for."""

USED: dict[Use, tuple[str, ...]] = {
    "noun": ("This is the {}.", "We saw their {} today.", "It was a good {}."),
    "verb": ("They {} it.", "You should {} them now.", "Nobody wants to {} it."),
}
"""Sentences of heteronyms."""

ENDLESS = -0.5
"""Advantage of all patches of a take that has no end of speech, or hardly any sound."""

BEFORE, AFTER = 1.5, 0.5
"""Patches before and after a token's or word's time that its advantage counts for: times are known about so well."""

MIN_WINDOW_SECONDS = 3
"""Least length of what Whisper is given. It is trained on 30 s, of which most would be silence here."""

HERTZ, POSITION_SECONDS = 16000, 0.02
"""The rate that Whisper reads, and the seconds of a position of its encoder, and so of the phone recognizer."""

LEAST_SECONDS = 0.1
"""Of sound in a take that is rated."""


Texts = Callable[[random.Random], Iterator[str]]
"""Texts by a random generator, without end."""


class PolicyConfig(Config):
    """Sampling, loss and length of the training."""

    texts_per_step: int = Field(10, ge=1)
    """Texts of a step in each process."""

    questions_per_step: int = Field(0, ge=0)
    """Those of them that are yes/no questions."""

    heteronyms_per_step: int = Field(0, ge=0)
    """Those of the others whose noun or verb the word before tells, and whose sounds differ."""

    phones_per_step: int = Field(0, ge=0)
    """Those of the others in which half of the words, and most names, are phones alone, as users give them."""

    goodness_weight: float = Field(0.0, ge=0.0)
    """Weight of the goodness of words, in nats a phone, beside that of tokens; 0 = it is not measured."""

    rise_weight: float = Field(0.0, ge=0.0)
    """Weight of the rise of questions; 0 = it is not measured."""

    use_weight: float = Field(0.0, ge=0.0)
    """Weight of the nats by which heteronyms are nearer to the phones of their use; 0 = they are not measured."""

    takes: int = Field(8, ge=2)
    """Takes of a text, in one voice."""

    trained: tuple[str, ...] = ("encoder.*", "global_decoder.*")
    """Patterns of the names of the parameters that are trained; the others stay as they are."""

    top_p: float = Field(0.6, gt=0.0, le=1.0)
    kl_weight: float = Field(0.05, ge=0.0)
    """Weight of the divergence from the initial model, in nats a code."""

    kl_ratio: float = Field(0.15, gt=0.0, le=1.0)
    """Ratio of the patches on which the finer levels are compared with the initial model."""

    rows_per_batch: int = Field(64, ge=1)
    speakers: int = Field(120, ge=1)
    """People whose voices are used."""

    precision: Precision = Precision.BF16
    loop: LoopConfig = LoopConfig(steps=400)
    optimizer: OptimizerConfig = OptimizerConfig()


class PolicyRun(Config):
    """`config.json` of the run folder."""

    model: Mars6Config
    training: PolicyConfig


@dataclass(frozen=True, eq=False)
class RatedTake:
    """A take, and how much more or less likely its codes should become."""

    prompt: Mars6Prompt
    patches: NDArray[np.int64]
    """(T, P) tokens, with the patch of end of speech if the take has it."""

    advantages: NDArray[np.float64]
    """(T,)."""

    text_log_prob: float = LEAST_LOG_PROB
    """Mean over the tokens of the text, for the log."""


@dataclass(frozen=True, eq=False)
class Line:
    """A text in a voice."""

    text: str
    voice: Voice
    prompted: str = ""
    """The text of the prompt, where it has words in phones."""

    @property
    def said(self) -> str:
        """The text of the prompt."""
        return self.prompted or self.text


@dataclass(frozen=True, eq=False)
class SpokenTake:
    """A take as judges read it."""

    line: Line
    codes: Codes
    waveform: Waveform
    """What is audible of it."""

    start: float
    """Seconds of the take before it."""


@dataclass(frozen=True, eq=False)
class Reading:
    """What a judge says of the K parts of a text, the same ones in all takes of it."""

    values: NDArray[np.float64]
    """(K,) in nats, the more the better."""

    spans: NDArray[np.float64]
    """(K, 2) seconds of the audible part where each is said, NaN where that is not known."""


class Judge(Protocol):
    """Rates the parts of a text in a take."""

    def read(self, take: SpokenTake) -> Reading | None:
        """None where the judge cannot rate this text, or this take."""
        ...


class TextJudge:
    """Log-probabilities and times of the tokens of a given text by a Whisper (teacher forcing)."""

    def __init__(self, source: str) -> None:
        self.package = require("faster_whisper", "eval")
        self.whisper = self.package.WhisperModel(source, device="cpu", compute_type="int8", cpu_threads=1)
        self.start = [self.whisper.hf_tokenizer.token_to_id("<|startoftranscript|>")]

    def read(self, take: SpokenTake) -> Reading:
        """The tokens of the text."""
        samples = soxr.resample(take.waveform.samples, take.waveform.sample_rate, HERTZ)
        seconds = max(MIN_WINDOW_SECONDS, int(np.ceil(len(samples) / HERTZ + 0.2)))
        features = self.package.feature_extractor.FeatureExtractor(chunk_length=seconds)(samples)[:, : 100 * seconds]
        features = np.pad(features, ((0, 0), (0, 100 * seconds - features.shape[1])))[None].astype(np.float32)
        encoded = self.whisper.encode(features[0])
        ids = self.whisper.hf_tokenizer.encode(" " + take.line.text, add_special_tokens=False).ids
        found = self.whisper.model.align(encoded, self.start, [ids], [100 * seconds], median_filter_width=7)[0]
        spans = np.full((len(ids), 2), np.nan)
        for token, frame in found.alignments:
            if token < len(ids):
                time = np.array([frame, frame + 1]) * POSITION_SECONDS
                spans[token] = np.fmin(spans[token, 0], time[0]), np.fmax(spans[token, 1], time[1])
        return Reading(np.log(np.maximum(found.text_token_probs, np.exp(LEAST_LOG_PROB))), spans)


class SoundJudge:
    """Goodness of pronunciation of the words of a text by a codec's phone recognizer."""

    def __init__(self, codec: PhoneRecognizingCodec) -> None:
        self.codec = codec

    def read(self, take: SpokenTake) -> Reading | None:
        """The words; None where one of them has no phones."""
        words = list(spoken_phones(take.line.said))
        if not (words and all(word.phones for word in words)):
            return None
        return word_goodness(self.codec.phone_log_probs(take.waveform), words)


class RiseJudge:
    """Semitones by which the ends of yes/no questions rise."""

    def __init__(self, session: ModelSession) -> None:
        self.session = session

    def read(self, take: SpokenTake) -> Reading | None:
        """The end of a question that rises; None for other texts."""
        if not rises_at_end(take.line.text):
            return None
        end = take.start + take.waveform.seconds
        rise = self.session.rise(take.codes, take.line.voice, end)
        spans = np.array([[end - RISE_SECONDS, end]]) - take.start
        return Reading(np.clip([rise], *RISE_BOUNDS) / RISE_UNIT, spans)


class UseJudge:
    """Nats by which heteronyms are nearer to the phones of their use than to those of the other one."""

    def __init__(self, codec: PhoneRecognizingCodec) -> None:
        self.codec = codec
        self.differing = set(uses())

    def read(self, take: SpokenTake) -> Reading | None:
        """The heteronyms of a text; None for texts without one."""
        text = take.line.text
        used = {
            word[0]: one
            for word in WORD.finditer(text)
            if (one := in_context(word[0], text, word.start()))
            and not one.ending
            and (one.word, one.use) in self.differing
        }
        words = list(spoken_phones(text))
        if not (used and all(word.phones for word in words)):
            return None
        log_probs = self.codec.phone_log_probs(take.waveform)
        said = word_goodness(log_probs, words)
        if said is None:
            return None
        places = [place for place, word in enumerate(words) if word.text in used]
        margins = [self.margin(log_probs, text, used[words[place].text]) for place in places]
        return Reading(np.clip(margins, -MAX_MARGIN, MAX_MARGIN), said.spans[places])

    @staticmethod
    def margin(log_probs: NDArray[np.float32], text: str, used: UsedWord) -> float:
        """Goodness of the text with the phones of the use, in nats, less that with those of the other one."""
        other: Use = "verb" if used.use == "noun" else "noun"
        own, others = (expected_labels(text, used.word, use) for use in (used.use, other))
        return goodness(log_probs, own) * len(own) - goodness(log_probs, others) * len(others)


def word_goodness(log_probs: NDArray[np.float32], words: Sequence[SpokenWord]) -> Reading | None:
    """Nats of an expected phone by which each word falls short, along the best path through all phones (Viterbi).

    log_probs (T, K) of CTC's blank and the phones; as `words.pronunciation.goodness`, whose total it divides among the
    words. None where there are fewer positions than phones.
    """
    labels, counts = accepted_labels(words), np.array([len(word.phones) for word in words])
    owners = np.repeat(np.arange(len(words)), counts)
    if len(log_probs) <= len(labels):
        return None
    below_best = log_probs - log_probs.max(axis=1, keepdims=True)
    emitted = np.repeat(below_best[:, :1], 2 * len(labels) + 1, axis=1).astype(float)
    for place, accepted in enumerate(labels):
        emitted[:, 2 * place + 1] = below_best[:, list(accepted)].max(axis=1)
    skips = np.full(emitted.shape[1], -np.inf)  # the blank between two phones, which one label needs to come twice
    skips[3::2] = [0.0 if len({*one, *other}) > 1 else -np.inf for one, other in pairwise(labels)]
    reached = np.full(emitted.shape[1], -np.inf)
    reached[:2] = emitted[0, :2]
    came_by = np.zeros(emitted.shape, np.int64)
    for step in range(1, len(emitted)):
        padded = np.concatenate([[-np.inf, -np.inf], reached])
        ways = np.stack([padded[2:], padded[1:-1], padded[:-2] + skips])
        came_by[step] = ways.argmax(axis=0)
        reached = ways.max(axis=0) + emitted[step]
    state = len(reached) - 1 - int(reached[-2] >= reached[-1])
    sums, spans = np.zeros(len(words)), np.full((len(words), 2), np.nan)
    for step in reversed(range(len(emitted))):
        owner = owners[max(0, (state - 1) // 2)]  # a blank belongs to the phone before it
        sums[owner] += emitted[step, state]
        if state % 2:
            time = np.array([step, step + 1]) * POSITION_SECONDS
            spans[owner] = time[0], np.fmax(spans[owner, 1], time[1])
        state -= int(came_by[step, state])
    return Reading(np.maximum(sums / counts, LEAST_GOODNESS), spans)


def advantages_over_mean(values: Sequence[NDArray[np.float64] | None]) -> list[NDArray[np.float64] | None]:
    """Values (K,) of the parts of one text in its takes -> less their means over the takes, bounded."""
    read = [one for one in values if one is not None]
    mean = np.mean(read, axis=0) if read else 0.0
    return [None if one is None else np.clip(one - mean, -MAX_ADVANTAGE, MAX_ADVANTAGE) for one in values]


def patch_advantages(
    advantages: NDArray[np.float64], spans: NDArray[np.float64], num_patches: int, patch_rate: float
) -> NDArray[np.float64]:
    """advantages (K,) of parts at spans (K, 2) in seconds -> (T,): their sums in the patches where they are said.

    The last part counts until the end of speech, which cuts it off where it comes too early.
    """
    found = np.zeros(num_patches)
    for index, (value, (start, end)) in enumerate(zip(advantages, spans, strict=True)):
        if not np.isnan(start):
            first = max(0, int(np.floor(start * patch_rate - BEFORE)))
            is_last = index == len(advantages) - 1
            last = num_patches if is_last else min(num_patches, int(np.ceil(end * patch_rate + AFTER)))
            found[first:last] += value
    return found


class Rollout:
    """Takes of texts in the voices of people, rated by judges."""

    def __init__(
        self,
        config: PolicyConfig,
        speech: Mars6Speech,
        session: ModelSession,
        voices: Sequence[Voice],
        texts: Texts,
        judges: Sequence[tuple[Judge, float]],
    ) -> None:
        """`texts`: those of a step by its random generator; `judges`: with weights, first that of the text's words."""
        self.config, self.speech, self.session, self.voices = config, speech, session, voices
        self.texts, self.judges = texts, judges

    def __call__(self, model: Mars6, step: int) -> list[RatedTake]:
        """The takes of a step in this process, by the weights of the model."""
        number = step * world_size() + rank()
        rng = random.Random(number * 7919 + 13)
        lines = self.lines(rng)
        with tempfile.TemporaryDirectory() as folder:
            graphs = Path(folder) / "mars6"
            bundled.write_model(model, graphs, WeightFormat.FLOAT32)
            return self.rated(replace(self.speech, engine=bundled.open_engine(graphs, EngineKind.ONNX)), lines, number)

    def lines(self, rng: random.Random) -> list[Line]:
        """The texts of a step, each in a voice: questions first, then heteronyms, then those with words in phones."""
        texts, config = self.texts(rng), self.config
        found = [Line(next(texts), rng.choice(self.voices)) for _ in range(config.texts_per_step)]
        first = config.questions_per_step + config.heteronyms_per_step
        last = first + config.phones_per_step
        return [
            replace(line, prompted=with_words_in_phones(line.text, rng)) if first <= number < last else line
            for number, line in enumerate(found)
        ]

    def rated(self, speech: Mars6Speech, lines: Sequence[Line], seed: int) -> list[RatedTake]:
        """Takes of all lines with their advantages."""
        rate, bounds, count = self.session.codec.spec.patch_rate, self.session.backoff, self.config.takes
        rows = [line for line in lines for _ in range(count)]
        prompts = [speech.prompt(line.said, line.voice) for line in rows]
        made = generate(
            speech.engine, prompts, top_p=[self.config.top_p] * len(rows),
            limits=[bounds.limits(line.text, rate) for line in rows],
            rngs=[np.random.default_rng((seed, row)) for row in range(len(rows))], sampling=speech.sampling,
        )  # fmt: skip
        spoken = [
            self.spoken(speech, line, one.tokens) if one.stop is StopReason.EOS and len(one.tokens) > 1 else None
            for one, line in zip(made, rows, strict=True)
        ]
        ends = [[eos_patch(speech.config)] if one.stop is StopReason.EOS else [] for one in made]
        patches = [np.concatenate([one.tokens, *end]).astype(np.int64) for one, end in zip(made, ends, strict=True)]
        readings = [[judge.read(take) if take else None for take in spoken] for judge, _ in self.judges]
        totals = [np.zeros(len(each)) for each in patches]
        for (_, weight), read in zip(self.judges, readings, strict=True):
            for total, take, one, advantages in zip(totals, spoken, read, self.compared(read), strict=True):
                if take is not None and one is not None and advantages is not None:
                    total += weight * patch_advantages(advantages, one.spans + take.start, len(total), rate)
        advantages_of = [
            np.full(len(total), ENDLESS) if take is None else np.clip(total, -MAX_SUM, MAX_SUM)
            for total, take in zip(totals, spoken, strict=True)
        ]
        log_probs = [LEAST_LOG_PROB if one is None else float(one.values.mean()) for one in readings[0]]
        return [RatedTake(*each) for each in zip(prompts, patches, advantages_of, log_probs, strict=True)]

    def compared(self, readings: Sequence[Reading | None]) -> list[NDArray[np.float64] | None]:
        """The advantages of the parts of each take, (K,)."""
        values, count = [None if one is None else one.values for one in readings], self.config.takes
        groups = (values[first : first + count] for first in range(0, len(values), count))
        return [one for group in groups for one in advantages_over_mean(group)]

    def spoken(self, speech: Mars6Speech, line: Line, tokens: NDArray[np.int64]) -> SpokenTake | None:
        """Tokens as sound; None where there is hardly any."""
        codes = speech.codes(tokens)
        waveform = self.session.decode(codes, line.voice)
        start, end = audible_span(waveform, below_peak_db=EDGE_BELOW_PEAK_DB, max_tail_seconds=MAX_TAIL_SECONDS)
        rate = waveform.sample_rate
        audible = Waveform(waveform.samples[start:end], rate)
        return SpokenTake(line, codes, audible, start / rate) if audible.seconds >= LEAST_SECONDS else None


class PolicyTask:
    """The training as a `training.loop.Task`."""

    def __init__(self, config: PolicyConfig, base: Mars6, rollout: Callable[[Mars6, int], list[RatedTake]]) -> None:
        init_distributed()
        self.config, self.rollout = config, rollout
        self.model = make_ema(base).requires_grad_(True)
        names = [name for name, _ in self.model.named_parameters()]
        for pattern in config.trained:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise ConfigError(f"trained: expected patterns of parameters, but none matches {pattern!r}")
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(any(fnmatchcase(name, pattern) for pattern in config.trained))
        self.ema, self.initial = make_ema(base), make_ema(base)
        self.modules: dict[str, torch.nn.Module] = {MODEL: self.model, EMA: self.ema}
        self.optimizer = make_optimizer(self.model, config.optimizer)
        self.optimizers: dict[str, torch.optim.Optimizer] = {"model": self.optimizer}

    def train_step(self, step: int) -> dict[str, float | Tensor]:
        """Takes by the weights of this step, and one update."""
        config = self.config
        takes = sorted(self.rollout(self.model, step), key=lambda one: len(one.patches))
        total = sum(len(one.patches) for one in takes)
        self.optimizer.zero_grad(set_to_none=True)
        sums = torch.zeros(3)
        for first in range(0, len(takes), config.rows_per_batch):
            batch = takes[first : first + config.rows_per_batch]
            losses = self.losses(batch) * (sum(len(one.patches) for one in batch) / total)
            (losses[0] + config.kl_weight * losses[1:].sum()).backward()
            sums += losses.detach()
        average_gradients(self.model)
        lr = learning_rate(step, config.loop.steps, config.optimizer)
        norm = optimizer_step(self.optimizer, lr, config.optimizer.grad_clip_norm)
        update_ema(self.ema, self.model, step, config.optimizer.ema_decay)
        names = ("policy_loss", "kl_words", "kl_fine")
        means = {
            "text_log_prob": float(np.mean([one.text_log_prob for one in takes])),
            "patches": total / len(takes),
        }
        return {**dict(zip(names, sums, strict=True)), **means, "grad_norm": norm}

    def losses(self, takes: Sequence[RatedTake]) -> Tensor:
        """(3,) means over patches: policy gradient, divergence of the words' level, and of the finer ones, in nats."""
        batch = as_batch(takes)
        at = batch.patches[:, :, 0] != PADDING
        patches, advantages = batch.patches[at], torch.from_numpy(np.concatenate([one.advantages for one in takes]))
        compared = torch.rand(len(patches)) < self.config.kl_ratio
        compared[0] = True
        with autocast("cpu", self.config.precision):
            words, fine = self.logits(self.model, batch, at, compared)
            with torch.no_grad():
                words_before, fine_before = self.logits(self.initial, batch, at, compared)
        targets = level_targets(patches, self.model.config)[WORD_LEVEL][:, :1]
        log_probs = words.float().log_softmax(-1).gather(1, targets)[:, 0]
        divergences = [divergence(before, after) for before, after in zip(fine_before, fine, strict=True)]
        policy = -(log_probs * advantages.float()).mean()
        return torch.stack([policy, divergence(words_before, words), torch.stack(divergences).mean()])

    @staticmethod
    def logits(model: Mars6, batch: TrainingBatch, at: Tensor, compared: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Logits of level 0 (N, C + 1) of the patches at (R, T), and of the finer levels where compared (N,)."""
        ids, lengths, identity, style, patches, _ = batch.model_inputs()
        memory, mask = model.encode(ids, lengths, identity, style)
        vectors, *_ = model.global_decoder(model.global_decoder.embed(patches[:, :-1]), memory, mask, ())
        vectors = vectors[at]
        words, _ = model.local_decoder.step(vectors, None, ())
        return words, model.local_decoder(vectors[compared], patches[at][compared])[WORD_LEVEL + 1 :]

    def validate(self, step: int) -> dict[str, float]:
        """Nothing: takes are judged by other recognizers (`marstts evaluate`)."""
        return {}


def divergence(before: Tensor, after: Tensor) -> Tensor:
    """KL(before || after) of logits (..., C), the mean over all but the last dimension."""
    each = kl_div(after.float().log_softmax(-1), before.float().log_softmax(-1), log_target=True, reduction="none")
    return each.sum(-1).mean()


def as_batch(takes: Sequence[RatedTake]) -> TrainingBatch:
    """Takes as rows."""
    prompts = [one.prompt for one in takes]
    return TrainingBatch(
        text_ids=pad_rows([one.text_ids for one in prompts], 0),
        text_lengths=torch.tensor([len(one.text_ids) for one in prompts]),
        embeddings={
            "identity": torch.from_numpy(np.stack([one.identity for one in prompts])),
            "style": torch.from_numpy(np.stack([one.style for one in prompts])),
        },
        patches=pad_rows([one.patches for one in takes], PADDING),
        patch_lengths=torch.tensor([len(one.patches) for one in takes]),
    )


def average_gradients(model: torch.nn.Module) -> None:
    """Average the gradients over all processes."""
    if world_size() > 1:
        for parameter in model.parameters():
            if parameter.grad is not None:
                torch_distributed.all_reduce(parameter.grad)
                parameter.grad /= world_size()


def with_words_in_phones(text: str, rng: random.Random) -> str:
    """The text with half of its words, and all capitalized ones but the first, in phones, as far as they are known."""

    def said(word: re.Match[str]) -> str:
        phones = phones_of(word[0])
        is_chosen = rng.random() < 0.5 or (word[0][0].isupper() and word.start() > 0)
        return as_characters(phones) if phones and is_chosen else word[0]

    return WORD.sub(said, text)


def heteronym_texts(rng: random.Random) -> Iterator[str]:
    """Sentences of heteronyms whose noun and verb differ in more than stress."""
    differing = list(uses())
    while True:
        word, use = rng.choice(differing)
        text = rng.choice(USED[use]).format(word)
        found = in_context(word, text, text.index(word))
        if found is not None and found.use == use:
            yield text


def texts_of_step(
    questions: Texts, others: Texts, kept: Sequence[str], num_questions: int, num_heteronyms: int = 0
) -> Texts:
    """Texts as they are spoken: some yes/no questions, some heteronyms, then others, without those kept for tests."""
    tests = {normalize(text).strip() for text in kept}

    def spoken(texts: Iterator[str]) -> Iterator[str]:
        return (text for one in texts if (text := normalize(one).strip()) and text not in tests)

    def of_step(rng: random.Random) -> Iterator[str]:
        asked = (text for text in spoken(questions(rng)) if rises_at_end(text))
        used = spoken(heteronym_texts(rng))
        return chain(islice(asked, num_questions), islice(used, num_heteronyms), spoken(others(rng)))

    return of_step


def main() -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parent", type=Path)
    parser.add_argument("manifest", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--names", type=Path, required=True)
    parser.add_argument("--without", type=Path)
    parser.add_argument("--recognizer", default="tiny.en")
    parser.add_argument("--config", type=Path, default=Path(__file__).with_suffix(".toml"))
    found = parser.parse_args()
    from pairs_of_sounds import choose_recordings, name_texts, question_texts  # needs trackers of F0

    config = read_config(PolicyConfig, found.config)
    torch.set_num_threads(1)
    bundle, base = load_bundle(found.parent), models.load_for_training(found.parent)
    speech: Any = models.open_in_memory(base, bundle)
    tts = marstts.load(found.parent)
    recordings = choose_recordings(found.manifest, random.Random(config.loop.seed), config.speakers)
    voices = [tts.clone(file) for file in recordings.values()]
    kept = found.without.read_text(encoding="utf-8").splitlines() if found.without else []
    codec: Any = tts.session.codec
    judges: list[tuple[Judge, float]] = [
        (TextJudge(found.recognizer), 1.0),
        (SoundJudge(codec), config.goodness_weight),
        (RiseJudge(tts.session), config.rise_weight),
        (UseJudge(codec), config.use_weight),
    ]
    judges = [(judge, weight) for judge, weight in judges if weight]
    names: Texts = lambda rng: name_texts(rng, found.names)  # noqa: E731
    texts = texts_of_step(question_texts, names, kept, config.questions_per_step, config.heteronyms_per_step)
    task = PolicyTask(config, base, Rollout(config, speech, tts.session, voices, texts, judges))
    if is_main():
        found.output.mkdir(parents=True, exist_ok=True)
        speech.tokenizer.save(found.output / TOKENIZER_FILE)
        write_config(PolicyRun(model=base.config, training=config), found.output / CONFIG_FILE)
        record_training(found.output, config, {}, found.parent)
    run(task, config.loop, found.output)


if __name__ == "__main__":
    main()
