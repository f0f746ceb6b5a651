"""Systems side by side: several output folders of `marstts evaluate` as one set of scores.

Upstream: `score`'s output folders.  Downstream: `report`, `figure`. Only like is put beside like: the same trials,
judged by the same versions of the same judges; anything else is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from marstts.errors import DataError
from marstts.evaluation.score import Claim, read_claims
from marstts.evaluation.scores import TakeScore, read_scores


@dataclass(frozen=True)
class Pool:
    """Scores of several folders, every system under a name of its own."""

    scores: Sequence[TakeScore]
    remarks: Mapping[str, Sequence[str]]
    testset: str
    """Digest of the trials."""

    judges: Mapping[str, str]


def gather(folders: Sequence[Path]) -> Pool:
    """All systems judged into the folders; DataError where there is none, or where they do not compare.

    A system that is the same in two folders (the source, say) is taken once; one that differs goes by both names.
    """
    scores: list[TakeScore] = []
    claims: dict[str, Claim] = {}
    for folder in folders:
        found, made_by = read_scores(folder), read_claims(folder)
        if not found:
            raise DataError(f"{folder}: expected an output folder of `marstts evaluate`, with scores.jsonl in it")
        for system in dict.fromkeys(score.system for score in found):
            claim = made_by.get(system)
            if claim is None:
                raise DataError(f"{folder}: {system} has scores, but its takes/{system}/made_by.json is gone")
            if claims.get(system) == claim:
                continue
            name = system if system not in claims else f"{system}, {folder.resolve().name}"
            claims[name] = claim
            scores += [s.model_copy(update={"system": name}) for s in found if s.system == system]
    refuse_unlike(claims)
    first = next(iter(claims.values()))
    return Pool(scores, {name: claim.remarks for name, claim in claims.items()}, first.testset, first.judges)


def refuse_unlike(claims: Mapping[str, Claim]) -> None:
    """Raise DataError where two systems spoke different trials, or were judged by different judges."""
    (first_name, first), *others = claims.items()
    for name, claim in others:
        if claim.testset != first.testset:
            raise DataError(f"{first_name} and {name} spoke different test sets, so their scores do not compare")
        if claim.judges != first.judges:
            changed = sorted(
                key
                for key in first.judges.keys() | claim.judges.keys()
                if first.judges.get(key) != claim.judges.get(key)
            )
            raise DataError(
                f"{first_name} and {name} were judged by different judges ({', '.join(changed)}), so their scores do "
                "not compare; judge one of them again"
            )
