"""`marstts train codec`: a run is resumed, continued by the next stage, and exported."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner, Result

from marstts.cli.main import app
from marstts.io.part_provenance import read_part
from marstts_lab.data.manifest import Utterance, write_manifest
from marstts_lab.training.codec import export

CONFIG = """
stage = "{stage}"
batch_size = 2
segment_patches = 6
precision = "fp32"
[model]
fft_size = 128
hop = 32
num_mels = 12
codebook_size = {codes}
codebook_width = 3
latent_width = 10
encoder_width = 14
encoder_blocks = [1, 1]
decoder_width = 18
decoder_blocks = [1, 1]
pitch_width = 8
pitch_dilations = [1, 2]
[loop]
steps = {steps}
log_every = 1
"""


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    utterances = []
    for number, split in enumerate(("train", "train", "validation")):
        soundfile.write(tmp_path / f"{number}.wav", 0.1 * rng.standard_normal(4800), 24000)
        utterances.append(
            Utterance(id=str(number), audio=f"{number}.wav", text="la", speaker="a", style="regular", seconds=0.2,
                      source_rate=24000, split=split, license="own")
        )  # fmt: skip
    write_manifest(utterances, tmp_path / "utterances.jsonl")
    pitches = [json.dumps({"id": utterance.id, "f0": [0, 110.5, 112]}) for utterance in utterances]
    (tmp_path / "f0.jsonl").write_text("\n".join(pitches))
    return tmp_path / "utterances.jsonl"


def train_codec(
    manifest: Path, output: str, *options: str, steps: int = 2, stage: str = "full", codes: int = 24
) -> Result:
    config = manifest.parent / "codec.toml"
    config.write_text(CONFIG.format(steps=steps, stage=stage, codes=codes))
    command = ["train", "codec", "--config", str(config), "--data", str(manifest), "--threads", "1", *options]
    return CliRunner().invoke(app, [*command, "--output", str(manifest.parent / output)])


@pytest.mark.slow
def test_a_run_is_resumed_and_exported(manifest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exports = []  # writing graphs is slow and has other tests
    monkeypatch.setattr(export, "export_codec", lambda *exported: exports.append(exported))
    assert "starting from step 0" in train_codec(manifest, "run").stderr
    folder = manifest.parent / "exported"
    result = train_codec(manifest, "run", "--export", str(folder), "--name", "tiny", steps=3)
    assert result.exit_code == 0 and "resuming at step 2" in result.stderr
    [(model, name, written_to, *_)] = exports
    assert (name, written_to) == ("tiny", folder)
    record = read_part(folder)
    assert record == read_part(manifest.parent / "run")
    assert record.configuration["loop"]["steps"] == 3 and len(record.data) == 1 and not record.parent
    trained = load_file(manifest.parent / "run" / "step-00000003" / "codec.safetensors")
    assert torch.equal(model.state_dict()["decoder.head.weight"], trained["decoder.head.weight"])


@pytest.mark.slow
def test_the_next_stage_begins_with_the_weights_of_the_one_before(manifest: Path) -> None:
    train_codec(manifest, "full")
    full = str(manifest.parent / "full")
    assert train_codec(manifest, "decoder", "--init-from", full, stage="decoder").exit_code == 0
    saved = json.loads((manifest.parent / "decoder" / "config.json").read_text())
    assert saved["stage"] == "decoder" and saved["model"]["codebook_size"] == 24
    logs = [(manifest.parent / run / "log.jsonl").read_text().splitlines() for run in ("full", "decoder")]
    first, following = (json.loads(lines[0])["spectral"] for lines in logs)
    assert following < first  # both are trained on the same segments at their first step
    other_sizes = train_codec(manifest, "third", "--init-from", full, codes=32)
    assert other_sizes.exit_code == 2 and "other sizes" in other_sizes.stderr


def test_an_exported_codec_needs_a_name(manifest: Path) -> None:
    result = train_codec(manifest, "run", "--export", str(manifest.parent / "exported"))
    assert result.exit_code == 2 and "--name" in result.stderr


def test_data_that_does_not_exist_is_named(manifest: Path) -> None:
    result = train_codec(manifest.parent / "nope.jsonl", "run")
    assert result.exit_code == 2 and "nope.jsonl: no such file; --data takes the utterances.jsonl" in result.stderr
