"""Scores summed up: a table to read (results.md) and the same figures to compute with (results.json).

Upstream: `score.TakeScore` lines.  Downstream: people, `docs/results.md`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from marstts.evaluation.intervals import RESAMPLES, Interval, paired_quotient_interval, ratio_interval
from marstts.evaluation.metrics.length import Verdict
from marstts.evaluation.score import TakeScore

CEILING = "codec"
"""System whose character error rate the others' are divided by: no model on the codec can do better."""


@dataclass(frozen=True)
class Measure:
    """A score as a ratio of sums over takes."""

    key: str
    title: str
    numerator: Callable[[TakeScore], float | None]
    denominator: Callable[[TakeScore], float]
    digits: int = 3


MEASURES = (
    Measure("cer", "CER ↓", lambda s: s.character_errors, lambda s: s.characters),
    Measure("wer", "WER ↓", lambda s: s.word_errors, lambda s: s.words),
    Measure("word_choice", "word choice ↑", lambda s: s.right_choices, lambda s: s.choices),
    Measure("word_faults", "takes with a word fault ↓", lambda s: s.word_fault, lambda s: 1, 2),
    Measure(
        "length",
        "length / source",
        lambda s: s.seconds / s.source_seconds if s.verdict.has_speech else 0.0,
        lambda s: s.verdict.has_speech,
        2,
    ),
    Measure("pairs_model", "own speaker, model's encoder ↑", lambda s: s.nearer_by_model, lambda s: s.speaker_pairs),
    Measure(
        "pairs_independent",
        "own speaker, independent encoder ↑",
        lambda s: s.nearer_by_independent,
        lambda s: s.speaker_pairs,
    ),
    Measure("similarity_model", "similarity, model's encoder ↑", lambda s: s.similarity_by_model, lambda s: 1),
    Measure(
        "similarity_independent",
        "similarity, independent encoder ↑",
        lambda s: s.similarity_by_independent,
        lambda s: 1,
    ),
)

FAULTS = (Verdict.TOO_LONG, Verdict.TOO_SHORT, Verdict.EMPTY, Verdict.SILENT, Verdict.MISSING)

FOOTNOTES = (
    "In brackets: 95 % bootstrap intervals over sentences (percentile method, {resamples} resamples).",
    "CER, WER: pocketsphinx, open recognition with its own language model; text and hypothesis pass one normaliser "
    "(lower case, letters and inner apostrophes only, numbers in words).",
    "Word choice: share of words recognised among up to four near-homophones. Word fault: forced alignment fails, or "
    "its worst word scores below -12.",
    "Own speaker: share of pairs (own reference, another speaker's reference) in which the take is nearer to its own, "
    "by the identity encoder of the model's bundle and by one that no model was trained with.",
    "Length: takes of more than twice or less than half the source recording are too long or too short. A take that is "
    "empty, silent or missing counts as wrong in every other column.",
)


@dataclass(frozen=True)
class Summary:
    """One row of the table."""

    system: str
    takes: int
    scores: Mapping[str, Interval | None]
    cer_over_ceiling: Interval | None
    """CER divided by the codec's on the same sentences; None where that was not judged."""

    verdicts: Mapping[Verdict, int]
    words_unknown: int
    faults: Sequence[str]
    """Every take that is not of plausible length, in words."""


def summarize(scores: Sequence[TakeScore]) -> list[Summary]:
    """One summary per system, in order of appearance."""
    by_system: dict[str, list[TakeScore]] = {}
    for score in scores:
        by_system.setdefault(score.system, []).append(score)
    ceiling = {score.trial: score for score in by_system.get(CEILING, [])}
    return [summarize_system(system, rows, ceiling) for system, rows in by_system.items()]


def summarize_system(system: str, rows: Sequence[TakeScore], ceiling: Mapping[str, TakeScore]) -> Summary:
    """`rows` are all takes of one system, `ceiling` those of the codec by trial."""
    return Summary(
        system=system,
        takes=len(rows),
        scores={measure.key: evaluate(measure, rows) for measure in MEASURES},
        cer_over_ceiling=compare_to_ceiling(rows, ceiling),
        verdicts=Counter(row.verdict for row in rows),
        words_unknown=sum(row.words_unknown for row in rows),
        faults=[describe_fault(row) for row in rows if row.verdict in FAULTS],
    )


