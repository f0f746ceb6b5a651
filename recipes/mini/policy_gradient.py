"""Policy gradient of a MARS6 by the words of its own takes: codes from which a recognizer misses them become unlikely.

Usage: [torchrun --nproc-per-node 2] python recipes/mini/policy_gradient.py PARENT MANIFEST OUTPUT --names FOLDER
           [--without FILE] [--recognizer tiny.en] [--config policy_gradient.toml]

PARENT: folder of a bundle.  MANIFEST: `utterances.jsonl` of people who lend their voices.  OUTPUT: a run folder for
`marstts export OUTPUT --template PARENT --phones contours`.  --names: folder of the package `names`.  --without: texts,
one a line, that are kept for tests, as those with a name of `text/test_names.txt` are.  --recognizer: a size or folder
of faster-whisper, another one than the judges'.  Running it again resumes; 12 s of two cores a step.

Each step samples takes of some texts, in one voice for each text, with the weights of that step, and follows the policy
gradient once. Group-relative advantages (GRPO, arXiv:2402.03300), but for each token of the text instead of each take:
the log-probability that a Whisper gives the token, less the mean over the takes of the text; it counts for the codes of
level 0, which hold the words, in the patches where the token is said. With one advantage for a take, the same number of
takes changed nothing beyond noise. The local decoder is left as it is, and the divergence from the initial model is a
loss, so that what no token asks for stays.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import soxr
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor
from torch import distributed as torch_distributed
from torch.nn.functional import kl_div

import marstts
from marstts import models
from marstts.audio import audible_span
from marstts.bundle import load_bundle
from marstts.errors import require
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
from marstts.text.normalize import normalize
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

LEAST_LOG_PROB, MAX_ADVANTAGE, MAX_SUM = -6.0, 2.0, 3.0
"""Bounds in nats: of a token's log-probability, of its advantage, and of the sum where tokens share a patch."""

ENDLESS = -0.5
"""Advantage of all patches of a take that has no end of speech."""

BEFORE, AFTER = 1.5, 0.5
"""Patches before and after a token's time that its advantage counts for: attention tells times about so well."""

MIN_WINDOW_SECONDS = 3
"""Least length of what Whisper is given. It is trained on 30 s, of which most would be silence here."""

HERTZ = 16000


class PolicyConfig(Config):
    """Sampling, loss and length of the training."""

    texts_per_step: int = Field(10, ge=1)
    """Texts of a step in each process."""

    takes: int = Field(8, ge=2)
    """Takes of a text, in one voice."""

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
class Reading:
    """What a recognizer says of a text that a take should have: K tokens of its own."""

    log_probs: NDArray[np.float64]
    """(K,) of each token after those before it."""

    spans: NDArray[np.float64]
    """(K, 2) seconds where attention finds them, NaN where it does not."""


class TextJudge:
    """Log-probabilities and times of the tokens of a given text by a Whisper (teacher forcing)."""

    def __init__(self, source: str) -> None:
        self.package = require("faster_whisper", "eval")
        self.whisper = self.package.WhisperModel(source, device="cpu", compute_type="int8", cpu_threads=1)
        self.start = [self.whisper.hf_tokenizer.token_to_id("<|startoftranscript|>")]

    def read(self, samples: NDArray[np.float32], text: str) -> Reading | None:
        """samples (N,) at 16 kHz -> the tokens of the text; None where there is hardly any sound."""
        if len(samples) < HERTZ // 10:
            return None
        seconds = max(MIN_WINDOW_SECONDS, int(np.ceil(len(samples) / HERTZ + 0.2)))
        features = self.package.feature_extractor.FeatureExtractor(chunk_length=seconds)(samples)[:, : 100 * seconds]
        features = np.pad(features, ((0, 0), (0, 100 * seconds - features.shape[1])))[None].astype(np.float32)
        encoded = self.whisper.encode(features[0])
        ids = self.whisper.hf_tokenizer.encode(" " + text, add_special_tokens=False).ids
        found = self.whisper.model.align(encoded, self.start, [ids], [100 * seconds], median_filter_width=7)[0]
        spans = np.full((len(ids), 2), np.nan)
        for token, frame in found.alignments:
            if token < len(ids):
                time = np.array([frame, frame + 1]) * 0.02
                spans[token] = np.fmin(spans[token, 0], time[0]), np.fmax(spans[token, 1], time[1])
        return Reading(np.log(np.maximum(found.text_token_probs, np.exp(LEAST_LOG_PROB))), spans)


def token_advantages(log_probs: Sequence[NDArray[np.float64] | None]) -> list[NDArray[np.float64] | None]:
    """Log-probabilities (K,) of the tokens of one text in its takes -> less their means over the takes, bounded."""
    read = [one for one in log_probs if one is not None]
    mean = np.mean(read, axis=0) if read else 0.0
    return [None if one is None else np.clip(one - mean, -MAX_ADVANTAGE, MAX_ADVANTAGE) for one in log_probs]


def patch_advantages(
    advantages: NDArray[np.float64], spans: NDArray[np.float64], num_patches: int, patch_rate: float
) -> NDArray[np.float64]:
    """advantages (K,) of tokens at spans (K, 2) in seconds -> (T,): their sums in the patches where they are said.

    The last token counts until the end of speech, which cuts it off where it comes too early.
    """
    found = np.zeros(num_patches)
    for index, (value, (start, end)) in enumerate(zip(advantages, spans, strict=True)):
        if not np.isnan(start):
            first = max(0, int(np.floor(start * patch_rate - BEFORE)))
            is_last = index == len(advantages) - 1
            last = num_patches if is_last else min(num_patches, int(np.ceil(end * patch_rate + AFTER)))
            found[first:last] += value
    return np.clip(found, -MAX_SUM, MAX_SUM)


