"""Predicted opinion scores: how would listeners rate the sound quality of a take, from 1 (bad) to 5 (excellent)?

Upstream: takes, as waveforms.  Downstream: `panel`, `preference`.

UTMOS (arXiv:2204.02152) is the paper's: MARS6 (arXiv:2501.05787), Sec. V. Its weights are downloaded on first use; the
package `utmos-pytorch` needs no fairseq and unpickles them with `weights_only`. DistillMOS (`distillmos`, MIT; the
default) and DNSMOS (`speechmos`, MIT) contain their weights. DNSMOS reacts to noise, quantization and vocoders but not
to prosody, and rates a robot with a clean voice high (P.808). None is valid on whispers except against other whispers.
"""

from __future__ import annotations

import contextlib
import io
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from marstts.audio import Waveform, resample
from marstts.errors import ConfigError, require
from marstts.onnx.session import open_session
from marstts_lab.metrics.hub import fetch_model, package_version

SAMPLE_RATE = 16000
"""Input rate of all predictors, in Hz."""

WORST = 1.0
"""Lowest value of every scale; the score of a take without speech."""

MIN_SECONDS = 0.1
"""Shorter takes are repeated to this length: predictors need one frame."""

UTMOS_MODEL, UTMOS_FILE = "Blinorot/UTMOS-PyTorch", "utmos_state_dict.pt"


class QualityMetric(Protocol):
    """A predictor of opinion scores."""

    @property
    def name(self) -> str:
        """Name with its version, for reports."""
        ...

    @property
    def scales(self) -> tuple[str, ...]:
        """Names of its scores; the first one is used for ranking takes."""
        ...

    def rate(self, waveform: Waveform) -> Mapping[str, float]:
        """A score between 1 and 5 on each of `scales`; resamples by itself."""
        ...


class Dnsmos:
    """DNSMOS: P.835 (overall, signal, background) and P.808 of one recording; 1–2 s of one core per take."""

    scales = ("dnsmos_ovrl", "dnsmos_sig", "dnsmos_bak", "dnsmos_p808")

    def __init__(self) -> None:
        package = require("speechmos.dnsmos", "eval")
        self.name = f"DNSMOS (speechmos {package_version('speechmos')})"
        folder = Path(require("speechmos", "eval").__path__[0]) / "dnsmos_models"
        self._model = package.DNSMOS(str(folder / "sig_bak_ovr.onnx"), str(folder / "model_v8.onnx"))
        self._model.onnx_sess = open_session(folder / "sig_bak_ovr.onnx")  # the package's sessions, but without
        self._model.p808_onnx_sess = open_session(folder / "model_v8.onnx")  # threads that wait by spinning

    def rate(self, waveform: Waveform) -> Mapping[str, float]:
        """The four scales; the package repeats takes shorter than 9 s to that length and averages windows of it."""
        found = self._model(as_input(waveform), SAMPLE_RATE, False)
        return {scale: float(found[f"{scale.removeprefix('dnsmos_')}_mos"]) for scale in self.scales}


class Utmos:
    """UTMOS strong learner: the paper's predictor of naturalness. `weights` is a file; by default the published ones.

    Deviations: batches of one, without padding.
    """

    scales = ("utmos",)

    def __init__(self, weights: Path | None = None) -> None:
        package = require("utmos_pytorch", "eval-models")
        self._torch = require("torch", "eval-models")
        self.name = f"UTMOS (utmos-pytorch {package_version('utmos-pytorch')})"
        path = fetch_model(UTMOS_MODEL, ((UTMOS_FILE,),)) / UTMOS_FILE if weights is None else weights
        self._model = package.UTMOSScoreTorch(ckpt_path=str(path), device="cpu")

    def rate(self, waveform: Waveform) -> Mapping[str, float]:
        """The one scale."""
        samples = self._torch.from_numpy(as_input(waveform))
        return {"utmos": float(self._model.score(samples).item())}


class DistillMos:
    """DistillMOS: a small network distilled from a wav2vec 2.0 predictor; three times real time on one core."""

    scales = ("distillmos",)

    def __init__(self) -> None:
        self._torch = require("torch", "eval")
        with torchaudio_stand_in():
            package = require("distillmos", "eval")
        self.name = f"DistillMOS (distillmos {package_version('distillmos')})"
        with contextlib.redirect_stdout(io.StringIO()):  # it prints where its weights are
            self._model = package.ConvTransformerSQAModel().eval()

    def rate(self, waveform: Waveform) -> Mapping[str, float]:
        """The one scale; the package averages windows of 7.68 s."""
        with self._torch.inference_mode():
            found = self._model(self._torch.from_numpy(as_input(waveform))[None])
        return {"distillmos": float(found[0])}


@contextlib.contextmanager
def torchaudio_stand_in() -> Iterator[None]:
    """Let modules be imported that import torchaudio and never call it.

    An installed one stays out, too: its latest version may be older than PyTorch, and then it cannot be imported.
    """
    names = ("torchaudio", "torchaudio.transforms")
    if names[0] in sys.modules:
        yield
        return
    package, transforms = (ModuleType(name) for name in names)
    vars(transforms).update(Resample=None, MFCC=None)
    vars(package).update(transforms=transforms)
    sys.modules.update(zip(names, (package, transforms), strict=True))
    try:
        yield
    finally:
        for name in names:
            sys.modules.pop(name, None)


QUALITY_METRICS: Mapping[str, Callable[[], QualityMetric]] = {
    "distillmos": DistillMos,
    "dnsmos": Dnsmos,
    "utmos": Utmos,
}


def open_quality_metric(name: str) -> QualityMetric:
    """The predictor of this name; ConfigError if there is none, MissingExtraError if its package is not installed."""
    check_quality_metric(name)
    return QUALITY_METRICS[name]()


def check_quality_metric(name: str) -> None:
    """ConfigError where there is no predictor of this name."""
    if name not in QUALITY_METRICS:
        raise ConfigError(f"there is no quality metric {name!r}; expected one of {', '.join(QUALITY_METRICS)}")


def as_input(waveform: Waveform) -> NDArray[np.float32]:
    """Samples (N,) at 16 kHz within ±1, at least MIN_SECONDS; digital silence and no samples become faint noise."""
    samples = resample(waveform, SAMPLE_RATE).samples
    shortest = round(MIN_SECONDS * SAMPLE_RATE)
    if not samples.any():
        samples = 1e-5 * np.random.default_rng(0).standard_normal(max(shortest, len(samples))).astype(np.float32)
    samples = np.tile(samples, max(1, math.ceil(shortest / len(samples))))
    return np.ascontiguousarray(samples / max(1.0, float(np.abs(samples).max())), dtype=np.float32)
