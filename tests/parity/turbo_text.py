"""The published text rules: how marks are mapped, and where a text is cut into chunks.

The package reads texts by `normalize` and `sentences`, which make fewer errors. Kept exactly, flaws included: decimals
and abbreviations are cut.
"""

from __future__ import annotations

import re

PUNCTUATION = str.maketrans(
    {"。": ".", "、": ",", "\uff01": "!", "\uff1f": "?", "…": "...", "।": "."}
    | dict.fromkeys("\u2013\u2015\u2212-", "\u2014")
)
"""Marks of other scripts become those of English, and every dash and hyphen an em dash."""

_STOP_RANGES = """
21 2E 3B 3F 589 61F 6D4 700-702 7F9 964-965 104A-104B 1362 1367-1368 166E 1735-1736 1803 1809 1944-1945
1AA8-1AAB 1B5A-1B5B 1B5E-1B5F 1C3B-1C3C 1C7E-1C7F 2026 203C-203D 2047-2049 2E2E 2E3C 3002 A4FF A60E-A60F A6F3 A6F7
A876-A877 A8CE-A8CF A92F A9C8-A9C9 AA5D-AA5F AAF0-AAF1 ABEB FE52 FE56-FE57 FF01 FF0E FF1F FF61 10A56-10A57
11047-11048 110BE-110C1 11141-11143 111C5-111C6 111CD 111DE-111DF 11238-11239 1123B-1123C 112A9 11641-11642
1173C-1173E 11A42-11A43 11A9B-11A9C 11C41-11C42 16A6E-16A6F
"""
"""Code points: sentence terminators of Unicode, the semicolon and the ellipsis."""


def _characters(ranges: str) -> frozenset[str]:
    edges = ([int(edge, 16) for edge in part.split("-")] for part in ranges.split())
    return frozenset(chr(code) for edge in edges for code in range(edge[0], edge[-1] + 1))


STOPS = _characters(_STOP_RANGES)

_REPEATED = re.compile("([" + re.escape("".join(sorted(STOPS)) + "'\"-,") + r"])\1+")
_UP_TO_STOP = re.compile("[^{0}]*[{0}]|[^{0}]+".format(re.escape("".join(sorted(STOPS)))))
_DOT_INSIDE = re.compile(r"\.[a-z]")


def map_punctuation(text: str) -> str:
    """`text` with the punctuation of the published model."""
    return text.translate(PUNCTUATION)


def split_chunks(text: str) -> list[str]:
    """The chunks of `text` as published, possibly empty ones among them; no text gives none."""
    segments = _UP_TO_STOP.findall(_REPEATED.sub(r"\1", text.strip()))
    chunks, index = [], 0
    while index < len(segments):
        both = "".join(segments[index : index + 2])
        taken = 2 if index + 1 < len(segments) and _DOT_INSIDE.search(both.lower()) else 1
        chunks.append("".join(segments[index : index + taken]).strip())
        index += taken
    return chunks
