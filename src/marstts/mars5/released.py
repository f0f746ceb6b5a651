"""The published checkpoints, read as models of ours: their containers, sizes, tokenizers and names for tensors.

Upstream: `published_checkpoint`, which reads `mars5_en_checkpoints_ar-*.pt`, `…nar-*.pt`, or safetensors files of the
same tensors, whose metadata holds the tokenizers.  Downstream: `checkpoint.load_released`.
Sizes are read from the tensors.  Head counts leave no trace in them (but for the AR's decoder): they are width / 64, as
published, or given by hand.  The AR's window is the published one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from marstts.errors import CheckpointError
from marstts.mars5.ar import CodecLM
from marstts.mars5.config import HEAD_SIZE, CodecLMConfig, ResidualTransformerConfig
from marstts.mars5.nar import ResidualTransformer
from marstts.weights.pretrained import read_metadata
from marstts.weights.published_checkpoint import (
    check_file,
    check_numbers,
    count_layers,
    count_numbers,
    inferring_sizes,
    load_renamed,
    read_content,
    sizes_only,
)

if TYPE_CHECKING:
    Model = TypeVar("Model", bound=nn.Module)
    Sizes = TypeVar("Sizes", CodecLMConfig, ResidualTransformerConfig, int)

TEXT_TOKENIZER, SPEECH_TOKENIZER = "texttok.model", "speechtok.model"

MAX_TOKENIZER_BYTES = 16 * 2**20

ROWS = frozenset({"spk_identity_emb.weight"})
"""Vectors that are published as matrices of one row."""

Names = Iterator[tuple[str, tuple[str, ...]]]
"""Published name, and the tensors of ours that its rows make up."""


@dataclass(frozen=True)
class Container:
    """Content of a published file."""

    source: str
    """Name for messages."""

    tensors: dict[str, Tensor]
    """float32 tensors by name."""

    text_tokenizer: str | None
    """The text of a minbpe `.model` file."""

    speech_tokenizer: str | None


def read_container(source: Path | str | Mapping[str, Any], expected_sha256: str | None = None) -> Container:
    """A published file, or the content of one that is already in memory (`model`, and perhaps `vocab`).

    Raises CheckpointError where the file has another hash than expected, is corrupt, unsafe, or no such container.
    """
    if isinstance(source, Mapping):
        return make_container("the checkpoint", source, None)
    path = Path(source)
    check_file(path, expected_sha256)
    content = read_content(path)
    if path.suffix == ".safetensors":
        content = {"model": content, "vocab": read_metadata(path)}
    return make_container(str(path), content, path.stat().st_size)


def make_container(source: str, content: Mapping[str, Any], num_bytes: int | None) -> Container:
    """The container of `content`; of a file of `num_bytes`, if it is one."""
    tensors, vocab = content.get("model"), content.get("vocab", {})
    if not isinstance(tensors, Mapping) or not isinstance(vocab, Mapping):
        raise CheckpointError(f"{source}: expected the entries 'model' and 'vocab', not {sorted(map(str, content))}")
    check_numbers(source, tensors, num_bytes)
    return Container(
        source=source,
        tensors={str(name): tensor.detach().to(torch.float32, copy=True) for name, tensor in tensors.items()},
        text_tokenizer=check_text(source, vocab, TEXT_TOKENIZER),
        speech_tokenizer=check_text(source, vocab, SPEECH_TOKENIZER),
    )


def check_text(source: str, vocab: Mapping[str, Any], name: str) -> str | None:
    """A tokenizer's text, or None where there is none."""
    text = vocab.get(name)
    if text is not None and (not isinstance(text, str) or len(text) > MAX_TOKENIZER_BYTES):
        raise CheckpointError(f"{source}: expected {name} to be the text of a tokenizer")
    return text


def load_ar(container: Container, text_vocab_size: int, heads: int | None = None) -> CodecLM:
    """The AR in a container, in float32 and evaluation mode; the size of its text vocabulary is its tokenizer's.

    `heads`: of the speaker encoder; None = width / 64, as published.
    """
    config = infer_sizes(container, lambda tensors: infer_ar(tensors, text_vocab_size, heads))
    return load_model(container, CodecLM, config, ar_names(config))


