"""What a training will take: tokens, steps, operations, hours, disk and memory, each with the formula it comes from.

Upstream: `throughput.forward_flops`, sizes of the model, facts about the data.  Downstream: `marstts plan`.
Nothing is measured in here. How well a device is used is what no formula gives: `ASSUMED_UTILISATION` and
`ASSUMED_OVERHEAD_MS` are guesses to plan with until a run's own log says better.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from pydantic import Field

from marstts.codec.base import CodecSpec
from marstts.config import Config
from marstts.mars6.config import Mars6Config
from marstts.mars6.model import Mars6
from marstts.training.throughput import TRAINING_PASSES, forward_flops

GB, TERA = 1e9, 1e12

ASSUMED_UTILISATION = 0.2
"""Share of a device's peak that goes into the model. Small models reach less than large ones."""

ASSUMED_OVERHEAD_MS = 20.0
"""What a step takes however small its batch: starting some thousand kernels, the optimizer, agreeing on gradients."""

TEXT_TOKENS_PER_SECOND = 5.0
"""15 characters a second are read, and a vocabulary of 512 makes a token of three."""

SHARD_BYTES_PER_UTTERANCE = 400
"""Of a shard's description: text, names and numbers of one utterance as JSON."""

OBJECT_BYTES_PER_UTTERANCE = 1_500
"""What the same takes in memory, as Python objects."""

CODE_BYTES, EMBEDDING_BYTES, WEIGHT_BYTES = 2, 2, 4
"""uint16 codes, float16 embeddings, float32 weights."""

WEIGHTS_IN_TRAINING = 5
"""Weights, their average, gradients, and AdamW's two moments."""

WEIGHTS_IN_CHECKPOINT = 4
"""The same without gradients."""

CHECKPOINTS = 3
"""The two that are kept, and the one being written."""

SELF_LAYER_BYTES, CROSS_LAYER_BYTES = (17.0, 4.5), (43.0, 7.0)
"""Kept for the backward pass by a layer, per place and unit of width, in bf16 with fused attention: so much, and so
much per unit of the feed-forward factor. Measured on small models, see `tests/training/test_planning.py`."""

LOGIT_BYTES = 8.0
"""Of a logit in bf16, its float32 copy while the loss is taken, and what the loss keeps."""

SNAC = CodecSpec(name="snac", sample_rate=24_000, codebook_size=4096, hop_lengths=(2048, 1024, 512))


@dataclass(frozen=True)
class Gpu:
    """A device by its data sheet."""

    tflops: float
    """10^12 operations a second: dense matrix products in bf16 (fp16 where there is no bf16), no sparsity."""

    memory_gb: float


GPUS = {
    "h200": Gpu(989, 141),
    "h100": Gpu(989, 80),
    "h100-pcie": Gpu(756, 80),
    "a100": Gpu(312, 80),
    "a100-40": Gpu(312, 40),
    "l40s": Gpu(362, 48),
    "l4": Gpu(121, 24),
    "a10": Gpu(125, 24),
    "rtx4090": Gpu(165, 24),
    "rtx3090": Gpu(71, 24),
    "v100": Gpu(125, 32),
    "t4": Gpu(65, 16),
}


class PlanConfig(Config):
    """What is planned. Defaults are the paper's training (MARS6, Sec. V-A)."""

    hours: float = Field(46_000.0, gt=0.0)
    """Length of the corpus."""

    seconds_per_utterance: float = Field(12.0, gt=0.0)
    """Mean length of a recording."""

    steps: int = Field(2_000_000, gt=0)
    batch: int = Field(96, gt=0)
    """Utterances a step learns from, on all GPUs together."""

    gpus: int = Field(1, gt=0)
    tflops: float = Field(989.0, gt=0.0)
    """Peak of one GPU, 10^12 operations a second."""

    utilisation: float = Field(ASSUMED_UTILISATION, gt=0.0, le=1.0)
    """Share of that peak that goes into the model while the matrix products run."""

    overhead_ms: float = Field(ASSUMED_OVERHEAD_MS, ge=0.0)
    """Milliseconds of a step in which they do not."""

    throughput: float | None = Field(None, gt=0.0)
    """Seconds of audio one GPU learns from in a second, as a run's log says; where given, it decides the hours."""


@dataclass(frozen=True)
class Row:
    """One figure of a plan."""

    name: str
    value: float
    unit: str
    formula: str


