import numpy as np
import pytest

from marstts.audio import Waveform
from marstts.codec.toy import ToyCodec
from marstts.errors import AudioError


def swelling_tones(seconds=2.0, sample_rate=24_000):
    """Two tones in different bands, one growing, one fading, with a pause between."""
    time = np.arange(round(seconds * sample_rate)) / sample_rate
    growing, fading = np.linspace(0, 0.4, len(time)), np.linspace(0.3, 0, len(time))
    samples = growing * np.sin(2 * np.pi * 200 * time) + fading * np.sin(2 * np.pi * 1_000 * time)
    samples[len(samples) // 3 : len(samples) // 2] = 0
    return Waveform(samples.astype(np.float32), sample_rate)


def loudness_contour(samples, hop):
    """RMS in decibels of each hop, not below -60."""
    frames = samples[: len(samples) // hop * hop].reshape(-1, hop)
    return np.maximum(10 * np.log10((frames**2).mean(axis=1) + 1e-12), -60)


def test_codes_have_the_geometry_of_snac():
    codec = ToyCodec()
    assert codec.spec.patch_layout == (1, 2, 4)
    assert codec.spec.patch_samples == 2048
    codes = codec.encode(Waveform(np.zeros(2048 * 3 + 1, np.float32), 24_000))
    assert [len(level) for level in codes] == [4, 8, 16]
    assert all(level.dtype == np.int64 for level in codes)


@pytest.mark.parametrize(
    ("codebook_size", "hop_lengths", "sample_rate"),
    [(4096, (2048, 1024, 512), 24_000), (30, (64, 32, 16), 8_000), (16, (8, 2), 16_000), (5, (12, 6, 3, 1), 8_000)],
)
def test_any_geometry_round_trips_whole_patches(codebook_size, hop_lengths, sample_rate):
    codec = ToyCodec(codebook_size, hop_lengths, sample_rate)
    codes = codec.encode(swelling_tones(0.5))
    patches = -(-sample_rate // 2 // hop_lengths[0])
    assert [len(level) for level in codes] == [patches * hop_lengths[0] // hop for hop in hop_lengths]
    assert all(level.min() >= 0 and level.max() < codebook_size for level in codes)
    decoded = codec.decode(codes)
    assert len(decoded.samples) == patches * hop_lengths[0]
    assert decoded.sample_rate == sample_rate and np.isfinite(decoded.samples).all()


def test_decoding_keeps_the_loudness_contour():
    codec, original = ToyCodec(), swelling_tones()
    decoded = codec.decode(codec.encode(original))
    ours = loudness_contour(decoded.samples[: len(original.samples)], 2048)
    theirs = loudness_contour(original.samples, 2048)
    audible = theirs > -40
    assert np.corrcoef(ours, theirs)[0, 1] > 0.9
    assert np.abs(ours - theirs)[audible].mean() < 2.5


def test_decoding_keeps_the_pitch_contour():
    codec = ToyCodec()
    for frequency in (150.0, 700.0, 3_000.0):
        tone = 0.3 * np.sin(2 * np.pi * frequency * np.arange(24_000) / 24_000)
        decoded = codec.decode(codec.encode(Waveform(tone.astype(np.float32), 24_000))).samples[:24_000]
        peak = np.abs(np.fft.rfft(decoded)).argmax()  # 1 Hz bins
        assert abs(peak / frequency - 1) < 0.08


def test_silence_stays_silent_and_every_code_can_be_decoded():
    codec = ToyCodec(codebook_size=30, hop_lengths=(16, 8, 4), sample_rate=8_000)
    silence = codec.encode(Waveform(np.zeros(64, np.float32), 8_000))
    assert not codec.decode(silence).samples.any()
    every = (np.arange(30), np.arange(60) % 30, np.arange(120) % 30)
    assert np.isfinite(codec.decode(every).samples).all()
    assert len(codec.decode((np.zeros(0, np.int64),) * 3).samples) == 0


def test_encoding_is_repeatable_and_leaves_its_input_alone():
    codec, original = ToyCodec(), swelling_tones(0.3)
    before = original.samples.copy()
    for first, second in zip(codec.encode(original), ToyCodec().encode(original), strict=True):
        np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(original.samples, before)


def test_the_name_distinguishes_geometries():
    names = {ToyCodec(size, hops).spec.name for size in (16, 64) for hops in ((8, 4, 2), (16, 4, 2))}
    assert len(names) == 4


def test_encoding_no_samples_is_refused():
    with pytest.raises(AudioError, match="no samples"):
        ToyCodec().encode(Waveform(np.zeros(0, np.float32), 24_000))
