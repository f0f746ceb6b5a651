"""The cost of a training: tokens, steps, operations, hours, disk and memory, each with its formula.

Upstream: `cost_settings`, `throughput.forward_flops`, sizes of the model.  Downstream: `marstts estimate`.
Nothing is measured in here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from marstts.codec.base import CodecSpec
from marstts.mars6.config import Mars6Config
from marstts.mars6.model import Mars6
from marstts.training.mars6.cost_settings import EstimateConfig
from marstts.training.mars6.throughput import TRAINING_PASSES, forward_flops

GB, TERA = 1e9, 1e12

TEXT_TOKENS_PER_SECOND = 5.0
"""People speak 15 characters a second, and a vocabulary of 512 makes a token of three."""

SHARD_BYTES_PER_UTTERANCE = 400
"""Bytes of a shard's metadata per utterance: text, names and numbers as JSON."""

TABLE_BYTES_PER_UTTERANCE = 300
"""Bytes of the same in memory, as columns (`data.utterance_table`)."""

MINED_SECONDS = 6.0
"""Mean length of a mined take: references of 1.5 to 8 s, texts of at most 100 characters."""

SAMPLE_BYTES, FLAC_RATIO = 2, 0.6
"""Bytes of a sample, and the ratio that FLAC makes of it: LibriHeavy's 50,000 hours at 16 kHz take 3.5 TB."""

CODE_BYTES, EMBEDDING_BYTES, WEIGHT_BYTES = 2, 2, 4
"""uint16 codes, float16 embeddings, float32 weights."""

WEIGHTS_IN_TRAINING = 5
"""Weights, their EMA, gradients, and AdamW's two moments."""

WEIGHTS_IN_CHECKPOINT = 4
"""The same without gradients."""

CHECKPOINTS = 3
"""The two that are kept, and the one being written."""

SELF_LAYER_BYTES, CROSS_LAYER_BYTES = (17.0, 4.5), (43.0, 7.0)
"""Bytes that a layer keeps for the backward pass, per position and unit of width, in bf16 with fused attention: a
constant, and one per unit of the feed-forward factor. Measured on small models, see the tests of this module."""

LOGIT_BYTES = 8.0
"""Bytes of a logit in bf16, its float32 copy in the loss, and what the loss keeps."""

SNAC = CodecSpec(name="snac", sample_rate=24_000, codebook_size=4096, hop_lengths=(2048, 1024, 512))


@dataclass(frozen=True)
class Row:
    """One figure of an estimate."""

    name: str
    value: float
    unit: str
    formula: str


Rows = dict[str, Row]
"""Figures by a short name, in the order in which they build on one another."""


def estimate_cost(config: EstimateConfig, model: Mars6Config | None = None, codec: CodecSpec = SNAC) -> Rows:
    """All figures of a training; of the paper's model by default."""
    model = model or Mars6Config()
    rows = data_rows(config, model, codec)
    rows |= compute_rows(rows, config, model)
    rows |= time_rows(rows, config)
    rows |= stage_rows(config)
    rows |= storage_rows(rows, config, model, codec)
    return rows | memory_rows(rows, config, model)


def data_rows(config: EstimateConfig, model: Mars6Config, codec: CodecSpec) -> Rows:
    """Utterances, patches, tokens and epochs."""
    seconds, size = config.seconds_per_utterance, model.patch_size
    utterances = config.hours * 3600 / seconds
    patches = math.ceil(seconds * codec.patch_rate) + 1
    trained = config.steps * config.batch_size
    patch_formula = f"⌈{seconds:g} s · {codec.patch_rate:.3f} Hz⌉ + 1 end of speech"
    return {
        "utterances": Row("utterances", utterances, "", f"hours · 3600 / {seconds:g} s"),
        "patches": Row("patches per utterance", patches, "", patch_formula),
        "tokens": Row(
            "speech tokens in the corpus", utterances * (patches - 1) * size, "", f"utterances · (patches - 1) · {size}"
        ),
        "trained_on": Row("utterances trained on", trained, "", "steps · batch"),
        "epochs": Row("epochs", trained / utterances, "", "trained on / utterances"),
        "trained_tokens": Row(
            "speech tokens trained on", trained * patches * size, "", f"trained on · patches · {size}"
        ),
    }


def compute_rows(rows: Rows, config: EstimateConfig, model: Mars6Config) -> Rows:
    """Parameters and operations."""
    text = round(TEXT_TOKENS_PER_SECOND * config.seconds_per_utterance)
    forward = row_flops(model, text, int(rows["patches"].value))
    flops = TRAINING_PASSES * forward * rows["trained_on"].value
    forward_formula = "2 · multiplications of all matrix products, padding and softmax left out"
    training_formula = f"{TRAINING_PASSES} · forward pass · trained on (backward is twice forward)"
    return {
        "parameters": Row("parameters", num_parameters(model), "", "counted"),
        "text": Row("text tokens per utterance", text, "", f"{TEXT_TOKENS_PER_SECOND:g} per second"),
        "forward": Row("operations of a forward pass, per utterance", forward, "FLOP", forward_formula),
        "flops": Row("operations of the training", flops, "FLOP", training_formula),
    }


