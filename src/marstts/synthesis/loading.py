"""From the name of a model to a synthesizer: `marstts.load`.

Upstream: `checkpoint`'s bundles, one of which, "mini", is inside the package; `conversion`.  Downstream: `synthesizer`.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from pathlib import Path
from typing import Any

from marstts.checkpoint import GRAPH_FILES, MODEL_FOLDER, Bundle, find_bundle, load_bundle, load_mars6, read_info
from marstts.engine.guided import guided
from marstts.engine.onnx import OnnxEngine
from marstts.errors import ConfigError, MissingExtraError, require
from marstts.mars6.generate import Stepper
from marstts.synthesis.conversion import TURBO, turbo_bundle
from marstts.synthesis.synthesizer import Synthesizer


class Engine(str, Enum):
    """What runs the model."""

    AUTO = "auto"
    """A GPU where there is one and the codec or a speaker encoder needs PyTorch anyway, as those of "mars6-turbo" do;
    else ONNX Runtime where the bundle has graphs for it, else PyTorch."""

    ONNX = "onnx"
    TORCH = "torch"
    """PyTorch on the CPU."""

    CUDA = "cuda"
    """PyTorch on a GPU, the model in half precision; codec and speaker encoders too."""


def load(model: Path | str = "mini", engine: Engine | str = Engine.AUTO, guidance: float | None = None) -> Synthesizer:
    """A synthesizer from the name of a packaged model, from the folder of any bundle, or of "mars6-turbo".

    The last is the authors' model, which is downloaded and converted the first time it is asked for. `guidance`, 1 or
    more, is how strongly speech keeps to its words (`engine.guided`), by default as the bundle says: 1, not at all, for
    models that never learnt what speech is like without words.

    Raises CheckpointError where there is no such model or its folder is damaged, ConfigError for an unknown engine or
    a guidance below 1.
    """
    if guidance is not None and guidance < 1:
        raise ConfigError(f"the guidance must be 1 (none) or more, but is {guidance:g}")
    engine = parse_engine(engine)
    folder = turbo_folder(engine) if model == TURBO else find_bundle(model)
    engine = choose_engine(engine, folder)
    bundle, stepper = open_both(folder, engine)
    return Synthesizer(
        name=bundle.name,
        tokenizer=bundle.tokenizer,
        codec=bundle.codec,
        identity_encoder=bundle.identity_encoder,
        style_encoder=bundle.style_encoder,
        stepper=guided(stepper, bundle.tokenizer, bundle.guidance if guidance is None else guidance),
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


def turbo_folder(engine: Engine) -> Path:
    """The authors' model as this engine wants it: with graphs, unless PyTorch runs it."""
    in_torch = engine in (Engine.TORCH, Engine.CUDA) or (engine is Engine.AUTO and has_gpu())
    return turbo_bundle(onnx=not in_torch)


def choose_engine(engine: Engine, folder: Path) -> Engine:
    """What runs the bundle in `folder`, if it is left to us; raises ConfigError where a GPU is asked for in vain."""
    if engine is Engine.CUDA and not has_gpu():
        raise ConfigError("engine 'cuda' was asked for, but PyTorch finds no GPU here; use 'auto'")
    if engine is not Engine.AUTO:
        return engine
    if read_info(folder).needs_torch and has_gpu():
        return Engine.CUDA
    has_graphs = all((folder / MODEL_FOLDER / name).is_file() for name in GRAPH_FILES)
    return Engine.ONNX if has_graphs else Engine.TORCH


def has_gpu() -> bool:
    """Whether PyTorch is installed and finds a GPU."""
    try:
        return bool(require("torch", "torch").cuda.is_available())
    except MissingExtraError:
        return False


def open_both(folder: Path, engine: Engine) -> tuple[Bundle, Stepper[Any]]:
    """A bundle and its model, ready to run."""
    if engine is not Engine.ONNX:
        bundle = load_bundle(folder, device="cuda" if engine is Engine.CUDA else "cpu")
        return bundle, open_engine(folder, engine)
    with ThreadPoolExecutor(max_workers=1) as beside:  # graphs take a while to open, and there is a second core
        opening = beside.submit(open_engine, folder, engine)
        return load_bundle(folder), opening.result()


def open_engine(folder: Path, engine: Engine) -> Stepper[Any]:
    """The model of the bundle in `folder`, ready to run."""
    if engine is Engine.ONNX:
        return OnnxEngine(folder / MODEL_FOLDER)
    require("torch", "torch")
    from marstts.engine.static import StaticEngine, half_precision
    from marstts.engine.torch import TorchEngine

    model = load_mars6(folder)
    return StaticEngine(model.to("cuda", half_precision())) if engine is Engine.CUDA else TorchEngine(model)
