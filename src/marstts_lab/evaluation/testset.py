"""Test sets: which sentence to synthesize, in whose voice, and the ground-truth recording to compare with.

Upstream: a manifest (`data.manifest`), or a text editor.  Downstream: `evaluation.systems`, `evaluation.score`,
`preference`.

A test set is a JSONL file, one trial per line; paths are relative to its folder. The *reference* is the recording that
a voice is cloned from; the *ground truth* is the speaker's recording of the text, an upper bound for every system.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from marstts.errors import DataError
from marstts.io.hash_order import hash_number, hash_order
from marstts.io.jsonl import read_rows, write_rows
from marstts.io.reading import printable_name
from marstts_lab.data.manifest import Utterance, as_whole_file, read_chosen
from marstts_lab.metrics.trial import Trial
from marstts_lab.metrics.words import plain_words

GOOD_REFERENCE_SECONDS = 3.0
"""Length that speaker encoders need for a stable embedding."""

MIN_REFERENCE_SECONDS = 1.0
"""Length that cloning needs at least."""


def read_testset(path: Path) -> list[Trial]:
    """All trials, their paths resolved; DataError naming every line that cannot be used."""
    trials = read_rows(Trial, path, unique=("id",), finish=partial(resolve_trial, path.parent))
    if not trials:
        raise DataError(f"{printable_name(path)}: the test set has no trials; make one with `marstts evaluate testset`")
    return trials


def resolve_trial(folder: Path, trial: Trial) -> Trial:
    """The trial with paths below `folder`; its recordings must exist and its text must have words."""
    if not plain_words(trial.text):
        raise DataError(f"the text {trial.text!r} has no words")
    optional = {name: getattr(trial, name) for name in ("ground_truth", "compared_with")}
    others = {name: None if path is None else folder / path for name, path in optional.items()}
    found = trial.model_copy(update={"reference": folder / trial.reference, **others})
    for recording in (found.reference, found.ground_truth, found.compared_with):
        if recording is not None and not is_regular_file(recording):
            raise DataError(f"{printable_name(recording)} does not exist; paths are relative to the test set's folder")
    return found


def is_regular_file(path: Path) -> bool:
    """Whether a regular file is at `path`; False for names that no file can have."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def refuse_repeated_ids(trials: Sequence[Trial], path: Path) -> None:
    """Raise DataError naming every id that occurs twice."""
    repeated = sorted(name for name, count in Counter(trial.id for trial in trials).items() if count > 1)
    if repeated:
        raise DataError(f"{printable_name(path)}: ids must be unique, but {', '.join(repeated)} occur twice")


def write_testset(trials: Sequence[Trial], path: Path) -> None:
    """Write one line per trial, paths relative to the file's folder, atomically."""

    def relative(recording: Path | None) -> Path | None:
        return None if recording is None else Path(Path(os.path.relpath(recording, path.parent)).as_posix())

    write_rows(
        path,
        [
            trial.model_copy(
                update={name: relative(getattr(trial, name)) for name in ("reference", "ground_truth", "compared_with")}
            )
            for trial in trials
        ],
    )


def make_testset(
    manifest: Path,
    *,
    num_speakers: int,
    num_sentences: int,
    speakers: Sequence[str] = (),
    style: str | None = "regular",
    exclude: Sequence[Trial] = (),
    recordings: Path | None = None,
) -> list[Trial]:
    """Trials from a manifest's test split: the same manifest and numbers give the same trials on every machine.

    `speakers` names the speakers, else `num_speakers` are drawn. Sentences are drawn from the speakers in turn, no text
    is used twice, and each is paired with another utterance of its speaker in the same style (None: any), of at least
    3 s if there is one. Segments of longer files are written into the folder `recordings`. Sentences of the trials
    `exclude`, and those without such an utterance, are left out. DataError where the manifest has too few.
    """
    excluded = {trial.text for trial in exclude}
    utterances = read_chosen(
        manifest, lambda u: u.split == "test" and style in (None, u.style) and u.text not in excluded
    )
    by_speaker = group_by_speaker(utterances)
    usable = {name: with_reference(group) for name, group in by_speaker.items()}
    usable = {name: group for name, group in usable.items() if group}
    place = f"{manifest}, test split, style {style or 'any'!r}, speakers with two utterances of a second"
    chosen = choose_speakers(usable, speakers, num_speakers, place)
    sentences = round_robin([usable[speaker] for speaker in chosen], num_sentences)
    if len(sentences) < num_sentences:
        raise DataError(
            f"{manifest}: expected {num_sentences} sentences, but the test split has only {len(sentences)} "
            f"different ones of style {style or 'any'!r} by {', '.join(chosen)}; ask for fewer, or for more speakers"
        )
    trials = []
    for sentence in sentences:
        reference = choose_reference(sentence, references_for(sentence, by_speaker[sentence.speaker]))
        files = recordings or manifest.parent / "recordings"
        whole, voice = (as_whole_file(one, manifest.parent, files) for one in (sentence, reference))
        trials.append(make_trial(whole, voice, manifest.parent))
    return trials


