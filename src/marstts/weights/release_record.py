"""The record of a model that was examined: digests of its tensors, likelihoods, lengths of sentences.

Upstream: `marstts doctor MODEL --record`.  Downstream: `marstts doctor MODEL`, which compares.
A file in the user's cache, one for each model.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from marstts.errors import CheckpointError
from marstts.io.config import Config, read_config, write_config
from marstts.weights.examination import FETCH_AGAIN, Finding, Kind, limited
from marstts.weights.pretrained import cache_folder

TOLERANCE = 0.005
"""Nats per code. Half precision changes mini's likelihood by 0.001 at most, two exchanged layers by 0.02 at least."""

LENGTH_FACTOR = 1.5
"""A sentence of the same seed is this many times as long or short at most: engines and precisions differ."""


class ReleaseRecord(Config):
    """The record of one model."""

    format_version: Literal[1] = 1
    model: str

    tensors: dict[str, str]
    """SHA-256 of the numbers of each tensor in float32, and of tokenizers, by name."""

    sequence: dict[str, Any]
    """The sequence whose likelihood is compared, as the model's package makes it."""

    log_likelihoods: dict[str, tuple[float, float]]
    """Range of the mean log-likelihood (nats) of each part of the sequence."""

    seconds: tuple[float, ...] = ()
    """Lengths of the spoken sentences; empty where they were not spoken."""


def record_path(model: str) -> Path:
    """The file of a model's record."""
    safe = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in model)
    return cache_folder() / "records" / f"{safe[:100]}.json"


def read_record(model: str) -> ReleaseRecord | None:
    """The record of a model; None where there is none."""
    path = record_path(model)
    return read_config(ReleaseRecord, path, CheckpointError) if path.is_file() else None


def write_record(record: ReleaseRecord) -> Path:
    """Write a record; an older one of the model is replaced."""
    path = record_path(record.model)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_config(record, path, CheckpointError)
    return path


def ranges(values: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """The range around each log-likelihood."""
    return {name: (value - TOLERANCE, value + TOLERANCE) for name, value in values.items()}


def digest_findings(source: str, found: Mapping[str, str], record: ReleaseRecord) -> list[Finding]:
    """Tensors whose numbers differ from the recorded ones."""
    expected = record.tensors
    findings = [
        Finding(f"{source}: {name}", "the tensor that was recorded", "none", FETCH_AGAIN, Kind.DIFFERENCE)
        for name in expected.keys() - found.keys()
    ]
    changed = sorted(name for name in expected.keys() & found.keys() if expected[name] != found[name])
    if len(changed) > 8 and len(changed) > len(expected) / 2:
        count = f"{len(changed)} of {len(expected)} tensors with other numbers"
        remedy = "it is another release or number format; compare the likelihood"
        return [*findings, Finding(source, "the tensors that were recorded", count, remedy, Kind.DIFFERENCE)]
    findings += [
        Finding(f"{source}: {name}", "the numbers that were recorded", "others", FETCH_AGAIN, Kind.DIFFERENCE)
        for name in changed
    ]
    return limited(findings, source)


def likelihood_findings(source: str, found: Mapping[str, float], record: ReleaseRecord) -> list[Finding]:
    """Parts of the recorded sequence whose likelihood is out of the recorded range."""
    findings = []
    for name, (lowest, highest) in record.log_likelihoods.items():
        value = found.get(name, float("nan"))
        if not lowest <= value <= highest:
            findings.append(
                Finding(f"{source}: log-likelihood, {name}", f"{lowest:.3f} to {highest:.3f}", f"{value:.3f}",
                        "weights are not where they belong, or of another release: fetch the files again")
            )  # fmt: skip
    return findings


def length_findings(source: str, seconds: tuple[float, ...], record: ReleaseRecord) -> list[Finding]:
    """Spoken sentences whose length is far from the recorded one."""
    findings = []
    for number, (expected, found) in enumerate(zip(record.seconds, seconds, strict=False), start=1):
        if not expected / LENGTH_FACTOR <= found <= expected * LENGTH_FACTOR:
            wanted = f"{expected / LENGTH_FACTOR:.1f} to {expected * LENGTH_FACTOR:.1f} s"
            remedy = "listen to it: marstts speak"
            findings.append(Finding(f"{source}: sentence {number}", wanted, f"{found:.1f} s", remedy, Kind.DIFFERENCE))
    return findings