def load_nar(container: Container, heads: int | None = None) -> ResidualTransformer:
    """The NAR in a container, in float32 and evaluation mode; `heads`: None = width / 64, as published."""
    config = infer_sizes(container, lambda tensors: infer_nar(tensors, heads))
    return load_model(container, ResidualTransformer, config, nar_names(config))


def infer_sizes(container: Container, infer: Callable[[Mapping[str, Tensor]], Sizes]) -> Sizes:
    """Sizes that `infer` returns for the tensors; CheckpointError where they are no such model's."""
    with inferring_sizes(container.source, "MARS5"):
        return infer(container.tensors)


def infer_ar(tensors: Mapping[str, Tensor], text_vocab_size: int, heads: int | None) -> CodecLMConfig:
    """The sizes of the AR these tensors belong to."""
    vocab_size, width = tensors["embed.weight"].shape[0], tensors["embed.weight"].shape[1]
    return CodecLMConfig(
        text_vocab_size=text_vocab_size,
        speech_vocab_size=vocab_size - text_vocab_size,
        width=width,
        layers=count_layers(tensors, "ar"),
        heads=tensors["ar.layers.0.attention.wq.weight"].shape[0] // HEAD_SIZE,
        feed_forward_width=tensors["ar.layers.0.feed_forward.w1.weight"].shape[0],
        speaker_layers=count_layers(tensors, "spk_encoder"),
        speaker_heads=heads or width // HEAD_SIZE,
        speaker_feed_forward_width=tensors["spk_encoder.layers.0.linear2.weight"].shape[1],
        levels=count_numbers(tensors, r"ref_chunked_emb\.embs\.(\d+)\."),
        codebook_size=count_codes(tensors),
    )


def infer_nar(tensors: Mapping[str, Tensor], heads: int | None) -> ResidualTransformerConfig:
    """The sizes of the NAR these tensors belong to."""
    text_vocab_size, width = tensors["text_embed.weight"].shape[0], tensors["text_embed.weight"].shape[1]
    return ResidualTransformerConfig(
        text_vocab_size=text_vocab_size,
        width=width,
        heads=heads or width // HEAD_SIZE,
        encoder_layers=count_layers(tensors, "tfm.encoder"),
        decoder_layers=count_layers(tensors, "tfm.decoder"),
        speaker_layers=count_layers(tensors, "spk_encoder"),
        feed_forward_width=tensors["spk_encoder.layers.0.linear2.weight"].shape[1],
        timestep_width=tensors["timestep_encoder_emb.0.weight"].shape[1],
        levels=count_numbers(tensors, r"residual_encoder\.embs\.(\d+)\."),
        codebook_size=tensors["residual_encoder.embs.0.weight"].shape[0] - 1,
    )


def count_codes(tensors: Mapping[str, Tensor]) -> int:
    """Codes per level of the AR: one row of the table is for padding."""
    return tensors["ref_chunked_emb.embs.0.weight"].shape[0] - 1


def load_model(container: Container, kind: Callable[[Any], Model], config: Any, names: Names) -> Model:
    """A model of this kind with the container's tensors, which must be the right ones."""
    model = sizes_only(kind, config)
    load_renamed(container.source, "MARS5", model, container.tensors, names, ROWS)
    return model


def ar_names(config: CodecLMConfig) -> Names:
    """All tensors of the AR."""
    yield "embed.weight", ("embedding.weight",)
    yield "ar.norm.weight", ("norm.weight",)
    yield "ar.output.weight", ("output.weight",)
    yield "pos_embedding.alpha", ("speaker_encoder.positions.alpha",)
    parts = {
        "attention.wq": "attention.query",
        "attention.wk": "attention.key",
        "attention.wv": "attention.value",
        "attention.wo": "attention.output",
        "feed_forward.w1": "feed_forward.gate",
        "feed_forward.w2": "feed_forward.output",
        "feed_forward.w3": "feed_forward.value",
        "attention_norm": "attention_norm",
        "ffn_norm": "feed_forward_norm",
    }
    for layer in range(config.layers):
        for theirs, ours in parts.items():
            yield f"ar.layers.{layer}.{theirs}.weight", (f"layers.{layer}.{ours}.weight",)
    yield from speaker_names("ref_chunked_emb", config.levels, config.speaker_layers)


