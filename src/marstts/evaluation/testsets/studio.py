"""The studio test set: people and sentences no model here was trained on, in seven styles, rendered where it is needed.

Upstream: the committed `studio.tsv` and the open speech engines of `data.corpora` (Debian packages), or the studio
corpus itself, whose test split holds the same recordings.  Downstream: `testset.Trial`.

One sentence per speaker and style; `studio.tsv` names for each what is said and which other recording of that speaker,
in that style, is the reference. Speakers are draw 20 of 40 from each base voice of `recipes/mini/studio.toml`, whom its
other splits never hear. Rendering is a function of these lines, so that everyone's test set is the same for the same
versions of the engines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from marstts.data.corpora import engines
from marstts.data.corpora.speakers import SAMPLE_RATE, draw_speaker
from marstts.data.corpora.studio import Order, make
from marstts.data.manifest import Utterance
from marstts.errors import DataError
from marstts.evaluation.testset import Trial, make_trials

MANIFEST = "studio.tsv"
DRAWS_PER_BASE, SEED = 40, 0
"""Of the recipe: 39 speakers of each base to train on, and one held out."""


@dataclass(frozen=True)
class Line:
    """One recording of the test set."""

    id: str
    style: str
    text: str

    reference: str
    """Id of the recording it is cloned from; empty for one that is only a reference."""

    @property
    def speaker(self) -> str:
        return self.id.split("-test-")[0]

    @property
    def base(self) -> str:
        return self.speaker.rpartition(".")[0]


def committed_lines() -> list[Line]:
    """The test set as it was committed, references included."""
    rows = (files(__package__) / MANIFEST).read_text(encoding="utf-8").splitlines()
    return [Line(*row.split("\t")) for row in rows[1:]]


def choose_lines(utterances: Sequence[Utterance], folder: Path) -> list[Line]:
    """The lines of `studio.tsv` from the corpus's manifest: one sentence per test speaker and style."""
    trials = [
        trial
        for speaker in sorted({u.speaker for u in utterances if u.split == "test"})
        for trial in one_per_style([u for u in utterances if u.split == "test" and u.speaker == speaker], folder)
    ]
    spoken = {trial.id for trial in trials}
    lines = [Line(t.id, t.style, t.text, t.reference.stem) for t in trials]
    only_references = {t.reference.stem: t for t in trials if t.reference.stem not in spoken}
    return lines + [Line(name, t.style, t.reference_transcript, "") for name, t in sorted(only_references.items())]


def one_per_style(utterances: Sequence[Utterance], folder: Path) -> list[Trial]:
    trials = make_trials(utterances, folder, folder)
    return [next(t for t in trials if t.style == style) for style in sorted({t.style for t in trials})]


def read_studio(root: Path, tell: Callable[[str], None]) -> list[Trial]:
    """The test set with its recordings in `root`; those that are not there yet are rendered into it.

    Raises DataError naming the Debian packages that rendering needs.
    """
    lines = committed_lines()
    absent = [line for line in lines if not recording_of(line, root).is_file()]
    if absent:
        engines.check_installed(tuple(dict.fromkeys(line.base for line in absent)))
        tell(f"{root}: rendering {len(absent)} recordings of the studio test set, once")
    for number, line in enumerate(absent, 1):
        render(line, root)
        if number % 10 == 0:
            tell(f"studio test set: {number}/{len(absent)} rendered")
    by_id = {line.id: line for line in lines}
    return [make_trial(line, by_id[line.reference], root) for line in lines if line.reference]


def recording_of(line: Line, root: Path) -> Path:
    """Where the recording lies: as in the studio corpus."""
    return root / "audio" / line.speaker / f"{line.id}.flac"


def render(line: Line, root: Path) -> None:
    """Speak one line into its file; DataError if the engine gives something else than it should."""
    number = int(line.speaker.rpartition(".")[2])
    speaker = draw_speaker(engines.BASE_VOICES[line.base], number, DRAWS_PER_BASE, SEED)
    order = Order(
        id=line.id, speaker=speaker, style=line.style, text=line.text, split="test", source_rate=SAMPLE_RATE, seed=SEED
    )
    _, problem = make((order, root))
    if problem:
        raise DataError(f"{line.id}: this recording of the studio test set cannot be rendered: {problem}")


def make_trial(line: Line, reference: Line, root: Path) -> Trial:
    return Trial(
        id=line.id, text=line.text, speaker=line.speaker, style=line.style, reference=recording_of(reference, root),
        reference_transcript=reference.text, source=recording_of(line, root),
    )  # fmt: skip
