"""The public names, and the packages that importing them loads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import marstts
from marstts.audio import Waveform
from marstts.synthesis.clone.packaged import packaged_names, voice_table
from marstts.synthesis.clone.voice_folder import VoiceFolder
from marstts.synthesis.clone.voices import voices
from marstts.synthesis.loading import load
from marstts.synthesis.speech import Speech
from marstts.synthesis.synthesizer import Synthesizer
from marstts.voice import Voice


def loaded_after(statement: str) -> set[str]:
    """Top-level packages in a fresh interpreter after `statement`."""
    code = f"{statement}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_public_names_are_those_of_their_modules():
    assert (marstts.load, marstts.Voice) == (load, Voice)
    assert (marstts.Speech, marstts.Synthesizer) == (Speech, Synthesizer)
    assert (marstts.Waveform, marstts.voices) == (Waveform, voices)
    assert marstts.VoiceFolder is VoiceFolder
    assert dir(marstts) == [
        "Speech",
        "Synthesizer",
        "Voice",
        "VoiceFolder",
        "Waveform",
        "__version__",
        "load",
        "voices",
    ]


def test_the_packaged_voices_are_listed_with_the_default_first():
    assert marstts.voices()[0] == voice_table().default and sorted(marstts.voices()) == sorted(packaged_names())


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="whisper"):
        marstts.whisper  # noqa: B018


def test_version_is_that_of_the_package():
    pyproject = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{marstts.__version__}"' in pyproject


def test_importing_the_package_loads_nothing():
    assert not loaded_after("import marstts") & {"numpy", "onnxruntime", "torch", "typer", "pydantic", "tokenizers"}
