"""MARS5's graphs on ONNX Runtime compute what its PyTorch models do, and speak the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import mars5_small as small
from light_install import WITHOUT_EXTRAS
from marstts import audio, load, models
from marstts.audio import Waveform
from marstts.codec.registry import ToyCodecPart
from marstts.errors import CheckpointError, ConfigError
from marstts.generation.request import SamplingConfig
from marstts.io.precision import WeightFormat
from marstts.mars5 import bundled
from marstts.mars5.checkpoint import Models
from marstts.mars5.engines.onnx import GraphAR, join_states, open_graphs
from marstts.mars5.engines.torch import runnable
from marstts.mars5.export import graphs
from marstts.mars5.pipeline import Pipeline
from marstts.mars5.prompt import CloneMode
from marstts.mars5.runtime import RunnableModels, StepInputs
from marstts.mars5.steps import DiffusionConfig, JumpNoise, cosine_schedule
from marstts.synthesis import clone as cloning

pytestmark = pytest.mark.slow  # exporting takes PyTorch seconds

CODEC = ToyCodecPart(codebook_size=small.CODES, hop_lengths=(640,) * small.LEVELS)
TWO_LEVELS = ToyCodecPart(codebook_size=small.CODES, hop_lengths=(640, 640))


TIME = np.arange(48_000) / 24_000

LOUDNESS = 0.55 + 0.45 * np.sin(8 * np.pi * TIME)
BUZZ = Waveform((0.2 * np.sign(np.sin(2 * np.pi * 130 * TIME)) * LOUDNESS).astype(np.float32), 24_000)
"""Two seconds that pass for speech."""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle without graphs."""
    made, folder = small.models(), tmp_path_factory.mktemp("bundles") / "plain"
    models.export_bundle(
        folder, made, made.vocabulary.text, codec=CODEC, encoders={}, name="small", architecture="mars5",
        settings={"diffusion": {"timesteps": 3}, "tokens_per_second": 30.0}, sampling=SamplingConfig(top_p=0.9),
    )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def upgraded(plain: Path) -> Path:
    """The same with graphs."""
    folder = plain.with_name("upgraded")
    models.upgrade_bundle(plain, folder)
    return folder


@pytest.fixture(scope="module")
def torch_models(upgraded: Path) -> Models:
    return models.load_for_training(upgraded)


@pytest.fixture(scope="module")
def graph_models(upgraded: Path) -> RunnableModels:
    return open_graphs(upgraded / "mars5")


def test_upgrading_changes_no_weights(plain: Path, upgraded: Path) -> None:
    assert models.has_graphs(upgraded) and not models.has_graphs(plain)
    before, after = models.load_for_training(plain), models.load_for_training(upgraded)
    for old, new in ((before.ar, after.ar), (before.nar, after.nar)):
        for name, tensor in old.state_dict().items():
            assert torch.equal(tensor, new.state_dict()[name]), name


def array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.numpy()


def test_speakers_are_those_of_pytorch(torch_models: Models, graph_models: RunnableModels) -> None:
    codes, lengths, run = np.stack((small.codes(6), small.codes(6, seed=4))), np.array([6, 2]), runnable(torch_models)
    for ours, theirs in ((graph_models.ar, run.ar), (graph_models.nar, run.nar)):
        found, expected = ours.encode_speaker(codes, lengths), theirs.encode_speaker(codes, lengths)
        np.testing.assert_allclose(found, expected, atol=1e-4, rtol=1e-4)


@torch.inference_mode()
def test_cached_steps_are_those_of_pytorch_beyond_the_window(
    torch_models: Models, graph_models: RunnableModels
) -> None:
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(0, small.AR.vocab_size, (2, 9), generator=generator)
    lengths, speaker = torch.tensor([9, 4]), torch.randn(2, small.AR.width, generator=generator)
    ours = graph_models.ar.begin(array(tokens), array(lengths), array(speaker))
    theirs = torch_models.ar.begin(tokens, lengths, speaker)
    for _ in range(small.AR.window + 8):
        np.testing.assert_allclose(ours.logits, theirs.logits, atol=1e-4, rtol=1e-4)
        assert np.array_equal(ours.key_positions, theirs.key_positions)
        following = torch.randint(0, small.AR.vocab_size, (2,), generator=generator)
        ours, theirs = graph_models.ar.advance(ours, array(following)), torch_models.ar.advance(theirs, following)
    assert ours.key_positions.shape[1] < small.AR.window + 9, "old positions were dropped"


