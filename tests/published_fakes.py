"""Releases in small widths: files, names, shapes and depths as published, with random numbers.

Names and shapes are written out from the description of the released code, not taken from the package.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mars5_published import (
    SPEECH_TOKENIZER,
    TEXT_TOKENIZER,
    Shapes,
    ar_shapes,
    attention,
    nar_shapes,
    save,
    weights_and_biases,
)
from marstts.mars5 import examined as examined5
from marstts.mars6 import examined as examined6
from marstts.weights.examination import Finding

WIDTH, CODES, IDENTITY, STYLE, TEXT_ROWS = 16, 32, 24, 40, 512

RECORDED6 = examined6.Recorded(
    {**examined6.RECORDED.sizes, "width": WIDTH, "codebook_size": CODES, "identity_size": IDENTITY, "style_size": STYLE}
)
RECORDED5 = replace(
    examined5.RECORDED,
    ar={**examined5.RECORDED.ar, "width": 16, "heads": 1, "feed_forward_width": 36, "speaker_feed_forward_width": 48},
    nar={**examined5.RECORDED.nar, "width": 24, "feed_forward_width": 72, "timestep_width": 6},
    ar_heads=4,
    nar_heads=3,
)
"""What is recorded of the releases, in these widths."""


def mars6_shapes(
    width: int = 512, codes: int = 4096, identity: int = 512, style: int = 1024, rows: int = 512
) -> Shapes:
    """313 tensors."""
    ids, part = 3 * codes + 1, 2 * width // 7  # part: of the seventh of an embedded patch
    shapes: Shapes = {
        "inp_emb.weight": (rows, width), "encoder_pos_emb.alpha": (1,), "lang_embed.weight": (1, width),
        "lang_cross_embed.weight": (1, width), "spk_emb_mask.weight": (1, identity), "clap_emb_mask.weight": (1, style),
        "bos_embed.weight": (1, width), "dec_proj.emb.weight": (ids, part), "dec_proj.pos_emb.alpha": (1,),
        "dec_proj.out_lin.weight": (width, 7 * part), "fast_inp_emb.weight": (ids, width),
        "fast_pos_emb.weight": (7, width), "out_proj.weight": (ids, width),
        **weights_and_biases("spk_emb_joiner", width, 2 * width), **weights_and_biases("slow2fast_proj", width, width),
    }  # fmt: skip
    for name, size in (("spk_emb_proj", identity), ("clap_emb_proj", style)):
        shapes |= weights_and_biases(f"{name}.0", width // 2, size)
        shapes |= {f"{name}.1.{gate}.weight": (width, width // 2) for gate in "VW"}
    for stack, layers in (("encoder", 8), ("decoder", 8), ("fastencoder", 4)):
        for layer in (f"{stack}.layers.{index}" for index in range(layers)):
            attentions = ("self_attn", "multihead_attn") if stack == "decoder" else ("self_attn",)
            for name in attentions:
                shapes |= attention(f"{layer}.{name}", width)
            for number in range(1, len(attentions) + 2):
                shapes |= weights_and_biases(f"{layer}.norm{number}", width)
            shapes |= weights_and_biases(f"{layer}.linear1", 2 * width, width)
            shapes |= weights_and_biases(f"{layer}.linear2", width, 2 * width)
    return shapes


def randomly(shapes: Shapes) -> dict[str, Tensor]:
    """Random numbers of half precision in these shapes: different places of one block, which is quickly made."""
    block = torch.empty(2**14).normal_(0, 0.02, generator=torch.Generator().manual_seed(0)).half()
    tensors = {}
    for index, (name, shape) in enumerate(shapes.items()):
        size = math.prod(shape)
        turned = block.roll(1009 * index)
        tensors[name] = turned.repeat(-(-size // len(block)))[:size].reshape(shape).clone()
    return tensors


def minbpe(merges: int, special: dict[str, int]) -> str:
    """A tokenizer with merges of letters in minbpe's format."""
    pairs = [(97 + index // 26, 97 + index % 26) for index in range(merges)]
    lines = ["minbpe v1", "pattern", str(len(special)), *(f"{token} {index}" for token, index in special.items())]
    return "\n".join([*lines, *(f"{first} {second}" for first, second in pairs)]) + "\n"


SPECIAL = {"<|startoftext|>": 510, "<|endoftext|>": 511}


@dataclass
class Turbo:
    """A `mars6-turbo`, to be changed and written."""

    tensors: dict[str, Tensor] = field(
        default_factory=lambda: randomly(mars6_shapes(WIDTH, CODES, IDENTITY, STYLE, TEXT_ROWS))
    )
    cfg: Any = field(default_factory=lambda: {"dim": WIDTH, "n_layers": 8, "fast_n_layers": 4, "languages": ["en-us"]})
    merges: int = 254
    special: dict[str, int] = field(default_factory=lambda: dict(SPECIAL))
    after: Callable[[Path, Path], None] = lambda checkpoint, tokenizer: None
    """Done to both files when they are written."""

    def write(self, folder: Path) -> tuple[Path, Path]:
        checkpoint, tokenizer = folder / "model-2000100.pt", folder / "eng-tok-512.model"
        content = {"model": {f"module.{name}": tensor for name, tensor in self.tensors.items()}, "cfg": self.cfg}
        torch.save({key: value for key, value in content.items() if value is not None}, checkpoint)
        tokenizer.write_text(minbpe(self.merges, self.special))
        self.after(checkpoint, tokenizer)
        return checkpoint, tokenizer

    def examined(self, folder: Path) -> list[Finding]:
        return examined6.examine(*self.write(folder), RECORDED6)


@dataclass
class English:
    """A `mars5-english`, likewise."""

    ar: dict[str, Tensor] = field(default_factory=lambda: randomly(ar_shapes(16, 36, 260 + 1027)))
    nar: dict[str, Tensor] = field(default_factory=lambda: randomly(nar_shapes(24, 6, 261)))
    ar_vocab: dict[str, str] = field(
        default_factory=lambda: {"texttok.model": TEXT_TOKENIZER, "speechtok.model": SPEECH_TOKENIZER}
    )
    nar_vocab: dict[str, str] = field(
        default_factory=lambda: {"texttok.model": TEXT_TOKENIZER, "speechtok.model": SPEECH_TOKENIZER}
    )
    suffix: str = ".safetensors"
    after: Callable[[Path, Path], None] = lambda ar, nar: None

    def write(self, folder: Path) -> tuple[Path, Path]:
        ar = save({"model": self.ar, "vocab": self.ar_vocab}, folder / f"mars5_ar{self.suffix}")
        nar = save({"model": self.nar, "vocab": self.nar_vocab}, folder / f"mars5_nar{self.suffix}")
        self.after(ar, nar)
        return ar, nar

    def examined(self, folder: Path) -> list[Finding]:
        return examined5.examine(*self.write(folder), RECORDED5)