def make_trials(utterances: Sequence[Utterance], folder: Path, place: Path) -> list[Trial]:
    """Trials of all utterances that have another one of their speaker and style as reference, in hash order of ids.

    Paths of the recordings are relative to `folder`; DataError, prefixed by `place`, where no pair can be made.
    """
    groups: dict[tuple[str, str], list[Utterance]] = defaultdict(list)
    for utterance in sorted(utterances, key=lambda u: hash_order(u.id)):
        if plain_words(utterance.text):
            groups[utterance.speaker, utterance.style].append(utterance)
    trials = [
        make_trial(sentence, choose_reference(sentence, usable), folder)
        for _, group in sorted(groups.items())
        for sentence in group
        if (usable := references_for(sentence, group))
    ]
    if not trials:
        raise DataError(f"{place}: no two recordings of one speaker and style, with different words, make a pair")
    return trials


def group_by_speaker(utterances: Sequence[Utterance]) -> dict[str, list[Utterance]]:
    """Utterances with words by speaker, in hash order of their ids."""
    by_speaker = defaultdict(list)
    for utterance in sorted(utterances, key=lambda u: hash_order(u.id)):
        if plain_words(utterance.text):
            by_speaker[utterance.speaker].append(utterance)
    return dict(by_speaker)


def choose_speakers(
    by_speaker: dict[str, list[Utterance]], named: Sequence[str], num_speakers: int, place: str
) -> list[str]:
    """The named speakers, else `num_speakers` drawn from all."""
    unknown = sorted(set(named) - set(by_speaker))
    if unknown:
        raise DataError(f"{place}: has no utterance of {', '.join(unknown)}; it has {', '.join(sorted(by_speaker))}")
    if named:
        return list(named)
    if len(by_speaker) < num_speakers:
        raise DataError(f"{place}: expected {num_speakers} speakers, but there are only {len(by_speaker)}")
    return sorted(sorted(by_speaker, key=hash_order)[:num_speakers])


def round_robin(groups: Sequence[Sequence[Utterance]], num_sentences: int) -> list[Utterance]:
    """Up to `num_sentences` utterances, one from each group in turn, no text twice."""
    queues = [list(group) for group in groups]
    drawn: list[Utterance] = []
    texts: set[str] = set()
    while any(queues) and len(drawn) < num_sentences:
        for queue in queues:
            while queue and queue[0].text in texts:
                queue.pop(0)
            if queue and len(drawn) < num_sentences:
                drawn.append(queue.pop(0))
                texts.add(drawn[-1].text)
    return drawn


def choose_reference(sentence: Utterance, usable: Sequence[Utterance]) -> Utterance:
    """One of the utterances `usable`: a random one of 3 s or more, else the longest."""
    good = [u for u in usable if u.seconds >= GOOD_REFERENCE_SECONDS] or [max(usable, key=lambda u: (u.seconds, u.id))]
    return min(good, key=lambda u: hash_order(f"{sentence.id} {u.id}"))


def references_for(sentence: Utterance, candidates: Sequence[Utterance]) -> list[Utterance]:
    """The candidates of the same style with another text that are long enough to clone."""
    return [
        u
        for u in candidates
        if u.style == sentence.style and u.text != sentence.text and u.seconds >= MIN_REFERENCE_SECONDS
    ]


def with_reference(group: Sequence[Utterance]) -> list[Utterance]:
    """The utterances of a speaker for which another one can be the reference, as `references_for` finds it."""
    texts: dict[str, set[str]] = defaultdict(set)
    for utterance in group:
        if utterance.seconds >= MIN_REFERENCE_SECONDS:
            texts[utterance.style].add(utterance.text)
    return [sentence for sentence in group if len(texts[sentence.style]) > (sentence.text in texts[sentence.style])]


def make_trial(sentence: Utterance, reference: Utterance, folder: Path) -> Trial:
    """A trial of two utterances, whose paths are relative to `folder`."""
    return Trial(
        id=trial_id(sentence.id),
        text=sentence.text,
        speaker=sentence.speaker,
        style=sentence.style,
        reference=folder / reference.audio,
        reference_transcript=reference.text,
        ground_truth=folder / sentence.audio,
    )


def trial_id(name: str) -> str:
    """A trial's id from any name: no slash, no space, no dot in front, at most 200 characters."""
    clean = re.sub(r"[/\\\s]|^\.", "_", name)
    return clean if len(clean) <= 200 else f"{clean[:180]}-{hash_order(name)[:16]}"


def trials_digest(trials: Sequence[Trial]) -> str:
    """Hash of the trials: equal for two runs of the same trials."""
    lines = (
        f"{t.id}\t{t.words}\t{t.reference.name}\t{t.reference_transcript}\t"
        f"{t.ground_truth.name if t.ground_truth else ''}"
        for t in trials
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def take_seed(seed: int, trial_id: str) -> int:
    """A seed for one trial, so that a take does not depend on which other takes were generated before it."""
    return hash_number(f"{seed} {trial_id}")


def model_digest(folder: Path) -> str:
    """Hash of what a bundle's takes depend on: all its files but the model card, which may be corrected meanwhile."""
    return folder_digest(folder, (".json", ".onnx", ".safetensors"))


def folder_digest(folder: Path, suffixes: tuple[str, ...] = ()) -> str:
    """Hash of the names and bytes of the files in a folder, all or those with one of the suffixes."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and (not suffixes or path.suffix in suffixes):
            digest.update(path.relative_to(folder).as_posix().encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]
