"""Opinion score predictors: the packages' own figures, whatever a system hands over."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from marstts.audio import Waveform, resample
from marstts.errors import ConfigError, MissingExtraError
from marstts.evaluation.metrics import quality
from marstts.evaluation.metrics.quality import Dnsmos, Plcmos, Utmos, open_quality_judge


def test_dnsmos_gives_the_packages_own_figures(surpassed: Waveform):
    package = pytest.importorskip("speechmos.dnsmos")
    expected = package.run(resample(surpassed, 16000).samples, 16000)
    judge = Dnsmos()
    found = judge.rate(surpassed)
    assert set(found) == set(judge.scales) and judge.name.startswith("DNSMOS (speechmos 0.")
    for scale in ("ovrl", "sig", "bak", "p808"):
        assert found[f"dnsmos_{scale}"] == pytest.approx(float(expected[f"{scale}_mos"]), abs=1e-4)


def test_plcmos_prefers_a_recording_to_the_same_in_four_bits(surpassed: Waveform):
    pytest.importorskip("speechmos.plcmos")
    judge = Plcmos()
    coarse = Waveform(np.round(surpassed.samples * 8) / 8, surpassed.sample_rate)
    assert judge.rate(surpassed)["plcmos"] > judge.rate(coarse)["plcmos"] + 0.5


@pytest.mark.parametrize(
    "samples", [np.zeros(0), np.zeros(30_000), np.full(80, 0.5), np.sin(np.arange(9000)) * 3], ids=str
)
def test_whatever_comes_is_made_audible(samples: np.ndarray):
    heard = quality.audible(Waveform(samples.astype(np.float32), 16000))
    assert heard.dtype == np.float32 and len(heard) >= 1600 and heard.any() and np.abs(heard).max() <= 1.0


def test_utmos_hears_16_khz(monkeypatch: pytest.MonkeyPatch):
    torch = pytest.importorskip("torch")

    class Score:
        def __init__(self, ckpt_path, device):
            assert ckpt_path is None and device == "cpu"

        def score(self, samples):
            return torch.tensor([float(len(samples))])

    monkeypatch.setitem(sys.modules, "utmos_pytorch", SimpleNamespace(UTMOSScoreTorch=Score))
    judge = Utmos()
    assert judge.rate(Waveform(np.ones(24_000, np.float32), 24_000)) == {"utmos": 16_000.0}
    assert judge.name.startswith("UTMOS (utmos-pytorch ")


def test_unknown_judges_and_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ConfigError, match="expected one of dnsmos, plcmos, utmos"):
        open_quality_judge("ears")
    monkeypatch.setitem(sys.modules, "utmos_pytorch", None)
    with pytest.raises(MissingExtraError, match=r"marstts\[judges\]"):
        open_quality_judge("utmos")
