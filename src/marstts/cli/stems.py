"""Stems: a WAV file for each voice of a speech, silent while another one speaks, all as long as the whole.

Upstream: the sentences of `kept_sentences`.  Downstream: programs that mix sound, where all stems begin at zero.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from marstts.audio.writer import open_writer
from marstts.cli.cast import NARRATOR
from marstts.io.files import atomic_path

_UNSAFE = re.compile(r"[^\w -]+")
MAX_NAME = 50


def write_stems(wav: Path, sentences: Sequence[dict[str, Any]], folder: Path) -> None:
    """Write `folder/NAME.wav` for each voice in the sentences of a WAV file, `narrator.wav` for that of the text.

    Raises AudioError where a file cannot be written.
    """
    files = name_stems([sentence["voice"] for sentence in sentences])
    with soundfile.SoundFile(wav) as whole, ExitStack() as stack:
        writers = {
            voice: stack.enter_context(open_writer(folder / file, whole.samplerate, target=atomic_path))
            for voice, file in files.items()
        }
        for sentence in sentences:
            samples = whole.read(sentence["samples"] - whole.tell(), dtype="float32")
            for voice, write in writers.items():
                write(samples if voice == sentence["voice"] else np.zeros_like(samples))


def name_stems(voices: Sequence[str | None]) -> dict[str | None, str]:
    """The file of each voice; voices whose names differ in characters that files cannot have get a number."""
    files: dict[str | None, str] = {}
    for voice in dict.fromkeys(voices):
        name = _UNSAFE.sub("-", voice or NARRATOR)[:MAX_NAME].strip(" -") or "voice"
        taken = {file.lower() for file in files.values()}
        numbered = (f"{name}{f'-{number}' if number > 1 else ''}.wav" for number in range(1, len(files) + 2))
        files[voice] = next(file for file in numbered if file.lower() not in taken)
    return files
