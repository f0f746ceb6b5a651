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
