"""The timbre embedding of a voice: made at clone time, kept in its file, and what its takes are decoded with."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from marstts.audio import Waveform
from marstts.codec.base import TIMBRE, Codes, timbre_encoders
from marstts.codec.toy import ToyCodec
from marstts.errors import VoiceError
from marstts.synthesis.clone import ReferenceWarning
from marstts.synthesis.clone.voices import adapt_voice
from marstts.synthesis.synthesizer import Synthesizer
from marstts.voice import Voice
from scripted import CODEBOOK_SIZE, good, scripted_synthesizer, with_parts

TEXT = "The cat sat on the mat. She sells sea shells there."


class GainCodec(ToyCodec):
    """A toy codec whose timbre is the gain of its decoder, in whole numbers; without one the gain is 1."""

    timbre_width = 3

    def __init__(self, timbre_encoder: str = "gain") -> None:
        super().__init__(CODEBOOK_SIZE)
        self.timbre_encoder, self.gain = timbre_encoder, 1.0

    def timbre_embedding(self, waveform: Waveform) -> NDArray[np.float32]:
        """A number that depends on the length of the recording."""
        return np.full(3, 2 + len(waveform.samples) % 2, np.float32)

    def with_timbre(self, embedding: NDArray[np.float32]) -> GainCodec:
        conditioned = copy.copy(self)
        conditioned.gain = 0.1 * float(embedding[0])
        return conditioned

    def decode(self, codes: Sequence[NDArray[np.int64]], first: int = 0) -> Waveform:
        plain = super().decode(codes, first)
        return Waveform(np.float32(self.gain) * plain.samples, plain.sample_rate)


def conditioned(timbre_encoder: str = "gain") -> Synthesizer:
    tts, codec = scripted_synthesizer(good), GainCodec(timbre_encoder)
    return with_parts(tts, codec=codec, encoders={**tts.session.encoders, **timbre_encoders(codec)})


def with_gain(voice: Voice, gain: float) -> Voice:
    return replace(voice, embeddings={**voice.embeddings, TIMBRE: np.full(3, 10 * gain, np.float32)})


def without_timbre(voice: Voice) -> Voice:
    return replace(
        voice,
        embeddings={role: values for role, values in voice.embeddings.items() if role != TIMBRE},
        encoders={role: name for role, name in voice.encoders.items() if role != TIMBRE},
    )


def loudest(samples: NDArray[np.float32]) -> float:
    return float(np.abs(samples).max())


def test_a_clone_has_the_timbre_of_its_reference_and_its_file_keeps_it(reference: Waveform, tmp_path: Path):
    voice = conditioned().clone(reference)
    assert voice.encoders[TIMBRE] == "gain" and voice.embeddings[TIMBRE].shape == (3,)
    voice.save(tmp_path / "one.voice")
    np.testing.assert_array_equal(Voice.load(tmp_path / "one.voice").embeddings[TIMBRE], voice.embeddings[TIMBRE])


def test_takes_are_decoded_in_the_timbre_of_their_voice(reference: Waveform):
    tts = conditioned()
    voice = tts.clone(reference, keep_reference=False)
    plain, half = tts.speak(TEXT, without_timbre(voice)), tts.speak(TEXT, with_gain(voice, 0.5))
    for ours, theirs in zip(half.takes, plain.takes, strict=True):
        assert_equal_codes(ours.codes, theirs.codes)
        np.testing.assert_allclose(ours.waveform.samples, 0.5 * theirs.waveform.samples, atol=1e-6)


def assert_equal_codes(ours: Codes, theirs: Codes) -> None:
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)


def test_rows_of_a_batch_keep_their_own_timbres(reference: Waveform):
    tts = conditioned()
    voice = tts.clone(reference)
    voices = [with_gain(voice, gain) for gain in (0.2, 0.8, 0.4)]
    results = sorted(tts.speak_many([TEXT] * 3, voices, batch=6), key=lambda result: result.index)
    for result, one in zip(results, voices, strict=True):
        assert result.speech is not None
        alone = tts.speak(TEXT, one)
        np.testing.assert_array_equal(result.speech.waveform.samples, alone.waveform.samples)


def test_a_voice_without_timbre_or_reference_is_decoded_without_one(reference: Waveform):
    tts = conditioned()
    older = without_timbre(tts.clone(reference, keep_reference=False))
    assert adapt_voice(tts.session, older) is older
    plain = scripted_synthesizer(good).speak(TEXT, older)
    assert loudest(tts.speak(TEXT, older).waveform.samples) == pytest.approx(loudest(plain.waveform.samples), rel=1e-5)


def test_a_voice_without_timbre_gets_one_from_the_reference_it_keeps(reference: Waveform):
    tts = conditioned()
    voice = tts.clone(reference, name="anna", consent="by letter")
    adapted = adapt_voice(tts.session, without_timbre(voice))
    assert TIMBRE in adapted.embeddings and adapted.name == "anna" and adapted.consent == "by letter"


def test_a_timbre_of_another_encoder_is_made_again_or_refused(reference: Waveform):
    before, after = conditioned("gain"), conditioned("louder")
    voice = before.clone(reference, "the words of it")
    with pytest.warns(ReferenceWarning, match=r"made with the timbre encoder 'gain', .* taken again") as told:
        adapted = adapt_voice(after.session, voice)
    assert len(told) == 1 and adapted.encoders[TIMBRE] == "louder"
    assert adapted == replace(voice, encoders=adapted.encoders, embeddings=adapted.embeddings), "all else is kept"
    for role, values in voice.embeddings.items():
        assert role == TIMBRE or np.array_equal(adapted.embeddings[role], values)
    with pytest.raises(VoiceError, match=r"timbre encoder 'gain'.* marstts voice create RECORDING"):
        adapt_voice(after.session, before.clone(reference, keep_reference=False))


def test_a_voice_with_a_timbre_fits_a_model_that_has_none(reference: Waveform):
    plain = scripted_synthesizer(good)
    voice = conditioned().clone(reference)
    assert adapt_voice(plain.session, voice) is voice
    assert plain.speak(TEXT, voice).takes
