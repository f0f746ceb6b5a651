"""Comparison of systems: the scores of several output folders of `marstts evaluate` as one set.

Upstream: output folders of `score`.  Downstream: `report`, `report`. Only systems with the same trials and the same
versions of the same metrics are compared; DataError names what differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from marstts.errors import DataError
from marstts.evaluation.score import Provenance, read_provenances
from marstts.io.reading import printable_name
from marstts.metrics.scores import TakeScore, read_scores


@dataclass(frozen=True)
class ScoredSystems:
    """Scores of several folders, every system under a unique name."""

    scores: Sequence[TakeScore]
    warnings: Mapping[str, Sequence[str]]
    testset: str
    """Digest of the trials."""

    metrics: Mapping[str, str]


def gather_scores(folders: Sequence[Path]) -> ScoredSystems:
    """All systems scored into the folders; DataError where there is none, or where they are not comparable.

    A system that is the same in two folders (such as the ground truth) is used once; two versions get different names.
    """
    scores: list[TakeScore] = []
    provenances: dict[str, Provenance] = {}
    for folder in folders:
        found, of_folder = read_scores(folder), read_provenances(folder)
        if not found:
            raise DataError(
                f"{printable_name(folder)}: expected an output folder of `marstts evaluate` with scores.jsonl"
            )
        for system in dict.fromkeys(score.system for score in found):
            provenance = of_folder.get(system)
            if provenance is None:
                raise DataError(
                    f"{printable_name(folder)}: {system} has scores, but takes/{system}/provenance.json is missing; "
                    "evaluate it again into a new folder"
                )
            if provenances.get(system) == provenance:
                continue
            name = system if system not in provenances else f"{system}, {folder.resolve().name}"
            provenances[name] = provenance
            scores += [s.model_copy(update={"system": name}) for s in found if s.system == system]
    refuse_incomparable(provenances)
    first = next(iter(provenances.values()))
    warnings = {name: provenance.warnings for name, provenance in provenances.items()}
    return ScoredSystems(scores, warnings, first.testset, first.metrics)


def refuse_incomparable(provenances: Mapping[str, Provenance]) -> None:
    """Raise DataError where two systems have different trials or metrics."""
    (first_name, first), *others = provenances.items()
    for name, provenance in others:
        if provenance.testset != first.testset:
            raise DataError(f"{first_name} and {name} have different test sets, so their scores are not comparable")
        if provenance.metrics != first.metrics:
            changed = sorted(
                key
                for key in first.metrics.keys() | provenance.metrics.keys()
                if first.metrics.get(key) != provenance.metrics.get(key)
            )
            raise DataError(
                f"{first_name} and {name} have different metrics ({', '.join(changed)}), so their scores are not "
                "comparable; evaluate one of them again"
            )
