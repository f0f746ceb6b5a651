"""Two speakers in one reference: the split between them, and the warning."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from marstts.audio import Waveform, read, resample
from marstts.bundle import PACKAGED_MODELS
from marstts.codec.toy import ToyCodec
from marstts.speaker.mini import MiniSpeakerEncoder
from marstts.speaker.toy import ToySpeakerEncoder
from marstts.synthesis.clone import ReferenceWarning, clone
from marstts.synthesis.clone.speaker_change import WINDOW_SECONDS, has_two_speakers, least_similarity

CODEC = ToyCodec(codebook_size=64)
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def identity() -> MiniSpeakerEncoder:
    return MiniSpeakerEncoder(PACKAGED_MODELS / "mini" / "identity")


def joined(*recordings: Waveform) -> Waveform:
    """Four seconds of each recording, one after another."""
    rate = 24_000
    return Waveform(np.concatenate([np.resize(resample(r, rate).samples, 4 * rate) for r in recordings]), rate)


def test_the_least_similar_split_is_found_among_all():
    embeddings = np.random.default_rng(3).normal(size=(7, 5)).astype(np.float32)
    similarities = []
    for at in (2, 3, 4, 5):
        a, b = sum(embeddings[:at]), sum(embeddings[at:])
        similarities.append(float(np.dot(a, b) / (np.dot(a, a) ** 0.5 * np.dot(b, b) ** 0.5)))
    assert least_similarity(embeddings) == pytest.approx(min(similarities), abs=1e-6)
    assert least_similarity(embeddings[:3]) == 1.0


def test_two_people_one_after_another_earn_a_warning(identity: MiniSpeakerEncoder, amiable: Waveform):
    both = joined(amiable, read(EXAMPLES / "other.flac"))
    with pytest.warns(ReferenceWarning, match="two people seem to speak"):
        clone(both, codec=CODEC, encoders={"identity": identity})


def test_two_recordings_of_one_person_earn_none(identity: MiniSpeakerEncoder, surpassed: Waveform):
    both = joined(surpassed, read(EXAMPLES / "human.flac"))  # the same reader
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clone(both, codec=CODEC, encoders={"identity": identity})


def test_short_references_and_encoders_without_a_limit_are_not_checked(
    identity: MiniSpeakerEncoder, amiable: Waveform, surpassed: Waveform
):
    both = joined(amiable, surpassed)
    short = Waveform(both.samples[: int((4 * WINDOW_SECONDS - 0.1) * both.sample_rate)], both.sample_rate)
    assert not has_two_speakers(short, [identity])
    assert not has_two_speakers(both, [ToySpeakerEncoder("identity", 5)])
