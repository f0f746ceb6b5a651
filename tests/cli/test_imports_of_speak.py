"""What `marstts speak` imports before its first sample: a light start needs no training or evaluation packages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

MAX_MODULES = 192
"""Modules of marstts; a warning that a package of another command has crept into the start."""

HEAVY = {"torch", "onnx", "scipy", "fastapi", "uvicorn", "av", "ssl", "sqlite3", "asyncio", "multiprocessing"}

PROGRAM = """
import json, sys
from marstts.cli.main import app
try:
    app(sys.argv[1:])
except SystemExit as end:
    assert end.code == 0, end.code
json.dump(sorted(sys.modules), sys.stderr)
"""


def test_speaking_imports_few_modules_and_no_heavy_package(tmp_path: Path) -> None:
    output, reference = tmp_path / "speech.wav", str(ROOT / "tests" / "audio" / "LJ001-0008.flac")
    command = ["speak", "It is.", "--reference", reference, "--output", str(output)]
    done = subprocess.run([sys.executable, "-c", PROGRAM, *command], capture_output=True, text=True, check=True)
    modules = set(json.loads(done.stderr.splitlines()[-1]))
    assert output.stat().st_size > 1000
    assert modules & HEAVY == set()
    assert "marstts.synthesis.synthesizer" in modules
    assert len([name for name in modules if name.startswith("marstts")]) < MAX_MODULES
