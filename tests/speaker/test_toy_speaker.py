import numpy as np
import pytest

from marstts.audio import Waveform, resample
from marstts.errors import AudioError
from marstts.speaker.toy import ToySpeakerEncoder


def buzz(pitch, seconds=1.0, gain=0.3, sample_rate=16_000, tremolo=0.0):
    """A harmonic tone, optionally shaking."""
    time = np.arange(round(seconds * sample_rate)) / sample_rate
    harmonics = sum(np.sin(2 * np.pi * pitch * k * time) / k for k in range(1, 10))
    shake = 1 + tremolo * np.sin(2 * np.pi * 6 * time)
    return Waveform((gain * shake * harmonics / 3).astype(np.float32), sample_rate)


@pytest.mark.parametrize("kind", ["identity", "style"])
@pytest.mark.parametrize("size", [3, 13, 512])
def test_embeddings_have_the_requested_size_and_unit_length(kind, size):
    encoder = ToySpeakerEncoder(kind, size)
    embedding = encoder.embed(buzz(120))
    assert embedding.shape == (size,) and embedding.dtype == np.float32 and encoder.size == size
    assert np.linalg.norm(embedding) == pytest.approx(1.0, abs=1e-5)
    np.testing.assert_array_equal(embedding, ToySpeakerEncoder(kind, size).embed(buzz(120)))


def test_identity_depends_on_the_voice_and_not_on_loudness_or_sample_rate():
    encoder = ToySpeakerEncoder("identity", 16)
    low = encoder.embed(buzz(110))
    quiet_low = encoder.embed(resample(buzz(110, gain=0.05), 24_000))
    high = encoder.embed(buzz(420))
    assert low @ quiet_low > 0.98
    assert low @ quiet_low > low @ high + 0.05


def test_style_depends_on_the_speaking_style():
    encoder = ToySpeakerEncoder("style", 16)
    calm = encoder.embed(buzz(110))
    assert calm @ encoder.embed(buzz(120)) > calm @ encoder.embed(buzz(110, tremolo=0.9)) + 0.002


def test_short_and_silent_audio_still_has_a_finite_embedding():
    for kind in ("identity", "style"):
        for samples in (np.zeros(8_000, np.float32), np.full(5, 0.1, np.float32)):
            assert np.isfinite(ToySpeakerEncoder(kind, 9).embed(Waveform(samples, 16_000))).all()
        with pytest.raises(AudioError, match="no samples"):
            ToySpeakerEncoder(kind, 9).embed(Waveform(np.zeros(0, np.float32), 16_000))


def test_names_distinguish_roles_and_sizes():
    assert len({ToySpeakerEncoder(kind, size).name for kind in ("identity", "style") for size in (8, 9)}) == 4