def nar_names(config: ResidualTransformerConfig) -> Names:
    """All tensors of the NAR."""
    yield "text_embed.weight", ("text_embedding.weight",)
    yield "cond_pos_embedding.alpha", ("text_positions.alpha",)
    yield "pos_embedding.alpha", ("code_positions.alpha",)
    yield "ref_pos_embedding.alpha", ("speaker_encoder.positions.alpha",)
    yield from speaker_names("ref_embedder", config.levels, config.speaker_layers)
    for level in range(config.levels):
        yield f"residual_encoder.embs.{level}.weight", (f"code_embedding.tables.{level}.weight",)
    yield from layer_names("tfm.encoder", "encoder", config.encoder_layers, cross=False)
    yield from layer_names("tfm.decoder", "decoder", config.decoder_layers, cross=True)
    for kind in ("weight", "bias"):
        yield f"tfm.encoder.norm.{kind}", (f"encoder_norm.{kind}",)
        yield f"tfm.decoder.norm.{kind}", (f"decoder_norm.{kind}",)
        for theirs, ours in (("timestep_encoder_emb", "text_timestep"), ("timestep_decoder_emb", "code_timestep")):
            yield f"{theirs}.0.{kind}", (f"{ours}.input.{kind}",)
            yield f"{theirs}.2.{kind}", (f"{ours}.output.{kind}",)
        for level in range(config.levels):
            yield f"residual_decoder.{level}.0.{kind}", (f"heads.{level}.norm.{kind}",)
            yield f"residual_decoder.{level}.1.{kind}", (f"heads.{level}.output.{kind}",)


def speaker_names(tables: str, levels: int, layers: int) -> Names:
    """All tensors of a speaker encoder but its positions."""
    yield "spk_identity_emb.weight", ("speaker_encoder.identity",)
    for level in range(levels):
        yield f"{tables}.embs.{level}.weight", (f"speaker_encoder.codes.tables.{level}.weight",)
    yield from layer_names("spk_encoder", "speaker_encoder.layers", layers, cross=False)
    for kind in ("weight", "bias"):
        yield f"spk_encoder.norm.{kind}", (f"speaker_encoder.norm.{kind}",)


def layer_names(theirs: str, ours: str, layers: int, *, cross: bool) -> Names:
    """All tensors of a stack of SwiGLU layers, without and with cross-attention."""
    attentions = {"self_attn": "attention"} | ({"multihead_attn": "cross_attention"} if cross else {})
    norms = ["attention_norm", *(["cross_norm"] if cross else []), "feed_forward_norm"]
    for layer in range(layers):
        source, target = f"{theirs}.layers.{layer}", f"{ours}.{layer}"
        yield f"{source}.activation.V.weight", (f"{target}.feed_forward.value.weight",)
        yield f"{source}.activation.W.weight", (f"{target}.feed_forward.gate.weight",)
        for kind in ("weight", "bias"):
            yield f"{source}.linear2.{kind}", (f"{target}.feed_forward.output.{kind}",)
            for number, norm in enumerate(norms, start=1):
                yield f"{source}.norm{number}.{kind}", (f"{target}.{norm}.{kind}",)
            for their_part, part in attentions.items():
                both = (f"{target}.{part}.query.{kind}", f"{target}.{part}.key_value.{kind}")
                yield f"{source}.{their_part}.in_proj_{kind}", both
                yield f"{source}.{their_part}.out_proj.{kind}", (f"{target}.{part}.output.{kind}",)
