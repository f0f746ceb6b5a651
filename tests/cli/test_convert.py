"""`marstts convert`, and the model it makes."""

from __future__ import annotations

import hashlib
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import marstts
from marstts.checkpoint import load_mars6
from marstts.cli.main import app
from marstts.errors import CheckpointError
from marstts.synthesis import conversion

GOLDEN = Path(__file__).parents[1] / "golden" / "mars6"
NEIGHBOURS = ["--codec", "toy:4096", "--identity", "toy:512", "--style", "toy:1024"]


def convert(checkpoint: Path, output: Path, *options: str, tokenizer: Path = GOLDEN / "tokenizer.model") -> Result:
    arguments = ["convert", str(checkpoint), "--tokenizer", str(tokenizer), "--output", str(output), *options]
    return CliRunner().invoke(app, arguments)


def test_a_converted_model_speaks(tmp_path: Path, reference_file: Path) -> None:
    result = convert(GOLDEN / "checkpoint.pt", tmp_path / "turbo", *NEIGHBOURS)
    assert result.exit_code == 0, result.stderr
    assert hashlib.sha256((GOLDEN / "checkpoint.pt").read_bytes()).hexdigest() in result.stdout
    speech = ["--reference", str(reference_file), "--output", str(tmp_path / "a.wav")]
    result = CliRunner().invoke(app, ["speak", "Hello there.", *speech, "--model", str(tmp_path / "turbo")])
    assert result.exit_code == 0, result.stderr
    assert (tmp_path / "a.wav").stat().st_size > 44


def test_the_published_neighbours_are_named_but_not_fetched(tmp_path: Path) -> None:
    result = convert(GOLDEN / "checkpoint.safetensors", tmp_path / "turbo")
    assert result.exit_code == 0, result.stderr
    description = (tmp_path / "turbo" / "bundle.json").read_text()
    for name in ("hubertsiuzdak/snac_24khz", "microsoft/wavlm-base-plus-sv", "microsoft/msclap"):
        assert name in description
    assert load_mars6(tmp_path / "turbo").config.text_vocab_size == 322


@pytest.mark.parametrize("broken", ["checkpoint", "tokenizer", "hash", "codec"])
def test_nothing_is_written_where_something_is_refused(broken: str, tmp_path: Path) -> None:
    junk = tmp_path / "junk.pt"
    junk.write_bytes(b"junk")
    output = tmp_path / "output" / "turbo"
    options = {"hash": ["--sha256", "0" * 64], "codec": ["--codec", str(tmp_path / "nowhere")]}.get(broken, [])
    result = convert(
        junk if broken == "checkpoint" else GOLDEN / "checkpoint.safetensors",
        output,
        *options,
        tokenizer=junk if broken == "tokenizer" else GOLDEN / "tokenizer.model",
    )
    assert result.exit_code == 2
    assert result.stderr.startswith("marstts: ") and result.stderr.count("\n") == 1
    assert not output.exists() and not list(tmp_path.glob("output/*"))


def test_a_refused_download_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise urllib.error.URLError("no network in tests")

    monkeypatch.setenv("MARSTTS_CACHE", str(tmp_path))
    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    with pytest.raises(CheckpointError, match="marstts convert") as caught:
        marstts.load("mars6-turbo")
    assert "\n" not in str(caught.value)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_the_authors_model_is_converted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[str] = []

    def answer(url: str, timeout: float) -> object:
        name = url.rpartition("/")[2]
        fetched.append(name)
        return (GOLDEN / {"eng-tok-512.model": "tokenizer.model"}.get(name, "checkpoint.pt")).open("rb")

    monkeypatch.setenv("MARSTTS_CACHE", str(tmp_path))
    monkeypatch.setattr(urllib.request, "urlopen", answer)
    folder = conversion.turbo_bundle()
    assert load_mars6(folder).config.width == 16
    assert conversion.turbo_bundle() == folder
    assert fetched == ["model-2000100.pt", "eng-tok-512.model"]
