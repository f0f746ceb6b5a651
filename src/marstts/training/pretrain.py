"""Training of MARS6: shards in, a model that speaks out.

Upstream: `data.shards`, `data.batching`.  Downstream: the run folder: `training.loop`'s checkpoints, `config.json` and
`tokenizer.json`; `trained_model` reads it.
MARS6 (arXiv:2501.05787), Sec. III-D and V-A.  Deviations: the weights used for speaking are a running average; early
attention may be rewarded for reading in order (`mars6.objective.alignment_reward`).
Shapes: B batch · S text tokens · T patches · P positions · D width.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ConfigDict, Field
from safetensors.torch import load_file
from torch import Tensor, nn

from marstts.checkpoint import find_bundle, load_mars6
from marstts.codec.base import Codec
from marstts.config import Config, read_config, write_config
from marstts.data.batching import Batcher, BatchingConfig, Item
from marstts.data.manifest import Utterance
from marstts.data.shards import SHARD_PATTERN, Corpus, load_corpus, read_shard
from marstts.engine.torch import TorchEngine
from marstts.errors import CheckpointError, ConfigError, DataError
from marstts.mars6.config import Conditioning, Mars6Config
from marstts.mars6.generate import Limits, SamplingConfig, generate
from marstts.mars6.model import Mars6
from marstts.mars6.objective import (
    NextTokenLoss,
    ObjectiveConfig,
    alignment_reward,
    flux_loss,
    next_token_loss,
    previous_codes,
)
from marstts.mars6.patches import eos_patch, patchify, unpatchify
from marstts.mars6.prompt import QUALITY_RATES, SPECIAL_TOKENS, Prompt, prompt_string
from marstts.nn.transformer import CrossLayer, SelfLayer
from marstts.text.bpe import BPE
from marstts.text.normalize import normalize
from marstts.training.damage import DAMAGED_FILE
from marstts.training.distributed import batches_of_step, join, parallel, without_averaging, world_size
from marstts.training.guidance import distillation_loss, guided_chances
from marstts.training.loop import LoopConfig, best, latest
from marstts.training.optim import (
    OptimizerConfig,
    averaged_copy,
    descend,
    learning_rate,
    make_optimizer,
    update_average,
)
from marstts.training.throughput import TRAINING_PASSES, forward_flops, measured_peak
from marstts.training.translation import translated

PADDING = -100
"""Marks patches of a batch that are not there."""

CONFIG_FILE, TOKENIZER_FILE = "config.json", "tokenizer.json"
MODEL, AVERAGE, TEACHER = "model", "average", "teacher"
"""Names of the sets of weights in a checkpoint; the last where there is one."""


class Precision(str, Enum):
    """What matrix products are computed in; weights and optimizer are float32 always."""

    BF16 = "bf16"
    FP32 = "fp32"


class AlignmentConfig(Config):
    """Help for cross-attention to find its diagonal: a reward that is taken away once it stands."""

    weight: float = Field(0.3, ge=0.0)
    """Of the reward beside the cross-entropy; 0 = none."""

    layers: tuple[int, ...] = (2, 3)
    """Layers of the global decoder, counted from 0, that are rewarded and whose attention is reported."""

    heads: int = Field(2, gt=0)
    """The first so many heads of each are rewarded; the others stay free."""

    until_step: int = Field(20_000, ge=0)
    """No reward from this step on."""

    width: float = Field(0.13, gt=0.0)
    """Half the width of the diagonal band, as a share of the length."""


class PretrainConfig(Config):
    """A training of MARS6 from shards."""

    model: Mars6Config
    loop: LoopConfig
    batching: BatchingConfig = BatchingConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    alignment: AlignmentConfig = AlignmentConfig()

    precision: Precision = Precision.BF16
    device: str = "auto"
    """A PyTorch device, or `auto`: the first GPU if there is one."""

    compile: bool = False
    """Compile the layers first: minutes of waiting for faster steps, on a CPU too (which needs g++)."""

    batches_per_step: int = Field(0, ge=0)
    """Batches of one update, shared out evenly over all processes; a process adds up the gradients of its own. However
    many processes there are, a step then learns from the same batches. 0 = one for each process, whose number then
    decides."""

    peak_tflops: float = Field(0.0, ge=0.0)
    """What one device can compute at most, in 10^12 operations a second, by which its use is logged; 0 = measured once
    by a matrix product."""

    prefetch: bool = True
    """Put the next batch together while this one is learnt from."""

    full_band_rate: int = Field(24_000, gt=0)
    """Recordings of at least this true rate are all the codec can carry, and announced by the best quality prefix."""

    history_noise: float = Field(0.0, ge=0.0, lt=1.0)
    """Share of the tokens a model hears as its past that are replaced by random codes of their level; what it has to
    say stays. Speaking freely, a model goes on from its own slips, which true pasts do not prepare it for."""

    learnt_guidance: float = Field(1.0, ge=1.0)
    """Learn what the model begun with says under a guidance of this weight (`engine.guided`), instead of what the
    recordings say; it then needs none. 1 = learn from the recordings."""

    validation_patches: int = Field(20_000, gt=0)
    """About how much of the validation split is scored."""

    audio_samples: int = Field(4, ge=0)
    """Validation sentences spoken into TensorBoard at each validation, where a codec is at hand."""


class TrainedConfig(Config):
    """What the `config.json` of every run that trains a MARS6 says, whatever the training was."""

    model_config = ConfigDict(extra="ignore")

    model: Mars6Config


@dataclass(frozen=True)
class Scored:
    """What a model makes of a batch; scalars unless told otherwise."""

    loss: NextTokenLoss
    """How well it foretells the recordings."""

    flux: Tensor | None
    """If there shall be one."""

    distilled: Tensor | None
    """How well it says what its guided teacher says, if it has one."""

    cross_attention: tuple[Tensor, ...]
    """(B, H, T, slots + S) of the layers asked for."""

    @property
    def total(self) -> Tensor:
        """What is to be minimised."""
        total = self.loss.total if self.distilled is None else self.distilled
        return total if self.flux is None else total + self.flux

    @property
    def named(self) -> dict[str, Tensor]:
        """What to log: `loss`, per level `loss0`, `accuracy0`, …, and the parts that there are."""
        by_level = {"loss": self.loss.levels, "accuracy": self.loss.accuracy}
        named = {f"{name}{level}": value for name, values in by_level.items() for level, value in enumerate(values)}
        parts = {"loss": self.loss.total, **named, "flux": self.flux, "distilled": self.distilled}
        return {name: value.detach() for name, value in parts.items() if value is not None}


@dataclass(frozen=True, eq=False)
class Batch:
    """What the model learns from in one step; tensors on one device."""

    text_ids: Tensor
    """(B, S) padded with 0."""

    text_lengths: Tensor
    """(B,)."""

    identity: Tensor
    """(B, E1)."""

    style: Tensor
    """(B, E2)."""

    patches: Tensor
    """(B, T, P) tokens, end-of-speech patch included, padded with -100."""

    patch_lengths: Tensor
    """(B,) end-of-speech patch included."""

    boundaries: Tensor
    """(B, 2): patch and text token at which the last utterance of a chain begins; 0, 0 where there is only one."""

    def to(self, device: torch.device) -> Batch:
        moved = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return Batch(**{name: tensor.to(device, non_blocking=True) for name, tensor in moved.items()})


class Collator:
    """Items of a batching plan → tensors."""

    def __init__(self, corpus: Corpus, tokenizer: BPE, config: Mars6Config, full_band_rate: int) -> None:
        self.corpus, self.tokenizer, self.config, self.full_band_rate = corpus, tokenizer, config, full_band_rate
        self.num_patches = corpus.num_patches
        self.end = eos_patch(config)

    def __call__(self, items: Sequence[Item]) -> Batch:
        """The batch of these items, on the CPU."""
        texts = [self.text_ids(item) for item in items]
        patches = [self.patches(item) for item in items]
        identity, style = self.corpus.voices_of([item.reference for item in items])
        return Batch(
            text_ids=pad(texts, 0),
            text_lengths=torch.tensor([len(text) for text in texts]),
            identity=torch.from_numpy(identity),
            style=torch.from_numpy(style),
            patches=pad(patches, PADDING),
            patch_lengths=torch.tensor([len(rows) for rows in patches]),
            boundaries=torch.tensor([self.boundary(item) for item in items]),
        )

    def text_ids(self, item: Item) -> NDArray[np.int64]:
        """(S,) ids of the string the encoder reads; what goes before the last utterance stands for a transcript."""
        *before, text = item.texts
        string = prompt_string(text, quality=self.quality(item), transcript=" ".join(before) if before else None)
        return np.asarray(self.tokenizer.encode(string), dtype=np.int64)

    def patches(self, item: Item) -> NDArray[np.int64]:
        """(T, P) tokens of all parts, then the end of speech."""
        layout, codebook_size = self.config.patch_layout, self.config.codebook_size
        parts = [patchify(self.corpus.codes_of(part), layout, codebook_size) for part in item.parts]
        return np.concatenate([*parts, self.end]).astype(np.int64)

    def boundary(self, item: Item) -> tuple[int, int]:
        """Patch and text token at which the last utterance begins; (0, 0) if nothing goes before it."""
        if len(item.texts) == 1:
            return 0, 0
        before = self.tokenizer.encode(prompt_string(" ".join(item.texts[:-1]), quality=self.quality(item)))
        return int(self.num_patches[list(item.parts[:-1])].sum()), len(before) - 1  # less the mark of the text's end

    def quality(self, item: Item) -> int:
        """The rate (Hz) that the quality prefix announces."""
        rate = min(self.corpus.utterances[part].source_rate for part in item.parts)
        return QUALITY_RATES[-1] if rate >= self.full_band_rate else max(rate, QUALITY_RATES[0])


def pad(arrays: Sequence[NDArray[np.int64]], value: int) -> Tensor:
    """Arrays (L, ...) of different lengths -> (B, max L, ...)."""
    padded = np.full((len(arrays), max(map(len, arrays)), *arrays[0].shape[1:]), value, dtype=np.int64)
    for row, array in zip(padded, arrays, strict=True):
        row[: len(array)] = array
    return torch.from_numpy(padded)


class Prefetcher:
    """Calls a pure function of a batch's number, one call ahead, on one thread."""

    def __init__(self, make: Callable[[int], Batch], stride: int) -> None:
        """`stride`: from the number of one call to that of the next."""
        self.make, self.stride = make, stride
        self.executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="batches")
        self.coming: dict[int, Future[Batch]] = {}

    def __call__(self, number: int) -> Batch:
        batch = self.coming.pop(number).result() if number in self.coming else self.make(number)
        following = number + self.stride
        self.coming = {following: self.executor.submit(self.make, following)}
        return batch


