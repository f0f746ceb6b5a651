"""Fixtures of several tests; makes `scripted.py` importable from every test."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from numpy.typing import NDArray

from marstts.audio import Waveform, read, resample, write
from marstts.data.voice_activity import SpeechDetector

RECORDINGS = Path(__file__).parent / "audio"


@pytest.fixture(scope="session", autouse=True)
def speech_is_detected_once() -> Iterator[None]:
    """Run the voice activity detector once for each recording: hundreds of tests clone the same three seconds."""
    detect, known = SpeechDetector.probabilities, dict[tuple[int, str], NDArray[np.float32]]()

    def probabilities(detector: SpeechDetector, waveform: Waveform) -> NDArray[np.float32]:
        key = waveform.sample_rate, hashlib.sha256(waveform.samples.tobytes()).hexdigest()
        if key not in known:
            known[key] = detect(detector, waveform)
        return known[key].copy()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SpeechDetector, "probabilities", probabilities)
        yield


@pytest.fixture
def reference() -> Waveform:
    """Three seconds of a public-domain reader at 24 kHz, between edges of 0.2 s of silence."""
    rate = 24_000
    speech = resample(read(RECORDINGS / "sense-0930.flac"), rate).samples[rate // 4 :][: int(2.6 * rate)]
    speech, edge = speech - speech.mean(), np.zeros(rate // 5, np.float32)
    return Waveform(np.concatenate([edge, speech, edge]), rate)


@pytest.fixture
def reference_file(reference: Waveform, tmp_path: Path) -> Path:
    path = tmp_path / "anna.wav"
    write(reference, path)
    return path


@pytest.fixture(scope="session")
def toy_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an exported model with random weights, a toy codec and toy encoders; to be read, not changed."""
    from toy_mars6 import write_toy_bundle  # needs PyTorch

    shared = "PYTEST_XDIST_WORKER" in os.environ  # the processes of a parallel run export it once
    bundles = tmp_path_factory.getbasetemp().parent if shared else tmp_path_factory.mktemp("bundles")
    folder = bundles / "toy"
    with FileLock(bundles / "toy.lock"):
        if not folder.exists():
            write_toy_bundle(folder)
    return folder


@pytest.fixture(scope="session")
def surpassed() -> Waveform:
    """1.8 s, "has never been surpassed"."""
    return read(RECORDINGS / "LJ001-0008.flac")


@pytest.fixture(scope="session")
def amiable() -> Waveform:
    """3.3 s, "he might even have been made amiable himself"; another speaker."""
    return read(RECORDINGS / "sense-0930.flac")


@pytest.fixture(scope="session")
def surpassed_pcm(surpassed: Waveform) -> bytes:
    from marstts.metrics import sphinx

    return sphinx.prepare(surpassed)


@pytest.fixture(scope="session")
def amiable_pcm(amiable: Waveform) -> bytes:
    from marstts.metrics import sphinx

    return sphinx.prepare(amiable)
