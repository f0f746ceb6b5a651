"""A command that is killed at any operation on a file, or in the middle of a write, leaves the old result or the new.

A seeded sample of the points by default; `MARSTTS_FUZZ=1000 pytest tests/test_killed_commands.py` kills at every one.
`MARSTTS_FUZZ_PIECE=0/4` takes every fourth point, from the first on, so that long runs come in pieces.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from killed_commands import book
from marstts import audio
from marstts.cli.main import app
from scripted import good, scripted_synthesizer
from test_fuzz_files import count_inputs

POINTS = int(os.environ.get("MARSTTS_FUZZ", "5"))
PIECE, PIECES = map(int, os.environ.get("MARSTTS_FUZZ_PIECE", "0/1").split("/"))
RunTo = Callable[[str, Path, str], dict]
HARNESS = Path(__file__).with_name("killed_commands.py")

pytestmark = [
    pytest.mark.end_to_end,
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="kills by Linux's signals and limits"),
]


@pytest.fixture
def folder(tmp_path: Path, reference_file: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    shutil.copy(reference_file, folder / "reference.wav")
    scripted_synthesizer(good).clone(reference_file, "He might.").save(folder / "a.voice")
    return folder


@pytest.fixture(scope="module")
def run_to() -> Iterator[RunTo]:
    """A function that runs a scenario's command in a folder up to a point, and returns the outcome."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        [sys.executable, str(HARNESS)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None

    def run(scenario: str, folder: Path, point: str) -> dict:
        print(json.dumps([scenario, str(folder), point]), file=process.stdin, flush=True)
        line = process.stdout.readline()
        assert line, process.stderr.read()
        return json.loads(line)

    try:
        yield run
    finally:
        process.kill()
        process.communicate()


def kill_everywhere(run_to: RunTo, scenario: str, folder: Path, check: Callable[[], None], largest: int) -> None:
    """`check` holds after each kill; `largest` is the size in bytes up to which writes are cut off."""
    rng = random.Random(scenario)
    sizes = sorted({0, 1, 7, largest // 2, largest - 1, *(rng.randrange(largest) for _ in range(POINTS // 2))})
    killed, whole = 0, run_to(scenario, folder, "0")
    assert whole["exit"] == 0 and whole["operations"] > 3, whole
    operations = range(1, whole["operations"] + 1)
    chosen = sorted(rng.sample(operations, min(POINTS, len(operations))))[PIECE::PIECES]
    for point in (*map(str, chosen), *(f"b{size}" for size in sizes[PIECE::PIECES])):
        outcome = run_to(scenario, folder, point)
        killed += outcome["killed"]
        assert not outcome["killed"] or outcome["signal"] in (signal.SIGKILL, signal.SIGXFSZ), (point, outcome)
        try:
            check()
        except Exception as error:
            raise AssertionError(f"{scenario}, killed at {point}: {error}") from error
    assert killed >= len(chosen), "operations come in the same order each time"
    count_inputs(f"killed {scenario}", killed, operations=whole["operations"])


def read_whole(path: Path) -> None:
    assert audio.read(path).seconds == pytest.approx(1.7, abs=0.2)


@pytest.mark.parametrize("scenario", ["speak", "stream"])
def test_speech_is_the_old_file_or_the_new_one(scenario: str, folder: Path, run_to: RunTo) -> None:
    path = folder / "target.wav"
    path.write_bytes(b"an older recording")

    def check() -> None:
        if path.read_bytes() != b"an older recording":
            read_whole(path)

    kill_everywhere(run_to, scenario, folder, check, largest=70_000)


def test_a_batch_has_whole_files_only(folder: Path, run_to: RunTo) -> None:
    target = folder / "target"

    def check() -> None:
        for path in target.glob("[0-9]*.wav"):
            read_whole(path)
        report = target / "report.jsonl"
        for line in report.read_text(encoding="utf-8").splitlines()[:-1] if report.exists() else ():
            assert json.loads(line)["line"]

    kill_everywhere(run_to, "batch", folder, check, largest=70_000)


def test_a_killed_book_is_continued_and_its_finished_chapters_stay(
    folder: Path, run_to: RunTo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("marstts.cli.speak.load", lambda *how: scripted_synthesizer(good))
    target, names = folder / "target", ["01-the-harbor.mp3", "02-the-storm.mp3"]
    texts = ["The Harbor.", "It lay still in the fog.", "The Storm.", "It blew all night."]
    num_kept, num_spoken = [], []

    def check() -> None:
        found = {
            path.name: (path.stat().st_mtime_ns, path.read_bytes())
            for path in map(target.joinpath, names)
            if path.exists()
        }
        for name in found:
            assert 1.0 < audio.read(target / name).seconds < 12.0
        report = target / "report.jsonl"
        lines = report.read_text(encoding="utf-8").split("\n")[:-1] if report.exists() else []
        finished = {entry["file"] for entry in map(json.loads, lines)}
        words, tts = book(folder), scripted_synthesizer(good)
        monkeypatch.setattr("marstts.cli.speak.load", lambda *how: tts)
        result = CliRunner().invoke(app, [*words, "--json"])
        assert result.exit_code == 0, result.stderr
        entries = [json.loads(line) for line in report.read_text(encoding="utf-8").splitlines()]
        assert [take["text"] for entry in entries for take in entry["takes"]] == texts
        for name, entry in zip(names, entries, strict=True):
            assert audio.read(target / name).seconds == pytest.approx(entry["audio_seconds"], abs=0.1)
            assert entry["audio_seconds"] == pytest.approx(4.2, abs=0.3)
        num_spoken.append(len(tts.session.engine.prompts))
        assert json.loads(result.stdout) == {"spoken": 2 - len(finished), "kept": len(finished), "failed": []}
        assert sorted(path.name for path in target.glob("[0-9]*.mp3")) == names
        for name in finished:
            assert found[name] == ((target / name).stat().st_mtime_ns, (target / name).read_bytes())
        num_kept.append(len(finished))

    kill_everywhere(run_to, "book", folder, check, largest=150_000)
    assert {0, 1} <= set(num_kept) and set(num_spoken) & {1, 3}, "some run went on within a chapter"
