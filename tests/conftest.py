"""Makes the stand-ins in `scripted.py` importable from every test, and offers what several of them need."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from marstts.audio import Waveform, write


@pytest.fixture
def reference() -> Waveform:
    """Three seconds that resemble speech: a buzz whose pitch and loudness move, between quiet edges."""
    rate, seconds = 24_000, 3.0
    time = np.arange(int(rate * seconds)) / rate
    phase = 2 * np.pi * np.cumsum(120 + 20 * np.sin(2 * np.pi * 1.5 * time)) / rate
    buzz = sum(np.sin(harmonic * phase) / harmonic for harmonic in range(1, 12))
    syllables = 0.55 + 0.45 * np.sin(2 * np.pi * 4 * time)
    edges = (time > 0.2) & (time < seconds - 0.2)
    return Waveform((0.2 * buzz * syllables * edges).astype(np.float32), rate)


@pytest.fixture
def reference_file(reference: Waveform, tmp_path: Path) -> Path:
    path = tmp_path / "anna.wav"
    write(reference, path)
    return path


@pytest.fixture(scope="session")
def toy_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an exported model with random weights, a toy codec and toy encoders; to be read, not changed."""
    import torch

    from marstts.checkpoint import ToyCodecPart, ToyEncoderPart, export_bundle
    from marstts.mars6.config import Mars6Config
    from marstts.mars6.model import Mars6
    from marstts.mars6.prompt import SPECIAL_TOKENS
    from marstts.text.bpe import BPE

    tokenizer = BPE.train(["the cat sat on the mat", "she sells sea shells"], 270, SPECIAL_TOKENS)
    config = Mars6Config(
        text_vocab_size=270, codebook_size=64, width=32, encoder_layers=1, global_layers=2, local_layers=1, heads=4,
        local_heads=2, identity_size=5, style_size=7,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("bundles") / "toy"
    torch.manual_seed(0)
    export_bundle(
        folder, Mars6(config), tokenizer, name="toy", quality=24_000, codec=ToyCodecPart(codebook_size=64),
        identity=ToyEncoderPart(size=5), style=ToyEncoderPart(size=7),
    )  # fmt: skip
    return folder
