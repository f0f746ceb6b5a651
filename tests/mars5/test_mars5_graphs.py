"""MARS5's graphs on ONNX Runtime compute what its PyTorch models do, and speak the same."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import mars5_small as small
from marstts import load, models
from marstts.audio import Waveform
from marstts.codec.registry import ToyCodecPart
from marstts.errors import CheckpointError
from marstts.generation.request import SamplingConfig
from marstts.mars5 import bundled
from marstts.mars5.checkpoint import Models
from marstts.mars5.engines.onnx import GraphModels, open_graphs
from marstts.mars5.export import graphs
from marstts.mars5.nar import Conditioning
from marstts.mars5.pipeline import Pipeline
from marstts.mars5.prompt import CloneMode
from marstts.mars5.repaint import DiffusionConfig
from marstts.precision import WeightFormat
from marstts.synthesis import clone as cloning

pytestmark = pytest.mark.slow  # exporting takes PyTorch seconds

CODEC = ToyCodecPart(codebook_size=small.CODES, hop_lengths=(640,) * small.LEVELS)


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
def graph_models(upgraded: Path) -> GraphModels:
    return open_graphs(upgraded / "mars5")


def test_upgrading_changes_no_weights(plain: Path, upgraded: Path) -> None:
    assert models.has_graphs(upgraded) and not models.has_graphs(plain)
    before, after = models.load_for_training(plain), models.load_for_training(upgraded)
    for old, new in ((before.ar, after.ar), (before.nar, after.nar)):
        for name, tensor in old.state_dict().items():
            assert torch.equal(tensor, new.state_dict()[name]), name


@torch.inference_mode()
def test_speakers_are_those_of_pytorch(torch_models: Models, graph_models: GraphModels) -> None:
    codes = torch.stack([torch.from_numpy(small.codes(6)), torch.from_numpy(small.codes(6, seed=4))])
    lengths = torch.tensor([6, 2])
    for ours, theirs in ((graph_models.ar, torch_models.ar), (graph_models.nar, torch_models.nar)):
        torch.testing.assert_close(
            ours.encode_speaker(codes, lengths), theirs.encode_speaker(codes, lengths), atol=1e-4, rtol=1e-4
        )
    torch.testing.assert_close(graph_models.nar.null_speaker(2), torch_models.nar.null_speaker(2), atol=1e-4, rtol=1e-4)


@torch.inference_mode()
def test_cached_steps_are_those_of_pytorch_beyond_the_window(torch_models: Models, graph_models: GraphModels) -> None:
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(0, small.AR.vocab_size, (2, 9), generator=generator)
    lengths, speaker = torch.tensor([9, 4]), torch.randn(2, small.AR.width, generator=generator)
    ours, theirs = (model.begin(tokens, lengths, speaker) for model in (graph_models.ar, torch_models.ar))
    for _ in range(small.AR.window + 8):
        torch.testing.assert_close(ours.logits, theirs.logits, atol=1e-4, rtol=1e-4)
        assert torch.equal(ours.key_positions, theirs.key_positions)
        following = torch.randint(0, small.AR.vocab_size, (2,), generator=generator)
        ours, theirs = graph_models.ar.advance(ours, following), torch_models.ar.advance(theirs, following)
    assert ours.key_positions.shape[1] < small.AR.window + 9, "old positions were dropped"


@torch.inference_mode()
def test_rows_of_the_ar_are_independent(graph_models: GraphModels) -> None:
    tokens, speaker = torch.arange(12).reshape(2, 6), torch.ones(2, small.AR.width)
    both = graph_models.ar.begin(tokens, torch.tensor([6, 3]), speaker)
    alone = graph_models.ar.begin(tokens[1:, :3], torch.tensor([3]), speaker[1:])
    both, alone = graph_models.ar.advance(both, torch.tensor([1, 2])), graph_models.ar.advance(alone, torch.tensor([2]))
    torch.testing.assert_close(both.logits[1:], alone.logits, atol=1e-5, rtol=1e-5)


@torch.inference_mode()
def test_nar_logits_are_those_of_pytorch_and_rows_are_independent(
    torch_models: Models, graph_models: GraphModels
) -> None:
    codes = torch.stack([torch.from_numpy(small.codes(7)), torch.from_numpy(small.codes(7, seed=4))])
    lengths, timesteps = torch.tensor([7, 3]), torch.tensor([150, 4])
    given = Conditioning(
        torch.arange(10).reshape(2, 5), torch.tensor([5, 2]), graph_models.nar.encode_speaker(codes, lengths)
    )
    ours, theirs = (model(codes, lengths, timesteps, given) for model in (graph_models.nar, torch_models.nar))
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
    one = Conditioning(given.text_ids[1:, :2], given.text_lengths[1:], given.speaker[1:])
    alone = graph_models.nar(codes[1:, :3], lengths[1:], timesteps[1:], one)
    torch.testing.assert_close(ours[1:, :3], alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("mode", CloneMode)
def test_tokens_and_codes_are_those_of_pytorch(
    torch_models: Models, graph_models: GraphModels, mode: CloneMode
) -> None:
    results = []
    for parts in (torch_models, graph_models):
        pipeline = Pipeline(
            ar=parts.ar, nar=parts.nar, vocabulary=parts.vocabulary, max_tokens=15,
            diffusion=DiffusionConfig(timesteps=4, jump_n_sample=2),
        )  # fmt: skip
        speaker = pipeline.speaker(small.codes(5), "she")
        prompts = [pipeline.prompt(text, speaker, mode) for text in ("the cat", "on the mat")]
        tokens = pipeline.generate(prompts, [np.random.default_rng(seed) for seed in (1, 2)])
        drawn = [np.asarray(generated.tokens) for generated in tokens]
        results.append((drawn, pipeline.codes(prompts, drawn, [np.random.default_rng(seed) for seed in (3, 4)])))
    (tokens, codes), (graph_tokens, graph_codes) = results
    assert any(len(row) for row in codes)
    for ours, theirs in ((graph_tokens, tokens), (graph_codes, codes)):
        assert all(np.array_equal(one, other) for one, other in zip(ours, theirs, strict=True))


def test_an_upgraded_bundle_speaks_the_same_on_both_engines(upgraded: Path) -> None:
    time = np.arange(48_000) / 24_000
    samples = 0.2 * np.sign(np.sin(2 * np.pi * 130 * time)) * (0.55 + 0.45 * np.sin(8 * np.pi * time))
    buzz, spoken = Waveform(samples.astype(np.float32), 24_000), []
    for engine in ("auto", "torch"):
        synthesizer = load(upgraded, engine=engine)
        assert isinstance(synthesizer.model.engine.models, GraphModels) == (engine == "auto")
        voice = cloning.clone(buzz, None, codec=synthesizer.codec, encoders=synthesizer.encoders, min_speech_ratio=0)
        spoken.append(synthesizer.speak("The cat sat. On the mat.", voice, seed=3).waveform.samples)
    assert len(spoken[0]) and np.array_equal(*spoken)


def test_graphs_of_other_sizes_and_missing_graphs_are_refused_in_one_sentence(upgraded: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mars5"
    shutil.copytree(upgraded / "mars5", folder)
    shutil.copyfile(folder / "ar_step.onnx", folder / "ar_prompt.onnx")
    with pytest.raises(CheckpointError, match=r"ar_prompt\.onnx: expected inputs tokens"):
        open_graphs(folder)
    (folder / "nar.onnx").write_bytes(b"no graph")
    with pytest.raises(CheckpointError, match="onnx"):
        open_graphs(folder)
    (folder / "nar.onnx").unlink()
    assert not bundled.has_graphs(folder)
    with pytest.raises(CheckpointError, match="has no graphs"):
        open_graphs(folder)


def test_models_too_large_for_a_graph_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "MAX_PARAMETERS", 100)
    with pytest.raises(CheckpointError, match="at most 100; speak with the engine 'torch'"):
        graphs.export_graphs_of(small.models(), tmp_path, WeightFormat.FLOAT32)
    assert not list(tmp_path.iterdir())
