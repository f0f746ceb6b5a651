"""The published MARS5, EnCodec and Vocos, where a folder holds them: `MARSTTS_WEIGHTS=FOLDER pytest -m published`.

FOLDER/mars5/     mars5_ar.safetensors, mars5_nar.safetensors    of CAMB-AI/MARS5-TTS
FOLDER/encodec/   config.json, model.safetensors                 of facebook/encodec_24khz
FOLDER/vocos/     pytorch_model.bin                              of charactr/vocos-encodec-24khz
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from marstts import load
from marstts.audio import Waveform
from marstts.codec.encodec import EncodecEncoder
from marstts.codec.registry import EncodecPart
from marstts.codec.vocos import VocosVocoder
from marstts.evaluation.published_weights import RECORDED, Release, examine
from marstts.mars5.checkpoint import load_released
from marstts.mars5.published import AR_FILES, NAR_FILES, convert

pytestmark = pytest.mark.published


def weights(*parts: str) -> Path:
    """A folder or file of published weights; skips the test where it is not there."""
    if "MARSTTS_WEIGHTS" not in os.environ:
        pytest.skip("MARSTTS_WEIGHTS names no folder of published weights")
    path = Path(os.environ["MARSTTS_WEIGHTS"], *parts)
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return path


def test_encodec_and_vocos_reconstruct_speech(reference: Waveform) -> None:
    codes = EncodecEncoder(weights("encodec")).encode(reference)
    assert codes.shape[1] == 8 and codes.min() >= 0 and codes.max() < 1024
    decoded = VocosVocoder(weights("vocos")).decode(codes)
    original, made = (np.abs(np.fft.rfft(samples[:72_000])) for samples in (reference.samples, decoded))
    assert np.corrcoef(np.log(original[:9000] + 1), np.log(made[:9000] + 1))[0, 1] > 0.7


def test_mars5_is_as_recorded(tmp_path: Path) -> None:
    files = {"ar": weights("mars5", AR_FILES[0]), "nar": weights("mars5", NAR_FILES[0])}
    recorded = RECORDED["mars5-english"]
    config = load_released(files["ar"], files["nar"]).config
    sizes = {f"{model}.{name}": value for model, part in config.model_dump().items() for name, value in part.items()}
    assert {name: sizes[name] for name in recorded.sizes} == dict(recorded.sizes)
    assert examine(Release("mars5-english", files), tmp_path).differences == ()


def test_the_published_mars5_speaks(reference: Waveform, tmp_path: Path) -> None:
    codec = EncodecPart(source=str(weights("encodec")), vocoder=str(weights("vocos")))
    convert(*(weights("mars5", files[0]) for files in (AR_FILES, NAR_FILES)), tmp_path / "mars5", codec=codec)
    synthesizer = load(tmp_path / "mars5")
    speech = synthesizer.speak("Hello there.", synthesizer.clone(reference), seed=0)
    assert 0.3 < speech.waveform.seconds < 5.0
