"""Engines say the same in every environment: what a user's home, locale or memory allocator holds changes no sample."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from marstts_lab.data.corpora.tts_engines import BASE_VOICES, call

TEXT = "The birch canoe slid."


@pytest.mark.parametrize(
    ("name", "variables"),
    [
        ("espeak-f2", {}),  # its breath is noise; the first call of a new home had another one
        ("pico-us", {"MALLOC_PERTURB_": "101"}),  # it reads memory that it never wrote
        ("rhvoice-bdl", {"MALLOC_PERTURB_": "101", "LANG": "tr_TR.UTF-8"}),
        ("flite-slt", {"MALLOC_PERTURB_": "101", "LANG": "tr_TR.UTF-8"}),
    ],
)
def test_an_engine_says_the_same_in_a_new_home_and_with_other_variables(
    name: str, variables: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    voice = BASE_VOICES[name]
    if shutil.which(voice.program) is None:
        pytest.skip(f"{voice.program} is not installed")
    before = voice.speak(TEXT, voice, 1.0, 1.0)
    for variable in ("XDG_RUNTIME_DIR", "PULSE_RUNTIME_PATH", "PULSE_SERVER"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in {"HOME": str(tmp_path), **variables}.items():
        monkeypatch.setenv(variable, value)
    for _ in range(2):
        assert np.array_equal(voice.speak(TEXT, voice, 1.0, 1.0).samples, before.samples)
    assert not list(tmp_path.iterdir()), "an engine wrote to the home of its user"


def test_an_engine_gets_a_new_home_and_no_variable_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_PERTURB_", "17")
    monkeypatch.setenv("HOME", "/home/somebody")
    for number in range(2):
        call(["sh", "-c", f"env > '{tmp_path}/{number}'; ls -A $HOME >> '{tmp_path}/{number}'"])
    first, second = (dict(line.split("=", 1) for line in (tmp_path / n).read_text().splitlines()) for n in "01")
    assert "MALLOC_PERTURB_" not in first and first["HOME"] not in ("/home/somebody", second["HOME"])
    assert first["LC_ALL"] == "C.UTF-8" and first["PULSE_SERVER"].startswith("unix:")
    assert not Path(first["HOME"]).exists()
