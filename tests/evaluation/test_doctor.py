"""The examination of published weights: it finds what differs, says nothing of what agrees, and makes one page."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from mars5_published import AR, NAR, ar_content, nar_content, save
from marstts.audio import Waveform
from marstts.cli import doctor
from marstts.cli.main import app
from marstts.codec.registry import ToyCodecPart
from marstts.errors import MissingExtraError
from marstts.evaluation import published_weights
from marstts.evaluation.published_weights import RECORDED, Check, Recorded, Release, examine, fixed_sound, page
from marstts.speaker.registry import ToyEncoderPart

pytestmark = pytest.mark.slow  # converts models

GOLDEN = Path(__file__).parents[1] / "golden" / "mars6"

MARS6 = replace(
    RECORDED["mars6-turbo"],
    sizes={**RECORDED["mars6-turbo"].sizes, "width": 16, "encoder_layers": 2, "global_layers": 2, "local_layers": 2},
    profiles={},
)
"""What is recorded of the published model, in the sizes of the small one."""

WIDE_AR = AR.model_copy(update={"width": 128, "speaker_heads": 2})
WIDE_NAR = NAR.model_copy(update={"width": 192, "heads": 3})
"""Heads of a published model are 64 wide."""

CODEC5 = ToyCodecPart(codebook_size=1024, hop_lengths=(320,) * 8)

MARS5 = replace(
    RECORDED["mars5-english"],
    sizes={
        **{f"ar.{name}": value for name, value in WIDE_AR.model_dump().items()},
        **{f"nar.{name}": value for name, value in WIDE_NAR.model_dump().items()},
    },
    profiles={},
)


def mars6(folder: Path) -> Release:
    """A release of a small MARS6 with random weights, which differs in nothing."""
    files = {"checkpoint": folder / "model-2000100.pt", "tokenizer": folder / "eng-tok-512.model"}
    shutil.copyfile(GOLDEN / "checkpoint.pt", files["checkpoint"])
    shutil.copyfile(GOLDEN / "tokenizer.model", files["tokenizer"])
    encoders = {"identity": ToyEncoderPart(size=512), "style": ToyEncoderPart(size=1024)}
    return Release("mars6-turbo", files, ToyCodecPart(), encoders)


def mars5(folder: Path) -> Release:
    """The same of a small MARS5."""
    files = {"ar": folder / "mars5_ar.safetensors", "nar": folder / "mars5_nar.safetensors"}
    save(ar_content(WIDE_AR), files["ar"])
    save(nar_content(WIDE_NAR), files["nar"])
    return Release("mars5-english", files, CODEC5)


@pytest.fixture(autouse=True)
def unaligned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Word times, which take seconds to find, are no part of an examination."""
    monkeypatch.setattr("marstts.mars6.released.find_alignment", lambda model, tokenizer: None)


def differences(release: Release, recorded: Recorded, folder: Path) -> dict[str, Check]:
    found = examine(release, folder, recorded=recorded)
    return {check.subject: check for check in found.differences}


def changed(change: Callable[[dict[str, Any]], None]) -> Callable[[Release], Release]:
    """A change of the checkpoint's content."""

    def plant(release: Release) -> Release:
        path = release.files["checkpoint"]
        content = torch.load(path, weights_only=True)
        change(content)
        torch.save(content, path)
        return release

    return plant


def tokenizer_lines(change: Callable[[list[str]], list[str]]) -> Callable[[Release], Release]:
    """A change of the tokenizer's lines."""

    def plant(release: Release) -> Release:
        path = release.files["tokenizer"]
        path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")
        return release

    return plant


def without_end(lines: list[str]) -> list[str]:
    return [line.replace("<|endoftext|>", "<|end|>") for line in lines]


def inside_the_merges(lines: list[str]) -> list[str]:
    return [f"{line.split()[0]} 256" if line.startswith("<|endoftext|>") else line for line in lines]


def cut(release: Release) -> Release:
    path = release.files["checkpoint"]
    path.write_bytes(path.read_bytes()[:-1000])
    return release


def drop(content: dict[str, Any]) -> None:
    del content["model"]["module.decoder.layers.1.norm3.bias"]


def add(content: dict[str, Any]) -> None:
    content["model"]["module.extra.weight"] = torch.zeros(2)


def reshape(content: dict[str, Any]) -> None:
    content["model"]["module.fast_pos_emb.weight"] = torch.zeros(6, 16)


def spoil(content: dict[str, Any]) -> None:
    content["model"]["module.out_proj.weight"][3, 3] = torch.nan


def fewer_layers(content: dict[str, Any]) -> None:
    layer = "module.encoder.layers.1."
    content["model"] = {name: part for name, part in content["model"].items() if not name.startswith(layer)}


def more_rows(content: dict[str, Any]) -> None:
    rows = content["model"]["module.inp_emb.weight"]
    content["model"]["module.inp_emb.weight"] = torch.cat((rows, rows[:7]))


def of_another_class(content: dict[str, Any]) -> None:
    content["cfg"] = argparse.Namespace(width=16)


