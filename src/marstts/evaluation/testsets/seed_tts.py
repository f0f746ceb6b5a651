"""Seed-TTS-eval, English: 1,088 sentences of Common Voice, each with a recording of its speaker (arXiv:2406.02430).

Upstream: the release's folder (`en/meta.lst`, `en/prompt-wavs/`, `en/wavs/`).  Downstream: `testset.Trial`.
Lines of meta.lst: id|words of the prompt|path of the prompt|text, and in some releases |path of the real recording.
Common Voice does not say who speaks: every prompt counts as a speaker.
"""

from __future__ import annotations

from pathlib import Path

from marstts.errors import DataError
from marstts.evaluation.testset import Trial, refuse_repeated_ids

LIST = Path("en") / "meta.lst"


def read_seed_tts(root: Path) -> list[Trial]:
    """All trials of the English list; DataError naming file and line where one cannot be used."""
    path = root / LIST
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: expected Seed-TTS-eval's English list, but {error}") from error
    trials = [parse(line, path.parent, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not trials:
        raise DataError(f"{path}: the list is empty")
    refuse_repeated_ids(trials, path)
    return trials


def parse(line: str, folder: Path, place: str) -> Trial:
    """One line of the list."""
    fields = line.strip().split("|")
    if len(fields) not in (4, 5):
        raise DataError(f"{place}: expected id|prompt's words|prompt|text, got {len(fields)} fields")
    name, words, prompt, text = fields[:4]
    reference = folder / prompt
    if not reference.is_file():
        raise DataError(f"{place}: {reference} does not exist")
    candidates = [folder / fields[4]] if len(fields) == 5 else [folder / "wavs" / f"{name}.wav"]
    source = next((path for path in candidates if path.is_file()), None)
    return Trial(
        id=name, text=text, speaker=reference.stem, style="read", reference=reference, reference_transcript=words,
        source=source,
    )  # fmt: skip
