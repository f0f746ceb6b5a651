"""Small models written in the published containers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from marstts.mars5.ar import CodecLM
from marstts.mars5.config import CodecLMConfig, ResidualTransformerConfig
from marstts.mars5.nar import ResidualTransformer
from marstts.mars5.released import Names, ar_names, is_row, nar_names

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
    return {name: tensor[None] if is_row(name) else tensor for name, tensor in tensors.items()}


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
