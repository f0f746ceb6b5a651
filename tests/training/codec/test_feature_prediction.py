"""Training of a codec whose encoder reads a frozen recognizer's features: context, prediction of the features."""

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
from marstts_lab.training.codec.augmentation import AugmentationConfig
from marstts_lab.training.codec.config import CodecTrainingConfig, Stage
from marstts_lab.training.codec.losses import FeaturePrediction, FeaturePredictionConfig, weighted_errors
from marstts_lab.training.codec.recognizer_loss import RecognizerConfig, open_recognizer
from marstts_lab.training.codec.segments import Segments
from marstts_lab.training.codec.task import CodecTask
from marstts_lab.training.loop import LoopConfig
from small_whisper import LAYERS, WIDTH, as_file, small_whisper

MODEL = MiniCodecConfig(
    fft_size=128, hop=32, num_mels=12, codebook_size=24, codebook_width=3, latent_width=10, encoder_width=14,
    encoder_blocks=(1, 1), decoder_width=18, decoder_blocks=(1, 1), pitch_width=8, pitch_dilations=(1, 2),
    recognizer_layers=LAYERS, recognizer_width=WIDTH,
)  # fmt: skip
PATCH, PATCHES = MODEL.hop_lengths[0], 12
AS_IT_IS = AugmentationConfig(eq_std_db=0, noise_probability=0, band_limit_probability=0, reverb_probability=0)


@pytest.fixture(scope="module")
def whisper(tmp_path_factory: pytest.TempPathFactory) -> RecognizerConfig:
    folder = tmp_path_factory.mktemp("whisper")
    (folder / "model.bin").write_bytes(as_file(small_whisper()))
    return RecognizerConfig(folder=str(folder))


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings of 0.25 s; their samples are nowhere zero."""
    folder = tmp_path_factory.mktemp("corpus")
    utterances = [
        Utterance(id=str(number), audio=f"{number}.wav", text="la", speaker="a", style="regular", seconds=0.25,
                  source_rate=24000, split="validation" if number else "train", license="own")
        for number in range(3)
    ]  # fmt: skip
    for number in range(3):
        noise = np.sign(np.random.default_rng(number).standard_normal(6000))
        soundfile.write(folder / f"{number}.wav", 0.3 * noise, 24000)
    write_manifest(utterances, folder / "utterances.jsonl")
    lines = [json.dumps({"id": u.id, "f0": [0, 0, *range(120, 350, 10)]}) for u in utterances]
    (folder / "f0.jsonl").write_text("\n".join(lines) + "\n")
    return folder / "utterances.jsonl"


def settings(**changes: object) -> CodecTrainingConfig:
    values: dict[str, object] = {
        "model": MODEL, "batch_size": 3, "segment_patches": PATCHES, "learning_rate": 5e-3, "warmup_steps": 2,
        "precision": Precision.FP32, "augmentation": AS_IT_IS, "feature_prediction": FeaturePredictionConfig(),
    }  # fmt: skip
    return CodecTrainingConfig(loop=LoopConfig(steps=4, log_every=2, validate_every=4), **{**values, **changes})


@pytest.mark.slow
def test_the_codes_are_trained_and_the_recognizer_is_not(manifest: Path, whisper: RecognizerConfig) -> None:
    task = CodecTask(settings(recognizer=whisper), manifest)
    own = open_recognizer(Path(whisper.folder), 24000).state_dict()
    project = task.model.encoder.features[1].weight.clone()
    for step in range(4):
        scores = task.train_step(step)
    assert {"feature_error", "feature_error0", "feature_error1", "feature_error2"} <= scores.keys()
    assert {"feature_error", "feature_error2"} <= task.validate(4).keys()
    assert not torch.equal(task.model.encoder.features[1].weight, project)
    for name, weight in task.model.recognizer.state_dict().items():
        torch.testing.assert_close(weight, own[name], rtol=0, atol=0)


def test_segments_have_context_within_their_recording_and_silence_beyond(
    manifest: Path, whisper: RecognizerConfig
) -> None:
    segments = Segments(manifest, settings(recognizer=whisper))
    whole, _ = soundfile.read(manifest.parent / "0.wav", dtype="float32")
    source, context = segments.known[0], MODEL.context_patches * PATCH
    recording = np.pad(whole, context)
    for position in (0.0, 0.3, 1.0):
        segment = segments.segment(source, position, np.random.default_rng(0))
        first = int(position * (6000 - PATCHES * PATCH))
        np.testing.assert_array_equal(segment.samples, whole[first:][: PATCHES * PATCH])
        around = recording[first : first + PATCHES * PATCH + 2 * context]
        np.testing.assert_array_equal(segment.around, around)
        spoken = around.reshape(-1, MODEL.hop_lengths[-1])[:, MODEL.hop_lengths[-1] // 2] != 0
        np.testing.assert_array_equal(segment.inside, spoken)


def test_prediction_errors_are_zero_for_the_features_and_one_for_their_mean() -> None:
    torch.manual_seed(0)
    prediction = FeaturePrediction(10, 6, 2)
    features, inside = 3 + 5 * torch.randn(2, 9, 6), torch.ones(2, 9)
    inside[1, 4:] = 0
    for last in (head[-1] for head in prediction.heads):
        torch.nn.init.zeros_(last.weight)
        torch.nn.init.zeros_(last.bias)
    latents = torch.randn(2, 10, 9)
    with torch.no_grad():
        errors = prediction(latents, [latents, latents], features, inside)
    assert [float(error) for error in errors] == pytest.approx([1.0] * 3, abs=1e-5)
    outside = features + 100 * (1 - inside)[:, :, None]
    for ours, theirs in zip(prediction(latents, [latents, latents], outside, inside), errors, strict=True):
        torch.testing.assert_close(ours, theirs)
    assert float(weighted_errors([torch.tensor(2.0), torch.tensor(4.0), torch.tensor(0.0)])) == pytest.approx(5 / 3)


def test_options_that_need_a_recognizer_are_refused_without_one(manifest: Path, whisper: RecognizerConfig) -> None:
    with pytest.raises(ConfigError, match=r"model\.recognizer_layers needs \[recognizer\]"):
        CodecTask(settings(), manifest)
    plain = MODEL.model_copy(update={"recognizer_layers": 0})
    for changes in ({"model": plain}, {"stage": Stage.DECODER}):
        with pytest.raises(ConfigError, match="feature_prediction trains the codes of a codec with a recognizer"):
            CodecTask(settings(recognizer=whisper, **changes), manifest)
    deeper = MODEL.model_copy(update={"recognizer_layers": LAYERS + 1})
    with pytest.raises(ConfigError, match=f"has {LAYERS} layers of width {WIDTH}"):
        CodecTask(settings(recognizer=whisper, model=deeper), manifest)