class PretrainTask:
    """MARS6's `training.loop.Task`: teacher-forced next-token prediction, everything a function of the step."""

    def __init__(self, config: PretrainConfig, corpus: Corpus, tokenizer: BPE, codec: Codec | None = None) -> None:
        """`codec` is only needed for audio samples. ConfigError or DataError if corpus and model do not fit."""
        check_fit(config, corpus, tokenizer, codec)
        join()
        self.config, self.tokenizer, self.codec = config, tokenizer, codec
        self.device = pick_device(config.device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.loop.seed)
            self.model = Mars6(config.model).to(self.device).train()
        self.average = averaged_copy(self.model)
        self.modules: dict[str, nn.Module] = {MODEL: self.model, AVERAGE: self.average}
        if config.learnt_guidance > 1:
            self.modules[TEACHER] = averaged_copy(self.model)
        self.special = [tokenizer.encode(token)[0] for token in SPECIAL_TOKENS]
        self.optimizer = make_optimizer(self.model, config.optimizer)
        self.optimizers: dict[str, torch.optim.Optimizer] = {"model": self.optimizer}
        if config.compile:
            for layer in self.model.modules():  # one by one: layers of a kind share what was compiled, for all lengths
                if isinstance(layer, (SelfLayer, CrossLayer)):
                    layer.compile(dynamic=True)
        self.forward = parallel(self.model, all_used=config.model.conditioning is Conditioning.TWO_SLOTS)
        self.begun_at, self.first_batch = 0, 0
        self.peak = config.peak_tflops * 1e12 or measured_peak(self.device, config.precision is Precision.BF16)
        self.spoken = with_spoken_texts(corpus)
        self.seconds_per_patch = 1 / corpus.codec.patch_rate
        self.training_batch = self.training_batches()
        self.validation_items, self.collate_validation = self.validation_set()
        self.last_step_at = time.monotonic()

    @property
    def summary(self) -> str:
        """What is trained, where, in a few words."""
        millions = sum(parameter.numel() for parameter in self.model.parameters()) / 1e6
        return f"{millions:.1f}M parameters on {self.device}"

    @property
    def batches_per_step(self) -> int:
        """Of all processes together."""
        return self.config.batches_per_step or world_size()

    def first_batch_of(self, step: int) -> int:
        """The number of batches learnt from before `step`, by all processes."""
        return self.first_batch + (step - self.begun_at) * self.batches_per_step

    def position(self, step: int) -> dict[str, int]:
        """What `training.loop` keeps in the checkpoint of `step`."""
        return {"batches": self.first_batch_of(step)}

    def resume(self, step: int, position: Mapping[str, int]) -> None:
        """Go on with the batch after the last one, however many there were to a step so far."""
        self.begun_at, self.first_batch = step, position.get("batches", step * self.batches_per_step)

    def training_batches(self) -> Callable[[int], Batch]:
        """The batch of this number, as a function."""
        corpus = self.spoken.split("train")
        batcher = Batcher(corpus, self.config.batching, self.config.loop.seed)
        collate = Collator(corpus, self.tokenizer, self.config.model, self.config.full_band_rate)

        def make(number: int) -> Batch:
            return collate(batcher.items(number))

        return Prefetcher(make, world_size()) if self.config.prefetch else make

    def validation_set(self) -> tuple[list[list[Item]], Collator]:
        """The held-out batches, always the same: single utterances in their own spelling."""
        corpus = self.spoken.split("validation")
        variants = ("chain", "lower_case", "no_final_punctuation", "wordless")
        options = {f"{variant}_probability": 0.0 for variant in variants}
        batcher = Batcher(corpus, self.config.batching.model_copy(update=options), seed=0)
        share = self.config.validation_patches / self.config.batching.patches_per_batch
        count = min(batcher.batches_per_epoch, max(1, round(share)))
        collate = Collator(corpus, self.tokenizer, self.config.model, self.config.full_band_rate)
        return [batcher.items(step) for step in range(count)], collate

    def autocast(self) -> torch.autocast:
        """The precision of matrix products, as a context."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.precision is Precision.BF16)

    def train_step(self, step: int) -> dict[str, float | Tensor]:
        """One update on the batches of this step."""
        config = self.config
        numbers = batches_of_step(self.first_batch_of(step), self.batches_per_step)
        self.optimizer.zero_grad(set_to_none=True)
        sums: dict[str, float | Tensor] = {}
        for number in numbers:
            torch.manual_seed(config.loop.seed * 1_000_003 + number)  # dropout, alike whichever process draws it
            with without_averaging(self.forward, wanted=number != numbers[-1]):
                for name, value in self.learn(step, number, 1 / len(numbers)).items():
                    sums[name] = sums.get(name, 0.0) + value
        rate = learning_rate(step, config.loop.steps, config.optimizer)
        norm = descend(self.optimizer, rate, config.optimizer.clip_norm)
        update_average(self.average, self.model, step, config.optimizer.average_decay)
        size = {name: float(sums.pop(name)) for name in ("num_patches", "flops", "model_seconds")}
        measured = self.throughput(**size)
        means = {name: total / len(numbers) for name, total in sums.items()}
        return {**means, "gradient": norm, "learning_rate": rate, **measured}

    def learn(self, step: int, number: int, share: float) -> dict[str, float | Tensor]:
        """Add `share` of the gradient of batch `number`; what to log, and what `throughput` asks for."""
        config = self.config
        on_cpu = self.training_batch(number)
        batch = on_cpu.to(self.device)
        rewarded = step < config.alignment.until_step and config.alignment.weight > 0
        heard = with_slips(batch.patches, config.history_noise, config.model, config.loop.seed, number)
        begun = time.monotonic()
        scored = self.score(self.forward, batch, config.alignment.layers if rewarded else (), heard)
        total, scores = scored.total, scored.named
        if rewarded:
            reward = self.alignment(scored.cross_attention, batch)
            total, scores["alignment"] = total + config.alignment.weight * reward, reward.detach()
        (total * share).backward()
        model_seconds = time.monotonic() - begun
        scores |= attention_shape(scored.cross_attention, batch, config.alignment.heads)
        num_patches = int(on_cpu.patch_lengths.sum())
        flops = TRAINING_PASSES * forward_flops(config.model, on_cpu.text_lengths, on_cpu.patch_lengths)
        padding = 1 - num_patches / on_cpu.patches[..., 0].numel()
        size = {"num_patches": num_patches, "flops": flops, "model_seconds": model_seconds}
        return {**scores, "padding": padding, **size}

    def score(
        self,
        model: Callable[..., Any],
        batch: Batch,
        attention_layers: tuple[int, ...],
        heard: Tensor | None = None,
    ) -> Scored:
        """What `model` makes of a batch, beside the guided teacher if there is one; `attention_layers` are counted from
        0. `heard` (B, T, P) is the past that both are told, if it is not the true one.
        """
        config, objective = self.config.model, self.config.objective
        past = batch.patches if heard is None else heard
        inputs = (batch.text_ids, batch.text_lengths, batch.identity, batch.style, past, batch.patch_lengths)
        with self.autocast():
            output = model(*inputs, attention_layers=attention_layers)
            logits, distilled, flux = output.logits, None, None
            if TEACHER in self.modules:
                teacher = cast(Mars6, self.modules[TEACHER])
                chances = guided_chances(teacher, self.config.learnt_guidance, self.special, *inputs)
                distilled = distillation_loss(logits, chances, objective.level_weights)
                logits = tuple(level.detach() for level in logits)
            loss = next_token_loss(logits, batch.patches[output.scored], config, objective)
            if objective.flux.beta:
                previous = previous_codes(batch.patches, output.scored, config)
                flux = flux_loss(output.logits[0], previous, objective.flux)
        return Scored(loss, flux, distilled, output.cross_attention)

    def alignment(self, cross_attention: tuple[Tensor, ...], batch: Batch) -> Tensor:
        """The mean of the layers' alignment rewards, to be minimised."""
        config = self.config.alignment
        rewards = [
            alignment_reward(
                attention[:, : config.heads],
                batch.text_lengths,
                batch.patch_lengths,
                num_slots=self.model.num_slots,
                boundaries=batch.boundaries,
                width=config.width,
            )
            for attention in cross_attention
        ]
        return torch.stack(rewards).mean()

    def throughput(self, num_patches: float, flops: float, model_seconds: float) -> dict[str, float]:
        """How much audio a second of training has heard in all processes, what share of a device's operations per
        second (`peak_tflops`) the model itself made use of, and what share of the time went by outside its passes
        forward and backward: waiting for batches, the optimizer, the running average, reports. A GPU works on
        when a pass has been asked for, so only a CPU can tell that.
        """
        now, before = time.monotonic(), self.last_step_at
        self.last_step_at = now
        rates = {
            "audio_seconds_per_second": num_patches * self.seconds_per_patch * world_size() / (now - before),
            "utilisation": flops / (now - before) / self.peak,
        }
        on_cpu = self.device.type == "cpu"
        return rates | ({"outside_model": 1 - model_seconds / (now - before)} if on_cpu else {})

    @torch.no_grad()
    def validate(self, step: int, writer: Any) -> dict[str, float]:
        """Cross-entropy and accuracy per level of the averaged weights on held-out utterances, and their attention."""
        sums: dict[str, float] = {}
        weights = 0
        for items in self.validation_items:
            batch = self.collate_validation(items).to(self.device)
            scored = self.score(self.average, batch, self.config.alignment.layers)
            scores = scored.named | attention_shape(scored.cross_attention, batch, self.config.alignment.heads)
            weight = int(batch.patch_lengths.sum())
            weights += weight
            for name, value in scores.items():
                sums[name] = sums.get(name, 0.0) + weight * float(value)
        if self.codec is not None:
            self.speak_samples(self.codec, step, writer)
        self.last_step_at = time.monotonic()
        return {name: total / weights for name, total in sums.items()}

    def speak_samples(self, codec: Codec, step: int, writer: Any) -> None:
        """Speak held-out sentences in the voice of their references, into TensorBoard."""
        items = [item for items in self.validation_items for item in items][: self.config.audio_samples]
        if not items:
            return
        collate, corpus, config = self.collate_validation, self.collate_validation.corpus, self.config.model
        nothing = np.zeros((0, config.patch_size), dtype=np.int64)
        prompts, limits = [], []
        for item in items:
            [identity], [style] = corpus.voices_of([item.reference])
            prompts.append(Prompt(collate.text_ids(item), identity, style, nothing))
            limits.append(Limits(1, 2 * int(collate.num_patches[item.parts[0]])))
        takes = generate(
            TorchEngine(self.average),
            prompts,
            top_p=[0.6] * len(items),
            limits=limits,
            rngs=[np.random.default_rng(index) for index in range(len(items))],
            sampling=SamplingConfig(),
        )
        for index, (item, take) in enumerate(zip(items, takes, strict=True)):
            writer.add_text(f"sample/{index}", f"{item.texts[0]} ({take.stop.value})", step)
            if len(take.tokens):
                waveform = codec.decode(unpatchify(take.tokens, config.patch_layout, config.codebook_size))
                writer.add_audio(f"sample/{index}", waveform.samples[None], step, waveform.sample_rate)


