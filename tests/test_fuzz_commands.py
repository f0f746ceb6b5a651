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

import miniature_corpora
from marstts.cli.main import app
from scripted import good, scripted_synthesizer
from test_fuzz_files import SLOWEST_SECONDS, count_inputs, input_rng, mutated

RUN = CliRunner()
INPUTS = max(4, int(os.environ.get("MARSTTS_FUZZ", "40")) // 10)
RECIPES = Path(__file__).parents[1] / "recipes"
GOLDEN = Path(__file__).parent / "golden" / "mars6"
TOY_PARTS = ["--codec", "toy:64", "--identity", "toy:5", "--style", "toy:7"]

posix = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals and special files")
pytestmark = posix

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


NUM_SPECIAL = 8


def special_files(path: Path) -> Iterator[str]:
    """Create at `path` one kind of non-regular file after another."""
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
    for kind, make in makers.items():
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


def attack(entry: Entry, name: str, inputs: int = INPUTS) -> None:
    """Every file of the entry is replaced by special files and mutations of itself, and then put back."""
    canary = entry.files[0].parent / "canary"
    for path in entry.files:
        content = path.read_bytes()
        label = f"{name} {path.name}"
        for kind in special_files(path):
            invoke(entry, f"{label}, {kind}")
        for number in range(inputs):
            rng = input_rng(f"{label} {number}")
            path.write_bytes(mutation(content, path.name, rng))
            canary.write_bytes(b"stays")
            invoke(entry, f"{label}, input {number}")
            assert canary.read_bytes() == b"stays"
            canary.unlink()
        path.write_bytes(content)
        count_inputs(label, inputs + NUM_SPECIAL)


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
    attack(Entry(speak("--model", bundle, "--voice", toy_voice, "--output", output), files, output), "bundle")


@pytest.mark.slow
def test_bundles_in_pytorch(bundle: Path, toy_voice: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.wav"
    files = [bundle / "bundle.json", *(bundle / "mars6" / name for name in ("config.json", "mars6.safetensors"))]
    command = speak("--model", bundle, "--voice", toy_voice, "--engine", "torch", "--output", output)
    attack(Entry(command, files, output), "bundle in PyTorch")


@pytest.mark.slow
def test_packaged_parts(tmp_path: Path, reference_file: Path) -> None:
    """A codec and speaker encoders of kind mini, from whom a voice is made."""
    from marstts.bundle import PACKAGED_MODELS

    folder = Path(shutil.copytree(PACKAGED_MODELS / "mini", tmp_path / "mini", copy_function=os.link))
    files = [*(folder / "codec").iterdir(), *(folder / "identity").iterdir()]
    for path in files:  # attacked files must not be those of the package
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content)
    output = tmp_path / "a.voice"
    command: list[str | Path] = ["voice", "create", reference_file, "--transcript", "He might.", "--name", "A"]
    entry = Entry([*command, "--model", folder, "--output", output], sorted(files), output)
    attack(entry, "parts", max(1, INPUTS // 5))


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
def test_manifests(tmp_path: Path) -> None:
    miniature_corpora.own_folder(tmp_path / "mine")
    corpus, shards = tmp_path / "corpus", tmp_path / "shards"
    options = ["--root", str(tmp_path / "mine"), "--output", str(corpus), "--license", "own"]
    assert RUN.invoke(app, ["prepare", "folder", *options]).exit_code == 0
    manifest = corpus / "utterances.jsonl"
    command: list[str | Path] = ["tokenize", manifest, "--output", shards, *TOY_PARTS]
    attack(Entry(command, [manifest], makes=[shards]), "manifest")
    config = RECIPES / "tiny" / "mars6.toml"
    assert RUN.invoke(app, [*map(str, command)]).exit_code == 0
    run = tmp_path / "run"
    train: list[str | Path] = ["train", "mars6", "--data", shards, "--config", config, "--output", run]
    shard = next(shards.glob("*.safetensors"))
    content = shard.read_bytes()
    for kind in special_files(shard):
        invoke(Entry(train, [shard], makes=[run]), f"shard, {kind}")
    for number in range(INPUTS):
        corrupt = mutated(content[:4000], input_rng(f"shard {number}")) + content[4000:]
        if corrupt != content:
            shard.write_bytes(corrupt)
            invoke(Entry(train, [shard], makes=[run]), f"shard, input {number}")
    count_inputs("shard of a training", INPUTS + NUM_SPECIAL)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["codec", "identity", "mars6", "mine", "pairs", "preference"])
def test_configurations(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    config, gone, run = tmp_path / "config.toml", tmp_path / "gone", tmp_path / "run"
    shutil.copy(RECIPES / "tiny" / f"{name}.toml", config)
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    options: dict[str, list[str | Path]] = {
        "codec": ["train", "codec", "--data", empty],
        "identity": ["train", "speaker", "--data", empty],
        "mars6": ["train", "mars6", "--data", tmp_path],
        "mine": ["preference", "mine", gone, "--references", empty, "--texts", empty],
        "pairs": ["preference", "pairs", gone],
        "preference": ["preference", "train", gone, "--pairs", empty, "--held-out", empty],
    }
    attack(Entry([*options[name], "--config", config, "--output", run], [config], makes=[run]), f"{name}.toml")


@pytest.mark.slow
def test_run_folders(toy_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from toy_mars6 import export_by_copying, write_toy_run

    export_by_copying(toy_bundle, monkeypatch)
    run = write_toy_run(tmp_path / "run")
    checkpoint = run / "step-00000007"
    made = tmp_path / "made"
    command: list[str | Path] = ["export", run, "--output", made, "--name", "n", *TOY_PARTS]
    files = [run / "config.json", run / "tokenizer.json", *sorted(checkpoint.iterdir())]
    attack(Entry(command, files, makes=[made]), "run folder")


@pytest.mark.slow
def test_published_checkpoints(tmp_path: Path) -> None:
    checkpoint, tokenizer = tmp_path / "checkpoint.pt", tmp_path / "tokenizer.model"
    shutil.copy(GOLDEN / "checkpoint.pt", checkpoint)
    shutil.copy(GOLDEN / "tokenizer.model", tokenizer)
    made = tmp_path / "made"
    parts = ["--codec", "toy:4096", "--identity", "toy:512", "--style", "toy:1024"]
    command: list[str | Path] = ["convert", checkpoint, "--tokenizer", tokenizer, "--output", made, *parts]
    attack(Entry(command, [checkpoint, tokenizer], makes=[made]), "published")


@pytest.mark.slow
def test_upgrades(bundle: Path, tmp_path: Path) -> None:
    made = tmp_path / "made"
    files = sorted(path for path in bundle.rglob("*") if path.is_file() and path.name != "tokenizer.json")
    attack(Entry(["quantize", bundle, "--output", made], files, makes=[made]), "quantize", max(2, INPUTS // 2))


@pytest.mark.slow
def test_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "evaluation"))
    from test_report import many, write_output

    folder, made = write_output(tmp_path / "a", many("mini", 1)), tmp_path / "made"
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    attack(Entry(["report", folder, "--output", made], files, makes=[made]), "scores")


@pytest.mark.slow
def test_listening_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("starlette")
    pytest.importorskip("scipy")
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "listening_test"))
    from simulated_listeners import TOML, write_folders

    from marstts.listening_test.config import read_listening_test
    from marstts.listening_test.rating import open_rating_plan
    from marstts.listening_test.store import AnswerStore

    write_folders(tmp_path)
    config = tmp_path / "test.toml"
    config.write_text(TOML.replace("FOLDER", "."), encoding="utf-8")
    read = read_listening_test(config)
    AnswerStore(read.database, open_rating_plan(read).digest).close()
    attack(Entry(["listening-test", "analyze", config], [config, Path(read.database)]), "answers")


@pytest.mark.slow
def test_bundles_with_word_times(tmp_path: Path) -> None:
    """The packaged model, whose attention gives the times of words: its settings, and its graph of attention."""
    from marstts.bundle import PACKAGED_MODELS

    folder = Path(shutil.copytree(PACKAGED_MODELS / "mini", tmp_path / "mini", copy_function=os.link))
    files = [folder / "bundle.json", folder / "mars6" / "config.json", folder / "mars6" / "patch.onnx"]
    for path in files:  # attacked files must not be those of the package
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content)
    output, words = tmp_path / "out.wav", tmp_path / "words.srt"
    command = speak("--voice", "ada", "--model", folder, "--words", words, "--output", output)
    inputs = max(2, INPUTS // 3)
    for path in files:
        content = path.read_bytes()
        for number in range(inputs):
            label = f"words {path.name}"
            path.write_bytes(mutation(content, path.name, input_rng(f"{label} {number}")))
            invoke(Entry(command, [], output, makes=[words]), f"{label}, input {number}")
        path.write_bytes(content)
        count_inputs(f"words {path.name}", inputs)


@pytest.mark.slow
def test_outputs_of_words_that_cannot_be_written(tmp_path: Path) -> None:
    output, words = tmp_path / "out.wav", tmp_path / "words.json"
    for kind in special_files(words):
        if kind in ("folder", "pipe", "full device"):
            invoke(Entry(speak("--voice", "ada", "--words", words, "--output", output), []), f"words to {kind}")
    count_inputs("outputs of words", 3)
