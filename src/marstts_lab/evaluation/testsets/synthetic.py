"""The synthetic test set: speakers and sentences of no training set, in seven styles, rendered by open TTS engines.

Upstream: the committed `synthetic.tsv` and the engines of `data.corpora` (Debian packages), or the synthetic corpus
itself, whose test split has the same recordings.  Downstream: `metrics.trial.Trial`.

One sentence per speaker and style; `synthetic.tsv` has its text and the other recording of that speaker, in that style,
that is the reference. Speakers are number 20 of 40 of each base voice of `recipes/mini/synthetic.toml`; the other
splits never use them. Rendering is a function of these lines: the test set is the same for the same engine versions.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from marstts.errors import DataError, MarsError
from marstts_lab.data.corpora import tts_engines as engines
from marstts_lab.metrics.trial import Trial

logger = logging.getLogger(__name__)

MANIFEST = "synthetic.tsv"
DRAWS_PER_BASE, SEED = 40, 0
"""Settings of the recipe: 39 speakers of each base voice for training, and one held out."""

RENDERING_PACKAGES = ("pyworld", "pyloudnorm")
"""Python packages of the extra `synthetic`."""


@dataclass(frozen=True)
class RenderedLine:
    """One recording of the test set."""

    id: str
    style: str
    text: str

    reference: str
    """Id of the recording it is cloned from; empty for one that is only a reference."""

    @property
    def speaker(self) -> str:
        """The synthetic speaker."""
        return self.id.split("-test-")[0]

    @property
    def base_voice(self) -> str:
        """The engine's voice that the speaker is derived from."""
        return self.speaker.rpartition(".")[0]


def committed_lines() -> list[RenderedLine]:
    """The test set as it is committed, references included."""
    rows = (files(__package__) / MANIFEST).read_text(encoding="utf-8").splitlines()
    return [RenderedLine(*row.split("\t")) for row in rows[1:]]


def rendering_problems(root: Path) -> list[str]:
    """Packages to install for rendering the missing recordings, in sentences; empty if nothing is missing."""
    absent = absent_lines(root)
    if not absent:
        return []
    problems = []
    packages = [name for name in RENDERING_PACKAGES if find_spec(name) is None]
    if packages:
        problems.append(
            f"rendering the test set needs the Python packages {', '.join(packages)}: pip install 'marstts[synthetic]'"
        )
    try:
        engines.check_installed(tuple(dict.fromkeys(line.base_voice for line in absent)))
    except MarsError as error:
        problems.append(str(error))
    return problems


def absent_lines(root: Path) -> list[RenderedLine]:
    """The lines without a recording in `root`."""
    return [line for line in committed_lines() if not recording_path(line, root).is_file()]


def read_synthetic(root: Path) -> list[Trial]:
    """The test set with its recordings in `root`; missing ones are rendered into it.

    Raises DataError naming the packages that rendering needs.
    """
    problems = rendering_problems(root)
    if problems:
        raise DataError("; ".join(problems))
    lines, absent = committed_lines(), absent_lines(root)
    if absent:
        logger.info("%s: rendering %d recordings of the synthetic test set, once", root, len(absent))
    for number, line in enumerate(absent, 1):
        render(line, root)
        if number % 10 == 0:
            logger.info("synthetic test set: %d/%d rendered", number, len(absent))
    by_id = {line.id: line for line in lines}
    return [make_trial(line, by_id[line.reference], root) for line in lines if line.reference]


def recording_path(line: RenderedLine, root: Path) -> Path:
    """Path of a recording, the same as in the synthetic corpus."""
    return root / "audio" / line.speaker / f"{line.id}.flac"


def render(line: RenderedLine, root: Path) -> None:
    """Render one line into its file; DataError if the engine fails."""
    # needs the extra `synthetic`, which test sets with recordings do without
    from marstts_lab.data.corpora.speakers import SAMPLE_RATE, draw_speaker
    from marstts_lab.data.corpora.synthetic import UtteranceSpec, render_to_file

    number = int(line.speaker.rpartition(".")[2])
    speaker = draw_speaker(engines.BASE_VOICES[line.base_voice], number, DRAWS_PER_BASE, SEED)
    spec = UtteranceSpec(
        id=line.id, speaker=speaker, style=line.style, text=line.text, split="test", source_rate=SAMPLE_RATE, seed=SEED
    )
    _, problem = render_to_file(root, spec)
    if problem:
        raise DataError(f"{line.id}: this recording of the synthetic test set cannot be rendered: {problem}")


def make_trial(line: RenderedLine, reference: RenderedLine, root: Path) -> Trial:
    """The trial of a line."""
    return Trial(
        id=line.id, text=line.text, speaker=line.speaker, style=line.style, reference=recording_path(reference, root),
        reference_transcript=reference.text, ground_truth=recording_path(line, root),
    )  # fmt: skip
