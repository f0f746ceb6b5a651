"""The recipes that give takes the F0 of a voice: its median in timbre embeddings, and the pitch predictor alone."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import soundfile
import torch

from marstts.codec.mini import MiniCodecConfig
from marstts.codec.mini_model import MiniCodecModel
from marstts.errors import DataError
from marstts.generation.request import StopReason
from marstts.speaker.mini import MiniEncoderConfig
from marstts.speaker.mini_model import MiniEncoderModel
from marstts_lab.data.manifest import Utterance, write_manifest
from marstts_lab.data.mined_takes import GeneratedHalf, MinedTake, PlannedTake, shard_path, write_takes
from marstts_lab.training.codec.export import export_codec, load_codec
from marstts_lab.training.codec.losses import SpeakerEmbedding, read_f0

pytestmark = pytest.mark.slow

RECIPES = Path(__file__).resolve().parents[3] / "recipes" / "mini"
MODEL = MiniCodecConfig(
    fft_size=128, hop=32, num_mels=12, codebook_size=24, codebook_width=3, latent_width=10, encoder_width=14,
    encoder_blocks=(1, 1), decoder_width=18, decoder_blocks=(1, 1), pitch_width=8, pitch_dilations=(1, 2),
    timbre_width=6, timbre_encoder_width=8, timbre_encoder_blocks=1, timbre_mels=10, timbre_speaker_size=9,
)  # fmt: skip
HERTZ = {"ann": 100.0, "bob": 200.0}
NO_CODES = tuple(np.zeros(0, np.int64) for _ in range(3))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A codec with its speaker encoder, recordings of two people, and takes in the voice of the first."""
    folder = tmp_path_factory.mktemp("pitch")
    torch.manual_seed(0)
    encoder = MiniEncoderModel(MiniEncoderConfig(size=9, width=12, blocks=2, num_mels=20))
    export_codec(MiniCodecModel(MODEL), "toy", folder / "codec", encoder)
    rows, rng = [], np.random.default_rng(0)
    for number in range(8):
        speaker = ("ann", "bob")[number % 2]
        wave = 0.1 * np.sign(np.sin(2 * np.pi * HERTZ[speaker] * np.arange(24_000) / 24_000))
        soundfile.write(folder / f"{number}.wav", wave + 0.01 * rng.standard_normal(24_000), 24_000)
        rows.append(Utterance(id=str(number), audio=f"{number}.wav", text="la", speaker=speaker, style="regular",
                              seconds=1.0, source_rate=24_000, split="train", license="own"))  # fmt: skip
    write_manifest(rows, folder / "utterances.jsonl")
    contours = [{"id": row.id, "f0": [HERTZ[row.speaker]] * 90} for row in rows]
    (folder / "f0.jsonl").write_text("".join(json.dumps(contour) + "\n" for contour in contours))
    return folder


def mined(folder: Path, speaker: str) -> Path:
    """Twelve takes in the voice of a recording."""
    rng, takes = np.random.default_rng(1), []
    for number in range(12):
        plan = PlannedTake(id=str(number), reference="0", audio=folder / "0.wav", transcript="la", speaker=speaker,
                           style="regular", text="lo", seed=0)  # fmt: skip
        codes = tuple(rng.integers(0, 24, size=14 * size) for size in (1, 2, 4))
        half = GeneratedHalf({"identity": np.ones(5, np.float32)}, NO_CODES, codes, StopReason.EOS)
        takes.append(MinedTake(plan, 0.9, NO_CODES, half, None, None))
    (folder / speaker).mkdir()
    write_takes(takes, shard_path(folder / speaker, 0), (1, 2, 4), {"identity": 5})
    return folder / speaker


