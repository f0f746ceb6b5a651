"""Scores summed up: tables to read (results.md) and the same figures to compute with (results.json).

Upstream: `scores.TakeScore` lines, `measures`.  Downstream: people, `figure`, `docs/results.md`.

The first table has the objective columns of Table I of MARS6 (arXiv:2501.05787). In each column the best system stands
out; those whose difference from it lies within the noise (paired bootstrap over the same sentences) are marked. The
real recordings and their resynthesis bound the others and do not compete.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from marstts.evaluation.intervals import (
    RESAMPLES,
    Interval,
    bootstrap_difference,
    paired_quotient_interval,
)
from marstts.evaluation.measures import Better, Measure, measures_of
from marstts.evaluation.metrics.length import Verdict
from marstts.evaluation.scores import TakeScore
from marstts.evaluation.systems import shown

CEILING = "codec"
"""System whose character error rate the others' are divided by: no model on the codec can do better."""

BOUNDS = ("source", CEILING)
"""Systems that are no competitors."""

FAULTS = (Verdict.TOO_LONG, Verdict.TOO_SHORT, Verdict.EMPTY, Verdict.SILENT, Verdict.MISSING)

FOOTNOTES = (
    "In brackets: 95 % bootstrap intervals over sentences (percentile method, {resamples} resamples). **Bold**: the "
    "best of the column; ≈: its difference from the best is within the noise (paired bootstrap). Source and codec "
    "bound the others and do not compete.",
    "WER, CER: text and hypothesis pass one normaliser (lower case, letters and inner apostrophes only, numbers in "
    "words). Takes that repeat: a run of up to four words is heard twice in a row and is not so in the text; cut "
    "short: the last fifth of the text is not heard.",
    "EER: equal error rate, in per cent, of telling takes from real recordings by their similarity to the reference "
    "(pairs of reference and take 0, of reference and real recording 1): higher is better, 50 is the most. SIM: cosine "
    "to the reference. Own speaker: share of pairs (own reference, another speaker's reference) in which the take is "
    "nearer to its own; first of ten: the chance that its own is the nearest among itself and nine of the others.",
    "Word choice: share of words recognised among up to four near-homophones. Word fault: forced alignment fails, or "
    "its worst word scores below -12.",
    "Length: takes of more than twice or less than half the source recording (where there is none, the time that "
    "reading usually takes) are too long or too short. Odd takes: no speech, too long, repeating or cut short. Pitch "
    "and energy follow: correlation with the real recording's contours. RTF: seconds of computing, cloning included, "
    "per second of speech.",
    "A take that is empty, silent or missing counts as the worst in every column but length and RTF, which it has not.",
)


@dataclass(frozen=True)
class Summary:
    """One row of the tables."""

    system: str
    takes: int
    scores: Mapping[str, Interval | None]
    by_style: Mapping[str, Mapping[str, Interval | None]]
    cer_over_ceiling: Interval | None
    """CER divided by the codec's on the same sentences; None where that was not judged."""

    differences: Mapping[str, Interval]
    """To the best competitor of each measure; that one has none."""

    verdicts: Mapping[Verdict, int]
    sample_rates: Mapping[int, int]
    """Takes by their rate in Hz."""

    words_unknown: int
    faults: Sequence[str]
    """Every take that is not of plausible length, in words."""

    remarks: Sequence[str]
    """What is odd about the takes as a whole."""

    def is_best(self, key: str) -> bool:
        return self.system not in BOUNDS and self.scores[key] is not None and key not in self.differences


def summarize(scores: Sequence[TakeScore], remarks: Mapping[str, Sequence[str]] | None = None) -> list[Summary]:
    """One summary per system, in order of appearance; `remarks` about systems' takes as a whole by their names."""
    by_system: dict[str, list[TakeScore]] = {}
    for score in scores:
        by_system.setdefault(score.system, []).append(score)
    measures = measures_of(scores)
    differences = differences_from_the_best(by_system, measures)
    ceiling = {score.trial: score for score in by_system.get(CEILING, [])}
    return [
        summarize_system(system, rows, measures, ceiling, differences[system], (remarks or {}).get(system, ()))
        for system, rows in by_system.items()
    ]