def test_rows_of_the_ar_are_independent_when_they_are_selected_and_joined(graph_models: RunnableModels) -> None:
    tokens, speaker = np.arange(12).reshape(2, 6), np.ones((2, small.AR.width), np.float32)
    both = graph_models.ar.begin(tokens, np.array([6, 3]), speaker)
    alone = graph_models.ar.begin(tokens[1:, :3], np.array([3]), speaker[1:])
    joined = join_states([alone, both.select([0])])
    both, alone, joined = (
        graph_models.ar.advance(state, np.array(ids)) for state, ids in ((both, [1, 2]), (alone, [2]), (joined, [2, 1]))
    )
    np.testing.assert_allclose(both.logits[1:], alone.logits, atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(joined.logits, both.logits[::-1], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("guidance", "greedy"), [(1.0, False), (3.0, False), (3.0, True)])
def test_a_step_of_the_diffusion_is_that_of_pytorch_and_rows_are_independent(
    torch_models: Models, graph_models: RunnableModels, guidance: float, greedy: bool
) -> None:
    codes, rng = np.stack((small.codes(7), small.codes(7, seed=4))), np.random.default_rng(3)
    uniforms = None if greedy else rng.random((*codes.shape, small.CODES + 1), np.float32)
    inputs = StepInputs(
        np.array([7, 3]), np.arange(10).reshape(2, 5), np.array([5, 2]), rng.standard_normal((2, 18), np.float32),
        guidance, 0.7, small.CODES,
    )  # fmt: skip
    one = StepInputs(
        inputs.lengths[1:], inputs.text_ids[1:, :2], inputs.text_lengths[1:], inputs.speaker[1:], guidance, 0.7,
        small.CODES,
    )  # fmt: skip
    schedule, theirs = cosine_schedule(200), runnable(torch_models).nar
    for step in (150, 0):
        expected = theirs.step(codes, schedule, step, inputs, uniforms)
        found = graph_models.nar.step(codes, schedule, step, inputs, uniforms)
        assert np.array_equal(found[0], expected[0]) and np.array_equal(found[1, :3], expected[1, :3])
        alone = graph_models.nar.step(codes[1:, :3], schedule, step, one, None if greedy else uniforms[1:, :3])
        assert np.array_equal(alone[0], found[1, :3])


@pytest.mark.parametrize("mode", CloneMode)
@pytest.mark.parametrize("noise", JumpNoise)
def test_codes_are_those_of_pytorch_from_the_same_seeds(
    torch_models: Models, graph_models: RunnableModels, mode: CloneMode, noise: JumpNoise
) -> None:
    results = []
    for parts in (runnable(torch_models), graph_models):
        pipeline = Pipeline(parts, DiffusionConfig(timesteps=6, jump_n_sample=2, jump_noise=noise))
        speaker = pipeline.speaker(small.codes(5), "she")
        prompts = [pipeline.prompt(text, speaker, mode) for text in ("the cat", "on the mat")]
        tokens = [parts.vocabulary.encode_speech(small.codes(length, seed=length)[:, 0]) for length in (9, 4)]
        results.append(pipeline.codes(prompts, tokens, [np.random.default_rng(seed) for seed in (3, 4)]))
    assert [len(row) for row in results[0]] == [9, 4]
    assert all(np.array_equal(one, other) for one, other in zip(*results, strict=True))


def test_an_upgraded_bundle_speaks_the_same_on_both_engines(upgraded: Path) -> None:
    spoken = []
    for engine in ("auto", "torch"):
        synthesizer = load(upgraded, engine=engine)
        assert isinstance(synthesizer.model.pipeline.models.ar, GraphAR) == (engine == "auto")
        voice = cloning.clone(BUZZ, None, codec=synthesizer.codec, encoders=synthesizer.encoders, min_speech_ratio=0)
        spoken.append(synthesizer.speak("The cat sat. On the mat.", voice, seed=3).waveform.samples)
    assert len(spoken[0]) and np.array_equal(*spoken)


def test_a_bundle_with_graphs_speaks_where_only_the_light_package_is_installed(
    upgraded: Path, reference_file: Path, tmp_path: Path
) -> None:
    speak = [
        "speak", "The cat sat.", "--model", str(upgraded), "--reference", str(reference_file), "--seed", "3",
        "--output", str(tmp_path / "speech.wav"),
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS, *speak], capture_output=True, text=True, env=environment, timeout=120
    )
    assert done.returncode == 0, done.stderr
    expected = load(upgraded, engine="torch")
    voice = expected.clone(reference_file)
    assert np.array_equal(
        audio.read(tmp_path / "speech.wav").samples,
        audio.read(written(tmp_path, expected.speak("The cat sat.", voice, seed=3).waveform)).samples,
    )


def written(folder: Path, waveform: Waveform) -> Path:
    """The waveform as a file, rounded as the command line rounds it."""
    audio.write(waveform, folder / "expected.wav")
    return folder / "expected.wav"


def test_int8_is_refused(upgraded: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a MARS5 is no faster with it"):
        models.upgrade_bundle(upgraded, tmp_path / "int8", WeightFormat.INT8)


def test_graphs_of_other_sizes_and_missing_graphs_are_refused_in_one_sentence(upgraded: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mars5"
    shutil.copytree(upgraded / "mars5", folder)
    shutil.copyfile(folder / "ar_step.onnx", folder / "ar_prompt.onnx")
    with pytest.raises(CheckpointError, match=r"ar_prompt\.onnx: expected inputs tokens"):
        open_graphs(folder)
    (folder / "nar_step.onnx").write_bytes(b"no graph")
    with pytest.raises(CheckpointError, match="onnx"):
        open_graphs(folder)
    (folder / "nar_step.onnx").unlink()
    assert not bundled.has_graphs(folder)
    with pytest.raises(CheckpointError, match="has no graphs"):
        open_graphs(folder)


def test_models_too_large_for_a_graph_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "MAX_PARAMETERS", 100)
    with pytest.raises(CheckpointError, match="at most 100; speak with the engine 'torch'"):
        graphs.export_graphs_of(small.models(), tmp_path, WeightFormat.FLOAT32)
    assert not list(tmp_path.iterdir())
