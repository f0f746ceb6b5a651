"""The paper's baselines, with stand-ins for their packages."""

from __future__ import annotations

from pathlib import Path

import pytest

from baseline_packages import PACKAGES, environment_of
from marstts.errors import DataError
from marstts.evaluation.baselines import Baseline, BaselineMissingError
from marstts.metrics.testset import Trial

RECORDINGS = Path(__file__).parents[1] / "audio"
TRIAL = Trial(
    id="a1", text="Has never been surpassed.", speaker="anna", style="regular",
    reference=RECORDINGS / "sense-0930.flac", reference_transcript="", ground_truth=None,
)  # fmt: skip


@pytest.mark.parametrize("name", list(PACKAGES))
def test_a_baseline_speaks_through_its_package(name: str, tmp_path: Path):
    baseline = Baseline(name, environment_of(tmp_path, PACKAGES[name]))
    first = baseline.speak(TRIAL)
    assert (first.sample_rate, len(first.samples)) == (24_000, 240 * len(TRIAL.text))
    with pytest.raises(DataError, match=f"{name}: RuntimeError: out of memory"):
        baseline.speak(TRIAL.model_copy(update={"text": "fail"}))
    assert len(baseline.speak(TRIAL.model_copy(update={"text": "Once more."})).samples) == 2400
    baseline.close()


def test_a_package_that_is_not_installed_stops_the_run(tmp_path: Path):
    with pytest.raises(BaselineMissingError, match=r"xttsv2: ModuleNotFoundError: .*install its package"):
        Baseline("xttsv2", environment_of(tmp_path, {})).speak(TRIAL)
    with pytest.raises(BaselineMissingError, match="nowhere/python cannot be started"):
        Baseline("xttsv2", str(tmp_path / "nowhere" / "python")).speak(TRIAL)


def test_a_process_that_dies_is_named(tmp_path: Path):
    dying = {"styletts2/__init__.py": "", "styletts2/tts.py": "import os\nos._exit(7)\n"}
    with pytest.raises(DataError, match="ended without an answer: exit code 7"):
        Baseline("styletts2", environment_of(tmp_path, dying)).speak(TRIAL)