def with_slips(patches: Tensor, share: float, config: Mars6Config, seed: int, number: int) -> Tensor:
    """patches (B, T, P) with a share of the codes replaced by random ones of their level; EOS and padding stay.

    Which ones is a function of the seed and the batch's number.
    """
    if not share:
        return patches
    rng = torch.Generator().manual_seed(seed * 1_000_003 + number)
    slips = torch.rand(patches.shape, generator=rng) < share
    levels = torch.tensor(config.position_levels)
    codes = torch.randint(config.codebook_size, patches.shape, generator=rng) + levels * config.codebook_size
    replaced = slips.to(patches.device) & (patches >= 0) & (patches != config.eos)
    return torch.where(replaced, codes.to(patches.device), patches)


def attention_shape(cross_attention: tuple[Tensor, ...], batch: Batch, heads: int) -> dict[str, Tensor]:
    """How sharp attention is (mean of its highest share) and how steadily it moves forward (correlation of the patch's
    place with the place looked at), over the first heads of the layers (B, H, T, slots + S).
    """
    if not cross_attention:
        return {}
    attention = torch.stack([layer.detach()[:, :heads] for layer in cross_attention], dim=1).flatten(1, 2).float()
    patch = torch.arange(attention.shape[2], device=attention.device)
    valid = (patch < batch.patch_lengths.unsqueeze(1)).unsqueeze(1)  # (B, 1, T)
    count = valid.sum(dim=-1, keepdim=True)
    place = attention @ torch.arange(attention.shape[3], device=attention.device).float()  # (B, heads, T)
    place = (place - (place * valid).sum(dim=-1, keepdim=True) / count) * valid
    time_place = (patch - (patch * valid).sum(dim=-1, keepdim=True) / count) * valid
    correlation = (place * time_place).sum(dim=-1) / (place.norm(dim=-1) * time_place.norm(dim=-1)).clamp_min(1e-6)
    sharpness = (attention.amax(dim=-1) * valid).sum(dim=-1) / count.squeeze(-1)
    return {"sharpness": sharpness.mean(), "monotonicity": correlation.mean()}


