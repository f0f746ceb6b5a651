"""A subset of SSML 1.1 (https://www.w3.org/TR/speech-synthesis11): a document in, segments out.

Upstream: a text that begins with `<speak`.  Downstream: `reading`, which normalizes the text of each segment.
Honored: `break`, `p`, `s`, `sub`, `say-as`, `prosody` with `rate` and `duration`, `voice`, `phoneme`. The text of any
other element is kept, and a warning names it. Entities and documents that refer to others are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from xml.etree.ElementTree import Element

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import ParseError

from marstts.errors import DataError, TextError
from marstts.text.bounded_xml import DeclarationError, Malformed, parse_xml
from marstts.text.lexicon import read_pronunciation, respell
from marstts.text.numbers.words import cardinal, one_by_one, ordinal
from marstts.text.segments import BREAK_SECONDS, MAX_PAUSE_SECONDS, MAX_RATE, MIN_RATE, Duration, Segment

MAX_CHARACTERS = 4 * 2**20
MAX_ELEMENTS = 500_000
MAX_DEPTH = 50
MAX_SECONDS = 24 * 3600.0
"""Longest duration of a passage."""

RATES = {"x-slow": 0.6, "slow": 0.8, "medium": 1.0, "default": 1.0, "fast": 1.25, "x-fast": 1.6}
PARAGRAPH_PAUSE_SECONDS = 0.4

_TIME = re.compile(r"\+?(?P<number>[0-9]{0,6}(?:\.[0-9]{1,3})?)(?P<unit>ms|s)")
_PERCENT = re.compile(r"(?P<sign>[+-]?)(?P<number>[0-9]{1,4}(?:\.[0-9]{1,3})?)%")
_SPACE = re.compile(r"\s+")
_BRACKETS = re.compile(r"[\[\]{}]")
_IGNORED = frozenset({"speak", "mark", "w", "token", "lang", "desc", "metadata", "meta", "lexicon", "prosody"})


@dataclass(frozen=True)
class Document:
    """An SSML document: its segments, whose text is not normalized yet, and what could not be honored."""

    segments: tuple[Segment, ...]
    warnings: tuple[str, ...]


@dataclass
class _Writer:
    """Collects segments; text with the same style grows into one, in time that is linear in the document."""

    unknown: dict[str, None] = field(default_factory=dict)
    num_durations: int = 0
    _done: list[Segment] = field(default_factory=list)
    _style: Segment | None = None
    """Style of the segment that grows; None where the next text begins one."""
    _pieces: list[str] = field(default_factory=list)

    def write(self, text: str, style: Segment) -> None:
        """Add text in a style."""
        if self._style is None or self._manner_of(self._style) != self._manner_of(style):
            if not text.strip():
                return
            self._finish()
            self._style = style
        self._pieces.append(text)

    @staticmethod
    def _manner_of(style: Segment) -> tuple[object, ...]:
        return style.rate, style.voice, style.duration

    def pause(self, seconds: float, style: Segment) -> None:
        """Add silence after what was written; before it, as a segment of its own."""
        if not seconds:
            return
        self._finish()
        if self._done:
            last = self._done[-1]
            self._done[-1] = replace(last, pause_seconds=min(last.pause_seconds + seconds, MAX_PAUSE_SECONDS))
        else:
            self._done.append(replace(style, text="", pause_seconds=seconds))

    def end_sentence(self) -> None:
        """End the sentence, whatever its last mark is."""
        if self._style is None:
            return
        while self._pieces and not self._pieces[-1].strip():
            self._pieces.pop()
        if self._pieces:
            self._pieces[-1] = self._pieces[-1].rstrip()
        self._pieces.append("\n\n")

    def segments(self) -> list[Segment]:
        """All that was written."""
        self._finish()
        return self._done

    def _finish(self) -> None:
        if self._style is not None:
            self._done.append(replace(self._style, text="".join(self._pieces)))
        self._style, self._pieces = None, []


_START = re.compile(
    r"(?:<\?xml[^>]*\?>\s*)?(?:<!DOCTYPE[^\[>]*(?:\[[^\]]*\])?\s*>\s*)?(?:<!--(?:(?!-->).)*-->\s*)*<speak[\s>]",
    re.DOTALL,
)
"""The start of a document. A comment ends at its first `-->`: more ways to read it would take exponential time."""


def is_ssml(text: str) -> bool:
    """Whether `text` is an SSML document rather than words."""
    start = text[:2000].lstrip("\ufeff \t\r\n")
    return _START.match(start) is not None


def read_ssml(text: str) -> Document:
    """The segments of an SSML document.

    Raises TextError where it is no well-formed document, holds entities, is too deep, or an attribute is impossible.
    """
    if len(text) > MAX_CHARACTERS:
        raise TextError(f"an SSML document of {len(text)} characters; at most {MAX_CHARACTERS} can be read")
    try:
        root = parse_xml(text.strip("\ufeff \t\r\n"), MAX_ELEMENTS)
    except ParseError as error:
        raise TextError(f"expected well-formed SSML, but {error}") from error
    except (DeclarationError, DefusedXmlException) as error:
        raise TextError("expected SSML without entities, but the document declares entities or attributes") from error
    except Malformed as error:
        raise TextError(f"expected SSML, but found {error}") from error
    writer = _Writer()
    _read_element(root, Segment(), writer, depth=0)
    names = ", ".join(writer.unknown)
    warnings = (f"these SSML elements are not honored, only their text is read: {names}",) if names else ()
    return Document(tuple(part for part in writer.segments() if part.text.strip() or part.pause_seconds), warnings)


def _read_element(element: Element, style: Segment, writer: _Writer, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise TextError(f"SSML elements nested more than {MAX_DEPTH} deep; make the document flatter")
    name = _name(element)
    if name == "break":
        writer.pause(_break_seconds(element), style)
    elif name in ("sub", "phoneme", "say-as"):
        writer.write(_spoken_form(element, name), style)
    elif name == "audio":
        writer.unknown["audio"] = None
        _read_children(element, style, writer, depth)
    else:
        _read_styled(element, name, style, writer, depth)


def _read_styled(element: Element, name: str, style: Segment, writer: _Writer, depth: int) -> None:
    if name in ("p", "s"):
        writer.end_sentence()
    if name == "prosody":
        others = sorted(set(element.keys()) - {"rate", "duration"})
        writer.unknown.update(dict.fromkeys(f"prosody {other}" for other in others))
        style = replace(style, rate=_rate(element.get("rate"), style.rate))
        if (stated := element.get("duration")) is not None:
            writer.num_durations += 1
            style = replace(style, duration=Duration(writer.num_durations, _duration(stated)))
    elif name == "voice":
        style = replace(style, voice=element.get("name") or style.voice)
    elif name not in _IGNORED and name not in ("p", "s"):
        writer.unknown[name] = None
    _read_children(element, style, writer, depth)
    if name in ("p", "s"):
        writer.end_sentence()
    if name == "p":
        writer.pause(PARAGRAPH_PAUSE_SECONDS, style)


def _read_children(element: Element, style: Segment, writer: _Writer, depth: int) -> None:
    writer.write(_SPACE.sub(" ", element.text or ""), style)
    for child in element:
        if isinstance(child.tag, str):
            _read_element(child, style, writer, depth + 1)
        writer.write(_SPACE.sub(" ", child.tail or ""), style)


def _duration(stated: str) -> float:
    """Seconds of a passage; TextError for what is no time, or none at all."""
    match = _TIME.fullmatch(stated.strip())
    seconds = 0.0 if match is None or match["number"] in ("", ".") else float(match["number"])
    seconds /= 1000 if match is not None and match["unit"] == "ms" else 1
    if not 0.0 < seconds <= MAX_SECONDS:
        raise TextError(f"prosody duration: expected a time such as 2.5s or 800ms, but came {stated[:40]!r}")
    return seconds


def _name(element: Element) -> str:
    return str(element.tag).rpartition("}")[2]


def _spoken_form(element: Element, name: str) -> str:
    words = _SPACE.sub(" ", "".join(element.itertext())).strip()
    if name == "sub":
        return element.get("alias") or words
    if name == "phoneme":
        return _phonemes(element, words)
    return "".join(_say_as(words, element.get("interpret-as", ""), element.get("format", "")))


def _phonemes(element: Element, words: str) -> str:
    sounds = (element.get("ph") or "").strip()
    if not sounds:
        return words
    said = f"/{sounds}/" if element.get("alphabet", "ipa") == "ipa" else sounds
    try:
        letters = respell(read_pronunciation(said))
        return f"[{_BRACKETS.sub(' ', words)[:80] or letters}]{{{said}}}"
    except DataError as error:
        raise TextError(f"the SSML phoneme of {words[:40]!r}: {error}") from error


def _say_as(words: str, kind: str, form: str) -> Iterator[str]:
    digits = re.sub("[^0-9]", "", words)
    if kind in ("characters", "spell-out", "verbatim"):
        yield ", ".join(
            one_by_one(each) if each in "0123456789" else each.upper() for each in words if not each.isspace()
        )
    elif kind in ("digits", "telephone") and digits:
        yield one_by_one(words)
    elif kind == "cardinal" and digits:
        yield words.replace(digits, cardinal(digits)) if digits in words else cardinal(digits)
    elif kind == "ordinal" and digits:
        yield ordinal(digits)
    elif (
        kind == "date"
        and form.lower() in ("dmy", "dm")
        and re.fullmatch("[0-9]{1,2}[/.-][0-9]{1,2}[/.-][0-9]{4}", words)
    ):
        day, month, year = re.split("[/.-]", words)
        yield f"{year}-{int(month):02d}-{int(day):02d}"
    else:
        yield words


def _break_seconds(element: Element) -> float:
    time, strength = element.get("time"), element.get("strength", "medium")
    if time is not None:
        match = _TIME.fullmatch(time.strip())
        if match is None or not match["number"]:
            raise TextError(f"an SSML break lasts a time such as 500ms or 0.5s, but came {time[:40]!r}")
        return min(float(match["number"]) / (1000 if match["unit"] == "ms" else 1), MAX_PAUSE_SECONDS)
    if strength not in BREAK_SECONDS:
        raise TextError(
            f"the strength of an SSML break is one of {', '.join(BREAK_SECONDS)}, but came {strength[:40]!r}"
        )
    return BREAK_SECONDS[strength]


def _rate(rate: str | None, outer: float) -> float:
    if rate is None:
        return outer
    if rate in RATES:
        return RATES[rate]
    percent = _PERCENT.fullmatch(rate.strip())
    if percent is not None:
        change = float(percent["number"]) / 100
        value = 1 + change if percent["sign"] == "+" else 1 - change if percent["sign"] == "-" else change
    elif re.fullmatch(r"[0-9]{1,3}(?:\.[0-9]{1,3})?", rate.strip()):
        value = float(rate)
    else:
        raise TextError(f"an SSML rate is one of {', '.join(RATES)} or a percentage, but came {rate[:40]!r}")
    if not MIN_RATE <= value <= MAX_RATE:
        raise TextError(f"an SSML rate lies between {MIN_RATE:.0%} and {MAX_RATE:.0%}, but came {rate[:40]!r}")
    return value
