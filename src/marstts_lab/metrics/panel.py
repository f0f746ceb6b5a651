"""Metrics of a test set, opened by name, and all their scores of one take.

Upstream: `testset`, `take_metrics`.  Downstream: `evaluation.score`, which passes in takes.

Two sets of metrics have names. *default* has Whisper base in CTranslate2's format and DistillMOS. *paper* has the
metrics of MARS6 (arXiv:2501.05787), Sec. V (Whisper-base, an x-vector system, UTMOS), and Resemblyzer. The paper does
not name its x-vector system; this one is not what a model is conditioned on, as WavLM-SV is. Any other choice is a list
of sets and metrics, each metric with its weights after "=", and the last of equal ones counts:
"default,faster-whisper=FOLDER" or "faster-whisper=small,resemblyzer,dnsmos". Scores of different metrics are
not comparable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from marstts import audio
from marstts.audio import Waveform
from marstts.errors import ConfigError
from marstts.io.config import Config
from marstts.speaker.base import SpeakerEncoder
from marstts_lab.metrics import recognition
from marstts_lab.metrics.hub import fetch_model, package_version
from marstts_lab.metrics.identity import Resemblyzer
from marstts_lab.metrics.length import check_length, expected_seconds
from marstts_lab.metrics.quality import QUALITY_METRICS, UTMOS_FILE, UTMOS_MODEL, QualityMetric
from marstts_lab.metrics.recognition import (
    FASTER_WHISPER_FILES,
    FASTER_WHISPER_SIZE,
    RECOGNIZERS,
    Recognizer,
    faster_whisper_model,
)
from marstts_lab.metrics.scores import TakeScore
from marstts_lab.metrics.take_metrics import SpeakerMetric, score_quality, score_words
from marstts_lab.metrics.trial import Trial
from marstts_lab.metrics.words import plain_words

SETS = {
    "default": "faster-whisper,resemblyzer,identity,distillmos",
    "paper": "faster-whisper,xvector,resemblyzer,utmos",
}
"""Metrics by the name of their set."""

SPEAKER_ENCODERS = ("xvector", "resemblyzer", "wavlm", "identity")
"""Speaker encoders; *identity* is the one of the metrics model."""

IDENTITY = "identity"
KNOWN = (*RECOGNIZERS, *SPEAKER_ENCODERS, *QUALITY_METRICS)
WITH_WEIGHTS = (*recognition.WITH_WEIGHTS, "wavlm", "xvector")
"""Metrics whose weights may be chosen, by a folder or a name after "="."""

WAVLM_FILES = (
    ("model.safetensors", "pytorch_model.bin"),
    ("config.json",),
    ("preprocessor_config.json",),
)


class MetricsConfig(Config):
    """The chosen metrics; picklable, so that every process can open them."""

    names: dict[str, str | None]
    """Source of the weights by the name of the metric; None for its default."""

    model: str | None
    """Metrics model: its identity encoder is the metric of this name."""


def parse_metrics(names: str, model: str | None) -> MetricsConfig:
    """The metrics of a set's name or of a list with commas; ConfigError that lists all that is wrong with them."""
    listed = [one for item in names.split(",") for one in SETS.get(item.strip(), item).split(",")]
    items = [item.strip().partition("=") for item in listed]
    if complaints := [complaint for item in items if (complaint := complaint_about(*item))]:
        allowed = f"{', '.join((*SETS, *KNOWN))}, separated by commas"
        raise ConfigError(f"--metrics: {', and '.join(complaints)}; expected {allowed}")
    chosen = {name: source or None for name, _, source in items}
    if len(chosen.keys() & RECOGNIZERS.keys()) > 1:
        raise ConfigError(f"{names}: expected at most one recognizer of {', '.join(RECOGNIZERS)}")
    if model is None:
        chosen = {name: source for name, source in chosen.items() if name != IDENTITY}
    return MetricsConfig(names=chosen, model=model)


def complaint_about(name: str, equals: str, source: str) -> str:
    """The fault of one item of a list of metrics; empty where there is none."""
    if name not in KNOWN:
        return f"there is no metric {name!r}"
    if equals and name not in WITH_WEIGHTS:
        return f"the weights of {name!r} cannot be chosen, only those of {', '.join(WITH_WEIGHTS)}"
    return f"there are no weights after {name + equals!r}" if equals and not source else ""