def summarize_system(
    system: str,
    rows: Sequence[TakeScore],
    measures: Sequence[Measure],
    ceiling: Mapping[str, TakeScore],
    differences: Mapping[str, Interval],
    remarks: Sequence[str],
) -> Summary:
    """`rows` are all takes of one system, `ceiling` those of the codec by trial."""
    styles = sorted({row.style for row in rows})
    rates = dict(Counter(row.sample_rate for row in rows if row.sample_rate is not None))
    return Summary(
        system=system,
        takes=len(rows),
        scores={measure.key: measure.evaluate(rows) for measure in measures},
        by_style={
            style: {m.key: m.evaluate([row for row in rows if row.style == style]) for m in measures}
            for style in styles
        },
        cer_over_ceiling=compare_to_ceiling(rows, ceiling),
        differences=differences,
        verdicts=dict(Counter(row.verdict for row in rows)),
        sample_rates=rates,
        words_unknown=sum(row.word_test.words_unknown for row in rows if row.word_test is not None),
        faults=[describe_fault(row) for row in rows if row.verdict in FAULTS],
        remarks=[*remarks, *remark_on_rates(rows, rates)],
    )


def differences_from_the_best(
    by_system: Mapping[str, Sequence[TakeScore]], measures: Sequence[Measure]
) -> dict[str, dict[str, Interval]]:
    """For each system and measure how far it is from the best competitor, on the sentences both have spoken."""
    found: dict[str, dict[str, Interval]] = {system: {} for system in by_system}
    for measure in measures:
        if measure.better is Better.NEITHER:
            continue
        values = {system: measure.evaluate(rows) for system, rows in by_system.items() if system not in BOUNDS}
        known = {system: interval.value for system, interval in values.items() if interval is not None}
        if not known:
            continue
        best = (min if measure.better is Better.LOWER else max)(known, key=lambda system: known[system])
        for system in known.keys() - {best}:
            difference = compare(measure, by_system[system], by_system[best])
            if difference is not None:
                found[system][measure.key] = difference
    return found


def compare(measure: Measure, rows: Sequence[TakeScore], others: Sequence[TakeScore]) -> Interval | None:
    """How much higher the measure is over `rows` than over `others`, on the trials both have."""
    by_trial = {row.trial: row for row in others}
    pairs = [(row, by_trial[row.trial]) for row in rows if row.trial in by_trial]
    first, second = measure.of([row for row, _ in pairs]), measure.of([other for _, other in pairs])
    return None if first is None or second is None else bootstrap_difference(first, second, measure.statistic)


def within_noise(difference: Interval) -> bool:
    return difference.low <= 0.0 <= difference.high


def compare_to_ceiling(rows: Sequence[TakeScore], ceiling: Mapping[str, TakeScore]) -> Interval | None:
    words = [
        (row.words, other.words)
        for row in rows
        if (other := ceiling.get(row.trial)) is not None and row.words is not None and other.words is not None
    ]
    if not words:
        return None
    return paired_quotient_interval(
        [word.character_errors for word, _ in words],
        [word.characters for word, _ in words],
        [other.character_errors for _, other in words],
        [other.characters for _, other in words],
    )


def describe_fault(row: TakeScore) -> str:
    """E.g. `s12-007: too long, 8.4 s for 3.1 s`."""
    usual = "" if row.source_seconds is None else f" for {row.source_seconds:.1f} s"
    return f"{row.trial}: {row.verdict.value}, {row.problem or f'{row.seconds:.1f} s{usual}'}"


def remark_on_rates(rows: Sequence[TakeScore], rates: Mapping[int, int]) -> list[str]:
    """A sentence if takes have different sample rates, which says that something else than the model changed."""
    if len(rates) < 2:
        return []
    usual = max(rates, key=lambda rate: rates[rate])
    other = [f"{row.trial} ({row.sample_rate} Hz)" for row in rows if row.sample_rate not in (None, usual)]
    return [f"{len(other)} takes have another sample rate than the {usual} Hz of the rest: {shown(other)}"]


def write_report(
    scores: Sequence[TakeScore],
    output: Path,
    facts: Mapping[str, Any],
    remarks: Mapping[str, Sequence[str]] | None = None,
    stem: str = "results",
) -> str:
    """Write `stem`.json and `stem`.md; `facts` (versions, command, test set) are told in both. Returns the Markdown."""
    summaries, measures = summarize(scores, remarks), measures_of(scores)
    output.mkdir(parents=True, exist_ok=True)
    results = {"facts": dict(facts), "systems": [as_json(summary) for summary in summaries]}
    (output / f"{stem}.json").write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    markdown = as_markdown(summaries, measures, facts)
    (output / f"{stem}.md").write_text(markdown, encoding="utf-8")
    return markdown


