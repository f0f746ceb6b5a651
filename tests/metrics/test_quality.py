"""Opinion score predictors: the packages' figures for any input."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from marstts.audio import Waveform, resample
from marstts.errors import ConfigError, MissingExtraError
from marstts_lab.metrics import quality
from marstts_lab.metrics.quality import DistillMos, Dnsmos, Utmos, open_quality_metric


@pytest.mark.slow
def test_dnsmos_matches_its_package(surpassed: Waveform):
    package = pytest.importorskip("speechmos.dnsmos")
    expected = package.run(resample(surpassed, 16000).samples, 16000)
    metric = Dnsmos()
    found = metric.rate(surpassed)
    assert set(found) == set(metric.scales) and metric.name.startswith("DNSMOS (speechmos 0.")
    for scale in ("ovrl", "sig", "bak", "p808"):
        assert found[f"dnsmos_{scale}"] == pytest.approx(float(expected[f"{scale}_mos"]), abs=1e-4)


@pytest.mark.slow
def test_distillmos_prefers_recordings_to_the_same_with_noise_and_needs_no_torchaudio(
    surpassed: Waveform, amiable: Waveform, capsys: pytest.CaptureFixture[str]
):
    pytest.importorskip("xls_r_sqa")
    metric = DistillMos()
    assert "torchaudio" not in sys.modules and capsys.readouterr().out == ""
    for recording in (surpassed, amiable):
        noise = np.random.default_rng(0).normal(0, 0.02, len(recording.samples)).astype(np.float32)
        noisy = Waveform(recording.samples + noise, recording.sample_rate)
        [clean_score], [noisy_score] = metric.rate(recording).values(), metric.rate(noisy).values()
        assert 5 >= clean_score > noisy_score + 0.3 >= 1.3


@pytest.mark.parametrize(
    "samples", [np.zeros(0), np.zeros(30_000), np.full(80, 0.5), np.sin(np.arange(9000)) * 3], ids=str
)
def test_any_input_is_padded_and_scaled(samples: np.ndarray):
    found = quality.as_input(Waveform(samples.astype(np.float32), 16000))
    assert found.dtype == np.float32 and len(found) >= 1600 and found.any() and np.abs(found).max() <= 1.0


def test_utmos_gets_16_khz_and_the_downloaded_weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    torch = pytest.importorskip("torch")

    class Score:
        def __init__(self, ckpt_path, device):
            assert ckpt_path == str(tmp_path / quality.UTMOS_FILE) and device == "cpu"

        def score(self, samples):
            return torch.tensor([float(len(samples))])

    monkeypatch.setitem(sys.modules, "utmos_pytorch", SimpleNamespace(UTMOSScoreTorch=Score))
    monkeypatch.setattr(quality, "fetch_model", lambda source, files: tmp_path)
    metric = Utmos()
    assert metric.rate(Waveform(np.ones(24_000, np.float32), 24_000)) == {"utmos": 16_000.0}
    assert metric.name.startswith("UTMOS (utmos-pytorch ")


def test_unknown_quality_metrics_and_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ConfigError, match="expected one of distillmos, dnsmos, utmos"):
        open_quality_metric("telepathy")
    for package, name, extra in (("utmos_pytorch", "utmos", "eval-models"), ("distillmos", "distillmos", "eval")):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(MissingExtraError, match=rf"{package}.*marstts\[{extra}\]"):
            open_quality_metric(name)