PLANTED: dict[str, tuple[Callable[[Release], Release], str, str]] = {
    "a missing tensor": (changed(drop), "model: reading", "norm3.bias is missing"),
    "another tensor": (changed(add), "model: reading", "extra.weight is not expected"),
    "another shape": (changed(reshape), "model: reading", "(6, 16) instead of (7, 16)"),
    "no numbers": (changed(spoil), "model: reading", "not finite"),
    "fewer layers": (changed(fewer_layers), "model: encoder_layers", "1"),
    "more rows of text": (changed(more_rows), "tokenizer: entries", "322"),
    "another class": (
        changed(of_another_class), "checkpoint: classes other than tensors and plain data", "argparse.Namespace",
    ),
    "a cut file": (cut, "checkpoint: reading", "corrupt"),
    "no end of text": (tokenizer_lines(without_end), "tokenizer: missing special tokens", "<|endoftext|>"),
    "a special token inside the merges": (
        tokenizer_lines(inside_the_merges), "tokenizer: special tokens with the id of a byte or merge",
        "<|endoftext|>",
    ),
    "another codec": (
        lambda release: replace(release, codec=ToyCodecPart(hop_lengths=(1024, 512, 256))), "codec: hop_lengths",
        "(1024, 512, 256)",
    ),
    "another identity encoder": (
        lambda release: replace(release, encoders={**release.encoders, "identity": ToyEncoderPart(size=256)}),
        "identity encoder: length", "256",
    ),
}  # fmt: skip
"""Differences of a MARS6: how each is made, the check that finds it, and what it says."""

CONSEQUENCES = {"a cut file": {"model: reading"}, "a special token inside the merges": {"tokenizer: entries"}}
"""Further checks that a planted difference fails."""


def test_a_release_as_recorded_has_no_difference(tmp_path: Path) -> None:
    (tmp_path / "6").mkdir()
    (tmp_path / "5").mkdir()
    assert differences(mars6(tmp_path / "6"), MARS6, tmp_path / "6") == {}
    assert differences(mars5(tmp_path / "5"), MARS5, tmp_path / "5") == {}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_difference_is_found(name: str, tmp_path: Path) -> None:
    plant, subject, words = PLANTED[name]
    found = differences(plant(mars6(tmp_path)), MARS6, tmp_path)
    assert words in found[subject].found
    assert found.keys() - {subject} <= CONSEQUENCES.get(name, set()), "nothing else differs"


def test_at_least_ten_differences_are_planted_and_each_has_its_own_line() -> None:
    assert len({(subject, words) for _, subject, words in PLANTED.values()}) == len(PLANTED) >= 10


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentences that a model with random weights is done with soon."""
    monkeypatch.setattr(published_weights, "SENTENCES", ("I.", "A-B.", "Nine."))


class Listener:
    """A recognizer that always hears the same."""

    name = "listener"

    def transcribe(self, waveform: Waveform) -> list[str]:
        return ["nine"]


@pytest.mark.usefixtures("short")
def test_each_profile_speaks_three_sentences_that_are_transcribed(tmp_path: Path, reference_file: Path) -> None:
    spoken = replace(MARS6, profiles=RECORDED["mars6-turbo"].profiles)
    found = examine(mars6(tmp_path), tmp_path, recorded=spoken, reference=reference_file, recognizer=Listener())
    assert found.differences == () and len(found.spoken) == 6
    assert {sentence.profile for sentence in found.spoken} == {"published spelling", "hyphens"}
    assert [sentence.error_rate for sentence in found.spoken[:3]] == [1.0, 1.0, 0.0]
    text = page(found)
    assert text.splitlines()[2] == f"All {len(found.checks)} checks agree."
    assert "| nine |" in text and "SHA-256" in text


def test_the_command_writes_a_page_and_says_where_there_is_no_whisper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference_file: Path
) -> None:
    def no_whisper() -> None:
        raise MissingExtraError("pip install 'marstts[eval]'")

    monkeypatch.setattr(doctor, "FasterWhisperRecognizer", no_whisper)
    monkeypatch.setattr(published_weights, "speak", lambda bundle, voice: [fixed_sound()] * 3)
    release, output = mars6(tmp_path), tmp_path / "page.md"
    files = [argument for path in release.files.values() for argument in ("--file", str(path))]
    parts = ["--codec", "toy:4096", "--identity", "toy:512", "--style", "toy:1024", "--reference", str(reference_file)]
    result = CliRunner().invoke(app, ["doctor", "mars6-turbo", *files, *parts, "--output", str(output)])
    assert result.exit_code == 0, result.stderr
    assert "there is no Whisper" in result.stderr and "4 of" in result.stdout  # width and three counts of layers
    assert "| model: width | 512 | 16 |" in output.read_text() and "there is no Whisper" in output.read_text()
    for wrong in (["doctor", "mars7"], ["doctor", "mars6-turbo", "--file", "a.pt"]):
        assert CliRunner().invoke(app, wrong).exit_code == 2