def as_json(summary: Summary) -> dict[str, Any]:
    return {**asdict(summary), "verdicts": {verdict.value: count for verdict, count in summary.verdicts.items()}}


def as_markdown(summaries: Sequence[Summary], measures: Sequence[Measure], facts: Mapping[str, Any]) -> str:
    """The tables, what their columns mean, and every odd take by name."""
    first = [measure for measure in measures if measure.in_table_one]
    rest = [measure for measure in measures if not measure.in_table_one]
    told = [measure for measure in rest if measure.told_by_style]
    styles = sorted({style for summary in summaries for style in summary.by_style})
    odd = [f"- {summary.system}: {line}" for summary in summaries for line in (*summary.remarks, *summary.faults)]
    parts = [
        ["# Results", *(f"- {name}: {value}" for name, value in facts.items())],
        main_table(summaries, first),
        more_table(summaries, rest),
        *([["## By style"], *(style_table(summaries, m, styles) for m in (*first, *told))] if len(styles) > 1 else []),
        ["## Notes", *(f"- {note.format(resamples=RESAMPLES)}" for note in FOOTNOTES), *unknown_words_note(summaries)],
        ["Odd takes:", *odd] if odd else ["No take is too long, too short, empty or missing."],
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def main_table(summaries: Sequence[Summary], measures: Sequence[Measure]) -> list[str]:
    """Lines of the table with the paper's columns."""
    return markdown_table(
        ["system", "takes", *(measure.heading for measure in measures)],
        [[s.system, str(s.takes), *(cell(s, measure) for measure in measures)] for s in summaries],
    )


def more_table(summaries: Sequence[Summary], measures: Sequence[Measure]) -> list[str]:
    """Lines of the table with all other columns."""
    return markdown_table(
        ["system", *(m.heading for m in measures), f"CER / {CEILING}'s ↓", "too long / too short / none"],
        [
            [
                s.system,
                *(cell(s, measure) for measure in measures),
                format_interval(s.cer_over_ceiling, 2),
                format_verdicts(s.verdicts),
            ]
            for s in summaries
        ],
    )


def style_table(summaries: Sequence[Summary], measure: Measure, styles: Sequence[str]) -> list[str]:
    """Lines of one measure's table, a column per style."""
    return markdown_table(
        [measure.heading, *styles],
        [
            [
                s.system,
                *(format_interval(s.by_style.get(style, {}).get(measure.key), measure.digits) for style in styles),
            ]
            for s in summaries
        ],
    )


def cell(summary: Summary, measure: Measure) -> str:
    """A score with its interval, marked where it is the best, or cannot be told from it."""
    text = format_interval(summary.scores[measure.key], measure.digits)
    if measure.better is Better.NEITHER or summary.system in BOUNDS or summary.scores[measure.key] is None:
        return text
    if summary.is_best(measure.key):
        return f"**{text}**"
    return f"{text} ≈" if within_noise(summary.differences[measure.key]) else text


def unknown_words_note(summaries: Sequence[Summary]) -> list[str]:
    """A line that says how many words the word choice and the alignment could not listen for; none where all."""
    counts = [f"{summary.system} {summary.words_unknown}" for summary in summaries if summary.words_unknown]
    return [f"- Words without a known pronunciation, left out of both: {', '.join(counts)}."] if counts else []


def markdown_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [markdown_row(titles), markdown_row(["---"] * len(titles)), *(markdown_row(row) for row in rows)]


def markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def format_interval(interval: Interval | None, digits: int) -> str:
    return "-" if interval is None else interval.format(digits)


def format_verdicts(verdicts: Mapping[Verdict, int]) -> str:
    """Takes too long / too short / empty, silent or missing."""
    none = sum(verdicts.get(verdict, 0) for verdict in (Verdict.EMPTY, Verdict.SILENT, Verdict.MISSING))
    return f"{verdicts.get(Verdict.TOO_LONG, 0)} / {verdicts.get(Verdict.TOO_SHORT, 0)} / {none}"
