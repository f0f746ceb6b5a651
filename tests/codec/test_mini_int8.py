"""The mini codec with an int8 decoder: nearly the same audio, chunks as in the whole, clear refusals."""

from __future__ import annotations

import json
import shutil
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from marstts import audio
from marstts.audio import Waveform
from marstts.codec.mini import MiniCodec
from marstts.codec.mini_int8 import is_int8, known_ranges, measure_ranges, quantize_codec
from marstts.codec.registry import ToyCodecPart
from marstts.codec.registry import quantize_codec as quantize_part
from marstts.errors import CheckpointError
from marstts.weights.parts import MiniPart

SHIPPED = Path(str(files("marstts"))) / "models_data" / "mini" / "codec"
RECORDING = Path(__file__).parents[1] / "audio" / "LJ001-0008.flac"


@pytest.fixture(scope="module")
def recording() -> Waveform:
    return audio.read(RECORDING)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("codec") / "int8"
    quantize_codec(SHIPPED, target, known_ranges(SHIPPED))
    return target


def conditioned(folder: Path, recording: Waveform) -> MiniCodec:
    codec = MiniCodec(folder)
    return codec.with_timbre(codec.timbre_embedding(recording))


def test_int8_audio_differs_from_that_in_floating_point_by_rounding_alone(folder: Path, recording: Waveform) -> None:
    exact, rounded = conditioned(SHIPPED, recording), conditioned(folder, recording)
    codes = exact.encode(recording)
    assert all(np.array_equal(one, other) for one, other in zip(codes, rounded.encode(recording), strict=True))
    expected, found = (codec.decode(codes).samples for codec in (exact, rounded))
    noise = np.square(found - expected).sum() / np.square(expected).sum()
    assert 1e-6 < noise < 1e-3, "30 dB below the signal, and not the same"
    sizes = [(one / "codec.safetensors").stat().st_size for one in (folder, SHIPPED)]
    assert sizes[0] < 0.8 * sizes[1] and is_int8(folder) and not is_int8(SHIPPED)


def test_chunks_of_an_int8_codec_are_those_of_the_whole_utterance(folder: Path, recording: Waveform) -> None:
    codec = conditioned(folder, recording)
    codes = codec.encode(recording)
    decoding, stops = codec.decoding(), [2, 5, 6, 12, len(codes[0])]
    pieces = [decoding.decode_until(codes, stop) for stop in stops]
    np.testing.assert_allclose(np.concatenate(pieces), codec.decode(codes).samples, atol=2e-3)


@pytest.mark.slow
def test_measured_ranges_agree_with_those_that_the_codec_brings(recording: Waveform) -> None:
    measured, known = measure_ranges(SHIPPED, [recording]), known_ranges(SHIPPED)
    assert measured.keys() == known.keys()
    for name, (low, high) in measured.items():
        assert low < high and 0.3 < (high - low) / (known[name][1] - known[name][0]) < 1.5, name


def test_codecs_without_ranges_stay_in_floating_point_and_say_so(tmp_path: Path) -> None:
    shutil.copytree(SHIPPED, tmp_path / "codec")
    config = json.loads((tmp_path / "codec" / "config.json").read_text())
    ranges = config.pop("activation_ranges")
    (tmp_path / "codec" / "config.json").write_text(json.dumps(config))
    reason = quantize_part(MiniPart(), tmp_path / "codec", tmp_path / "new")
    assert reason == "it has no ranges of activations; give --recordings to measure them"
    assert not (tmp_path / "new").exists()

    ranges.popitem()
    with pytest.raises(CheckpointError, match=r"no range of activations is known of 1 linear maps, e\.g\. decoder"):
        quantize_codec(tmp_path / "codec", tmp_path / "new", ranges)


def test_int8_codecs_are_not_rounded_again_and_others_stay_as_they_are(folder: Path, tmp_path: Path) -> None:
    assert quantize_part(MiniPart(), folder, tmp_path / "new") is None
    assert quantize_part(ToyCodecPart(), folder, tmp_path / "new") is None
    assert not (tmp_path / "new").exists()
    with pytest.raises(CheckpointError, match="its decoder is int8 already; give the codec it was made from"):
        quantize_codec(folder, tmp_path / "new", known_ranges(SHIPPED))
    with pytest.raises(CheckpointError, match="int8 already"):
        measure_ranges(folder, [])
