"""Test sets: which sentence, in whose voice, beside which real recording.

Upstream: a manifest (`data.manifest`), or a text editor.  Downstream: `systems`, which speak, and `score`.

A test set is a JSONL file, one trial per line; paths are relative to its folder. The *reference* is what a voice is
cloned from; the *source* is the real recording of the text by that speaker, which bounds what a system can reach.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from marstts.config import Config, parse_config
from marstts.data.manifest import Utterance, read_manifest
from marstts.errors import DataError
from marstts.evaluation.metrics.words import plain_words
from marstts.evaluation.ordering import stable_order

GOOD_REFERENCE_SECONDS = 3.0
"""Speaker judges need about this much."""

MIN_REFERENCE_SECONDS = 1.0
"""Cloning needs at least this much."""


class Trial(Config):
    """One sentence to be spoken in one voice."""

    id: str = Field(pattern=r"^[^/\\\s.][^/\\\s]*$")
    """Names the take's file; no slash, no space."""

    text: str
    """The words wanted."""

    spoken: str | None = None
    """The same as it is read aloud, where the judges' normaliser would read it another way ("$5", "1984")."""

    speaker: str
    style: str

    reference: Path
    """Recording the voice is cloned from; same speaker and style, another text."""

    reference_transcript: str

    source: Path | None = None
    """Real recording of the text by the speaker; None where there is none."""

    @property
    def words(self) -> str:
        """What judges listen for."""
        return self.spoken or self.text


def read_testset(path: Path) -> list[Trial]:
    """All trials, their paths resolved; DataError naming file and line at the first that cannot be used."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: expected a test set, a .jsonl file with one trial per line, but {error}") from error
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    trials = [parse_trial(line, path.parent, f"{path}:{number}") for number, line in numbered]
    if not trials:
        raise DataError(f"{path}: the test set has no trials; make one with `marstts evaluate testset`")
    refuse_repeated_ids(trials, path)
    return trials


def refuse_repeated_ids(trials: Sequence[Trial], path: Path) -> None:
    """Raise DataError naming every id that occurs twice."""
    repeated = sorted(name for name, count in Counter(trial.id for trial in trials).items() if count > 1)
    if repeated:
        raise DataError(f"{path}: ids must be unique, but {', '.join(repeated)} occur twice")


def parse_trial(line: str, folder: Path, place: str) -> Trial:
    """One line as a Trial; its recordings must exist and its text must have words."""
    try:
        values = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{place}: expected one JSON object per line, but {error}") from error
    if not isinstance(values, dict):
        raise DataError(f"{place}: expected a JSON object, got {type(values).__name__}")
    trial = parse_config(Trial, values, place)
    if not plain_words(trial.text):
        raise DataError(f"{place}: the text {trial.text!r} has no words to listen for")
    source = None if trial.source is None else folder / trial.source
    found = trial.model_copy(update={"reference": folder / trial.reference, "source": source})
    for recording in (found.reference, found.source):
        if recording is not None and not recording.is_file():
            raise DataError(f"{place}: {recording} does not exist; paths are relative to the test set's folder")
    return found


def write_testset(trials: Sequence[Trial], path: Path) -> None:
    """Write one line per trial, paths relative to the file's folder."""
    path.parent.mkdir(parents=True, exist_ok=True)

    def line(trial: Trial) -> str:
        values = trial.model_dump(mode="json")
        for name in ("reference", "source"):
            if values[name] is not None:
                values[name] = Path(os.path.relpath(values[name], path.parent)).as_posix()
        return json.dumps(values, ensure_ascii=False)

    path.write_text("".join(line(trial) + "\n" for trial in trials), encoding="utf-8")


def make_testset(
    manifest: Path,
    *,
    num_speakers: int,
    num_sentences: int,
    speakers: Sequence[str] = (),
    style: str | None = "regular",
    without: Sequence[Trial] = (),
) -> list[Trial]:
    """Trials from a manifest's test split: the same manifest and numbers give the same trials on every machine.

    `speakers` names them, else `num_speakers` are drawn; sentences are dealt evenly, no text is used twice, and every
    one is paired with another utterance by its speaker in the same style (None: any), of at least 3 s if there is one.
    Sentences of the trials `without` are left out. DataError where the manifest has too few.
    """
    spoken_for = {trial.text for trial in without}
    utterances = [
        u
        for u in read_manifest(manifest)
        if u.split == "test" and style in (None, u.style) and u.text not in spoken_for
    ]
    by_speaker = group_by_speaker(utterances)
    chosen = choose_speakers(by_speaker, speakers, num_speakers, f"{manifest}, test split, style {style or 'any'!r}")
    sentences = deal_sentences([by_speaker[speaker] for speaker in chosen], num_sentences)
    if len(sentences) < num_sentences:
        raise DataError(
            f"{manifest}: {num_sentences} sentences wanted, but the test split has only {len(sentences)} "
            f"different ones of style {style or 'any'!r} by {', '.join(chosen)}; ask for fewer, or for more speakers"
        )
    trials = []
    for sentence in sentences:
        alike = [u for u in by_speaker[sentence.speaker] if u.style == sentence.style]
        trials.append(make_trial(sentence, choose_reference(sentence, alike, manifest), manifest.parent))
    return trials


