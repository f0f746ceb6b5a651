"""Small models written in the published containers, and the names and shapes of the published tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from marstts.mars5.ar import CodecLM
from marstts.mars5.config import CodecLMConfig, ResidualTransformerConfig
from marstts.mars5.nar import ResidualTransformer
from marstts.mars5.released import ROWS, Names, ar_names, nar_names

TEXT_TOKENIZER = "minbpe v1\nunused\n2\n<|startoftext|> 258\n<|endoftext|> 259\n104 101\n32 116\n"
"""260 ids."""

SPEECH_TOKENIZER = "minbpe v1\nunused\n1\n<|endofspeech|> 1026\n3 955\n1024 275\n"
"""1027 ids."""

AR = CodecLMConfig(
    text_vocab_size=260, speech_vocab_size=1027, width=16, layers=2, heads=1, feed_forward_width=12, speaker_layers=1,
    speaker_heads=4, speaker_feed_forward_width=20,
)  # fmt: skip
NAR = ResidualTransformerConfig(
    text_vocab_size=261, width=24, heads=3, encoder_layers=1, decoder_layers=2, speaker_layers=3,
    feed_forward_width=10, timestep_width=6,
)  # fmt: skip


def published_tensors(model: nn.Module, names: Names) -> dict[str, Tensor]:
    """The half-precision tensors of a model by their published names."""
    state = model.half().state_dict()
    tensors = {name: torch.cat([state[target] for target in ours]) for name, ours in names}
    return {name: tensor[None] if name in ROWS else tensor for name, tensor in tensors.items()}


def ar_content(config: CodecLMConfig = AR) -> dict[str, Any]:
    """Content of the AR's `.pt` file, as `torch.load` returns it."""
    torch.manual_seed(0)
    vocab = {"texttok.model": TEXT_TOKENIZER, "speechtok.model": SPEECH_TOKENIZER}
    return {"model": published_tensors(CodecLM(config), ar_names(config)), "vocab": vocab, "step": 3}


def nar_content(config: ResidualTransformerConfig = NAR) -> dict[str, Any]:
    """The same of the NAR's."""
    torch.manual_seed(1)
    return {"model": published_tensors(ResidualTransformer(config), nar_names(config)), "vocab": {}}


def save(content: dict[str, Any], path: Path) -> Path:
    """Write a container in the format of the path's suffix."""
    if path.suffix == ".pt":
        torch.save(content, path)
    else:
        tensors = {name: tensor.contiguous() for name, tensor in content["model"].items()}
        save_file(tensors, path, metadata=content["vocab"] or None)
    return path


# Names and shapes, from the description of the released code.

Shapes = dict[str, tuple[int, ...]]


def weights_and_biases(name: str, *shape: int) -> Shapes:
    return {f"{name}.weight": shape, f"{name}.bias": shape[:1]}


def attention(name: str, width: int) -> Shapes:
    joint = {f"{name}.in_proj_weight": (3 * width, width), f"{name}.in_proj_bias": (3 * width,)}
    return joint | weights_and_biases(f"{name}.out_proj", width, width)


def swiglu_layers(stack: str, layers: int, width: int, *attentions: str) -> Shapes:
    """Layers of MARS5's speaker encoders and NAR."""
    shapes: Shapes = {}
    for layer in (f"{stack}.layers.{index}" for index in range(layers)):
        for name in attentions:
            shapes |= attention(f"{layer}.{name}", width)
        for number in range(1, len(attentions) + 2):
            shapes |= weights_and_biases(f"{layer}.norm{number}", width)
        shapes |= weights_and_biases(f"{layer}.linear2", width, 3 * width)
        shapes |= {f"{layer}.activation.{gate}.weight": (3 * width, width) for gate in "VW"}
    return shapes


TEXT_IDS, SPEECH_IDS = 2200, 5800
"""About as many as the sizes of the published files suggest."""


def ar_shapes(width: int = 1536, inner: int = 3584, ids: int = TEXT_IDS + SPEECH_IDS) -> Shapes:
    """273 tensors; heads of the decoder are 64 wide, so there is at least one."""
    attended = max(width, 64)
    shapes: Shapes = {
        "embed.weight": (ids, width), "ar.output.weight": (ids, width),
        "ar.norm.weight": (width,), "pos_embedding.alpha": (1,), "spk_identity_emb.weight": (1, width),
        **weights_and_biases("spk_encoder.norm", width),
        **{f"ref_chunked_emb.embs.{level}.weight": (1025, width // 8) for level in range(8)},
        **swiglu_layers("spk_encoder", 2, width, "self_attn"),
    }  # fmt: skip
    for layer in (f"ar.layers.{index}" for index in range(26)):
        shapes |= {f"{layer}.attention.w{part}.weight": (attended, width) for part in "qkv"}
        shapes |= {f"{layer}.attention.wo.weight": (width, attended)}
        shapes |= {f"{layer}.feed_forward.w{part}.weight": (inner, width) for part in "13"}
        shapes |= {f"{layer}.feed_forward.w2.weight": (width, inner)}
        shapes |= {f"{layer}.{norm}.weight": (width,) for norm in ("attention_norm", "ffn_norm")}
    return shapes


def nar_shapes(width: int = 1024, waves: int = 1024, ids: int = TEXT_IDS + 1) -> Shapes:
    """487 tensors."""
    shapes: Shapes = {
        "text_embed.weight": (ids, width), "spk_identity_emb.weight": (1, width),
        **{f"{name}pos_embedding.alpha": (1,) for name in ("", "cond_", "ref_")},
        **swiglu_layers("spk_encoder", 3, width, "self_attn"),
        **swiglu_layers("tfm.encoder", 8, width, "self_attn"),
        **swiglu_layers("tfm.decoder", 16, width, "self_attn", "multihead_attn"),
    }  # fmt: skip
    for stack in ("spk_encoder", "tfm.encoder", "tfm.decoder"):
        shapes |= weights_and_biases(f"{stack}.norm", width)
    for name in ("timestep_encoder_emb", "timestep_decoder_emb"):
        shapes |= weights_and_biases(f"{name}.0", width, waves) | weights_and_biases(f"{name}.2", width, width)
    for level in range(8):
        shapes |= {f"{name}.embs.{level}.weight": (1025, width // 8) for name in ("ref_embedder", "residual_encoder")}
        shapes |= weights_and_biases(f"residual_decoder.{level}.0", width)
        shapes |= weights_and_biases(f"residual_decoder.{level}.1", 1025, width)
    return shapes