def time_rows(rows: Rows, config: EstimateConfig) -> Rows:
    """Hours, throughput and model FLOPs utilization over all."""
    flops, audio = rows["flops"].value, rows["trained_on"].value * config.seconds_per_utterance
    peak = config.gpus * config.tflops * TERA
    if config.throughput is None:
        seconds = flops / (peak * config.mfu) + config.steps * config.overhead_ms / 1000
        formula = (
            f"operations / ({config.gpus} GPUs · {config.tflops:g} TFLOP/s · {config.mfu:.0%} mfu) "
            f"+ steps · {config.overhead_ms:g} ms"
        )
    else:
        seconds = audio / (config.gpus * config.throughput)
        formula = (
            f"trained on · {config.seconds_per_utterance:g} s / ({config.gpus} GPUs · {config.throughput:g} audio s/s)"
        )
    rate_formula = f"trained on · {config.seconds_per_utterance:g} s / (time · GPUs)"
    return {
        "hours": Row("time", seconds / 3600, "h", formula),
        "throughput": Row("audio seconds per second and GPU", audio / seconds / config.gpus, "", rate_formula),
        "mfu": Row("mfu over all", flops / seconds / peak, "", "operations / (time · GPUs · peak)"),
    }


def stage_rows(config: EstimateConfig) -> Rows:
    """Hours of the stages before and after: tokenization and mining."""
    tokenization = config.hours / (config.gpus * config.tokenize_throughput)
    speech = config.cycles * 2 * MINED_SECONDS / 3600
    mining = 2 * speech / (config.mining_workers * config.mining_throughput)
    return {
        "tokenization": Row(
            "time of tokenization", tokenization, "h",
            f"hours / ({config.gpus} GPUs · {config.tokenize_throughput:g} audio s/s)",
        ),
        "mined": Row(
            "speech that is mined", speech, "h", f"{config.cycles} cycles · 2 takes · {MINED_SECONDS:g} s / 3600"
        ),
        "mining": Row(
            "time of mining and scoring", mining, "h",
            f"2 · speech that is mined / ({config.mining_workers} processes · {config.mining_throughput:g} audio s/s)",
        ),
    }  # fmt: skip


def storage_rows(rows: Rows, config: EstimateConfig, model: Mars6Config, codec: CodecSpec) -> Rows:
    """Disk, and host memory of a training process."""
    utterances, size = rows["utterances"].value, model.patch_size
    codes = config.hours * 3600 * codec.patch_rate * size * CODE_BYTES
    embeddings = utterances * (model.identity_size + model.style_size) * EMBEDDING_BYTES
    metadata = utterances * SHARD_BYTES_PER_UTTERANCE
    checkpoints = CHECKPOINTS * WEIGHTS_IN_CHECKPOINT * WEIGHT_BYTES * rows["parameters"].value
    memory = utterances * TABLE_BYTES_PER_UTTERANCE
    code_formula = f"hours · 3600 · {codec.patch_rate:.3f} Hz · {size} codes · {CODE_BYTES} B"
    vectors = f"({model.identity_size} + {model.style_size})"
    memory_formula = (
        f"utterances · {TABLE_BYTES_PER_UTTERANCE} B; one process per GPU; codes and embeddings stay on disk"
    )
    recordings = config.hours * 3600 * config.corpus_rate * SAMPLE_BYTES * FLAC_RATIO
    recording_formula = f"hours · 3600 · {config.corpus_rate} Hz · {SAMPLE_BYTES} B · {FLAC_RATIO:g} (FLAC)"
    return {
        "recordings": Row("disk: recordings", recordings / GB, "GB", recording_formula),
        "codes": Row("disk: codes", codes / GB, "GB", code_formula),
        "embeddings": Row("disk: embeddings", embeddings / GB, "GB", f"utterances · {vectors} · {EMBEDDING_BYTES} B"),
        "metadata": Row("disk: texts and names", metadata / GB, "GB", f"utterances · {SHARD_BYTES_PER_UTTERANCE} B"),
        "checkpoints": Row(
            "disk: checkpoints",
            checkpoints / GB,
            "GB",
            f"{CHECKPOINTS} · {WEIGHTS_IN_CHECKPOINT} · {WEIGHT_BYTES} B · parameters",
        ),
        "host_memory": Row("memory of a process: corpus", memory / GB, "GB", memory_formula),
    }


def memory_rows(rows: Rows, config: EstimateConfig, model: Mars6Config) -> Rows:
    """Memory of a GPU."""
    per_gpu = math.ceil(config.batch_size / config.gpus)
    slots, patches = per_gpu * int(rows["text"].value + 2), per_gpu * int(rows["patches"].value)
    activations = activation_bytes(model, slots, patches)
    weights = WEIGHTS_IN_TRAINING * WEIGHT_BYTES * rows["parameters"].value
    formula = (
        f"{WEIGHTS_IN_TRAINING} · {WEIGHT_BYTES} B · parameters + {activations / GB:.1f} GB of activations of "
        f"{per_gpu} utterances"
    )
    return {"gpu_memory": Row("memory of a GPU", (weights + activations) / GB, "GB", formula)}


def row_flops(model: Mars6Config, text_tokens: int, patches: int) -> float:
    """Operations of a forward pass over one utterance."""
    return forward_flops(model, torch.tensor([text_tokens]), torch.tensor([patches]))


def num_parameters(model: Mars6Config) -> int:
    """Parameters of the model of a configuration, which is built without memory for its weights."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in Mars6(model).parameters())


def activation_bytes(model: Mars6Config, slots: int, patches: int) -> float:
    """Bytes that a forward pass over this many memory slots and patches keeps for the backward pass."""
    factor, width = model.feed_forward_factor, model.width
    self_bytes, cross_bytes = (base + per_factor * factor for base, per_factor in (SELF_LAYER_BYTES, CROSS_LAYER_BYTES))
    encoder = slots * model.encoder_layers * self_bytes * width
    per_patch = (model.global_layers * cross_bytes + model.patch_size * model.local_layers * self_bytes) * width
    return encoder + patches * (per_patch + model.patch_size * (model.codebook_size + 1) * LOGIT_BYTES)
