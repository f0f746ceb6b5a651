"""Columns of a table of recordings: which one is the text, and which one the speaker.

Upstream: the lines of `metadata.csv`.  Downstream: `folder`.
Systems put the columns in different orders: `file|text|speaker`, LJSpeech's `file|text|normalized text`, Piper's
`file|speaker|text`, GPT-SoVITS's `file|speaker|language|text`, EveryVoice's `file|text|text|speaker|language`. A header
decides; without one, the content of all lines does. A table whose columns remain uncertain is refused: a model that is
trained on the name of a speaker as text is worse than none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import combinations

from marstts.errors import DataError

Cells = list[str]
"""One line: the name of the file, then the other columns."""

FILE_NAMES = (
    "file", "filename", "file name", "file path", "filepath", "path", "audio", "audio file", "audio path",
    "audio filepath", "wav", "wav file", "wav path", "clip", "id", "name", "basename", "utterance", "utterance id",
)  # fmt: skip
TEXT_NAMES = (
    "normalized text", "text normalized", "normalized transcript", "normalized transcription", "text", "transcript",
    "transcription", "sentence", "raw text", "characters",
)  # fmt: skip
SPEAKER_NAMES = ("speaker", "speaker id", "speaker name", "client id", "voice")
"""Names of columns in headers, in lower case, blanks for underscores."""

MAX_NAME_WORDS = 4
"""Words of a speaker's name at most."""

MAX_COMPARED = 200
"""Lines whose columns are compared with each other."""

LONGER = 1.5
"""A column of short phrases is the text where it has this many times as many words as any other one."""

_SEPARATOR = re.compile(r"\|(?!(?<=\s\|)\s)")
"""A bar, but not one with blanks on both sides, which may belong to a text: "Press A | B."."""

_QUOTED = re.compile(r'"(?:[^"]|"")*"')

_LANGUAGE = re.compile(
    r"(?:ar|bg|bn|ca|cmn|cs|cy|da|de|deu|el|en|eng|es|et|fa|fi|fr|fra|ga|gu|he|hi|hr|hu|id|is|it|ja|jp|ka|kk|ko|lb|lt|lv"
    r"|mk|ml|mr|ms|ne|nl|no|pl|pt|ro|ru|sk|sl|spa|sr|sv|sw|ta|te|th|tl|tr|uk|ur|vi|yue|zh|zho|und|mul|mis|zxx|ara|ces|dan|ell|fin|heb|hin|hun|ind|ita|jpn|kor"
    r"|nld|nor|pol|por|ron|rus|swe|tha|tur|ukr|vie)(?:[-_][a-z0-9]{2,8}){0,2}"
    r"|arabic|chinese|dutch|english|french|german|hindi|italian|japanese|korean|mandarin|polish|portuguese|russian"
    r"|spanish|turkish",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"[-+]?[0-9]+(?P<fraction>\.[0-9]+)?")
_ARPABET = re.compile(r"(?:[A-Z]{1,3}[0-2]?|sil|sp|spn|\W)(?:\s+(?:[A-Z]{1,3}[0-2]?|sil|sp|spn|\W))*")
_PHONES = re.compile(
    "[\u0250-\u02af\u02c8\u02cc\u02d0\u0251\u0254\u0259\u025b\u026a\u028a\u028c\u0283\u03b8\u00f0\u014b]"
)
_END_MARK = re.compile(r"[.,;:?!\u2026][\"'\u201d\u2019)\]]*\Z|[\"\u201d]\Z")


@dataclass(frozen=True)
class Columns:
    """Places of the columns; 0 is the file."""

    width: int
    text: int
    speaker: int | None = None

    original: int | None = None
    """The text before it was normalized, where the table has both; read where the normalized one is empty."""

    names: frozenset[str] = frozenset()
    """Names of speakers, where the content of the lines gave the places; none of them can be a text."""

    is_of_header: bool = False

    @property
    def form(self) -> str:
        """The form of a line, for messages."""
        kinds = {self.original: "text", self.text: "text", self.speaker: "speaker"}
        return "|".join(["file", *(kinds.get(place, "…") for place in range(1, self.width))])

    def read(self, cells: Cells) -> tuple[str, str]:
        """(text, speaker) of a line; DataError where it has other columns than the table."""
        extra = len(cells) - self.width
        if extra > 0 and self.is_of_header and self.original is None:  # bars without blanks in a text
            text = " | ".join(cells[self.text : self.text + 1 + extra])
            place = self.speaker if self.speaker is None or self.speaker < self.text else self.speaker + extra
        elif extra == 0:
            text, place = cells[self.text], self.speaker
            text = text or (cells[self.original] if self.original is not None else "")
        elif len(cells) == 2 and 1 in (self.text, self.original):
            text, place = cells[1], None
        elif len(cells) == 1:
            raise DataError(f"it has no text; expected {self.form}")
        else:
            raise DataError(
                f"{len(cells)} columns, but other lines have {self.width} ({self.form}); a bar in a text needs blanks "
                "on both sides"
            )
        if text and text in self.names:
            raise DataError(f"its text is the name of a speaker; expected {self.form}")
        return text, "" if place is None else cells[place]


