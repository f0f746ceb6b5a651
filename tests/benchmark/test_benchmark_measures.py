"""The measurements of a benchmark on a toy model: what they count, not how fast this machine is."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from benchmark_rows import make_case

from marstts.errors import BenchmarkError
from marstts.generation.request import StopReason
from marstts.synthesis.loading import load
from marstts.synthesis.synthesizer import Synthesizer
from marstts_lab.benchmark import measures
from marstts_lab.benchmark.inputs import CHARACTERS_PER_SECOND, fixed_length_backoff, random_voice, sample_text
from marstts_lab.benchmark.plan import Measure
from scripted import with_parts

pytestmark = pytest.mark.slow  # all of them measure


@pytest.fixture(scope="module")
def toy(toy_bundle: Path) -> Synthesizer:
    return load(toy_bundle, "onnx")


@pytest.mark.parametrize("seconds", [0.3, 2, 10, 60])
def test_sample_texts_have_the_requested_length(seconds):
    text = sample_text(seconds)
    assert text[-1] == "." and len(text) == pytest.approx(seconds * CHARACTERS_PER_SECOND, abs=16)


def test_takes_have_exactly_the_length_of_their_characters(toy):
    speech = with_parts(toy, backoff=fixed_length_backoff()).speak(sample_text(1.0), random_voice(toy))
    [take] = speech.takes
    expected = math.ceil(len(take.text) / CHARACTERS_PER_SECOND * toy.session.codec.spec.patch_rate)
    assert len(take.codes[0]) == expected and take.stop is StopReason.MAX_PATCHES and take.attempts == 1


def test_a_random_voice_fits_the_model_and_is_the_same_each_time(toy):
    first, second = random_voice(toy), random_voice(toy)
    assert set(first.embeddings) == set(toy.session.model.embedding_sizes)
    for role, embedding in first.embeddings.items():
        assert embedding.shape == (toy.session.model.embedding_sizes[role],)
        assert np.linalg.norm(embedding) == pytest.approx(1.0)
        assert np.array_equal(embedding, second.embeddings[role])


def test_a_random_voice_has_the_timbre_embedding_of_a_codec_that_makes_one():
    mini = load("mini", "onnx")
    voice = random_voice(mini)
    mini.session.check_fits(voice)
    assert {role: len(embedding) for role, embedding in voice.embeddings.items()} == {
        role: encoder.size for role, encoder in mini.session.encoders.items()
    }
    assert "timbre" in voice.embeddings


def test_token_generation_is_timed_for_every_length_and_batch_size(toy_bundle):
    rows = measures.measure(make_case(toy_bundle, Measure.TOKENS))
    assert [(row["batch"], row["seconds"]) for row in rows] == [(1, 0.3), (1, 0.6), (3, 0.3)]
    for row in rows:
        assert (row["measure"], row["model"], row["engine"], row["weights"]) == ("tokens", "toy", "onnx", "float32")
        patches = math.ceil(row["seconds"] * 24_000 / 2048)
        total = row["rtf"] * row["batch"] * patches * 2048 / 24_000
        assert 0 < row["first_patch_seconds"] <= total
        assert row["tokens_per_second"] == pytest.approx(7 * row["batch"] * patches / total)


def test_text_to_audio_is_timed_for_every_length(toy_bundle):
    rows = measures.measure(make_case(toy_bundle, Measure.SPEECH))
    assert [row["seconds"] for row in rows] == [0.3, 0.6]
    assert all(row["rtf"] > 0 and row["load_seconds"] > 0 for row in rows)


def test_latency_is_measured_for_every_request_of_every_caller(toy_bundle):
    rows = measures.measure(make_case(toy_bundle, Measure.CONCURRENCY, requests=3))
    assert [(row["concurrency"], row["requests"]) for row in rows] == [(1, 3), (2, 4)]
    assert all(0 < row["first_audible_p50"] <= row["first_audible_p95"] < math.inf for row in rows)


def test_peak_memory_includes_everything_the_process_held(toy_bundle):
    [row] = measures.measure(make_case(toy_bundle, Measure.MEMORY))
    assert row["peak_megabytes"] > 20
    ballast = np.ones(2**23)  # 64 MiB
    assert measures.peak_megabytes() >= row["peak_megabytes"] and ballast.sum()


@pytest.mark.slow
def test_the_first_output_of_a_command_is_timed_and_failures_are_reported():
    assert measures.first_output_seconds(["sh", "-c", "sleep 0.2; printf abcd; sleep 0.2"], 3) >= 0.2
    with pytest.raises(BenchmarkError, match="out of steam"):
        measures.first_output_seconds(["sh", "-c", "echo out of steam >&2; exit 3"], 3)
    with pytest.raises(BenchmarkError, match="failed"):
        measures.first_output_seconds(["sh", "-c", "printf ab"], 3)


@pytest.mark.end_to_end
@pytest.mark.slow
def test_cold_start_is_timed_from_the_start_of_the_process(toy_bundle):
    [row] = measures.measure(make_case(toy_bundle, Measure.COLD_START, runs=0))
    assert row["first_sample_seconds"] > 0.05
