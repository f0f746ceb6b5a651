"""A command that is killed at any operation on a file, or in the middle of a write, leaves the old result or the new.

A seeded sample of the points by default; `MARSTTS_FUZZ=1000 pytest tests/test_killed_commands.py` kills at every one.
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
from contextlib import contextmanager
from pathlib import Path

import pytest

from marstts import audio
from marstts.bundle import BUNDLE_FILE, read_info
from marstts.models import load_for_training
from marstts.text.bpe import BPE
from marstts.voice import Voice
from scripted import good, scripted_synthesizer
from test_fuzz_files import count_inputs

POINTS = int(os.environ.get("MARSTTS_FUZZ", "12"))
HARNESS = Path(__file__).with_name("killed_commands.py")

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="kills by Linux's signals and limits")


@pytest.fixture
def folder(tmp_path: Path, reference_file: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    shutil.copy(reference_file, folder / "reference.wav")
    scripted_synthesizer(good).clone(reference_file, "He might.").save(folder / "a.voice")
    return folder


@contextmanager
def killed_at(scenario: str, folder: Path, points: list[str]) -> Iterator[Callable[[], dict]]:
    """A function that runs the command up to the next point, and returns the outcome."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        [sys.executable, str(HARNESS), scenario, str(folder), *points],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    asked = False

    def following() -> dict:
        nonlocal asked
        if asked:
            print(file=process.stdin, flush=True)
        asked = True
        line = process.stdout.readline()
        assert line, process.stderr.read()
        return json.loads(line)

    try:
        yield following
    finally:
        process.kill()
        process.communicate()


def kill_everywhere(scenario: str, folder: Path, check: Callable[[], None], largest: int) -> None:
    """`check` holds after each kill; `largest` is the size in bytes up to which writes are cut off."""
    with killed_at(scenario, folder, ["0"]) as following:
        whole = following()
    assert whole["exit"] == 0 and whole["operations"] > 3, whole
    shutil.rmtree(folder)
    shutil.copytree(folder.with_name("kept"), folder)
    shutil.rmtree(folder.with_name("kept"))
    rng = random.Random(scenario)
    operations = range(1, whole["operations"] + 1)
    sizes = sorted({0, 1, 7, largest // 2, largest - 1, *(rng.randrange(largest) for _ in range(POINTS // 2))})
    chosen = [str(point) for point in sorted(rng.sample(operations, min(POINTS, len(operations))))]
    points = [*chosen, *(f"b{size}" for size in sizes)]
    killed = 0
    with killed_at(scenario, folder, points) as following:
        for point in points:
            outcome = following()
            killed += outcome["killed"]
            assert not outcome["killed"] or outcome["signal"] in (signal.SIGKILL, signal.SIGXFSZ), (point, outcome)
            try:
                check()
            except Exception as error:
                raise AssertionError(f"{scenario}, killed at {point}: {error}") from error
    assert killed >= len(chosen), "operations come in the same order each time"
    count_inputs(f"killed {scenario}", killed)


def old_or_new(path: Path, read: Callable[[Path], object], old: bytes | None) -> None:
    """`path` holds the old bytes (None: does not exist) or something whole."""
    if not path.exists():
        assert old is None, "the older file is gone"
    elif path.read_bytes() != old:
        read(path)


def read_whole(path: Path) -> None:
    assert audio.read(path).seconds == pytest.approx(1.7, abs=0.2)


@pytest.mark.parametrize(
    ("scenario", "old"),
    [
        pytest.param("speak", None, marks=pytest.mark.slow),
        ("speak", b"an older recording"),
        pytest.param("stream", None, marks=pytest.mark.slow),
        pytest.param("stream", b"an older recording", marks=pytest.mark.slow),
    ],
)
def test_speech_is_the_old_file_or_the_new_one(scenario: str, old: bytes | None, folder: Path) -> None:
    path = folder / "target.wav"
    if old is not None:
        path.write_bytes(old)
    kill_everywhere(scenario, folder, lambda: old_or_new(path, read_whole, old), largest=70_000)


@pytest.mark.slow
@pytest.mark.parametrize("old", [None, b"an older voice"])
def test_a_voice_is_the_old_file_or_the_new_one(old: bytes | None, folder: Path) -> None:
    path = folder / "target.voice"
    if old is not None:
        path.write_bytes(old)
    kill_everywhere("voice", folder, lambda: old_or_new(path, Voice.load, old), largest=30_000)


@pytest.mark.slow
def test_a_batch_has_whole_files_only(folder: Path) -> None:
    target = folder / "target"

    def check() -> None:
        for path in target.glob("[0-9]*.wav"):
            read_whole(path)
        report = target / "report.jsonl"
        for line in report.read_text(encoding="utf-8").splitlines()[:-1] if report.exists() else ():
            assert json.loads(line)["line"]

    kill_everywhere("batch", folder, check, largest=70_000)


@pytest.mark.slow
def test_a_bundle_is_the_old_one_or_the_new_one(folder: Path) -> None:
    pytest.importorskip("torch")
    from toy_mars6 import write_toy_run

    write_toy_run(folder / "run")
    target = folder / "target"
    with killed_at("export", folder, ["0"]) as following:
        outcome = following()
        assert outcome["exit"] == 0, outcome
        info = json.loads((target / BUNDLE_FILE).read_text())
        (target / BUNDLE_FILE).write_text(json.dumps({**info, "name": "old"}))
        old = shutil.copytree(target, folder.with_name("old"))
    shutil.rmtree(folder)
    shutil.copytree(folder.with_name("kept"), folder)
    shutil.rmtree(folder.with_name("kept"))
    shutil.copytree(old, target)

    def check() -> None:
        assert read_info(target).name in ("old", "new")
        load_for_training(target)
        BPE.load(target / "tokenizer.json")

    kill_everywhere("export", folder, check, largest=120_000)
