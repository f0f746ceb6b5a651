"""Ground-truth-aligned training of the codec: segments that are decoded from codes as MARS6 predicts them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from marstts.codec.base import CodecSpec
from marstts.codec.mini import MiniCodecConfig
from marstts.codec.mini_model import MiniCodecModel
from marstts.errors import DataError
from marstts.io.precision import Precision
from marstts_lab.data.manifest import Utterance, read_for_training, write_manifest
from marstts_lab.data.shards import ShardInfo, shard_path, write_shard
from marstts_lab.training.codec.config import CodecTrainingConfig
from marstts_lab.training.codec.predicted_codes import PredictedCodesConfig
from marstts_lab.training.codec.segments import Segments
from marstts_lab.training.codec.task import CodecTask
from marstts_lab.training.loop import LoopConfig

MODEL = MiniCodecConfig(
    fft_size=128, hop=32, num_mels=12, codebook_size=64, codebook_width=3, latent_width=10, encoder_width=14,
    encoder_blocks=(1, 1), decoder_width=18, decoder_blocks=(1, 1), pitch_width=8, pitch_dilations=(1, 2),
    timbre_width=6, timbre_encoder_width=14, timbre_encoder_blocks=1, timbre_mels=9,
)  # fmt: skip
HOP, COUNT = MODEL.hop_lengths[0], 6


def settings(shards: Path, ratio: float = 1.0) -> CodecTrainingConfig:
    return CodecTrainingConfig(
        model=MODEL, loop=LoopConfig(steps=2, log_every=1, validate_every=100), stage="decoder", batch_size=4,
        segment_patches=COUNT, precision=Precision.FP32,
        predicted_codes=PredictedCodesConfig(shards=(str(shards),), ratio=ratio),
    )  # fmt: skip


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings of two speakers of 20 patches and a half."""
    folder = tmp_path_factory.mktemp("people")
    utterances, lines = [], []
    for number in range(6):
        noise = 0.1 * np.random.default_rng(number).standard_normal(20 * HOP + HOP // 2)
        soundfile.write(folder / f"{number}.wav", noise, 24000)
        utterances.append(
            Utterance(id=f"u{number}", audio=f"{number}.wav", text="la", speaker=f"s{number % 2}", style="regular",
                      seconds=len(noise) / 24000, source_rate=24000, split="validation" if number > 3 else "train",
                      license="own")
        )  # fmt: skip
        lines.append(json.dumps({"id": f"u{number}", "f0": [120.0] * 60}))
    write_manifest(utterances, folder / "utterances.jsonl")
    (folder / "f0.jsonl").write_text("\n".join(lines) + "\n")
    return folder / "utterances.jsonl"


def shards(folder: Path, people: Path, spec: CodecSpec) -> Path:
    """Codes of every recording but u1: of patch p on level l 3 p + l; the last patch is padded, as a codec pads it."""
    chosen = tuple(one for one in read_for_training(people) if one.id != "u1")
    patches = np.arange(21)
    codes = tuple(np.repeat(3 * patches + level, n) for level, n in enumerate(spec.patch_layout))
    folder.mkdir()
    info = ShardInfo(codec=spec, encoders={}, fingerprint="-", utterances=chosen)
    write_shard(shard_path(folder, 0), info, [codes] * len(chosen), {})
    return folder


@pytest.fixture(scope="module")
def predicted(people: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = CodecSpec(name="mini", sample_rate=24000, codebook_size=64, hop_lengths=MODEL.hop_lengths)
    return shards(tmp_path_factory.mktemp("codes") / "shards", people, spec)


def test_predicted_codes_are_those_of_the_samples_they_replace(people: Path, predicted: Path) -> None:
    segments = Segments(people, settings(predicted))
    sources = {source.utterance.id: source for source in segments.known}
    for position in (0.0, 0.4, 1.0):
        found = segments.segment(sources["u0"], position, np.random.default_rng(0))
        assert found.predicted is not None
        first = int(found.predicted[0][0]) // 3
        assert [len(level) for level in found.predicted] == [COUNT, 2 * COUNT, 4 * COUNT]
        wave, _ = soundfile.read(people.parent / "0.wav", dtype="float32")
        np.testing.assert_array_equal(found.samples, wave[first * HOP : (first + COUNT) * HOP])
    assert segments.segment(sources["u1"], 0.5, np.random.default_rng(0)).predicted is None


def test_recordings_keep_their_own_codes_at_the_configured_ratio(people: Path, predicted: Path) -> None:
    segments = Segments(people, settings(predicted, ratio=0.5))
    rows = [batch.predicted for batch in map(segments.train, range(60))]
    share = sum(float(one.is_predicted.sum()) for one in rows if one is not None) / 240
    assert 0.25 < share < 0.5  # half of the segments of three recordings of four
    assert Segments(people, settings(predicted, ratio=0.0)).train(0).predicted is None


def test_segments_with_predicted_codes_are_as_loud_as_the_recording(people: Path, predicted: Path) -> None:
    segments = Segments(people, settings(predicted))
    batch = segments.train(0)
    assert batch.predicted is not None
    waves = np.concatenate([soundfile.read(people.parent / f"{n}.wav", dtype="float32")[0] for n in range(4)])
    for row in batch.samples[batch.predicted.is_predicted]:
        assert np.isin(row.numpy(), waves).all()


def test_rows_with_given_codes_are_decoded_from_them_and_others_from_their_own() -> None:
    torch.manual_seed(0)
    model = MiniCodecModel(MODEL).eval()
    samples, timbre, f0 = torch.randn(2, 3 * HOP), torch.randn(2, 6), torch.full((2, 3 * HOP // MODEL.hop), 110.0)
    codes = [torch.randint(64, (2, 3 * n)) for n in (1, 2, 4)]
    given = (codes, torch.tensor([True, False]))

    def octaves(**options: object) -> torch.Tensor:
        return model(samples, f0, timbre, **options).octaves

    both, own = octaves(given=given), octaves()
    torch.testing.assert_close(both[1], own[1])
    torch.testing.assert_close(both[0], model.decoder.pitch(model.quantizer.decode(codes), timbre)[0])
    assert not torch.allclose(both[0], own[0])


def test_a_step_trains_the_decoder_on_predicted_codes(people: Path, predicted: Path) -> None:
    task = CodecTask(settings(predicted), people)
    before = {name: value.clone() for name, value in task.model.state_dict().items()}
    scores = task.train_step(0)
    assert np.isfinite(float(scores["spectral"]))
    moved = {name.split(".")[0] for name, value in task.model.state_dict().items() if not value.equal(before[name])}
    assert moved == {"decoder"}


def test_codes_of_another_codec_are_refused(people: Path, tmp_path: Path) -> None:
    spec = CodecSpec(name="other", sample_rate=24000, codebook_size=96, hop_lengths=MODEL.hop_lengths)
    folder = shards(tmp_path / "shards", people, spec)
    with pytest.raises(DataError, match="predict codes of a model with this codec"):
        Segments(people, settings(folder))
