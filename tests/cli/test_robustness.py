"""Commands with unusual names, options, texts, interrupts and networks."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import miniature_corpora
from marstts.cli.choices import Choices
from marstts.cli.main import app
from marstts.cli.speak import speak_at_once
from marstts.cli.terminal import configure_logging
from marstts.errors import AudioError, CheckpointError
from marstts.io import files
from marstts.io.files import lock_folder
from marstts.synthesis.loading import load
from marstts.text.tokenizers.bpe import BPE
from marstts.weights import pretrained
from scripted import good, scripted_synthesizer

RUN = CliRunner()
TOY_PARTS = ["--codec", "toy:64", "--identity", "toy:5", "--style", "toy:7"]
posix = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX names and signals")


@pytest.fixture(autouse=True)
def scripted_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("marstts.cli.speak.load", lambda *how: scripted_synthesizer(good))
    monkeypatch.setattr("marstts.cli.voice.load", lambda model: scripted_synthesizer(good))
    monkeypatch.chdir(tmp_path)


def marstts(*words: object) -> Result:
    return RUN.invoke(app, [str(word) for word in words])


def sentence_of(result: Result) -> str:
    """The one printable sentence of a command that refuses."""
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("marstts: ") and result.stderr.count("\n") == 1
    assert result.stderr[:-1].isprintable()
    return result.stderr


@pytest.mark.slow
@posix
@pytest.mark.parametrize("name", ["a\nb", "a\x1b[2Jb", os.fsdecode(b"a\xffb")])
def test_strange_names_are_printed_escaped_on_one_line(name: str, reference_file: Path) -> None:
    escaped = {"a\nb": r"a\nb", "a\x1b[2Jb": r"a\x1b[2Jb"}.get(name, r"a\xffb")
    written = marstts("speak", "Hi.", "--reference", reference_file, "--output", f"{name}.wav")
    assert written.exit_code == 0 and written.stdout.startswith(f"{escaped}.wav: ")
    made = marstts("voice", "create", reference_file, "--name", "A", "--output", f"{name}.voice")
    assert made.exit_code == 0 and made.stdout.startswith(f"{escaped}.voice: ")
    for words in (
        ["voice", "show", f"{name}.nothing"],
        ["speak", "Hi.", "--voice", name],
        ["speak", "--file", name],
        ["tokenize", name, "--output", "out", *TOY_PARTS],
        ["quantize", name, "--output", "out"],
    ):
        assert escaped in sentence_of(marstts(*words))


@posix
def test_strange_names_are_printed_escaped_by_the_commands_of_training(tmp_path: Path) -> None:
    """Also where they succeed."""
    output = tmp_path / "a\nb\x1b[2J"
    Path("lines.txt").write_text("the cat sat on the mat\nshe sells sea shells\n")
    made = marstts("train", "tokenizer", "lines.txt", "--output", output, "--vocab-size", "275")
    assert made.exit_code == 0 and r"a\nb\x1b[2J: 275 entries" in made.stdout and "\x1b" not in made.output
    miniature_corpora.own_folder(tmp_path / "mine")
    prepared = marstts("prepare", "folder", "--root", tmp_path / "mine", "--output", f"{output}2", "--license", "own")
    assert prepared.exit_code == 0 and "\x1b" not in prepared.output and r"a\nb\x1b[2J2" in prepared.output
    for words in (
        ["train", "mars6", "--data", output, "--config", "c.toml", "--output", "run"],
        ["preference", "mine", output, "--references", "r", "--texts", "t", "--output", "o"],
        ["report", output],
        ["finetune", "--data", output, "--output", "run"],
        ["listening-test", "analyze", output],
        ["evaluate", "testset", output, "--output", "t.jsonl"],
    ):
        assert "\x1b" not in sentence_of(marstts(*words)), words


def test_records_of_the_log_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging()
    logging.getLogger("marstts.test").warning("%s: odd", "a\nb\x1b[2J")
    assert capsys.readouterr().err == "warning: a\\nb\\x1b[2J: odd\n"


def test_names_inside_a_voice_are_printed_escaped(reference_file: Path) -> None:
    options = ["--consent", "yes\x1b[2J", "--transcript", "He might."]
    made = marstts("voice", "create", reference_file, "--name", "An\nna", "--output", "a.voice", *options)
    assert made.exit_code == 0, made.output
    shown = marstts("voice", "show", "a.voice").stdout
    assert r"An\nna" in shown and r"yes\x1b[2J" in shown and "\x1b" not in shown


@posix
@pytest.mark.parametrize(
    "words",
    [
        ["speak", "H\udcffi."],
        ["speak", "Hi.", "--reference", "REF", "--transcript", "H\udcffi."],
        ["voice", "create", "REF", "--name", "A\udcff", "--output", "a.voice"],
        ["export", "run", "--name", "A\udcff", "--output", "out"],
        ["train", "codec", "--config", "c", "--data", "d", "--output", "o", "--export", "e", "--name", "A\udcff"],
        ["voice", "create", "REF", "--name", "A", "--consent", "\udcff", "--output", "a.voice"],
    ],
)
def test_texts_that_are_no_utf8_are_refused(words: list[str], reference_file: Path) -> None:
    output = sentence_of(marstts(*[str(reference_file) if word == "REF" else word for word in words]))
    assert "expected UTF-8 text" in output and r"\xff" in output
    assert not Path("a.voice").exists() and not Path("speech.wav").exists()


def test_an_unknown_model_lists_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("marstts.cli.speak.load", load)
    output = sentence_of(marstts("speak", "Hi.", "--model", "nobody"))
    assert "nobody: neither a folder nor the name of a model: mini, " in output and ", mars6-turbo, " in output


def test_a_text_in_another_script_gives_the_language_of_the_model(reference_file: Path) -> None:
    output = sentence_of(marstts("speak", "Привет, мир", "--reference", reference_file))
    assert "the model speaks English" in output
    mixed = marstts("speak", "The cat 你好 sat.", "--reference", reference_file)
    assert mixed.exit_code == 0 and "left out what cannot be spoken: " in mixed.stderr and "你 好" in mixed.stderr


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--guidance", "nan"], "but is nan"),
        (["--guidance", "inf"], "but is inf"),
        (["--guidance", "1e308"], "between 1 (none) and 100, but is 1e+308"),
        (["--top-p", "nan"], "nan"),
    ],
)
def test_numbers_out_of_range_are_refused_by_name(
    options: list[str], named: str, reference_file: Path, toy_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("marstts.cli.speak.load", load)
    words = ["speak", "Hi.", "--model", toy_bundle, "--reference", reference_file, *options]
    assert named in sentence_of(marstts(*words))


@pytest.mark.slow
def test_a_transcript_of_a_megabyte_is_refused(reference_file: Path) -> None:
    words = ["voice", "create", reference_file, "--name", "A", "--output", "a.voice", "--transcript", "word " * 200_000]
    assert "at most 4000" in sentence_of(marstts(*words))


@pytest.mark.slow
def test_weights_that_are_all_nan_are_one_sentence_or_speech(
    toy_bundle: Path, reference_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    monkeypatch.setattr("marstts.cli.speak.load", load)
    copy = Path(shutil.copytree(toy_bundle, "nan"))
    path = copy / "mars6" / "mars6.safetensors"
    tensors = safetensors.load_file(path)
    order = sorted(tensors)
    content, header = path.read_bytes(), 8 + int.from_bytes(path.read_bytes()[:8], "little")
    path.write_bytes(content[:header] + np.full((len(content) - header) // 2, np.nan, np.float16).tobytes())
    assert all(np.isnan(safetensors.load_file(path)[name]).all() for name in order)
    for engine in ("onnx", "torch"):
        words = ["speak", "Hi.", "--model", copy, "--engine", engine, "--reference", reference_file]
        assert "NaN" in sentence_of(marstts(*words))


def test_a_second_batch_in_one_folder_is_refused(reference_file: Path) -> None:
    Path("lines.txt").write_text("The cat sat.\n")
    words = ["speak", "--file", "lines.txt", "--reference", reference_file, "--batch", "1", "--output", "out"]
    with lock_folder("out", AudioError):
        assert "another process is working in this folder" in sentence_of(marstts(*words))
    assert marstts(*words).exit_code == 0


def test_a_vocabulary_on_a_full_disk_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "tokenizer.json"
    path.write_text("older")
    monkeypatch.setattr(files, "_sync", full)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: cannot be written: the disk is full"):
        BPE.train(["the cat sat"], 260, ["<a>"]).save(path)
    assert path.read_text() == "older" and len(list(tmp_path.iterdir())) == 1


def test_without_a_network_one_short_attempt_is_made(
    toy_bundle: Path, reference_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bundle with published parts, on a machine whose packets are dropped."""
    pytest.importorskip("huggingface_hub")
    attempts = []

    def drop(address: object, timeout: float = 60.0, **options: object) -> None:
        attempts.append(address)
        time.sleep(min(timeout, 0.2))
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", drop)
    monkeypatch.setattr(pretrained, "NETWORK_SECONDS", 0.2)
    monkeypatch.setattr("marstts.cli.speak.load", load)
    copy = Path(shutil.copytree(toy_bundle, "published"))
    info = json.loads((copy / "bundle.json").read_text())
    (copy / "bundle.json").write_text(json.dumps({**info, "codec": {"kind": "snac", "source": "nobody/nothing"}}))
    started = time.monotonic()
    output = sentence_of(marstts("speak", "Hi.", "--model", copy, "--reference", reference_file))
    assert "connect to the network" in output and len(attempts) == 1
    assert time.monotonic() - started < 20.0, "the client's own retries take 25 s and more"


