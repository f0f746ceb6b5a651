"""Two short public-domain recordings, and decoders that several tests share because they are slow to make."""

from __future__ import annotations

from pathlib import Path

import pytest

from marstts import audio
from marstts.audio import Waveform
from marstts.evaluation.metrics import sphinx

RECORDINGS = Path(__file__).parents[1] / "audio"


@pytest.fixture(scope="session")
def surpassed() -> Waveform:
    """1.8 s, "has never been surpassed"."""
    return audio.read(RECORDINGS / "LJ001-0008.flac")


@pytest.fixture(scope="session")
def amiable() -> Waveform:
    """3.3 s, "he might even have been made amiable himself"; another speaker."""
    return audio.read(RECORDINGS / "sense-0930.flac")


@pytest.fixture(scope="session")
def surpassed_pcm(surpassed: Waveform) -> bytes:
    return sphinx.prepare(surpassed)


@pytest.fixture(scope="session")
def amiable_pcm(amiable: Waveform) -> bytes:
    return sphinx.prepare(amiable)
