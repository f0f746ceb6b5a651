"""Corrupt input files: each command works or prints one sentence, without a traceback, a hang or a lost file.

A few inputs per file by default; `MARSTTS_FUZZ=20000 pytest tests/test_fuzz_commands.py` tries 2,000 of each.
Inputs follow from their number alone, which a failure names.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from marstts.cli.main import app
from scripted import good, scripted_synthesizer
from test_fuzz_files import SLOWEST_SECONDS, count_inputs, input_rng, mutated

RUN = CliRunner()
INPUTS = max(2, int(os.environ.get("MARSTTS_FUZZ", "20")) // 10)
RECIPES = Path(__file__).parents[1] / "recipes"
GOLDEN = Path(__file__).parent / "golden" / "mars6"
TOY_PARTS = ["--codec", "toy:64", "--identity", "toy:5", "--style", "toy:7"]

posix = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals and special files")
pytestmark = [posix, pytest.mark.slow, pytest.mark.end_to_end]

NASTY: list[Any] = [
    *(0, 1, -1, 2, 7, 2**31, 2**63, 2**63 - 1, -(2**63), 10**39, 1e308, -0.5, 1e-300),
    *("", "x" * 5000, "..", "../../etc/passwd", "/dev/zero", "\u0000", "\n\x1b[2J", "\u202e", "é", "nan", "1"),
    *(None, True, False, [], {}, [[[[1]]]], {"a": {"b": {}}}, [0] * 1000, [2**40] * 3, ["x"], [None]),
]
"""Values that JSON may have where another one belongs."""


@dataclass(frozen=True)
class Entry:
    """A command, and the files it reads that the attack replaces."""

    command: list[str | Path]
    files: list[Path]
    output: Path | None = None
    """Must stay as it was where the command fails."""

    makes: list[Path] = field(default_factory=list)
    """Outputs of the command, removed before each attempt."""


def mutated_json(content: bytes, rng: random.Random) -> bytes:
    """JSON with one to three values replaced, lost or added."""
    value = json.loads(content)
    for _ in range(rng.randint(1, 3)):
        holders = [holder for holder in walk(value) if holder]
        if not holders:
            break
        holder = rng.choice(holders)
        key = rng.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        if rng.random() < 0.15:
            del holder[key]
        elif rng.random() < 0.1 and isinstance(holder, dict):
            holder[str(rng.choice(NASTY))[:20]] = rng.choice(NASTY)
        else:
            holder[key] = json.loads(json.dumps(rng.choice(NASTY)))
    return json.dumps(value).encode()


def walk(value: Any) -> Iterator[Any]:
    if isinstance(value, (dict, list)):
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from walk(inner)


def mutation(content: bytes, name: str, rng: random.Random) -> bytes:
    if name.endswith(".json") and rng.random() < 0.75:
        return mutated_json(content, rng)
    corrupt = mutated(content, rng)
    return corrupt[:400] if name.endswith(".txt") else corrupt  # thousands of digits take a minute to speak


def special_files(path: Path, every: int, turn: int) -> Iterator[str]:
    """Create at `path` one kind of non-regular file after another; every third kind, say, another third each turn."""
    makers = {
        "nothing": lambda: None,
        "empty file": path.touch,
        "folder": path.mkdir,
        "pipe": lambda: os.mkfifo(path),
        "endless device": lambda: path.symlink_to("/dev/zero"),
        "full device": lambda: path.symlink_to("/dev/full"),
        "loop of links": lambda: path.symlink_to(path),
        "foreign file": lambda: path.symlink_to("/etc/passwd"),
    }
    for kind, make in list(makers.items())[turn % every :: every]:
        remove(path)
        make()
        yield kind
    remove(path)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def time_limit(case: str) -> Iterator[None]:
    """Fail where the body takes too long, even if it waits for a pipe."""

    def fail(*_: object) -> None:
        raise AssertionError(f"{case} hangs")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(int(3 * SLOWEST_SECONDS))
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def invoke(entry: Entry, case: str) -> None:
    for made in entry.makes:
        remove(made)
    old = None if entry.output is None else b"an older file"
    if entry.output is not None and old is not None:
        entry.output.write_bytes(old)
    with time_limit(case):
        result = RUN.invoke(app, [str(word) for word in entry.command])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise AssertionError(f"{case}: {type(result.exception).__name__}") from result.exception
    assert result.exit_code in (0, 1, 2), case
    if result.exit_code == 2:
        sentences = [line for line in result.stderr.splitlines() if line.startswith("marstts: ")]
        assert len(sentences) == 1 and len(sentences[0]) < 5000 and sentences[0].isprintable(), (
            f"{case}: {result.stderr}"
        )
        if entry.output is not None:
            assert entry.output.read_bytes() == old, f"{case}: the older output is lost"


def attack(entry: Entry, name: str, inputs: int = INPUTS, every: int = 1) -> None:
    """Every file of the entry is replaced by special files and mutations of itself, and then put back.

    Each file by every n-th kind of special file, for entries of many files that one function reads.
    """
    canary = entry.files[0].parent / "canary"
    for turn, path in enumerate(entry.files):
        content = path.read_bytes()
        label, num_special = f"{name} {path.name}", 0
        for kind in special_files(path, every, turn):
            num_special += 1
            invoke(entry, f"{label}, {kind}")
        for number in range(inputs):
            rng = input_rng(f"{label} {number}")
            path.write_bytes(mutation(content, path.name, rng))
            canary.write_bytes(b"stays")
            invoke(entry, f"{label}, input {number}")
            assert canary.read_bytes() == b"stays"
            canary.unlink()
        path.write_bytes(content)
        count_inputs(label, inputs + num_special)


@pytest.fixture
def bundle(toy_bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(toy_bundle, tmp_path / "toy"))


@pytest.fixture
def toy_voice(reference: Any, tmp_path: Path) -> Path:
    """A voice for both the toy bundle and the scripted model."""
    path = tmp_path / "toy.voice"
    scripted_synthesizer(good).clone(reference, "He might.").save(path)
    return path


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("marstts.cli.speak.load", lambda *how: scripted_synthesizer(good))


def speak(*words: str | Path) -> list[str | Path]:
    return ["speak", "Hi.", *words]


@pytest.mark.slow
def test_bundles(bundle: Path, toy_voice: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.wav"
    files = sorted(path for path in bundle.rglob("*") if path.is_file() and path.name != "local.onnx")
    attack(Entry(speak("--model", bundle, "--voice", toy_voice, "--output", output), files, output), "bundle", every=3)


@pytest.mark.slow
def test_voices(toy_voice: Path, tmp_path: Path, scripted: None) -> None:
    output = tmp_path / "out.wav"
    attack(Entry(["voice", "show", toy_voice], [toy_voice]), "voice show", 10 * INPUTS)
    attack(Entry(speak("--voice", toy_voice, "--output", output), [toy_voice], output), "voice", INPUTS)


@pytest.mark.slow
def test_texts_references_and_batches(tmp_path: Path, reference_file: Path, scripted: None) -> None:
    output, text = tmp_path / "out.wav", tmp_path / "text.txt"
    attack(Entry(speak("--reference", reference_file, "--output", output), [reference_file], output), "reference")
    text.write_text("The cat sat … on 3 mats.\nShe sells “shells”.\n", encoding="utf-8")
    words: list[str | Path] = ["speak", "--file", text, "--reference", reference_file, "--output"]
    attack(Entry([*words, output], [text], output), "text")
    folder = tmp_path / "out"
    assert RUN.invoke(app, [*map(str, words), str(folder), "--batch", "2"]).exit_code == 0
    attack(Entry([*words, folder, "--batch", "2"], [folder / "report.jsonl"]), "report of a batch")


@pytest.mark.slow
def test_published_checkpoints(tmp_path: Path) -> None:
    checkpoint, tokenizer = tmp_path / "checkpoint.pt", tmp_path / "tokenizer.model"
    shutil.copy(GOLDEN / "checkpoint.pt", checkpoint)
    shutil.copy(GOLDEN / "tokenizer.model", tokenizer)
    made = tmp_path / "made"
    parts = ["--codec", "toy:4096", "--identity", "toy:512", "--style", "toy:1024"]
    command: list[str | Path] = ["convert", checkpoint, "--tokenizer", tokenizer, "--output", made, *parts]
    attack(Entry(command, [checkpoint, tokenizer], makes=[made]), "published")
