"""Configurations of trainings: every impossible value is refused in one sentence that names its key."""

from __future__ import annotations

import copy

import pytest

from marstts.errors import ConfigError
from marstts.io.config import Config, parse_config
from marstts_lab.training.codec.config import CodecTrainingConfig
from marstts_lab.training.mars6.config import PretrainConfig
from marstts_lab.training.mars6.orpo import OrpoConfig
from marstts_lab.training.speaker.config import SpeakerTrainingConfig

LOOP = {"steps": 1}
NEEDED: dict[type[Config], dict[str, object]] = {
    CodecTrainingConfig: {"loop": LOOP},
    SpeakerTrainingConfig: {"kind": "identity", "model": {"size": 4}, "loop": LOOP},
    PretrainConfig: {"model": {}, "loop": LOOP},
    OrpoConfig: {"loop": LOOP},
}
IMPOSSIBLE = [
    (CodecTrainingConfig, "batch_size", 0), (CodecTrainingConfig, "batch_size", 2**63),
    (CodecTrainingConfig, "learning_rate", -1e-3), (CodecTrainingConfig, "learning_rate", float("inf")),
    (CodecTrainingConfig, "stage", "whole"), (CodecTrainingConfig, "precision", "fp8"),
    (CodecTrainingConfig, "segment_patches", 10**9), (CodecTrainingConfig, "spectral_weight", float("nan")),
    (CodecTrainingConfig, "augmentation.rt60_seconds", [0.0, 0.5]),
    (CodecTrainingConfig, "augmentation.band_limit_hz", [9000.0, 3000.0]),
    (CodecTrainingConfig, "augmentation.noise_probability", 1.5),
    (CodecTrainingConfig, "adversarial.crop_samples", 0), (CodecTrainingConfig, "adversarial.fft_sizes", [1]),
    (CodecTrainingConfig, "f0.weight", 0), (CodecTrainingConfig, "feature_prediction.weight", 0),
    (SpeakerTrainingConfig, "vtlp_factors", []), (SpeakerTrainingConfig, "vtlp_factors", [0.0]),
    (SpeakerTrainingConfig, "crop_seconds", [4.0, 1.5]), (SpeakerTrainingConfig, "crop_seconds", [0.0, 1.0]),
    (SpeakerTrainingConfig, "margin", 4), (SpeakerTrainingConfig, "scale", 0),
    (SpeakerTrainingConfig, "augmentation.snr_db", [40.0, 15.0]), (SpeakerTrainingConfig, "kind", "voice"),
    (PretrainConfig, "loop.steps", 0), (PretrainConfig, "optimizer.betas", [0.9, 1.0]),
    (PretrainConfig, "optimizer.ema_decay", 1.0), (PretrainConfig, "optimizer.schedule", "sine"),
    (PretrainConfig, "attention_guidance.weight", -1), (PretrainConfig, "input_token_noise", 1.0),
    (PretrainConfig, "guidance_distillation_scale", 0.5), (PretrainConfig, "alignment", {"weight": 0.0}),
    (OrpoConfig, "orpo_lambda", -0.1), (OrpoConfig, "pairs_per_batch", 0),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "key", "value"), IMPOSSIBLE)
def test_an_impossible_value_is_refused_by_its_key(kind: type[Config], key: str, value: object) -> None:
    values = copy.deepcopy(NEEDED[kind])
    parse_config(kind, values, "config.toml")  # complete without the value
    *tables, name = key.split(".")
    table: dict[str, object] = values
    for one in tables:
        table = table.setdefault(one, {})  # type: ignore[assignment]
    table[name] = value
    with pytest.raises(ConfigError, match=rf"config\.toml: .*{key}") as caught:
        parse_config(kind, values, "config.toml")
    assert "\n" not in str(caught.value)
