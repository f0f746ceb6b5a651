"""A MARS6 of a few thousand random weights: its bundle, and what training and export of it leave behind."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import marstts.mars6.export.graphs
from marstts.codec.registry import ToyCodecPart
from marstts.io.config import write_config
from marstts.mars6.bundled import write_weights
from marstts.mars6.config import Mars6Config
from marstts.mars6.model import Mars6
from marstts.mars6.prompt import SPECIAL_TOKENS
from marstts.models import export_bundle
from marstts.speaker.registry import ToyEncoderPart
from marstts.text.tokenizers.bpe import BPE
from marstts_lab.training.loop import LoopConfig
from marstts_lab.training.mars6.config import PretrainConfig

CONFIG = Mars6Config(
    text_vocab_size=270, codebook_size=64, width=32, encoder_layers=1, global_layers=2, local_layers=1, heads=4,
    local_heads=2, identity_size=5, style_size=7,
)  # fmt: skip


def toy_tokenizer(vocab_size: int = CONFIG.text_vocab_size) -> BPE:
    return BPE.train(["the cat sat on the mat", "she sells sea shells"], vocab_size, SPECIAL_TOKENS)


def toy_model() -> Mars6:
    """The same random weights each time."""
    torch.manual_seed(0)
    return Mars6(CONFIG)


def write_toy_bundle(folder: Path) -> None:
    """Export the model with a toy codec and toy encoders."""
    codec = ToyCodecPart(codebook_size=CONFIG.codebook_size)
    encoders = {role: ToyEncoderPart(size=size) for role, size in CONFIG.embedding_sizes.items()}
    settings = {"quality_prefix_hz": 24_000}
    export_bundle(folder, toy_model(), toy_tokenizer(), codec=codec, encoders=encoders, name="toy", settings=settings)


def write_toy_run(folder: Path, model: Mars6 | None = None) -> Path:
    """Write what a training of seven steps leaves behind."""
    model = model or toy_model()
    checkpoint = folder / "step-00000007"
    checkpoint.mkdir(parents=True)
    (checkpoint / "state.json").write_text('{"step": 7}')
    save_file(model.state_dict(), checkpoint / "ema.safetensors")
    write_config(PretrainConfig(model=model.config, loop=LoopConfig(steps=7)), folder / "config.json")
    toy_tokenizer().save(folder / "tokenizer.json")
    return folder


def export_by_copying(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every export the model folder of `bundle`, which spares seconds of tracing."""

    def copy(model: Mars6, folder: Path, storage: Any) -> None:
        shutil.copytree(bundle / "mars6", folder)

    monkeypatch.setattr(marstts.mars6.export.graphs, "export_mars6", copy)


def export_weights_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every export leave out the graphs."""
    monkeypatch.setattr(
        marstts.mars6.export.graphs, "export_mars6", lambda model, folder, storage: write_weights(model, folder)
    )