def opened(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A script, with a rate that a toy learns by."""
    spec = importlib.util.spec_from_file_location(f"{name}_recipe", RECIPES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "LEARNING_RATE", 2e-2)
    return module


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return opened("pitch", monkeypatch)


def test_f0_by_swift_f0_is_on_the_grid_of_other_contours_and_of_few_recordings_of_a_speaker(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Tracker:
        """A frame every 16 ms: its number in hertz from 100 on; every fifth one is unsure."""

        def __init__(self, threads: int) -> None: ...

        def detect(self, samples: np.ndarray, sample_rate: int) -> SimpleNamespace:
            frames = np.arange(len(samples) // 256)
            return SimpleNamespace(
                pitch_hz=100.0 + frames,
                confidence=np.where(frames % 5, 0.9, 0.2),
                timestamps=frames * 256 / sample_rate,
            )

    monkeypatch.setitem(sys.modules, "swift_f0", SimpleNamespace(SwiftF0=Tracker))
    spec = importlib.util.spec_from_file_location("swift_recipe", RECIPES / "f0_by_swift.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(
        sys, "argv", ["f0_by_swift.py", str(folder / "utterances.jsonl"), str(tmp_path / "f0.jsonl"), "--most", "3"]
    )
    module.main()
    contours = read_f0(tmp_path / "f0.jsonl")
    assert len(contours) == 6 and all(len(contour) == 100 for contour in contours.values())
    for value, hertz in enumerate(next(iter(contours.values()))):
        near = [frame for frame in range(62) if abs(frame * 0.016 - value * 0.01) < 0.0081] or [61]
        assert hertz in [100 + frame if frame % 5 else 0 for frame in near], value


def medians(codec: Path, folder: Path) -> dict[str, float]:
    """Median F0 in hertz of the same codes in the voices of both people."""
    model = load_codec(codec).eval()
    encoder = SpeakerEmbedding(str(codec / "speaker"), 24_000)
    codes = [torch.from_numpy(np.random.default_rng(2).integers(0, 24, size=(1, 14 * n))) for n in (1, 2, 4)]
    found = {}
    for speaker, number in (("ann", 4), ("bob", 5)):
        samples = torch.from_numpy(soundfile.read(folder / f"{number}.wav", dtype="float32")[0])[None]
        with torch.no_grad():
            timbre = model.timbre_of(samples, encoder.embed(samples))
            found[speaker] = float(model.predict_pitch(codes, timbre).median())
    return found


def test_f0_of_takes_gets_the_median_of_the_recording_in_whose_voice_they_are_decoded(
    folder: Path, recipe: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    codec = folder / "codec"
    options = ["--takes", str(mined(folder, "ann")), "--recordings", str(folder / "utterances.jsonl"), "--steps", "120"]
    monkeypatch.setattr(sys, "argv", ["pitch.py", str(codec), str(codec / "speaker"), str(tmp_path / "out"), *options])
    recipe.main()
    before, after = medians(codec, folder), medians(tmp_path / "out", folder)
    assert before["bob"] < 1.3 * before["ann"]
    assert after["ann"] == pytest.approx(100, rel=0.15) and after["bob"] == pytest.approx(200, rel=0.15)
    old, new = (load_codec(one).state_dict() for one in (codec, tmp_path / "out"))
    assert {name for name in old if not torch.equal(old[name], new[name])} <= {
        name for name in old if name.startswith("decoder.pitch.")
    }
    assert set(json.loads((tmp_path / "out" / "part_provenance.json").read_text())["data"]) == {"takes", "recordings"}


def test_takes_of_people_who_are_judged_train_no_pitch_predictor(
    folder: Path, recipe: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    codec, takes = folder / "codec", mined(folder, "vctk-p225")
    monkeypatch.setattr(
        sys, "argv", ["pitch.py", str(codec), str(codec / "speaker"), str(tmp_path / "out"), "--takes", str(takes)]
    )
    with pytest.raises(DataError, match="vctk-p225"):
        recipe.main()


def test_timbre_embeddings_get_the_median_f0_in_a_direction_that_the_decoder_does_not_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, codec, out = opened("median_f0", monkeypatch), folder / "codec", tmp_path / "out"
    arguments = ["median_f0.py", str(codec), str(codec / "speaker"), str(out)]
    arguments += ["--recordings", str(folder / "utterances.jsonl"), "--steps", "101"]
    monkeypatch.setattr(sys, "argv", arguments)
    recipe.main()
    losses = re.findall(r"loss ([\d.]+)", capsys.readouterr().out)
    assert float(losses[-1]) < 0.7 * float(losses[0])
    before, after = load_codec(codec).eval(), load_codec(out).eval()
    rng = np.random.default_rng(3)
    codes = [torch.from_numpy(rng.integers(0, 24, size=(1, 8 * n))) for n in (1, 2, 4)]
    samples = torch.from_numpy(soundfile.read(folder / "4.wav", dtype="float32")[0])[None]
    speaker = SpeakerEmbedding(str(codec / "speaker"), 24_000).embed(samples)

    def decoded(model: MiniCodecModel, timbre: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(0)
        return model.decode(codes, timbre, torch.full((1, 64), 120.0))

    with torch.no_grad():
        timbre = after.timbre_of(samples, speaker)
        assert after.timbre_f0 is not None
        octave_higher = timbre + 2 * after.timbre_f0.direction
        torch.testing.assert_close(decoded(after, octave_higher), decoded(after, timbre))
        torch.testing.assert_close(
            decoded(after, timbre), decoded(before, before.timbre_of(samples, speaker)), atol=2e-2, rtol=0.1
        )
    names = [json.loads((one / "config.json").read_text())["timbre_encoder"] for one in (codec, out)]
    assert names[0] != names[1]
    monkeypatch.setattr(sys, "argv", [arguments[0], str(out), *arguments[2:]])
    with pytest.raises(DataError, match="expected a codec with timbre embeddings that hold no median F0"):
        recipe.main()