def split_columns(lines: Sequence[str]) -> list[Cells]:
    """The columns of each line, without blanks around them.

    A bar between blanks belongs to the text, unless the line's first bar has blanks, too, or every line has such bars.
    """
    tight = [_SEPARATOR.split(line) for line in lines]
    spaced = [line.split("|") for line in lines]
    are_separators = len(lines) > 1 and all(len(one) < len(other) for one, other in zip(tight, spaced, strict=True))
    rows = [
        [cell.strip() for cell in (other if are_separators or _has_blanks(other) else one)]
        for one, other in zip(tight, spaced, strict=True)
    ]
    if all(_QUOTED.fullmatch(cell) for cells in rows for cell in cells):
        return [[cell[1:-1].replace('""', '"') for cell in cells] for cells in rows]
    return rows


def with_file_first(header: Cells, rows: Sequence[Cells]) -> list[Cells]:
    """The rows with the file's column first, if the header names it elsewhere."""
    names = [cell.lower().replace("_", " ") for cell in header]
    place = next((place for place, name in enumerate(names) if name in FILE_NAMES), 0)
    if names[0] not in (*TEXT_NAMES, *SPEAKER_NAMES) or place == 0:
        return list(rows)
    return [[cells[place], *cells[:place], *cells[place + 1 :]] if len(cells) > place else cells for cells in rows]


def _has_blanks(parts: list[str]) -> bool:
    """Whether the first bar of a line has a blank next to it."""
    return len(parts) > 1 and (parts[0] != parts[0].rstrip() or parts[1] != parts[1].lstrip())


def header_of(cells: Cells) -> Columns | None:
    """The columns that a first line names; None where it names none.

    A normalized text counts before the text, because it is closer to what is said.
    """
    names = [cell.lower().replace("_", " ").replace("normalised", "normalized") for cell in cells]
    texts = [name for name in TEXT_NAMES if name in names[1:]]
    if names[0] not in FILE_NAMES or not texts:
        return None
    speakers = [names.index(name) for name in SPEAKER_NAMES if name in names[1:]]
    original = names.index(texts[1]) if len(texts) > 1 and "normalized" in texts[0] else None
    return Columns(len(names), names.index(texts[0]), speakers[0] if speakers else None, original, is_of_header=True)


def find_columns(rows: Sequence[Cells]) -> Columns:
    """The columns of lines that no header explains, by their content; DataError where they are uncertain."""
    wide = [cells for cells in rows if len(cells) > 2]
    if not wide:
        if are_labels([cells[1] for cells in rows]):
            raise DataError(f"the second column seems to hold names such as {rows[0][1][:40]!r}; expected file|text")
        return Columns(2, 1)
    counts = Counter(map(len, wide))
    width = min(counts, key=lambda one: (-counts[one], one))
    found = columns_by_content([cells for cells in wide if len(cells) == width], width)
    num_narrow = sum(len(cells) == 2 for cells in rows)
    if found is None and counts[width] < num_narrow:
        return Columns(2, 1)
    if found is None:
        example = "|".join(next(cells for cells in wide if len(cells) == width))[:120]
        raise DataError(
            f"cannot tell which column is the text and which the speaker in lines such as {example!r}; begin the table "
            "with a line that names its columns, such as file|speaker|text"
        )
    if 1 not in (found.text, found.original) and counts[width] < num_narrow:
        return Columns(2, 1)
    return found


