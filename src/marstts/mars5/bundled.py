"""The MARS5 of a bundle: its folder, read and written.

Upstream: `models`, which calls these functions for bundles of architecture "mars5".  Downstream: `checkpoint`.
The folder is `checkpoint`'s; the bundle's tokenizer is its text tokenizer.
A bundle needs no speaker encoders: the models contain theirs, which `model_encoders` opens over the bundle's codec.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from marstts.bundle import check_facts
from marstts.codec.base import Codec, CodecSpec
from marstts.errors import CheckpointError, ConfigError
from marstts.generation.engine import EngineKind
from marstts.generation.request import SamplingConfig
from marstts.io.config import Config, parse_config, read_config
from marstts.io.precision import WeightFormat
from marstts.mars5.checkpoint import Models, load_models, write_models
from marstts.mars5.config import Mars5Config
from marstts.mars5.engine import TokenEngine
from marstts.mars5.pipeline import Pipeline
from marstts.mars5.profiles import PROFILES
from marstts.mars5.repaint import DiffusionConfig
from marstts.mars5.sampling import TokenSampling
from marstts.mars5.speech import ROLE, TOKENS_PER_SECOND, Mars5SpeakerEncoder, Mars5Speech
from marstts.mars5.text import AR_FILE, CONFIG_FILE
from marstts.speaker.base import SpeakerEncoder
from marstts.text.tokenizers.bpe import BPE
from marstts.weights.pretrained import fingerprint, short_name

NO_GRAPHS = "a MARS5 has no graphs, since PyTorch runs it"


class Mars5Settings(Config):
    """Settings of a bundle that only MARS5 has."""

    sampling: TokenSampling = TokenSampling()
    """Sampling of speech tokens; top-p is in the bundle's sampling settings."""

    diffusion: DiffusionConfig = DiffusionConfig()
    """Sampling of the codes of all levels."""

    profile: Literal["corrected", "released"] = "corrected"
    """The profile, see `profiles`."""

    tokens_per_second: float = Field(TOKENS_PER_SECOND, gt=0)
    """Speech tokens in a second, on average: limits on lengths count tokens."""


def parse_settings(values: Mapping[str, Any], source: str) -> Mars5Settings:
    """Validate the settings of a bundle."""
    return parse_config(Mars5Settings, dict(values), source)


def read_sizes(folder: Path) -> Mars5Config:
    """The sizes of both models in a model's folder."""
    return read_config(Mars5Config, folder / CONFIG_FILE)


def has_graphs(folder: Path) -> bool:
    """False: PyTorch runs the model."""
    return False


def open_engine(folder: Path, kind: EngineKind) -> TokenEngine:
    """The engine of a model's folder; `kind` is not AUTO.  Raises CheckpointError for ONNX."""
    if kind is EngineKind.ONNX:
        raise CheckpointError(f"{folder}: engine 'onnx' was asked for, but {NO_GRAPHS}; use 'auto', 'torch' or 'cuda'")
    name = short_name("mars5", fingerprint(folder / AR_FILE))
    models = load_models(folder)
    if kind is EngineKind.CUDA:
        models.ar.to("cuda")
        models.nar.to("cuda")
    return TokenEngine(models, name)


def torch_engine(module: Models) -> TokenEngine:
    """The engine of models that are in memory already."""
    return TokenEngine(module, "mars5-in-memory")


def speech_model(engine: TokenEngine, bundle: Path, settings: Mars5Settings, sampling: SamplingConfig) -> Mars5Speech:
    """The speech model around an engine."""
    profile = PROFILES[settings.profile]
    return Mars5Speech(
        pipeline=Pipeline(engine.models, settings.diffusion, profile),
        engine=TokenEngine(engine.models, engine.name, settings.sampling, profile.legal_text_ids),
        sampling=sampling,
        patch_rate=settings.tokens_per_second,
    )


def model_encoders(model: Mars5Speech, codec: Codec) -> dict[str, SpeakerEncoder]:
    """The speaker encoder that the models bring, over the bundle's codec."""
    return {ROLE: Mars5SpeakerEncoder(model.pipeline, codec, f"{model.engine.name}-{codec.spec.name}")}


def check_fit(
    source: str, config: Mars5Config, tokenizer: BPE, codec: CodecSpec, encoders: Mapping[str, SpeakerEncoder]
) -> None:
    """Raise CheckpointError that lists everything in which the models and their codec and tokenizer differ."""
    facts: dict[str, tuple[object, object, str]] = {
        "text_vocab_size": (config.ar.text_vocab_size, tokenizer.vocab_size, "tokenizer"),
        "codebook_size": (config.ar.codebook_size, codec.codebook_size, f"codec {codec.name}"),
        "codes per frame": ((1,) * config.ar.levels, codec.patch_layout, f"codec {codec.name}"),
    }
    check_facts(source, facts)


def load_model(folder: Path) -> Models:
    """Both models of a folder, in float32 and evaluation mode."""
    return load_models(folder)


def write_model(model: Models, folder: Path, weights: WeightFormat = WeightFormat.FLOAT16) -> None:
    """Write a model's folder.  Its parameters are rounded to half precision in place, unless float32 is asked for."""
    refuse_int8(weights)
    if weights is WeightFormat.FLOAT16:
        for module in (model.ar, model.nar):
            for parameter in module.parameters():
                parameter.data = parameter.data.half().to(parameter.dtype)
    write_models(model, folder)


def rewrite_model(source: Path, folder: Path, weights: WeightFormat | None, tokenizer: Path) -> None:
    """Raise ConfigError: there is nothing to rewrite."""
    refuse_int8(weights)
    raise ConfigError(f"{source}: {NO_GRAPHS}; nothing is to be upgraded")


def refuse_int8(weights: WeightFormat | None) -> None:
    """Raise ConfigError for int8, which is no faster here."""
    if weights is WeightFormat.INT8:
        raise ConfigError("int8: a MARS5 is no faster with it; keep float16 or float32")
