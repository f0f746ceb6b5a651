"""Systems by name: names on the command line are checked before any work and then opened.

Upstream: `cli.evaluate`, `cli.report`, the listening test.  Downstream: `systems`, `synthesis.loading`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from marstts.bundle import BUNDLE_FILE, PACKAGED_MODELS, PUBLISHED, check_revision, packaged_models
from marstts.errors import DataError, MarsError
from marstts.generation.engine import EngineKind
from marstts.io.reading import printable_name
from marstts.synthesis import loading
from marstts.synthesis.speaking import Speaking
from marstts.synthesis.synthesizer import Synthesizer
from marstts_lab.data.corpora import tts_engines as engines
from marstts_lab.evaluation.summary import TOPLINES
from marstts_lab.evaluation.systems import (
    CODEC_RESYNTHESIS,
    ESPEAK_VOICE,
    GROUND_TRUTH,
    Clone,
    CodecResynthesis,
    EspeakNg,
    GroundTruth,
    Model,
    System,
    TakesFolder,
    Variant,
    ablate,
)
from marstts_lab.evaluation.testset import model_digest
from marstts_lab.metrics.trial import Trial

DEFAULT_BASELINES = (GROUND_TRUTH, CODEC_RESYNTHESIS, EspeakNg.name)
"""Systems that a model is compared with."""


@dataclass(frozen=True)
class SystemOptions:
    """Options for opening systems."""

    clones: Sequence[Clone]
    seed: int
    metrics_model: str | None
    """Model whose codec resynthesizes the ground truth, and whose encoders are metrics."""

    paper: bool = False
    """Whether models speak as the paper says, without what is added at synthesis."""


def default_baselines(baselines: Sequence[str], trials: Sequence[Trial]) -> list[str]:
    """The baselines that can be used on these trials: without ground truth there are no upper bounds."""
    has_truth = any(trial.ground_truth is not None for trial in trials)
    return [name for name in baselines if name and (has_truth or name not in TOPLINES)]


def choose_metrics_model(named: str | None, systems: Sequence[str]) -> str | None:
    """The model of the metrics: the named one, else the first model among the systems, else mini; None for "none"."""
    if named is not None:
        return None if named == "none" else named
    return next((model for name in systems if is_model(model := split_label(name)[1].partition("@")[0])), "mini")


def is_model(name: str) -> bool:
    """Whether a name is that of a packaged or published model, or the folder of a bundle."""
    try:
        return name in (*packaged_models(), *PUBLISHED) or (Path(name) / BUNDLE_FILE).is_file()
    except (OSError, ValueError):  # no file can have this name
        return False


def model_folder(name: str) -> Path | None:
    """The folder of a model's bundle; None if there is none. A published model is downloaded where it is missing."""
    if not is_model(name):
        return None
    if name in PUBLISHED:
        return loading.published_bundle(name, EngineKind.AUTO)
    return PACKAGED_MODELS / name if name in packaged_models() else Path(name)


def load_model(name: str) -> Synthesizer:
    """The synthesizer of a model by name or folder."""
    return loading.load(name)


def system_problems(names: Sequence[str], options: SystemOptions) -> list[str]:
    """Problems that prevent opening the named systems, in sentences; empty if nothing does."""
    return [problem for name in names if (problem := system_problem(name, options)) is not None]


def split_label(name: str) -> tuple[str, str]:
    """The label and the system of `LABEL=SYSTEM`; no label where nothing is labeled, as in a path with an = in it."""
    label, equals, system = name.partition("=")
    return (label, system) if equals and not any(mark in label for mark in "/\\.") else ("", name)


def system_problem(name: str, options: SystemOptions) -> str | None:
    """The problem that prevents opening one system; opens no model."""
    label, system = split_label(name)
    if label:
        is_labeled = bool(system) and (is_model(system.partition("@")[0]) or Path(system).is_dir())
        expected = "expected NAME=SYSTEM with a model or a folder of takes as the system"
        return system_problem(system, options) if is_labeled else f"{printable_name(name)}: {expected}"
    if name == GROUND_TRUTH:
        return None
    if name == CODEC_RESYNTHESIS:
        return (
            f"the system {name!r} needs a model for its codec; name one with --metrics-model"
            if options.metrics_model is None
            else None
        )
    if name == EspeakNg.name:
        try:
            engines.check_installed((ESPEAK_VOICE,))
        except MarsError as error:
            return str(error)
        return None
    model, _, variant = name.partition("@")
    if is_model(model):
        known = [one.value for one in Variant]
        return f"{name}: expected a variant of {', '.join(known)}" if variant and variant not in known else None
    if Path(name).is_dir():
        return None
    models = ", ".join((*packaged_models(), *PUBLISHED))
    others = ", ".join(DEFAULT_BASELINES)
    return (
        f"{printable_name(name)}: there is no such system; expected a model ({models}, or the folder of a bundle), "
        f"{others}, or a folder of <trial id>.wav"
    )


def find_systems(name: str, options: SystemOptions) -> list[System]:
    """The systems of a name: both clones of a model, else one. Raises DataError where it cannot be opened."""
    problem = system_problem(name, options)
    if problem is not None:
        raise DataError(problem)
    label, name = split_label(name)
    if name == GROUND_TRUTH:
        return [GroundTruth()]
    if name == CODEC_RESYNTHESIS:
        assert options.metrics_model is not None
        opened = load_model(options.metrics_model)
        return [CodecResynthesis(opened.session.codec, opened.session.label)]
    if name == EspeakNg.name:
        return [EspeakNg()]
    model, _, variant = name.partition("@")
    folder = model_folder(model)
    if folder is None:
        return [TakesFolder(Path(name), label)]
    check_revision(folder)
    return find_clones(load_model(model), label or row_name(Path(model)), model_digest(folder), variant, options)


def row_name(model: Path) -> str:
    """The name of a model's folder in tables, which `.` and `..` do not have."""
    return model.resolve().name if model.name in ("", "..") else model.name


def find_clones(
    synthesizer: Synthesizer, name: str, version: str, variant: str, options: SystemOptions
) -> list[System]:
    """The clones of a model, or of an ablation of it."""
    if options.paper:
        synthesizer, version = replace(synthesizer, usual=Speaking(paper=True)), f"{version} as in the paper"
    if variant:
        synthesizer = ablate(synthesizer, Variant(variant))
        name, version = f"{name}@{variant}", f"{version} {variant}"
    return [Model(synthesizer, name, version, clone=kind, seed=options.seed) for kind in options.clones]
