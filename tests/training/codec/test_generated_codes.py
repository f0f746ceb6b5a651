"""Generated codes in the training of the decoder: which takes are read, and what their loss trains."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from safetensors.torch import save_file

from marstts.codec.mini import MiniCodecConfig
from marstts.codec.mini_model import MiniCodecModel
from marstts.errors import ConfigError, DataError
from marstts.generation.request import StopReason
from marstts.io.config import write_config
from marstts.io.precision import Precision
from marstts.speaker.mini import CONFIG_FILE, WEIGHTS_FILE, MiniEncoderConfig
from marstts.speaker.mini_model import MiniEncoderModel
from marstts_lab.data.manifest import Utterance, write_manifest
from marstts_lab.data.mined_takes import GeneratedHalf, MinedTake, PlannedTake, shard_path, write_takes
from marstts_lab.training.codec.config import CodecTrainingConfig, Stage
from marstts_lab.training.codec.generated_codes import GeneratedCodes, GeneratedCodesConfig
from marstts_lab.training.codec.losses import SpeakerConsistencyConfig
from marstts_lab.training.codec.task import CodecTask
from marstts_lab.training.loop import LoopConfig

pytestmark = pytest.mark.slow

ENCODER = MiniEncoderConfig(size=9, width=12, blocks=2, num_mels=20)
MODEL = MiniCodecConfig(
    fft_size=128, hop=32, num_mels=12, codebook_size=24, codebook_width=3, latent_width=10, encoder_width=14,
    encoder_blocks=(1, 1), decoder_width=18, decoder_blocks=(1, 1), pitch_width=8, pitch_dilations=(1, 2),
    timbre_width=6, timbre_encoder_width=8, timbre_encoder_blocks=1, timbre_mels=10,
)  # fmt: skip
LAYOUT = (1, 2, 4)
SEGMENT = 12 * MODEL.hop_lengths[0]


def mined(folder: Path, lengths: dict[str, int], *, highest: int = 23) -> Path:
    """A folder with a take for each speaker, of so many patches; 0 = it could not be generated."""
    folder.mkdir()
    rng, takes = np.random.default_rng(len(folder.name)), []
    none = tuple(np.zeros(0, np.int64) for _ in LAYOUT)
    for speaker, patches in lengths.items():
        audio = folder / f"{speaker}.wav"
        soundfile.write(audio, 0.1 * rng.standard_normal(2 * SEGMENT), 24_000)
        plan = PlannedTake(id=speaker, reference="r", audio=audio, transcript="la", speaker=speaker, style="regular",
                           text="lo", seed=0)  # fmt: skip
        codes = tuple(rng.integers(0, highest + 1, size=patches * size) for size in LAYOUT)
        half = GeneratedHalf({"identity": np.ones(5, np.float32)}, none, codes, StopReason.EOS)
        takes.append(MinedTake(plan, 0.9, none, half if patches else None, None, None if patches else "no"))
    write_takes(takes, shard_path(folder, 0), LAYOUT, {"identity": 5})
    return folder


def generated(*folders: Path, batch_size: int = 4) -> GeneratedCodes:
    config = GeneratedCodesConfig(takes=tuple(map(str, folders)), batch_size=batch_size)
    return GeneratedCodes(config, MODEL, num_patches=12, seed=0)


@pytest.fixture
def config(tmp_path: Path) -> CodecTrainingConfig:
    """A decoder stage with generated codes; its corpus lies in the same folder."""
    rows = []
    for number, split in enumerate(("train", "train", "validation")):
        noise = np.random.default_rng(number).standard_normal(7_000)
        soundfile.write(tmp_path / f"{number}.wav", 0.1 * noise, 24_000)
        rows.append(Utterance(id=str(number), audio=f"{number}.wav", text="la", speaker="ann", style="regular",
                              seconds=0.29, source_rate=24_000, split=split, license="own"))  # fmt: skip
    write_manifest(rows, tmp_path / "utterances.jsonl")
    lines = [f'{{"id": "{number}", "f0": [0, 120, 130, 140, 150]}}' for number in range(3)]
    (tmp_path / "f0.jsonl").write_text("\n".join(lines) + "\n")
    encoder = tmp_path / "identity"
    encoder.mkdir()
    torch.manual_seed(0)
    save_file(MiniEncoderModel(ENCODER).state_dict(), encoder / WEIGHTS_FILE)
    write_config(ENCODER, encoder / CONFIG_FILE)
    return CodecTrainingConfig(
        model=MODEL, loop=LoopConfig(steps=2), stage=Stage.DECODER, batch_size=2, segment_patches=12, warmup_steps=0,
        precision=Precision.FP32, timbre_dropout=0.0,
        speaker_consistency=SpeakerConsistencyConfig(encoder=str(encoder), weight=1.0),
        generated_codes=GeneratedCodesConfig(takes=(str(mined(tmp_path / "mined", {"ann": 14, "bob": 20})),)),
    )  # fmt: skip


def test_segments_are_whole_patches_of_takes_with_two_segments_of_their_reference(tmp_path: Path) -> None:
    folder = mined(tmp_path / "mined", {"ann": 14, "short": 11, "failed": 0})
    data = generated(folder)
    (take,) = data.takes
    recording, _ = soundfile.read(folder / "ann.wav", dtype="float32")
    batch = data.train(0)
    assert batch.reference.shape == batch.target.shape == (4, SEGMENT)
    for row in range(4):
        starts = [
            first for first in range(3)
            if all(np.array_equal(batch.codes[level][row], take.codes[level][first * size : (first + 12) * size])
                   for level, size in enumerate(LAYOUT))
        ]  # fmt: skip
        assert len(starts) == 1
        for part in (batch.reference, batch.target):
            windows = np.lib.stride_tricks.sliding_window_view(recording, SEGMENT)
            assert (windows[:, :8] == part[row, :8].numpy()).all(axis=1).any()
        assert not torch.equal(batch.reference[row], batch.target[row])


def test_batches_depend_on_seed_and_step_alone_and_speakers_are_equally_frequent(tmp_path: Path) -> None:
    folders = [
        mined(tmp_path / "a", {"ann": 12}),
        mined(tmp_path / "bb", {"bob": 12}),
        mined(tmp_path / "ccc", {"bob": 12}),
    ]
    data, again = generated(*folders, batch_size=100), generated(*folders, batch_size=100)
    one, same, next_one = data.train(3), again.train(3), data.train(4)
    assert torch.equal(one.codes[2], same.codes[2]) and torch.equal(one.target, same.target)
    assert not torch.equal(one.codes[0], next_one.codes[0])
    ann = torch.from_numpy(data.takes[0].codes[2])
    assert 0.4 < float((torch.cat([one.codes[2], next_one.codes[2]]) == ann).all(dim=1).float().mean()) < 0.6


def test_without_usable_takes_the_error_says_what_is_needed(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="at least 12 patches"):
        generated(mined(tmp_path / "short", {"ann": 11}))
    with pytest.raises(DataError, match="24 codes; mine takes of a model with this codec"):
        generated(mined(tmp_path / "other", {"ann": 12}, highest=4000))
    folder = mined(tmp_path / "lost", {"ann": 12})
    (folder / "ann.wav").unlink()
    with pytest.raises(DataError, match="the reference of a take"):
        generated(folder).train(0)


def test_decoding_equals_the_forward_pass_for_its_codes() -> None:
    torch.manual_seed(0)
    model = MiniCodecModel(MODEL).eval()
    samples, timbre = 0.1 * torch.randn(2, SEGMENT), torch.randn(2, 6)
    torch.manual_seed(1)
    whole = model(samples, None, timbre)
    torch.manual_seed(1)
    torch.testing.assert_close(model.decode(whole.codes, timbre), whole.samples, atol=1e-3, rtol=0.0)


def test_generated_codes_train_decoder_and_timbre_encoder_and_leave_codes(
    config: CodecTrainingConfig, tmp_path: Path
) -> None:
    manifest = tmp_path / "utterances.jsonl"
    without = CodecTask(config.model_copy(update={"generated_codes": None}), manifest)
    task = CodecTask(config, manifest)
    for step in range(
        2
    ):  # the initial timbre embedding modulates nothing, so its encoder is trained by the second step
        assert "generated_consistency" not in without.train_step(step)
        assert 0 < float(task.train_step(step)["generated_consistency"]) < 2
    changed = {
        name.split(".")[0]
        for name, value in task.model.state_dict().items()
        if not torch.equal(value, without.model.state_dict()[name])
    }
    assert changed == {"decoder", "timbre_encoder"}


@pytest.mark.parametrize("change", [{"stage": Stage.FULL}, {"speaker_consistency": None}])
def test_generated_codes_need_a_decoder_stage_and_speaker_consistency(config, change, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="generated_codes needs"):
        CodecTask(config.model_copy(update=change), tmp_path / "utterances.jsonl")
