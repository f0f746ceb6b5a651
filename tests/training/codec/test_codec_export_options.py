"""Export of a trained codec: contrast of timbre embeddings, and initial weights that are mixed in."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from marstts.codec.mini import MiniCodecConfig
from marstts.codec.mini_model import MiniCodecModel
from marstts.data.manifest import Utterance, write_manifest
from marstts.errors import ConfigError
from marstts.io.precision import Precision
from marstts.training.codec.config import CodecTrainingConfig, Stage
from marstts.training.codec.export import load_codec, scale_timbre_contrast, timbre_encoder_name
from marstts.training.codec.task import CodecTask, open_task
from marstts.training.loop import LoopConfig, run

pytestmark = pytest.mark.slow

MODEL = MiniCodecConfig(
    fft_size=128, hop=32, num_mels=12, codebook_size=24, codebook_width=3, latent_width=10, encoder_width=14,
    encoder_blocks=(1, 1), decoder_width=18, decoder_blocks=(1, 1), pitch_width=8, pitch_dilations=(1, 2),
    timbre_width=6, timbre_encoder_width=8, timbre_encoder_blocks=1, timbre_mels=10,
)  # fmt: skip
SAMPLES = 12 * MODEL.hop_lengths[0]


def noises(count: int) -> torch.Tensor:
    """Noise of different spectra, (count, SAMPLES)."""
    rng = np.random.default_rng(0)
    rows = [np.convolve(rng.standard_normal(SAMPLES), rng.standard_normal(5), "same") for _ in range(count)]
    return torch.tensor(np.array(rows), dtype=torch.float32)


def random_model() -> MiniCodecModel:
    torch.manual_seed(0)
    return MiniCodecModel(MODEL).eval()


@torch.no_grad()
def test_the_part_orthogonal_to_the_mean_is_multiplied_and_the_length_kept() -> None:
    model, references = random_model(), noises(7)
    before = model.timbre_of(references)
    scale_timbre_contrast(model, references, 1.5)
    after = model.timbre_of(references)
    assert before is not None and after is not None
    mean = before.mean(dim=0) / before.mean(dim=0).norm()
    for old, new in zip(before, after, strict=True):
        shared = (old @ mean) * mean
        expected = shared + 1.5 * (old - shared)
        expected *= (len(expected) ** 0.5) / expected.norm()
        torch.testing.assert_close(new, expected, rtol=1e-4, atol=1e-4)
    assert (after.std(dim=0) > before.std(dim=0)).all()


def training(folder: Path, contrast: float, timbre_width: int = 6) -> CodecTrainingConfig:
    """A stage of one step; its corpus is written to the same folder."""
    rows = []
    for number, split in enumerate(("train", "train", "validation")):
        soundfile.write(folder / f"{number}.wav", 0.1 * noises(3)[number].numpy().repeat(3), 24_000)
        rows.append(Utterance(id=str(number), audio=f"{number}.wav", text="la", speaker="ann", style="regular",
                              seconds=0.38, source_rate=24_000, split=split, license="own"))  # fmt: skip
    write_manifest(rows, folder / "utterances.jsonl")
    (folder / "f0.jsonl").write_text("".join(json.dumps({"id": row.id, "f0": [0, 120, 130]}) + "\n" for row in rows))
    return CodecTrainingConfig(
        model=MODEL.model_copy(update={"timbre_width": timbre_width}), loop=LoopConfig(steps=1), stage=Stage.DECODER,
        batch_size=2, segment_patches=12, precision=Precision.FP32, timbre_contrast=contrast,
    )  # fmt: skip


@pytest.mark.parametrize("contrast", [1.0, 1.4])
def test_a_run_exports_its_codec_with_the_configured_contrast(contrast: float, tmp_path: Path) -> None:
    output, config = tmp_path / "run", training(tmp_path, contrast)
    task = open_task(config, [(tmp_path / "utterances.jsonl", 1.0)], output)
    run(task, config.loop, output)
    trained, exported = load_codec(output), task.model_to_export(output)
    changed = {
        name for name, tensor in exported.state_dict().items() if not torch.equal(tensor, trained.state_dict()[name])
    }
    projection = {"timbre_encoder.project.weight", "timbre_encoder.project.bias"}
    assert changed == (set() if contrast == 1 else projection)
    assert (timbre_encoder_name(exported) == timbre_encoder_name(trained)) == (contrast == 1)


def test_the_initial_weights_are_mixed_in_by_their_ratio(tmp_path: Path) -> None:
    manifests, base = [(tmp_path / "utterances.jsonl", 1.0)], tmp_path / "base"
    config = training(tmp_path, 1.0)
    run(open_task(config, manifests, base), config.loop, base)
    mixed = config.model_copy(update={"initial_weight_ratio": 0.25})
    task = open_task(mixed, manifests, tmp_path / "run", base)
    run(task, mixed.loop, tmp_path / "run")
    initial, trained = load_codec(base).state_dict(), load_codec(tmp_path / "run").state_dict()
    exported = task.model_to_export(tmp_path / "run", base).state_dict()
    for name, weights in exported.items():
        torch.testing.assert_close(weights, 0.25 * initial[name] + 0.75 * trained[name])
    assert not torch.equal(initial["decoder.head.weight"], trained["decoder.head.weight"])
    with pytest.raises(ConfigError, match=r"initial_weight_ratio needs .* --init-from"):
        task.model_to_export(tmp_path / "run")


def test_a_contrast_needs_timbre_embeddings(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"timbre_contrast needs .* model\.timbre_width"):
        CodecTask(training(tmp_path, 1.4, timbre_width=0), [(tmp_path / "utterances.jsonl", 1.0)])
