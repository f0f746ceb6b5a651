"""The published weights themselves, where a folder holds them: `MARSTTS_WEIGHTS=FOLDER pytest -m published`.

FOLDER/snac/      config.json, pytorch_model.bin                          of hubertsiuzdak/snac_24khz
FOLDER/wavlm/     config.json, preprocessor_config.json, pytorch_model.bin   of microsoft/wavlm-base-plus-sv
FOLDER/clap/      CLAP_weights_2023.pth                                   of microsoft/msclap
FOLDER/mars6/     model-2000100.pt, eng-tok-512.model
FOLDER/mars5/     mars5_ar.safetensors, mars5_nar.safetensors             of CAMB-AI/MARS5-TTS
FOLDER/encodec/   config.json, model.safetensors                          of facebook/encodec_24khz
FOLDER/vocos/     config.yaml, pytorch_model.bin                          of charactr/vocos-encodec-24khz
FOLDER/whisper/   the safetensors files                                   of openai/whisper-base
FOLDER/xvector/   config.json, preprocessor_config.json, pytorch_model.bin   of anton-l/wav2vec2-base-superb-sv
FOLDER/utmos/     utmos_state_dict.pt                                     of Blinorot/UTMOS-PyTorch
"""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import pytest

import marstts
from marstts import audio
from marstts.audio import Waveform
from marstts.codec.registry import EncodecPart, SnacPart, open_encodec
from marstts.codec.snac import SnacCodec
from marstts.mars5.checkpoint import load_released as load_mars5
from marstts.mars5.published import convert as convert_mars5
from marstts.mars6.published import CHECKPOINT_NAME, TOKENIZER_NAME, convert
from marstts.mars6.released import load_released
from marstts.speaker.clap import ClapEncoder
from marstts.speaker.registry import ClapPart, WavLmPart
from marstts.speaker.wavlm import WavLmEncoder, XVectorEncoder
from marstts.text.tokenizers.minbpe import read_minbpe
from marstts_lab.metrics.quality import Utmos
from marstts_lab.metrics.recognition import FasterWhisperRecognizer

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


SENTENCE = "has never been surpassed"


@pytest.fixture(scope="module")
def spoken() -> Waveform:
    """A recording of SENTENCE."""
    return audio.read(Path(__file__).parents[1] / "audio" / "LJ001-0008.flac")


def test_encodec_and_vocos_reconstruct_speech(spoken: Waveform) -> None:
    codec = open_encodec(EncodecPart(source=str(weights("encodec")), vocoder=str(weights("vocos"))), "cpu")
    codes = codec.encode(spoken)
    frames = math.ceil(spoken.seconds * 75)
    assert len(codes) == 8 and all(abs(len(level) - frames) <= 1 and level.max() < 1024 for level in codes)
    decoded, truth = codec.decode(codes), audio.resample(spoken, 24_000)
    size = min(len(decoded.samples), len(truth.samples))
    spectra = [np.log(np.abs(np.fft.rfft(one.samples[:size]))[:9000] + 1e-3) for one in (truth, decoded)]
    assert decoded.sample_rate == 24_000 and np.corrcoef(*spectra)[0, 1] > 0.6


def test_mars5_has_the_published_sizes_and_a_vocabulary_of_its_text_and_speech() -> None:
    models = load_mars5(weights("mars5", "mars5_ar.safetensors"), weights("mars5", "mars5_nar.safetensors"))
    sizes = [sum(tensor.numel() for tensor in part.state_dict().values()) / 1e6 for part in (models.ar, models.nar)]
    assert sizes == pytest.approx([750, 450], rel=0.15)
    assert (models.config.ar.levels, models.config.ar.codebook_size) == (8, 1024)


def test_mars5_speaks_with_encodec_and_vocos(spoken: Waveform, tmp_path: Path) -> None:
    ar, nar = weights("mars5", "mars5_ar.safetensors"), weights("mars5", "mars5_nar.safetensors")
    codec = EncodecPart(source=str(weights("encodec")), vocoder=str(weights("vocos")))
    convert_mars5(ar, nar, tmp_path / "mars5", codec=codec)
    tts = marstts.load(tmp_path / "mars5")
    assert 0.3 < tts.speak("Hello there.", tts.clone(spoken)).seconds < 6.0


def test_whisper_recognizes_a_sentence(spoken: Waveform) -> None:
    assert FasterWhisperRecognizer(str(weights("whisper"))).transcribe(spoken) == SENTENCE.split()


def test_the_xvector_distinguishes_two_voices(spoken: Waveform) -> None:
    encoder = XVectorEncoder(weights("xvector"))
    other = audio.read(Path(__file__).parents[1] / "audio" / "sense-0930.flac")
    halves = [Waveform(part, spoken.sample_rate) for part in np.array_split(spoken.samples, 2)]
    first, second, third = encoder.embed_batch([*halves, other])
    assert cosine(first, second) > cosine(first, third)


def test_utmos_rates_speech_above_noisy_speech(spoken: Waveform) -> None:
    metric = Utmos(weights("utmos", "utmos_state_dict.pt"))
    noise = np.random.default_rng(0).normal(0, 0.05, len(spoken.samples)).astype(np.float32)
    clean, noisy = (metric.rate(one)["utmos"] for one in (spoken, Waveform(spoken.samples + noise, spoken.sample_rate)))
    assert 1 < noisy < clean < 5 and clean > 3