def with_spoken_texts(corpus: Corpus) -> Corpus:
    """The corpus with its texts as the synthesizer would write them: numbers as words, plain marks."""
    spoken: list[Utterance] = [
        dataclasses.replace(utterance, text=normalize(utterance.text)) for utterance in corpus.utterances
    ]
    silent = [utterance.id for utterance in spoken if not utterance.text.strip()]
    if silent:
        raise DataError(f"{len(silent)} utterances have no speakable text, the first is {silent[0]!r}; leave them out")
    return dataclasses.replace(corpus, utterances=tuple(spoken))


def load_sound(folders: Sequence[Path], run: Path, max_damaged: float, say: Callable[[str], None]) -> Corpus:
    """The corpus of these folders without damaged shards, which are counted, and named in `run/damaged.jsonl`.

    DataError where more than the share `max_damaged` of the shards is damaged.
    """
    paths = [path for folder in folders for path in sorted(folder.glob(SHARD_PATTERN))]
    if max_damaged == 0.0 or not paths:
        return load_corpus(*folders)
    damaged: dict[Path, str] = {}
    for path in paths:
        try:
            read_shard(path)
        except DataError as error:
            damaged[path] = str(error)
    run.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"shard": str(path), "reason": reason}) + "\n" for path, reason in damaged.items()]
    (run / DAMAGED_FILE).write_text("".join(lines), encoding="utf-8")
    if len(damaged) > max_damaged * len(paths):
        raise DataError(
            f"{len(damaged)} of {len(paths)} shards are damaged, more than the share {max_damaged} that may be; they "
            f"are named in {run / DAMAGED_FILE}: tokenize them again"
        )
    if damaged:
        say(f"{len(damaged)} of {len(paths)} shards are damaged and left out, see {run / DAMAGED_FILE}")
    return load_corpus(*folders, without=damaged)