def columns_by_content(rows: Sequence[Cells], width: int) -> Columns | None:
    """The columns of lines that all have this width; None where they are uncertain."""
    sample = rows[:: max(1, len(rows) // MAX_COMPARED)]
    values = {place: [cells[place] for cells in rows if cells[place]] for place in range(1, width)}
    places = [place for place in values if values[place]]
    places = [place for place in places if not _all(_LANGUAGE, values[place]) or len(places) == 1]
    spoken = [place for place in places if not is_phones(values[place])]
    sentences = [place for place in spoken if are_sentences(values[place])]
    texts = [place for place in sentences if not is_constant(values[place])] or sentences
    labels = [place for place in spoken if place not in texts]
    if not texts and len(spoken) < len(places):  # its text is in phones only
        return None
    if not texts:  # phrases without marks: one that is there twice, else the longest column
        texts = twice(labels, values) or longest(labels, values)
        labels = [place for place in labels if place not in texts]
    original = None
    if len(texts) == 2 and are_same_texts(sample, *texts):
        original, text = texts
    elif len(texts) == 1:
        [text] = texts
    else:
        return None
    numbers = [place for place in labels if _all(_NUMBER, values[place])]
    if len(labels) > len(numbers) or any("." in value for place in numbers for value in values[place]):
        labels = [place for place in labels if place not in numbers]  # lengths in seconds, not numbers of speakers
    if len(labels) > 1:
        return None
    names = frozenset(values[labels[0]]) if labels else frozenset()
    return Columns(width, text, labels[0] if labels else None, original, names)


def are_sentences(values: Sequence[str]) -> bool:
    """Whether most values have more words than a name, or end with a mark."""
    likely = sum(len(value.split()) > MAX_NAME_WORDS or _END_MARK.search(value) is not None for value in values)
    return 2 * likely >= len(values)


def is_constant(values: Sequence[str]) -> bool:
    """Whether most values are the same one."""
    return len(values) > 2 and 2 * Counter(values).most_common(1)[0][1] > len(values)


def are_labels(values: Sequence[str]) -> bool:
    """Whether the values are a few names that come again and again."""
    has_sentences = any(len(value.split()) > MAX_NAME_WORDS or _END_MARK.search(value) for value in values)
    return not has_sentences and len(values) > 3 and 3 * len(set(values)) <= len(values)


def is_phones(values: Sequence[str]) -> bool:
    """Whether a column holds the phones of words, in letters of the IPA or as ARPAbet."""
    ipa = sum(_PHONES.search(value) is not None for value in values)
    arpabet = sum(_ARPABET.fullmatch(value) is not None for value in values)
    return 2 * ipa > len(values) or (arpabet == len(values) and 2 * sum(" " in value for value in values) > len(values))


def twice(places: Sequence[int], values: dict[int, list[str]]) -> list[int]:
    """Two columns that hold the same in every line, and more than a few names; none where there are no such ones."""
    pairs = combinations(places, 2)
    return next(
        (list(pair) for pair in pairs if values[pair[0]] == values[pair[1]] and not are_labels(values[pair[0]])), []
    )


def longest(places: Sequence[int], values: dict[int, list[str]]) -> list[int]:
    """The column with clearly the most words; none where two are about as long."""
    words = {place: sum(len(value.split()) for value in values[place]) / len(values[place]) for place in places}
    ordered = sorted(places, key=lambda place: -words[place])
    is_clear = len(ordered) == 1 or (len(ordered) > 1 and words[ordered[0]] >= LONGER * words[ordered[1]])
    return ordered[:1] if is_clear and len(values[ordered[0]]) <= 2 * len(set(values[ordered[0]])) else []


def are_same_texts(rows: Sequence[Cells], one: int, other: int) -> bool:
    """Whether two columns hold the same text, one of them perhaps with numbers and abbreviations written out."""
    pairs = [(cells[one], cells[other]) for cells in rows if cells[one] and cells[other]]
    return bool(pairs) and 2 * sum(is_same_text(*pair) for pair in pairs) >= len(pairs)


def is_same_text(text: str, other: str) -> bool:
    """Whether a text is the other one, perhaps with numbers and abbreviations written out."""
    return SequenceMatcher(None, text.lower().split(), other.lower().split(), autojunk=False).ratio() > 0.5


def _all(pattern: re.Pattern[str], values: Sequence[str]) -> bool:
    return all(pattern.fullmatch(value) for value in values)
