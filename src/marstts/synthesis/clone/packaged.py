"""The voices in the package, and OpenAI's names for them.

Upstream: `voices_data/`.  Downstream: `voices`, and all that list voices.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

from marstts.io.config import Config, read_config

PACKAGED_VOICES = Path(str(files("marstts"))) / "voices_data"
VOICE_SUFFIX = ".voice"

OPENAI_VOICES = {
    "alloy": "ada",
    "ash": "ross",
    "ballad": "alan",
    "cedar": "kal",
    "coral": "linda",
    "echo": "ross",
    "fable": "emma",
    "marin": "nora",
    "nova": "linda",
    "onyx": "kal",
    "sage": "nora",
    "shimmer": "emma",
    "verse": "ewan",
}
"""OpenAI's voice names and the packaged voices that stand for them."""


class VoiceEntry(Config):
    """One row of `voices_data/voices.toml`."""

    name: str

    description: str
    """Sex, accent and register of the speaker, and whether the speaker is synthetic."""

    license: str

    source: str
    """Origin of the reference."""


class VoiceTable(Config):
    """`voices_data/voices.toml`."""

    default: str
    """The voice of `marstts speak` without any option."""

    voices: tuple[VoiceEntry, ...]


@cache
def voice_table() -> VoiceTable:
    """The voices in the package."""
    return read_config(VoiceTable, PACKAGED_VOICES / "voices.toml")


def packaged_names() -> list[str]:
    """Names of the voices in the package."""
    return [entry.name for entry in voice_table().voices]


def packaged_name(name: str) -> str | None:
    """The packaged voice that a name in any case stands for, its own or OpenAI's; None for other names."""
    lowered = name.casefold()
    found = OPENAI_VOICES.get(lowered, lowered)
    return found if found in packaged_names() else None
