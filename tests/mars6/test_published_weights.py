"""The published weights themselves, where a folder holds them: `MARSTTS_WEIGHTS=FOLDER pytest -m published`.

FOLDER/snac/      config.json, pytorch_model.bin                          of hubertsiuzdak/snac_24khz
FOLDER/wavlm/     config.json, preprocessor_config.json, pytorch_model.bin   of microsoft/wavlm-base-plus-sv
FOLDER/clap/      CLAP_weights_2023.pth                                   of microsoft/msclap
FOLDER/mars6/     model-2000100.pt, eng-tok-512.model
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import marstts
from marstts.audio import Waveform
from marstts.codec.registry import SnacPart
from marstts.codec.snac import SnacCodec
from marstts.mars6.published import CHECKPOINT_NAME, TOKENIZER_NAME, convert
from marstts.mars6.released import load_released
from marstts.speaker.clap import ClapEncoder
from marstts.speaker.registry import ClapPart, WavLmPart
from marstts.speaker.wavlm import WavLmEncoder
from marstts.text.tokenizers.minbpe import read_minbpe

VARIABLE = "MARSTTS_WEIGHTS"

pytestmark = pytest.mark.published


def weights(*parts: str) -> Path:
    """A folder or file of published weights; skips the test where it is not there."""
    if VARIABLE not in os.environ:
        pytest.skip(f"{VARIABLE} names no folder of published weights")
    path = Path(os.environ[VARIABLE], *parts)
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return path


def test_snac_has_the_published_geometry_and_reconstructs_speech(reference: Waveform) -> None:
    codec = SnacCodec(weights("snac"))
    assert (codec.spec.sample_rate, codec.spec.codebook_size) == (24_000, 4096)
    assert codec.spec.hop_lengths == (2048, 1024, 512)
    codes = codec.encode(reference)
    assert [len(level) for level in codes] == [36, 72, 144]
    original, decoded = (
        np.abs(np.fft.rfft(samples[:72_000])) for samples in (reference.samples, codec.decode(codes).samples)
    )
    assert np.corrcoef(np.log(original[:9000] + 1), np.log(decoded[:9000] + 1))[0, 1] > 0.7


def test_wavlm_recognizes_the_same_voice(reference: Waveform) -> None:
    encoder = WavLmEncoder(weights("wavlm"))
    half = len(reference.samples) // 2
    first, second = (encoder.embed(Waveform(part, 24_000)) for part in np.split(reference.samples, [half]))
    assert first.shape == (512,) and np.linalg.norm(first) == pytest.approx(1.0, abs=1e-5)
    assert first @ second > 0.8


def test_clap_distinguishes_speech_from_noise(reference: Waveform) -> None:
    encoder = ClapEncoder(weights("clap"))
    noise = np.random.default_rng(0).normal(0, 0.1, len(reference.samples)).astype(np.float32)
    half = Waveform(reference.samples[: len(reference.samples) // 2], 24_000)
    whole, part, other = (encoder.embed(waveform) for waveform in (reference, half, Waveform(noise, 24_000)))
    assert whole.shape == (1024,)
    assert cosine(whole, part) > cosine(whole, other)


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


def test_mars6_has_the_published_sizes() -> None:
    model = load_released(weights("mars6", CHECKPOINT_NAME)).model
    config = model.config
    assert (config.width, config.encoder_layers, config.global_layers, config.local_layers) == (512, 8, 8, 4)
    assert (config.codebook_size, config.identity_size, config.style_size) == (4096, 512, 1024)
    read_minbpe(weights("mars6", TOKENIZER_NAME), config.text_vocab_size)


def test_the_published_model_speaks_with_its_codec_and_encoders(reference: Waveform, tmp_path: Path) -> None:
    checkpoint, tokenizer = weights("mars6", CHECKPOINT_NAME), weights("mars6", TOKENIZER_NAME)
    codec, identity, style = (weights(name) for name in ("snac", "wavlm", "clap"))
    encoders = {"identity": WavLmPart(source=str(identity)), "style": ClapPart(source=str(style))}
    convert(checkpoint, tokenizer, tmp_path / "turbo", codec=SnacPart(source=str(codec)), encoders=encoders)
    tts = marstts.load(tmp_path / "turbo")
    speech = tts.speak("Hello there.", tts.clone(reference))
    assert 0.3 < speech.seconds < 5.0