def evaluate(measure: Measure, rows: Sequence[TakeScore]) -> Interval | None:
    """The measure over all rows; None where some were not judged by it."""
    numerators = [measure.numerator(row) for row in rows]
    known = [value for value in numerators if value is not None]
    if len(known) < len(rows):
        return None
    return ratio_interval(known, [measure.denominator(row) for row in rows])


def compare_to_ceiling(rows: Sequence[TakeScore], ceiling: Mapping[str, TakeScore]) -> Interval | None:
    pairs = [(row, ceiling[row.trial]) for row in rows if row.trial in ceiling]
    if not pairs:
        return None
    return paired_quotient_interval(
        [row.character_errors for row, _ in pairs],
        [row.characters for row, _ in pairs],
        [other.character_errors for _, other in pairs],
        [other.characters for _, other in pairs],
    )


def describe_fault(row: TakeScore) -> str:
    """E.g. `s12-007: too long, 8.4 s for 3.1 s`."""
    detail = row.problem or f"{row.seconds:.1f} s for {row.source_seconds:.1f} s"
    return f"{row.trial}: {row.verdict.value}, {detail}"


def write_report(scores: Sequence[TakeScore], output: Path, facts: Mapping[str, Any]) -> list[Summary]:
    """Write results.json and results.md; `facts` (versions, command, test set) are told in both."""
    summaries = summarize(scores)
    results = {"facts": dict(facts), "systems": [as_json(summary) for summary in summaries]}
    (output / "results.json").write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (output / "results.md").write_text(as_markdown(summaries, facts), encoding="utf-8")
    return summaries


def as_json(summary: Summary) -> dict[str, Any]:
    return {**asdict(summary), "verdicts": {verdict.value: count for verdict, count in summary.verdicts.items()}}


def as_markdown(summaries: Sequence[Summary], facts: Mapping[str, Any]) -> str:
    """The table, what its columns mean, and every take at fault by name."""
    facts_lines = [f"- {name}: {value}" for name, value in facts.items()]
    notes = [f"- {note.format(resamples=RESAMPLES)}" for note in FOOTNOTES]
    faults = [f"- {summary.system}: {fault}" for summary in summaries for fault in summary.faults]
    parts = [
        ["# Results", *facts_lines],
        table(summaries),
        notes + unknown_words_note(summaries),
        ["Takes of implausible length:", *faults] if faults else ["No take is too long, too short, empty or missing."],
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def unknown_words_note(summaries: Sequence[Summary]) -> list[str]:
    """A line that says how many words the word choice and the alignment could not listen for; none where all."""
    counts = [f"{summary.system} {summary.words_unknown}" for summary in summaries if summary.words_unknown]
    return [f"- Words without a known pronunciation, left out of both: {', '.join(counts)}."] if counts else []


def table(summaries: Sequence[Summary]) -> list[str]:
    """Lines of a Markdown table; columns no system was judged by are left out."""
    measures = [m for m in MEASURES if any(summary.scores[m.key] is not None for summary in summaries)]
    titles = [
        "system",
        "takes",
        *(measure.title for measure in measures),
        f"CER / {CEILING}'s ↓",
        "too long / too short / none",
    ]
    return [markdown_row(titles), markdown_row(["---"] * len(titles))] + [
        markdown_row(
            [
                summary.system,
                str(summary.takes),
                *(format_interval(summary.scores[measure.key], measure.digits) for measure in measures),
                format_interval(summary.cer_over_ceiling, 2),
                format_verdicts(summary.verdicts),
            ]
        )
        for summary in summaries
    ]


def markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def format_interval(interval: Interval | None, digits: int) -> str:
    return "-" if interval is None else interval.format(digits)


def format_verdicts(verdicts: Mapping[Verdict, int]) -> str:
    """Takes too long / too short / empty, silent or missing."""
    none = sum(verdicts.get(verdict, 0) for verdict in (Verdict.EMPTY, Verdict.SILENT, Verdict.MISSING))
    return f"{verdicts.get(Verdict.TOO_LONG, 0)} / {verdicts.get(Verdict.TOO_SHORT, 0)} / {none}"