class Metrics:
    """All metrics of one test set. Each take is scored by itself, independent of the takes before it."""

    def __init__(
        self,
        trials: Sequence[Trial],
        *,
        recognizer: Recognizer | None = None,
        encoders: Mapping[str, SpeakerEncoder] | None = None,
        quality: Sequence[QualityMetric] = (),
    ) -> None:
        self._recognizer = recognizer
        self._voices = {name: SpeakerMetric(encoder, trials) for name, encoder in (encoders or {}).items()}
        self._quality = quality
        truths = {trial.ground_truth for trial in trials if trial.ground_truth is not None}
        self._truth_seconds = {path: audio.read(path).seconds for path in truths}
        self.versions = {
            **({} if recognizer is None else {"recognizer": recognizer.name, "jiwer": package_version("jiwer")}),
            **{f"voice, {name}": encoder.name for name, encoder in (encoders or {}).items()},
            **{f"quality, {metric.scales[0].partition('_')[0]}": metric.name for metric in quality},
        }
        """Names of all metrics with the versions of their packages."""

    def score(
        self,
        system: str,
        trial: Trial,
        take: Waveform | None,
        error: str | None = None,
        compute_seconds: float | None = None,
    ) -> TakeScore:
        """Score one take. None, with the `error`, stands for a missing one, which gets the worst of every score."""
        truth_seconds = None if trial.ground_truth is None else self._truth_seconds[trial.ground_truth]
        status = check_length(take, expected_seconds(trial.words) if truth_seconds is None else truth_seconds)
        speech = take if status.has_speech else None
        text = plain_words(trial.words)
        return TakeScore(
            system=system,
            trial=trial.id,
            speaker=trial.speaker,
            style=trial.style,
            length_status=status,
            error=error,
            seconds=0.0 if take is None else round(take.seconds, 3),
            ground_truth_seconds=None if truth_seconds is None else round(truth_seconds, 3),
            sample_rate=None if take is None else take.sample_rate,
            compute_seconds=None if compute_seconds is None else round(compute_seconds, 6),
            words=None if self._recognizer is None else score_words(self._recognizer, text, speech),
            voices={name: metric.score(trial, speech) for name, metric in self._voices.items()},
            quality={s: value for metric in self._quality for s, value in score_quality(metric, speech).items()},
        )


def open_metrics(config: MetricsConfig, trials: Sequence[Trial]) -> Metrics:
    """All metrics with their weights; MissingExtraError or CheckpointError where a package or weights are missing."""

    def source_of(name: str) -> dict[str, Any]:
        return {} if config.names[name] is None else {"source": config.names[name]}

    recognizer = next((opened(**source_of(name)) for name, opened in RECOGNIZERS.items() if name in config.names), None)
    return Metrics(
        trials,
        recognizer=recognizer,
        encoders={name: open_speaker_metric(name, config) for name in SPEAKER_ENCODERS if name in config.names},
        quality=[opened() for name, opened in QUALITY_METRICS.items() if name in config.names],
    )


def fetch_weights(config: MetricsConfig) -> None:
    """Download the weights of all metrics that are not on this machine; CheckpointError with the first that fails."""
    sources = config.names
    if "faster-whisper" in sources:
        fetch_model(faster_whisper_model(sources["faster-whisper"] or FASTER_WHISPER_SIZE), FASTER_WHISPER_FILES)
    for name in {"wavlm", "xvector"} & sources.keys():
        find_xvector(name, sources[name])
    if "utmos" in sources:
        fetch_model(UTMOS_MODEL, ((UTMOS_FILE,),))


def find_xvector(name: str, source: str | None) -> Path:
    """The file or folder with weights of `wavlm` or `xvector`, downloaded where they are not on this machine.

    `source` None: the published ones. Raises CheckpointError where that fails.
    """
    from marstts.speaker import wavlm  # needs PyTorch

    source = source or (wavlm.WavLmEncoder if name == "wavlm" else wavlm.XVectorEncoder).published
    return Path(source) if Path(source).exists() else fetch_model(source, WAVLM_FILES)


def open_speaker_metric(name: str, config: MetricsConfig) -> SpeakerEncoder:
    """The encoder of a speaker metric by its name."""
    if name in ("wavlm", "xvector"):
        from marstts.speaker import wavlm  # needs PyTorch, which the other metrics do not

        return (wavlm.WavLmEncoder if name == "wavlm" else wavlm.XVectorEncoder)(find_xvector(name, config.names[name]))
    if name == IDENTITY:
        from marstts.synthesis.loading import load  # opens a whole model, which the other metrics do without

        assert config.model is not None, "parse_metrics leaves out the model's encoder where there is no model"
        encoders = load(config.model).session.encoders
        if name not in encoders:
            raise ConfigError(f"{config.model}: has no {name} encoder, so the metric {name!r} cannot be computed")
        return encoders[name]
    if name != "resemblyzer":
        raise ConfigError(f"there is no speaker encoder {name!r}; expected one of {', '.join(SPEAKER_ENCODERS)}")
    return Resemblyzer()


# Packages that metrics need: checked all at once, before any work begins.

PACKAGES: Mapping[str, Mapping[str, str]] = {
    "sphinx": {"pocketsphinx": "eval", "jiwer": "eval"},
    "faster-whisper": {"faster_whisper": "eval", "jiwer": "eval"},
    "resemblyzer": {"resemblyzer": "eval"},
    "wavlm": {"torch": "released", "transformers": "released"},
    "xvector": {"torch": "released", "transformers": "released"},
    "dnsmos": {"speechmos": "eval", "librosa": "eval", "requests": "eval"},
    "utmos": {"utmos_pytorch": "eval-models", "torch": "eval-models"},
    "distillmos": {"distillmos": "eval", "xls_r_sqa": "eval", "torch": "eval"},
}
"""Packages and the extra that installs each, by the name of the metric. All reports need scipy, too."""

REPORT = {"scipy": "eval"}


def missing_packages(metrics: Iterable[str]) -> list[str]:
    """One sentence per extra whose packages are missing; empty if all metrics can be computed."""
    needed = dict(REPORT)
    for name in metrics:
        needed |= PACKAGES.get(name, {})
    missing: dict[str, list[str]] = {}
    for package, extra in sorted(needed.items()):
        if find_spec(package) is None:
            missing.setdefault(extra, []).append(package)
    return [
        f"the metrics need the Python packages {', '.join(packages)}: pip install 'marstts[{extra}]'"
        for extra, packages in sorted(missing.items())
    ]