INTERRUPTED = """
import sys
from marstts.cli.main import app
app()
"""


@posix
@pytest.mark.slow
def test_an_interrupted_tokenize_prints_no_traceback(tmp_path: Path) -> None:
    miniature_corpora.own_folder(tmp_path / "mine")
    made = marstts("prepare", "folder", "--root", tmp_path / "mine", "--output", tmp_path / "c", "--license", "own")
    assert made.exit_code == 0, made.output
    words = ["tokenize", tmp_path / "c" / "utterances.jsonl", "--output", tmp_path / "s", *TOY_PARTS]
    process = subprocess.Popen(
        [sys.executable, "-m", "marstts", *map(str, words), "--workers", "2", "--shard-size", "1"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not list((tmp_path / "s").glob("*.safetensors")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as the terminal sends it: to the parent and its workers
    _, errors = process.communicate(timeout=60)
    assert "Traceback" not in errors, errors
    assert not list((tmp_path / "s").glob(".*.partial*")) or process.returncode != 0


@pytest.mark.slow
def test_the_memory_of_a_stream_does_not_grow_with_its_text(reference_file: Path, tmp_path: Path) -> None:
    tts = scripted_synthesizer(good)
    voice = tts.clone(reference_file)

    def peak(sentences: int) -> tuple[int, float]:
        tracemalloc.start()
        sent = speak_at_once(
            tts, "The cat sat on the mat. " * sentences, Choices(voice=voice), str(tmp_path / "a.wav"), None
        )
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used, sent.seconds

    peak(2)
    (short, _), (long, seconds) = peak(10), peak(200)
    assert long - short < seconds * 24_000 * 4 / 10, f"{short} bytes for 10 sentences, {long} for 200 ({seconds:.0f} s)"
