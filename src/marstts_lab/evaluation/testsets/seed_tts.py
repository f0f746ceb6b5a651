"""Seed-TTS-eval, English: 1,088 sentences of Common Voice, each with a recording of its speaker (arXiv:2406.02430).

Upstream: the release's folder (`en/meta.lst`, `en/prompt-wavs/`, `en/wavs/`).  Downstream: `metrics.trial.Trial`.
Lines of meta.lst: id|transcript of the prompt|path of the prompt|text, and in some releases |path of the ground truth.
Common Voice does not identify speakers: every prompt counts as a speaker.
"""

from __future__ import annotations

from pathlib import Path

from marstts.errors import DataError
from marstts.io.reading import printable_name, read_text
from marstts_lab.evaluation.testset import is_regular_file, refuse_repeated_ids, trial_id
from marstts_lab.metrics.trial import Trial

LIST = Path("en") / "meta.lst"
MAX_LIST_BYTES = 2**26


def read_seed_tts(root: Path) -> list[Trial]:
    """All trials of the English list; DataError naming file and line where one cannot be used."""
    path = root / LIST
    lines = read_text(path, MAX_LIST_BYTES, DataError).splitlines()
    place = printable_name(path)
    trials = [parse(line, path.parent, f"{place}:{number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not trials:
        raise DataError(f"{place}: the list is empty")
    refuse_repeated_ids(trials, path)
    return trials


def parse(line: str, folder: Path, place: str) -> Trial:
    """One line of the list."""
    fields = line.strip().split("|")
    if len(fields) not in (4, 5):
        raise DataError(f"{place}: expected id|transcript of the prompt|prompt|text, got {len(fields)} fields")
    name, transcript, prompt, text = fields[:4]
    reference = folder / prompt
    if not is_regular_file(reference):
        raise DataError(f"{place}: {printable_name(reference)} does not exist")
    candidates = [folder / fields[4]] if len(fields) == 5 else [folder / "wavs" / f"{name}.wav"]
    ground_truth = next((path for path in candidates if is_regular_file(path)), None)
    return Trial(
        id=trial_id(name), text=text, speaker=reference.stem, style="read", reference=reference,
        reference_transcript=transcript, ground_truth=ground_truth,
    )  # fmt: skip