def make_trials(utterances: Sequence[Utterance], folder: Path, place: Path) -> list[Trial]:
    """A trial for every utterance that has another one of its speaker and style as reference, in an order that depends
    on ids alone. `folder` is where the recordings' paths begin; DataError, about `place`, where no pair can be made.
    """
    groups: dict[tuple[str, str], list[Utterance]] = defaultdict(list)
    for utterance in sorted(utterances, key=lambda u: stable_order(u.id)):
        if plain_words(utterance.text):
            groups[utterance.speaker, utterance.style].append(utterance)
    trials = [
        make_trial(sentence, choose_reference(sentence, group, place), folder)
        for _, group in sorted(groups.items())
        for sentence in group
        if references_for(sentence, group)
    ]
    if not trials:
        raise DataError(f"{place}: no two recordings of one speaker and style, with different words, make a pair")
    return trials


def group_by_speaker(utterances: Sequence[Utterance]) -> dict[str, list[Utterance]]:
    """Each speaker's utterances with words, in an order that depends on their ids alone."""
    by_speaker = defaultdict(list)
    for utterance in sorted(utterances, key=lambda u: stable_order(u.id)):
        if plain_words(utterance.text):
            by_speaker[utterance.speaker].append(utterance)
    return dict(by_speaker)


def choose_speakers(
    by_speaker: dict[str, list[Utterance]], named: Sequence[str], num_speakers: int, place: str
) -> list[str]:
    """The named speakers, else `num_speakers` of those there are."""
    unknown = sorted(set(named) - set(by_speaker))
    if unknown:
        raise DataError(f"{place}: has no utterance of {', '.join(unknown)}; it has {', '.join(sorted(by_speaker))}")
    if named:
        return list(named)
    if len(by_speaker) < num_speakers:
        raise DataError(f"{place}: {num_speakers} speakers wanted, but there are only {len(by_speaker)}")
    return sorted(sorted(by_speaker, key=stable_order)[:num_speakers])


def deal_sentences(decks: Sequence[Sequence[Utterance]], num_sentences: int) -> list[Utterance]:
    """Up to `num_sentences` utterances, one from each speaker in turn, no text twice."""
    queues = [list(deck) for deck in decks]
    dealt: list[Utterance] = []
    texts: set[str] = set()
    while any(queues) and len(dealt) < num_sentences:
        for queue in queues:
            while queue and queue[0].text in texts:
                queue.pop(0)
            if queue and len(dealt) < num_sentences:
                dealt.append(queue.pop(0))
                texts.add(dealt[-1].text)
    return dealt


def choose_reference(sentence: Utterance, candidates: Sequence[Utterance], manifest: Path) -> Utterance:
    """Another utterance of the speaker: a random one of 3 s or more, else the longest of those long enough to clone."""
    fit = references_for(sentence, candidates)
    if not fit:
        raise DataError(
            f"{manifest}: {sentence.speaker} has no second test utterance of {MIN_REFERENCE_SECONDS:g} s in style "
            f"{sentence.style!r} to serve as the reference of {sentence.id}"
        )
    good = [u for u in fit if u.seconds >= GOOD_REFERENCE_SECONDS] or [max(fit, key=lambda u: (u.seconds, u.id))]
    return min(good, key=lambda u: stable_order(f"{sentence.id} {u.id}"))


def references_for(sentence: Utterance, candidates: Sequence[Utterance]) -> list[Utterance]:
    """Those of the candidates that say something else and are long enough to clone."""
    return [u for u in candidates if u.text != sentence.text and u.seconds >= MIN_REFERENCE_SECONDS]


def make_trial(sentence: Utterance, reference: Utterance, folder: Path) -> Trial:
    """Two utterances as a trial; `folder` is the manifest's."""
    return Trial(
        id=sentence.id.replace("/", "_").replace(" ", "_"),
        text=sentence.text,
        speaker=sentence.speaker,
        style=sentence.style,
        reference=folder / reference.audio,
        reference_transcript=reference.text,
        source=folder / sentence.audio,
    )


def trials_digest(trials: Sequence[Trial]) -> str:
    """Tells whether two runs used the same trials."""
    lines = (
        f"{t.id}\t{t.words}\t{t.reference.name}\t{t.reference_transcript}\t{t.source.name if t.source else ''}"
        for t in trials
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
