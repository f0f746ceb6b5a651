"""How good does it sound? Predictors of the opinion score that listeners would give, 1 (bad) to 5 (excellent).

Upstream: takes, as waveforms.  Downstream: `judges`, and whoever ranks takes.

UTMOS (arXiv:2204.02152) is the paper's: MARS6 (arXiv:2501.05787), Sec. V. Its weights are downloaded when first used,
by the package `utmos-pytorch`, which needs no fairseq and reads them without running anything in them. DNSMOS and
PLCMOS bring theirs along (`speechmos`, MIT). DNSMOS hears noise, quantisation and vocoders but no prosody, and finds a
robot with a clean voice pleasant (P.808); PLCMOS follows the order real > unit selection > diphones > formants best.
None of them is valid on whispers but beside other whispers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from marstts.audio import Waveform, resample
from marstts.errors import ConfigError, require
from marstts.evaluation.versions import package_version
from marstts.onnx_session import open_session

SAMPLE_RATE = 16000
"""All of them listen at 16 kHz."""

WORST = 1.0
"""Where there is nothing to hear, every scale ends."""

MIN_SECONDS = 0.1
"""Shorter sounds are repeated to this length: predictors see frames, and need one."""


class QualityJudge(Protocol):
    """A predictor of opinion scores."""

    @property
    def name(self) -> str:
        """With its version, as reports print it."""
        ...

    @property
    def scales(self) -> tuple[str, ...]:
        """What it scores, its own first choice for ranking takes in front."""
        ...

    def rate(self, waveform: Waveform) -> Mapping[str, float]:
        """A score between 1 and 5 on each of `scales`; resamples by itself."""
        ...


class Dnsmos:
    """DNSMOS: P.835 (overall, signal, background) and P.808 from one recording; 1–2 s of one core per take."""

    scales = ("dnsmos_ovrl", "dnsmos_sig", "dnsmos_bak", "dnsmos_p808")

    def __init__(self) -> None:
        package = require("speechmos.dnsmos", "eval")
        self.name = f"DNSMOS (speechmos {package_version('speechmos')})"
        folder = Path(require("speechmos", "eval").__path__[0]) / "dnsmos_models"
        self._model = package.DNSMOS(str(folder / "sig_bak_ovr.onnx"), str(folder / "model_v8.onnx"))
        self._model.onnx_sess = open_session(folder / "sig_bak_ovr.onnx")  # as the package's, but for its threads,
        self._model.p808_onnx_sess = open_session(folder / "model_v8.onnx")  # which wait for each other, spinning

    def rate(self, waveform: Waveform) -> Mapping[str, float]:
        """The four scales; the package repeats takes shorter than 9 s to that length, and averages windows of it."""
        found = self._model(audible(waveform), SAMPLE_RATE, False)
        return {scale: float(found[f"{scale.removeprefix('dnsmos_')}_mos"]) for scale in self.scales}


class Plcmos:
    """PLCMOS v2: made for lost packets, hears buzz, steps and gaps; not quite deterministic (± 0.02)."""

    scales = ("plcmos",)

    def __init__(self) -> None:
        self._package = require("speechmos.plcmos", "eval")
        self.name = f"PLCMOS v2 (speechmos {package_version('speechmos')})"

    def rate(self, waveform: Waveform) -> Mapping[str, float]:
        return {"plcmos": float(self._package.run(audible(waveform), SAMPLE_RATE)["plcmos"])}


class Utmos:
    """UTMOS strong learner: the paper's predictor of naturalness. `weights` is a file; by default the published ones.

    Deviations: the package's own padding-free batches of one.
    """

    scales = ("utmos",)

    def __init__(self, weights: Path | None = None) -> None:
        package = require("utmos_pytorch", "judges")
        self._torch = require("torch", "judges")
        self.name = f"UTMOS (utmos-pytorch {package_version('utmos-pytorch')})"
        self._model = package.UTMOSScoreTorch(ckpt_path=None if weights is None else str(weights), device="cpu")

    def rate(self, waveform: Waveform) -> Mapping[str, float]:
        samples = self._torch.from_numpy(audible(waveform))
        return {"utmos": float(self._model.score(samples).item())}


QUALITY_JUDGES: Mapping[str, Callable[[], QualityJudge]] = {"dnsmos": Dnsmos, "plcmos": Plcmos, "utmos": Utmos}


def open_quality_judge(name: str) -> QualityJudge:
    """The judge of this name; ConfigError if there is none, MissingExtraError if its package is not installed."""
    if name not in QUALITY_JUDGES:
        raise ConfigError(f"quality judge {name!r} was asked for; expected one of {', '.join(QUALITY_JUDGES)}")
    return QUALITY_JUDGES[name]()


def audible(waveform: Waveform) -> NDArray[np.float32]:
    """Samples (N,) at 16 kHz within ±1, long enough to be seen; digital silence and no samples become faint noise."""
    samples = resample(waveform, SAMPLE_RATE).samples
    shortest = round(MIN_SECONDS * SAMPLE_RATE)
    if not samples.any():
        samples = 1e-5 * np.random.default_rng(0).standard_normal(max(shortest, len(samples))).astype(np.float32)
    samples = np.tile(samples, max(1, math.ceil(shortest / len(samples))))
    return np.ascontiguousarray(samples / max(1.0, float(np.abs(samples).max())), dtype=np.float32)
