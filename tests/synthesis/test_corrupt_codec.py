"""A codec that decodes NaN or enormous samples ends in one sentence, spoken as a whole and as a stream."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from marstts.audio import Waveform
from marstts.codec.base import Codes, check_samples
from marstts.codec.toy import ToyCodec
from marstts.errors import CheckpointError
from marstts.synthesis.synthesizer import Synthesizer
from scripted import CODEBOOK_SIZE, good, scripted_synthesizer, with_parts


class CorruptCodec(ToyCodec):
    """A toy codec whose samples have a wrong value among them."""

    value = np.nan

    def decode(self, codes: Codes, *more: Any) -> Waveform:
        waveform = super().decode(codes, *more)
        waveform.samples[len(waveform.samples) // 2] = self.value
        return waveform


def synthesizer_with(value: float) -> Synthesizer:
    codec = CorruptCodec(codebook_size=CODEBOOK_SIZE)
    codec.value = value
    return with_parts(scripted_synthesizer(good), codec=codec)


@pytest.mark.slow
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
def test_samples_that_are_no_audio_are_refused(value: float, reference: Waveform) -> None:
    tts = synthesizer_with(value)
    voice = tts.clone(reference)
    with pytest.raises(CheckpointError, match="the codec decoded NaN or enormous samples"):
        tts.speak("The cat sat.", voice)
    with pytest.raises(CheckpointError, match="the codec decoded NaN or enormous samples"):
        list(tts.stream("The cat sat.", voice))


def test_loud_samples_stay_as_they_are() -> None:
    samples = np.array([0.0, -3.0, 99.0], np.float32)
    assert check_samples(samples) is samples
    assert len(check_samples(np.zeros(0, np.float32))) == 0