def make_plan(plan: PlanConfig, model: Mars6Config, codec: CodecSpec = SNAC) -> dict[str, Row]:
    """All figures by a short name, in the order in which they build on one another."""
    rows: dict[str, Row] = {}

    def add(key: str, name: str, value: float, unit: str, formula: str) -> float:
        rows[key] = Row(name, value, unit, formula)
        return value

    utterances = add("utterances", "utterances", plan.hours * 3600 / plan.seconds_per_utterance, "",
                     f"hours · 3600 / {plan.seconds_per_utterance:g} s")  # fmt: skip
    patches = add("patches", "patches per utterance", math.ceil(plan.seconds_per_utterance * codec.patch_rate) + 1, "",
                  f"⌈{plan.seconds_per_utterance:g} s · {codec.patch_rate:.3f} Hz⌉ + 1 end of speech")  # fmt: skip
    size = model.patch_size
    add(
        "tokens",
        "speech tokens in the corpus",
        utterances * (patches - 1) * size,
        "",
        f"utterances · (patches - 1) · {size}",
    )
    heard = add("heard", "utterances trained on", plan.steps * plan.batch, "", "steps · batch")
    add("epochs", "epochs", heard / utterances, "", "trained on / utterances")
    add("trained_tokens", "speech tokens trained on", heard * patches * size, "", f"trained on · patches · {size}")

    parameters = add("parameters", "parameters", num_parameters(model), "", "counted")
    text = add("text", "text tokens per utterance", round(TEXT_TOKENS_PER_SECOND * plan.seconds_per_utterance), "",
               f"{TEXT_TOKENS_PER_SECOND:g} per second")  # fmt: skip
    forward = add("forward", "operations of a forward pass, per utterance", row_flops(model, int(text), int(patches)),
                  "FLOP", "2 · multiplications of all matrix products, padding and softmax left out")  # fmt: skip
    flops = add("flops", "operations of the training", TRAINING_PASSES * forward * heard, "FLOP",
                f"{TRAINING_PASSES} · forward pass · trained on (backward is twice forward)")  # fmt: skip

    if plan.throughput is None:
        busy = flops / (plan.gpus * plan.tflops * TERA * plan.utilisation)
        seconds = busy + plan.steps * plan.overhead_ms / 1000
        told = (f"operations / ({plan.gpus} GPUs · {plan.tflops:g} TFLOP/s · {plan.utilisation:.0%} utilisation) "
                f"+ steps · {plan.overhead_ms:g} ms")  # fmt: skip
    else:
        seconds = heard * plan.seconds_per_utterance / (plan.gpus * plan.throughput)
        told = f"trained on · {plan.seconds_per_utterance:g} s / ({plan.gpus} GPUs · {plan.throughput:g} audio s/s)"
    add("hours", "time", seconds / 3600, "h", told)
    add("throughput", "audio seconds per second and GPU", heard * plan.seconds_per_utterance / seconds / plan.gpus, "",
        f"trained on · {plan.seconds_per_utterance:g} s / (time · GPUs)")  # fmt: skip
    add("utilisation", "utilisation of the peak, all in all", flops / seconds / plan.gpus / (plan.tflops * TERA), "",
        "operations / (time · GPUs · peak)")  # fmt: skip

    add_storage(rows, plan, model, codec)
    per_gpu = math.ceil(plan.batch / plan.gpus)
    activations = activation_bytes(model, per_gpu * int(text + 2), per_gpu * int(patches))
    add("gpu_memory", "memory of a GPU", (WEIGHTS_IN_TRAINING * WEIGHT_BYTES * parameters + activations) / GB, "GB",
        f"{WEIGHTS_IN_TRAINING} · {WEIGHT_BYTES} B · parameters + {activations / GB:.1f} GB kept by the layers for "
        f"{per_gpu} utterances at a time")  # fmt: skip
    return rows


def add_storage(rows: dict[str, Row], plan: PlanConfig, model: Mars6Config, codec: CodecSpec) -> None:
    """What lies on the disk, and in the memory of a process that trains."""
    utterances = rows["utterances"].value
    size = model.patch_size
    codes = plan.hours * 3600 * codec.patch_rate * size * CODE_BYTES
    embeddings = utterances * (model.identity_size + model.style_size) * EMBEDDING_BYTES
    facts = utterances * SHARD_BYTES_PER_UTTERANCE
    checkpoints = CHECKPOINTS * WEIGHTS_IN_CHECKPOINT * WEIGHT_BYTES * rows["parameters"].value
    memory = codes + embeddings + utterances * OBJECT_BYTES_PER_UTTERANCE
    vectors = f"({model.identity_size} + {model.style_size})"
    new = {
        "codes": Row("disk: codes", codes / GB, "GB",
                     f"hours · 3600 · {codec.patch_rate:.3f} Hz · {size} codes · {CODE_BYTES} B"),
        "embeddings": Row("disk: embeddings", embeddings / GB, "GB", f"utterances · {vectors} · {EMBEDDING_BYTES} B"),
        "facts": Row("disk: texts and names", facts / GB, "GB", f"utterances · {SHARD_BYTES_PER_UTTERANCE} B"),
        "checkpoints": Row("disk: checkpoints", checkpoints / GB, "GB",
                           f"{CHECKPOINTS} · {WEIGHTS_IN_CHECKPOINT} · {WEIGHT_BYTES} B · parameters"),
        "host_memory": Row("memory of a process: corpus", memory / GB, "GB",
                           f"codes + embeddings + utterances · {OBJECT_BYTES_PER_UTTERANCE} B; one process per GPU"),
    }  # fmt: skip
    rows.update(new)


def row_flops(model: Mars6Config, text_tokens: int, patches: int) -> float:
    """Operations of a forward pass over one utterance."""
    return forward_flops(model, torch.tensor([text_tokens]), torch.tensor([patches]))


def num_parameters(model: Mars6Config) -> int:
    """Of the model of this configuration, which is built without memory for its weights."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in Mars6(model).parameters())


def activation_bytes(model: Mars6Config, slots: int, patches: int) -> float:
    """What a forward pass over so many memory slots and patches keeps for the backward pass."""
    factor, width = model.feed_forward_factor, model.width
    own, crossed = (base + per_factor * factor for base, per_factor in (SELF_LAYER_BYTES, CROSS_LAYER_BYTES))
    encoder = slots * model.encoder_layers * own * width
    per_patch = (model.global_layers * crossed + model.patch_size * model.local_layers * own) * width
    return encoder + patches * (per_patch + model.patch_size * (model.codebook_size + 1) * LOGIT_BYTES)
