"""Repair: a sentence that stays flawed is sampled again with other seeds, then in two parts that are joined.

Upstream: `sentence`, after the last attempt of backoff.  Downstream: the take that is kept, which says how it was made.
Only flaws of words are repaired; the other sentences of a text stay as they are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from marstts.synthesis.speech import Take, join, take_offsets
from marstts.synthesis.words.written_forms import SpokenSegment, WrittenForm, forms_of, lead_of
from marstts.text.segments import Segment
from marstts.text.sentences import split_sentences

MIN_PART_CHARACTERS = 12
"""Shorter parts sound cut off."""

MAX_REPEATED = 8
"""Parts of a sentence that repeats a clause; each may take all attempts, so longer ones are divided as others are."""

_CLAUSE = re.compile(r"\s*([^,;.!?]+[,;.!?]+)")

OTHER_SEED, DIVIDED = "spoken again with another seed", "divided at a clause"


def divide(segment: Segment) -> list[SpokenSegment]:
    """The segment in two parts, or more where the sentence has no even division; itself alone where it is too short.

    A clause that is repeated, as in "No, no, no.", is a part each time, however short it is.
    """
    parts = repeated_clauses(segment.text)
    if not parts:
        parts = split_sentences(segment.text, max(MIN_PART_CHARACTERS, math.ceil(0.6 * len(segment.text))))
        if min(map(len, parts)) < MIN_PART_CHARACTERS:
            parts = [segment.text]
    forms = forms_of(segment)
    found, start = [], 0
    for part in parts:
        start = segment.text.find(part, start)
        inside = [form for form in forms if start <= form.start < start + len(part)]
        moved = tuple(WrittenForm(form.written, form.start - start, form.end - start) for form in inside)
        found.append(SpokenSegment(text=part, forms=moved))
        start += len(part)
    return found


def repeated_clauses(text: str) -> list[str]:
    """The clauses of a text that is one and the same clause again and again; none of other texts."""
    clauses = _CLAUSE.findall(text)
    said = {" ".join(re.findall(r"\w+", clause.lower())) for clause in clauses}
    is_whole = "".join(clauses).replace(" ", "") == text.replace(" ", "")
    return clauses if is_whole and 1 < len(clauses) <= MAX_REPEATED and len(said) == 1 and said != {""} else []


def join_parts(segment: Segment, parts: Sequence[Take], attempts: int) -> Take:
    """The takes of all parts of a segment as one."""
    offsets = take_offsets(parts)
    words = [word.shifted(offset) for take, offset in zip(parts, offsets, strict=True) for word in take.words or ()]
    flaws = [
        replace(flaw, seconds=round(flaw.seconds + offset, 2))
        for take, offset in zip(parts, offsets, strict=True)
        for flaw in take.flaws
    ]
    warnings = [take.warning for take in parts if take.warning is not None]
    return replace(
        parts[-1],
        text=segment.text,
        codes=tuple(np.concatenate(levels) for levels in zip(*(take.codes for take in parts), strict=True)),
        waveform=join(parts),
        attempts=attempts + sum(take.attempts for take in parts),
        warning="; ".join(warnings) or None,
        lead_seconds=lead_of(segment),
        extra_pause_seconds=segment.pause_seconds,
        duration=segment.duration,
        timing=partial(tuple, words),
        flaws=tuple(flaws),
        goodness=None,
        repaired=DIVIDED,
    )
