"""The published checkpoint, read as one of our models: its containers, its sizes, its names for tensors.

Upstream: `published_checkpoint`, which reads `model-2000100.pt`, or a safetensors file of the same tensors.
Downstream: `published`, which makes a bundle of it; `examined`.
MARS6 (arXiv:2501.05787), as published.  Sizes are taken from the tensors, not from the file's metadata; only the
numbers of heads leave no trace in them, and follow the published rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from marstts.errors import CheckpointError, require
from marstts.mars6.config import Conditioning, Mars6Config
from marstts.weights.pretrained import EXTRA
from marstts.weights.published_checkpoint import (
    check_file,
    check_numbers,
    count_layers,
    inferring_sizes,
    load_renamed,
    read_content,
    sizes_only,
)

if TYPE_CHECKING:
    from torch import Tensor

    from marstts.mars6.model import Mars6

MIN_HEADS = 8
"""The published model has as many attention heads as layers, but at least these."""

ENCODER_NAMES = {
    "linear1": "feed_forward.inner",
    "linear2": "feed_forward.output",
    "norm1": "attention_norm",
    "norm2": "feed_forward_norm",
}
"""Parts of a layer that have weight and bias: published name -> ours."""

DECODER_NAMES = ENCODER_NAMES | {"norm2": "cross_norm", "norm3": "feed_forward_norm"}

PLAIN_NAMES = {
    "inp_emb.weight": "encoder.text_embedding.weight",
    "encoder_pos_emb.alpha": "encoder.positions.alpha",
    "lang_embed.weight": "encoder.slots.language.weight",
    "lang_cross_embed.weight": "encoder.slots.memory_language.weight",
    "spk_emb_mask.weight": "encoder.slots.unknown_identity",
    "clap_emb_mask.weight": "encoder.slots.unknown_style",
    "spk_emb_proj.0.weight": "encoder.slots.identity.input.weight",
    "spk_emb_proj.0.bias": "encoder.slots.identity.input.bias",
    "spk_emb_proj.1.V.weight": "encoder.slots.identity.value.weight",
    "spk_emb_proj.1.W.weight": "encoder.slots.identity.gate.weight",
    "clap_emb_proj.0.weight": "encoder.slots.style.input.weight",
    "clap_emb_proj.0.bias": "encoder.slots.style.input.bias",
    "clap_emb_proj.1.V.weight": "encoder.slots.style.value.weight",
    "clap_emb_proj.1.W.weight": "encoder.slots.style.gate.weight",
    "spk_emb_joiner.weight": "encoder.slots.joiner.weight",
    "spk_emb_joiner.bias": "encoder.slots.joiner.bias",
    "bos_embed.weight": "global_decoder.start",
    "dec_proj.emb.weight": "global_decoder.patch_embedding.tokens.weight",
    "dec_proj.pos_emb.alpha": "global_decoder.patch_embedding.positions.alpha",
    "dec_proj.out_lin.weight": "global_decoder.patch_embedding.output.weight",
    "slow2fast_proj.weight": "local_decoder.input.weight",
    "slow2fast_proj.bias": "local_decoder.input.bias",
    "fast_inp_emb.weight": "local_decoder.tokens.weight",
    "fast_pos_emb.weight": "local_decoder.positions.weight",
    "out_proj.weight": "local_decoder.output.weight",
}
"""Tensors outside the layers."""

ROWS = frozenset({"spk_emb_mask.weight", "clap_emb_mask.weight", "bos_embed.weight"})
"""Vectors that are published as matrices of one row."""


@dataclass(frozen=True)
class ReleasedModel:
    """A published checkpoint, ready to use."""

    model: Mars6
    """The model in float32 and evaluation mode."""

    sha256: str
    """SHA-256 of the file."""


def load_released(path: Path, expected_sha256: str | None = None) -> ReleasedModel:
    """The model in a published file (`.pt` or `.safetensors`).

    Raises CheckpointError where the file has another hash than expected, is corrupt or unsafe, or holds other tensors
    than a MARS6: those that are missing, unexpected or of another shape are named.
    """
    require("torch", EXTRA)
    from marstts.mars6.model import Mars6

    sha256 = check_file(path, expected_sha256)
    tensors = read_released(path)
    config = infer_config(tensors, path)
    model = sizes_only(Mars6, config)
    load_renamed(str(path), "MARS6", model, tensors, names(config), ROWS)
    return ReleasedModel(model, sha256)


def read_released(path: Path) -> dict[str, Tensor]:
    """The tensors of a published file in float32, by their published names without `module.`."""
    content = read_content(path)
    tensors = content if path.suffix == ".safetensors" else content.get("model")
    if not isinstance(tensors, Mapping):
        raise CheckpointError(f"{path}: expected a checkpoint with the entries 'model' and 'cfg', not {list(content)}")
    check_numbers(str(path), tensors, path.stat().st_size)
    named: dict[str, Tensor] = {}
    for key, tensor in tensors.items():
        name = str(key).replace("module.", "")
        if name in named:
            raise CheckpointError(f"{path}: {name} occurs with and without 'module.'")
        named[name] = tensor.float()
    return named


def infer_config(tensors: Mapping[str, Tensor], path: Path) -> Mars6Config:
    """The sizes of the model these tensors belong to."""
    with inferring_sizes(str(path), "MARS6"):
        encoder_layers, global_layers, local_layers = (
            count_layers(tensors, stack) for stack in ("encoder", "decoder", "fastencoder")
        )
        vocabulary = tensors["out_proj.weight"].shape[0]
        return Mars6Config(
            text_vocab_size=tensors["inp_emb.weight"].shape[0],
            codebook_size=(vocabulary - 1) // 3,
            width=tensors["inp_emb.weight"].shape[1],
            encoder_layers=encoder_layers,
            global_layers=global_layers,
            local_layers=local_layers,
            heads=max(MIN_HEADS, encoder_layers),
            local_heads=max(MIN_HEADS, local_layers),
            identity_size=tensors["spk_emb_proj.0.weight"].shape[1],
            style_size=tensors["clap_emb_proj.0.weight"].shape[1],
            conditioning=Conditioning.FUSED,
            languages=tensors["lang_embed.weight"].shape[0],
        )


def names(config: Mars6Config) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every published tensor and the tensors of ours that its rows make up."""
    for theirs, ours in PLAIN_NAMES.items():
        yield theirs, (ours,)
    yield from layer_names("encoder", "encoder", config.encoder_layers, ENCODER_NAMES, {"self_attn": "attention"})
    attentions = {"self_attn": "attention", "multihead_attn": "cross_attention"}
    yield from layer_names("decoder", "global_decoder", config.global_layers, DECODER_NAMES, attentions)
    yield from layer_names(
        "fastencoder", "local_decoder", config.local_layers, ENCODER_NAMES, {"self_attn": "attention"}
    )


def layer_names(
    theirs: str, ours: str, layers: int, parts: Mapping[str, str], attentions: Mapping[str, str]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """`names` of one stack."""
    for layer in range(layers):
        source, target = f"{theirs}.layers.{layer}", f"{ours}.layers.{layer}"
        for kind in ("weight", "bias"):
            for their_part, part in parts.items():
                yield f"{source}.{their_part}.{kind}", (f"{target}.{part}.{kind}",)
            for their_part, part in attentions.items():
                both = (f"{target}.{part}.query.{kind}", f"{target}.{part}.key_value.{kind}")
                yield f"{source}.{their_part}.in_proj_{kind}", both
                yield f"{source}.{their_part}.out_proj.{kind}", (f"{target}.{part}.output.{kind}",)
