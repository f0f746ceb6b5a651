"""The oldest Python that the package supports: `vermin` finds newer syntax and newer names of the standard library."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("vermin")

ROOT = Path(__file__).parents[1]


def check(target: str, path: Path) -> subprocess.CompletedProcess[str]:
    """Run vermin over a file or folder: exit code 0 where `target`, like "3.10", runs it."""
    command = [sys.executable, "-c", "from vermin import main; main()", f"-t={target}-", "--no-tips", "--violations"]
    result = subprocess.run([*command, "--eval-annotations", str(path)], capture_output=True, text=True)
    assert "Minimum required versions: " in result.stdout, result.stderr
    return result


@pytest.mark.slow
def test_the_oldest_supported_python_runs_every_source() -> None:
    oldest = re.search(r'requires-python = ">=(.*)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert oldest and oldest[1] == "3.10"
    result = check(oldest[1], ROOT / "src")
    assert result.returncode == 0, result.stdout
    assert int(re.search(r"Analyzing (\d+) files", result.stdout)[1]) > 150  # type: ignore[index]


@pytest.mark.parametrize(
    "source",
    ["from typing import Self", "import tomllib", "import datetime\ndatetime.UTC", "raise ExceptionGroup('', [])",
     "try:\n    pass\nexcept* ValueError:\n    pass"],
)  # fmt: skip
def test_newer_names_and_syntax_are_found(source: str, tmp_path: Path) -> None:
    (tmp_path / "newer.py").write_text(source + "\n", encoding="utf-8")
    assert check("3.10", tmp_path / "newer.py").returncode != 0


def test_newer_names_behind_a_check_of_the_version_are_allowed(tmp_path: Path) -> None:
    (tmp_path / "guarded.py").write_text(
        "import sys\nif sys.version_info >= (3, 11):\n    import tomllib\nelse:\n    import tomli as tomllib\n", "utf-8"
    )
    assert check("3.10", tmp_path / "guarded.py").returncode == 0
