"""The examination of published weights: speech in each profile, and one page (faults: `test_doctor_true_sizes`)."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mars5_published import AR, NAR, ar_content, nar_content, save
from marstts.audio import Waveform
from marstts.cli import doctor
from marstts.cli.main import app
from marstts.codec.registry import ToyCodecPart
from marstts.errors import MissingExtraError
from marstts.evaluation import published_weights
from marstts.evaluation.published_weights import RECORDED, Release, examine, fixed_sound, page
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


def test_a_release_of_mars5_as_recorded_has_no_difference(tmp_path: Path) -> None:
    assert examine(mars5(tmp_path), tmp_path, recorded=MARS5).differences == ()


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