def check_fit(config: PretrainConfig, corpus: Corpus, tokenizer: BPE, codec: Codec | None) -> None:
    """ConfigError listing everything in which model and corpus differ; DataError if a split is empty."""
    facts = {
        "codebook_size": (config.model.codebook_size, corpus.codec.codebook_size),
        "patch_layout": (config.model.patch_layout, corpus.codec.patch_layout),
        "identity_size": (config.model.identity_size, corpus.identity.shape[1]),
        "style_size": (config.model.style_size, corpus.style.shape[1]),
        "text_vocab_size": (config.model.text_vocab_size, tokenizer.vocab_size),
    }
    complaints = [
        f"model.{name} is {ours}, but that of the data is {theirs}"
        for name, (ours, theirs) in facts.items()
        if ours != theirs
    ]
    weights, levels = config.objective.level_weights, len(config.model.patch_layout)
    if len(weights) != levels:
        complaints.append(f"objective.level_weights are {weights}, but the model speaks {levels} levels of codes")
    layers, num_layers = config.alignment.layers, config.model.global_layers
    if any(not 0 <= layer < num_layers for layer in layers):
        complaints.append(f"alignment.layers are {layers}, but the global decoder has layers 0 to {num_layers - 1}")
    if codec is not None and codec.spec != corpus.codec:
        complaints.append(f"the data was made by codec {corpus.codec.name}, but samples would be by {codec.spec.name}")
    if complaints:
        raise ConfigError("; ".join(complaints))
    for name in ("train", "validation"):
        if not any(utterance.split == name for utterance in corpus.utterances):
            raise DataError(f"the corpus has no utterances in its {name} split; mark some in the manifest")