class Rollout:
    """Takes of texts in the voices of people, rated by a judge."""

    def __init__(
        self,
        config: PolicyConfig,
        speech: Mars6Speech,
        session: ModelSession,
        voices: Sequence[Voice],
        texts: Callable[[random.Random], Iterator[str]],
        judge: TextJudge,
    ) -> None:
        self.config, self.speech, self.session, self.voices = config, speech, session, voices
        self.texts, self.judge = texts, judge

    def __call__(self, model: Mars6, step: int) -> list[RatedTake]:
        """The takes of a step in this process, by the weights of the model."""
        number = step * world_size() + rank()
        rng = random.Random(number * 7919 + 13)
        texts = self.texts(rng)
        rows = [(next(texts), rng.choice(self.voices)) for _ in range(self.config.texts_per_step)]
        with tempfile.TemporaryDirectory() as folder:
            graphs = Path(folder) / "mars6"
            bundled.write_model(model, graphs, WeightFormat.FLOAT32)
            return self.rated(replace(self.speech, engine=bundled.open_engine(graphs, EngineKind.ONNX)), rows, number)

    def rated(self, speech: Mars6Speech, rows: Sequence[tuple[str, Voice]], seed: int) -> list[RatedTake]:
        """Takes of all texts with their advantages."""
        rate, bounds = self.session.codec.spec.patch_rate, self.session.backoff
        takes = [row for row in rows for _ in range(self.config.takes)]
        limits = [bounds.limits(text, rate) for text, _ in takes]
        prompts = [speech.prompt(text, voice) for text, voice in takes]
        made = generate(
            speech.engine, prompts, top_p=[self.config.top_p] * len(takes), limits=limits,
            rngs=[np.random.default_rng((seed, row)) for row in range(len(takes))], sampling=speech.sampling,
        )  # fmt: skip
        readings = [
            self.read(speech, text, voice, one.tokens) if one.stop is StopReason.EOS and len(one.tokens) > 1 else None
            for one, (text, voice) in zip(made, takes, strict=True)
        ]
        advantages: list[NDArray[np.float64] | None] = []
        for first in range(0, len(takes), self.config.takes):
            group = readings[first : first + self.config.takes]
            advantages += token_advantages([None if one is None else one.log_probs for one in group])
        found = []
        for prompt, one, reading, each in zip(prompts, made, readings, advantages, strict=True):
            end = [eos_patch(speech.config)] if one.stop is StopReason.EOS else []
            patches = np.concatenate([one.tokens, *end]).astype(np.int64)
            if reading is None or each is None:
                found.append(RatedTake(prompt, patches, np.full(len(patches), ENDLESS)))
            else:
                values = patch_advantages(each, reading.spans, len(patches), rate)
                found.append(RatedTake(prompt, patches, values, float(reading.log_probs.mean())))
        return found

    def read(self, speech: Mars6Speech, text: str, voice: Voice, tokens: NDArray[np.int64]) -> Reading | None:
        """What the judge says of a take's sound; times count from its first patch."""
        waveform = self.session.decode(speech.codes(tokens), voice)
        start, end = audible_span(waveform, below_peak_db=EDGE_BELOW_PEAK_DB, max_tail_seconds=MAX_TAIL_SECONDS)
        rate = waveform.sample_rate
        found = self.judge.read(soxr.resample(waveform.samples[start:end], rate, HERTZ), text)
        return None if found is None else replace(found, spans=found.spans + start / rate)


class PolicyTask:
    """The training as a `training.loop.Task`."""

    def __init__(self, config: PolicyConfig, base: Mars6, rollout: Callable[[Mars6, int], list[RatedTake]]) -> None:
        init_distributed()
        self.config, self.rollout = config, rollout
        self.model = make_ema(base).requires_grad_(True)
        self.model.local_decoder.requires_grad_(False)
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


def without_tests(
    texts: Callable[[random.Random], Iterator[str]], kept: Sequence[str]
) -> Callable[[random.Random], Iterator[str]]:
    """Texts as they are spoken, in the order of a generator, without those that are kept for tests."""
    tests = {normalize(text).strip() for text in kept}

    def others(rng: random.Random) -> Iterator[str]:
        return (text for one in texts(rng) if (text := normalize(one).strip()) and text not in tests)

    return others


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
    from pairs_of_sounds import choose_recordings, name_texts  # needs trackers of F0

    config = read_config(PolicyConfig, found.config)
    torch.set_num_threads(1)
    bundle, base = load_bundle(found.parent), models.load_for_training(found.parent)
    speech: Any = models.open_in_memory(base, bundle)
    tts = marstts.load(found.parent)
    recordings = choose_recordings(found.manifest, random.Random(config.loop.seed), config.speakers)
    voices = [tts.clone(file) for file in recordings.values()]
    kept = found.without.read_text(encoding="utf-8").splitlines() if found.without else []
    judge = TextJudge(found.recognizer)
    texts = without_tests(lambda rng: name_texts(rng, found.names), kept)
    task = PolicyTask(config, base, Rollout(config, speech, tts.session, voices, texts, judge))
    if is_main():
        found.output.mkdir(parents=True, exist_ok=True)
        speech.tokenizer.save(found.output / TOKENIZER_FILE)
        write_config(PolicyRun(model=base.config, training=config), found.output / CONFIG_FILE)
        record_training(found.output, config, {}, found.parent)
    run(task, config.loop, found.output)


if __name__ == "__main__":
    main()
