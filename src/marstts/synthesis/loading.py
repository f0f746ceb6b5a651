"""From the name of a model to a synthesizer: `marstts.load`.

Upstream: `checkpoint`'s bundles, one of which, "mini", is inside the package; `conversion`.  Downstream: `synthesizer`.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any

from marstts.checkpoint import GRAPH_FILES, Bundle, load_bundle, load_mars6
from marstts.engine.onnx import OnnxEngine
from marstts.errors import ConfigError, require
from marstts.mars6.generate import Stepper
from marstts.synthesis.conversion import TURBO, turbo_bundle
from marstts.synthesis.synthesizer import Synthesizer


class Engine(str, Enum):
    """What runs the model."""

    AUTO = "auto"
    """ONNX Runtime where the bundle has graphs for it, else PyTorch."""

    ONNX = "onnx"
    TORCH = "torch"


def load(model: Path | str = "mini", engine: Engine | str = Engine.AUTO) -> Synthesizer:
    """A synthesizer from the name of a packaged model, from the folder of any bundle, or of "mars6-turbo".

    The last is the authors' model, which is downloaded and converted the first time it is asked for.

    Raises CheckpointError where there is no such model or its folder is damaged, ConfigError for an unknown engine.
    """
    engine = parse_engine(engine)
    bundle = load_bundle(turbo_bundle() if model == TURBO else model)
    return Synthesizer(
        name=bundle.name,
        tokenizer=bundle.tokenizer,
        codec=bundle.codec,
        identity_encoder=bundle.identity_encoder,
        style_encoder=bundle.style_encoder,
        stepper=open_engine(bundle, engine),
        quality=bundle.quality,
        sampling=bundle.sampling,
    )


def parse_engine(name: Engine | str) -> Engine:
    """The engine of this name."""
    try:
        return Engine(name)
    except ValueError as error:
        known = ", ".join(engine.value for engine in Engine)
        raise ConfigError(f"engine {name!r} was asked for; expected one of {known}") from error


def open_engine(bundle: Bundle, engine: Engine) -> Stepper[Any]:
    """The model of a bundle, ready to run."""
    has_graphs = all((bundle.model_folder / name).is_file() for name in GRAPH_FILES)
    if engine is Engine.ONNX or (engine is Engine.AUTO and has_graphs):
        return OnnxEngine(bundle.model_folder)
    require("torch", "torch")
    from marstts.engine.torch import TorchEngine

    return TorchEngine(load_mars6(bundle.folder))
