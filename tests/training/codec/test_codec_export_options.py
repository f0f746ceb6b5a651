"""Export of a trained codec: initial weights that are mixed in."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from marstts.codec.mini import MiniCodecConfig
from marstts.errors import ConfigError
from marstts.io.precision import Precision
from marstts_lab.data.manifest import Utterance, write_manifest
from marstts_lab.training.codec.config import CodecTrainingConfig, Stage
from marstts_lab.training.codec.export import load_codec
from marstts_lab.training.codec.task import open_task
from marstts_lab.training.loop import LoopConfig, run

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


def training(folder: Path) -> CodecTrainingConfig:
    """A stage of one step; its corpus is written to the same folder."""
    rows = []
    for number, split in enumerate(("train", "train", "validation")):
        soundfile.write(folder / f"{number}.wav", 0.1 * noises(3)[number].numpy().repeat(3), 24_000)
        rows.append(Utterance(id=str(number), audio=f"{number}.wav", text="la", speaker="ann", style="regular",
                              seconds=0.38, source_rate=24_000, split=split, license="own"))  # fmt: skip
    write_manifest(rows, folder / "utterances.jsonl")
    (folder / "f0.jsonl").write_text("".join(json.dumps({"id": row.id, "f0": [0, 120, 130]}) + "\n" for row in rows))
    return CodecTrainingConfig(
        model=MODEL, loop=LoopConfig(steps=1), stage=Stage.DECODER,
        batch_size=2, segment_patches=12, precision=Precision.FP32,
    )  # fmt: skip


def test_the_initial_weights_are_mixed_in_by_their_ratio(tmp_path: Path) -> None:
    manifests, base = [(tmp_path / "utterances.jsonl", 1.0)], tmp_path / "base"
    config = training(tmp_path)
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
