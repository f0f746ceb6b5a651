"""mini5, the MARS5 of the repository: it speaks by its name, without PyTorch, and stays small."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from marstts import audio
from marstts.bundle import PACKAGED_MODELS, read_info

MINI5 = PACKAGED_MODELS / "mini5"

pytestmark = pytest.mark.skipif(not MINI5.is_dir(), reason="mini5 comes with the repository, not with the package")

SPEAK = """
import sys
sys.modules["torch"] = None  # so that importing it fails
from marstts.cli.main import app
app(["speak", "The ship left the harbor at dawn.", "--model", "mini5", "--output", sys.argv[1]], prog_name="marstts")
"""


def test_mini5_is_a_mars5_of_at_most_25_megabytes() -> None:
    assert read_info(MINI5).architecture == "mars5"
    assert sum(path.stat().st_size for path in MINI5.rglob("*") if path.is_file()) < 25e6


@pytest.mark.slow
def test_mini5_speaks_by_its_name_without_pytorch(tmp_path: Path) -> None:
    output = tmp_path / "speech.wav"
    result = subprocess.run([sys.executable, "-c", SPEAK, str(output)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    speech = audio.read(output)
    assert 0.5 < speech.seconds < 12 and abs(speech.samples).max() > 0.05