def pick_device(name: str) -> torch.device:
    """The device of this name; `auto` is the first GPU, or the CPU without one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"device: expected `auto`, `cpu`, `cuda` or `cuda:N`, got {name!r}") from error


def learn_tokenizer(corpus: Corpus, vocab_size: int) -> BPE:
    """A BPE of the training split's texts, with the prompt's special tokens."""
    texts = [utterance.text for utterance in with_spoken_texts(corpus.split("train")).utterances]
    return BPE.train(texts, vocab_size, SPECIAL_TOKENS)


def open_run(folder: Path, config: PretrainConfig, corpus: Corpus, base: Path | None = None) -> BPE:
    """Make `folder` a run's: keep the resolved configuration there, and the tokenizer.

    The tokenizer is the run's own if it has one already, else that of `base` (a run or bundle), else a new one.
    Raises ConfigError where guidance shall be learnt and there is nobody to learn it from.
    """
    if config.learnt_guidance > 1 and base is None and latest(folder) is None:
        raise ConfigError("learnt_guidance is what a trained model says when guided; begin with one: --from RUN")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / TOKENIZER_FILE
    if not path.exists():
        if base is None:
            tokenizer = learn_tokenizer(corpus, config.model.text_vocab_size)
        else:
            tokenizer = BPE.load((base if latest(base) else find_bundle(str(base))) / TOKENIZER_FILE)
        tokenizer.save(path)
    write_config(config, folder / CONFIG_FILE)
    return BPE.load(path)


def start_from(task: PretrainTask, base: Path, before: Corpus | None = None) -> None:
    """Begin with the weights of another run (its average) or of a bundle, by folder or by a packaged model's name.

    `before`: what the base learnt from, where that was made by another codec or other encoders (`translation`).
    """
    source = trained_model(base) if latest(base) else load_mars6(str(base))
    state = source.state_dict() if before is None else translated(source, before, task.spoken)
    for module in task.modules.values():
        try:
            module.load_state_dict(state)
        except RuntimeError as error:
            raise CheckpointError(f"{base}: its weights do not fit the configuration: {error}") from error


def trained_model(folder: Path) -> Mars6:
    """The model of a run folder, with the averaged weights of its best or newest checkpoint, in evaluation mode."""
    checkpoint = best(folder)
    if checkpoint is None:
        raise CheckpointError(f"{folder}: no checkpoint here; expected a folder written by `marstts train mars6`")
    model = Mars6(read_config(TrainedConfig, folder / CONFIG_FILE).model)
    load_weights(model, checkpoint / f"{AVERAGE}.safetensors")
    return model.eval()


def load_weights(model: nn.Module, path: Path) -> None:
    """Load all weights; CheckpointError if the file is missing or of another shape."""
    try:
        model.load_state_dict(load_file(path))
    except (OSError, RuntimeError, ValueError) as error:
        raise CheckpointError(f"{path}: these weights do not fit the configuration: {error}") from error
