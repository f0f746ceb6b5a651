"""The cast of a text: which voice speaks under which name.

Upstream: the options of `marstts speak`, a file of lines `NAME = voice`.  Downstream: `synthesis.clone.voices`.
The names `narrator` and `dialogue` give the voice of the text, and of what is said in quotation marks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from html import unescape
from pathlib import Path

from marstts.errors import ConfigError, VoiceError
from marstts.io.reading import printable_name, printable_text, read_text
from marstts.synthesis.clone.packaged import packaged_name, packaged_names
from marstts.synthesis.clone.voice_folder import folded, own_voices
from marstts.synthesis.clone.voices import voices_in
from marstts.synthesis.speaking import pauses_of
from marstts.synthesis.synthesizer import Synthesizer
from marstts.text.segments import VOICE_MARK, Pauses
from marstts.voice import Voice

NARRATOR, DIALOGUE = "narrator", "dialogue"
MAX_BYTES = 2**20
NAMED = re.compile(rf"""{VOICE_MARK}|\bname\s?=\s?["'](?P<element>[^"'<>\n]{{1,80}})["']""")
"""A mark `[voice:NAME]`, or the attribute of an element `<voice name="NAME">`."""


def read_cast(path: Path) -> dict[str, str]:
    """Names and voices of a cast file, TOML or plain; a voice is a packaged one's name, a file beside the cast file, or
    the name of one of the user's own voices.

    Raises VoiceError for a line without a name and a voice, or a name that comes twice.
    """
    cast: dict[str, str] = {}
    for number, line in enumerate(read_text(path, MAX_BYTES, VoiceError).splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, voice = (_unquoted(part) for part in line.partition("=")[::2])
        name = name.lower() if name.lower() in (NARRATOR, DIALOGUE) else name
        if not name or not voice or name in cast:
            problem = "this name has a voice already" if name in cast else "expected NAME = voice"
            raise VoiceError(
                f"{printable_name(path)}:{number}: {problem}, but came {printable_text(line.strip(), 80)!r}"
            )
        cast[name] = voice if is_name(voice, path.parent) else str(path.parent / voice)
    return cast


def is_name(voice: str, folder: Path) -> bool:
    """Whether a cast names a packaged voice, or a name in any case, OpenAI's or the user's own, that no file has."""
    if voice in packaged_names():
        return True
    return not os.path.exists(folder / voice) and (packaged_name(voice) is not None or voice in own_voices())


def _unquoted(part: str) -> str:
    """A name or value without its quotation marks, or without the comment behind it."""
    part = part.strip()
    if part[:1] in ("'", '"') and (end := part.find(part[0], 1)) > 0:
        return part[1:end].strip()
    return part.partition(" #")[0].strip()


def open_cast(synthesizer: Synthesizer, cast: Path | None, folder: Path | None) -> dict[str, Voice]:
    """The voices of a folder and of a cast file, by name; an error names the line's voice that cannot be opened."""
    voices = {} if folder is None else voices_in(folder)
    for name, voice in ({} if cast is None else read_cast(cast)).items():
        voices[name] = synthesizer.open_voice(voice)
    return voices


def add_dialogue(synthesizer: Synthesizer, voices: dict[str, Voice], dialogue: str | None) -> str | None:
    """The name of the voice of dialogue: one of `voices`, to which a packaged voice or a file is added."""
    if dialogue is None:
        return DIALOGUE if DIALOGUE in voices else None
    if dialogue in voices:
        return dialogue
    if (known := next((name for name in voices if name.casefold() == dialogue.casefold()), None)) is not None:
        return known
    voices[dialogue] = synthesizer.open_voice(dialogue)
    return dialogue


def add_own_voices(voices: dict[str, Voice], texts: Iterable[str]) -> None:
    """Add those of the user's own voices that the marks and elements of texts name, by the names as written there.

    Others are not added: an interrupted book goes on only with the same voices, and a new voice is none of its.
    """
    own, given = own_voices(), {folded(name) for name in voices}
    marks = (mark for text in texts if own for mark in NAMED.finditer(text))
    for name in dict.fromkeys((mark["voice"] or unescape(mark["element"] or "")).strip() for mark in marks):
        if folded(name) not in given and name in own:
            voices[name] = own[name]


def read_pauses(stated: str | None) -> Pauses:
    """Pauses such as "paragraph=1,scene=3"; ConfigError for other names or values."""
    chosen = {}
    for each in [] if stated is None else stated.split(","):
        name, _, seconds = (part.strip() for part in each.partition("="))
        try:
            chosen[name] = float(seconds)
        except ValueError as error:
            raise ConfigError(f"--pauses {stated}: expected seconds after {name}=, but came {seconds!r}") from error
    return pauses_of(chosen, f"--pauses {stated}")
