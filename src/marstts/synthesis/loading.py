"""`marstts.load`: open a synthesizer by the name of a model.

Upstream: bundles, one of which, "mini", is in the package; `models`.  Downstream: `synthesizer`.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from marstts import models
from marstts.bundle import PUBLISHED, Bundle, find_bundle, in_known_case, load_bundle, read_info
from marstts.errors import ConfigError, MissingExtraError, require
from marstts.generation.engine import Engine, EngineKind
from marstts.synthesis.model_session import ModelSession
from marstts.synthesis.speaking import Speaking
from marstts.synthesis.synthesizer import Synthesizer


def load(model: Path | str = "mini", engine: EngineKind | str = EngineKind.AUTO, *, paper: bool = False) -> Synthesizer:
    """Open a synthesizer by the name of a packaged model, the folder of a bundle, "hf://OWNER/NAME" for a bundle on the
    Hugging Face hub, "mars6-turbo" or "mars5-english".

    The last two are published models. They are downloaded and converted when they are first used. With `paper` the
    model speaks without what this project adds at synthesis (`Speaking.paper`).

    Raises CheckpointError if there is no such model or its folder is corrupt, and ConfigError for an unknown engine.
    """
    kind, model = parse_engine(engine), in_known_case(model)
    folder = published_bundle(model, kind) if model in PUBLISHED else find_bundle(model)
    synthesizer = open_synthesizer(folder, kind)
    return replace(synthesizer, usual=Speaking(paper=True)) if paper else synthesizer


def open_synthesizer(folder: Path, kind: EngineKind) -> Synthesizer:
    """Open the bundle in a folder."""
    bundle, opened = open_bundle_and_engine(folder, choose_engine(kind, folder))
    opened_model = models.open_model(bundle, opened)
    session = ModelSession(
        name=bundle.name,
        revision=bundle.info.revision,
        model=opened_model,
        codec=bundle.codec,
        encoders={**bundle.voice_encoders, **models.model_encoders(opened_model, bundle.codec)},
    )
    return Synthesizer(session)


def parse_engine(name: EngineKind | str) -> EngineKind:
    """The engine of this name in any case; ConfigError for an unknown one."""
    try:
        return EngineKind(name.lower())
    except ValueError as error:
        known = ", ".join(kind.value for kind in EngineKind)
        raise ConfigError(f"there is no engine {name!r}; expected one of {known}") from error


def published_bundle(model: Path | str, kind: EngineKind) -> Path:
    """The bundle of a published model for this engine: with graphs, unless PyTorch runs it."""
    in_torch = kind in (EngineKind.TORCH, EngineKind.CUDA) or (kind is EngineKind.AUTO and has_gpu())
    return models.published_bundle(str(model), onnx=not in_torch)


def choose_engine(kind: EngineKind, folder: Path) -> EngineKind:
    """The engine for the bundle in `folder`, where the choice is AUTO; ConfigError where there is no GPU for CUDA."""
    if kind is EngineKind.CUDA:
        require("torch", "torch")
    if kind is EngineKind.CUDA and not has_gpu():
        raise ConfigError("engine 'cuda' needs a GPU, but PyTorch finds no GPU; use 'auto'")
    if kind is not EngineKind.AUTO:
        return kind
    if read_info(folder).needs_torch and has_gpu():
        return EngineKind.CUDA
    return EngineKind.ONNX if models.has_graphs(folder) else EngineKind.TORCH


def has_gpu() -> bool:
    """Return True where PyTorch is installed and finds a GPU."""
    try:
        return bool(require("torch", "torch").cuda.is_available())
    except MissingExtraError:
        return False


def open_bundle_and_engine(folder: Path, kind: EngineKind) -> tuple[Bundle, Engine[Any]]:
    """Open a bundle and its engine."""
    if kind is not EngineKind.ONNX:
        bundle = load_bundle(folder, device="cuda" if kind is EngineKind.CUDA else "cpu")
        return bundle, models.open_engine(folder, kind)
    with ThreadPoolExecutor(max_workers=1) as pool:  # graphs take a while to open, and there is a second core
        opening = pool.submit(models.open_engine, folder, kind)
        return load_bundle(folder), opening.result()
