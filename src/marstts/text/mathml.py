"""Formulas of books: MathML in, words out.

Upstream: `epub` and `tags`, tag by tag.  Downstream: the text of a chapter, which is normalized like any other.
Presentation markup of MathML Core (https://www.w3.org/TR/mathml-core), as publishers write it: what each element looks
like decides what is said. An element that is not known is read as the row of what it holds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from unicodedata import normalize

from marstts.text.xhtml import Tag

MAX_DEPTH, MAX_PARTS = 40, 5_000
"""Elements within each other, and elements and pieces of text in a formula; of a larger one, its `alttext` is read."""

_OPERATORS = {
    "+": "plus", "-": "minus", "\u2212": "minus", "\u00b1": "plus or minus", "\u2213": "minus or plus",
    "*": "times", "\u2217": "times", "\u00d7": "times", "\u22c5": "times", "\u00b7": "times", "\u00f7": "divided by",
    "/": "over", "=": "equals", "\u2260": "is not equal to", "<": "is less than", ">": "is greater than",
    "\u2264": "is at most", "\u2265": "is at least", "\u2248": "is approximately", "\u2192": "to", "!": "factorial",
    "\u2032": "prime", "\u2033": "double prime", "%": "percent", "\u00b0": "degrees", "\u221e": "infinity",
    "\u2026": ", and so on,", "\u22ef": ", and so on,", "\u2223": "divides", ":=": "is defined as", "\u2061": "",
    "\u2062": "", "\u2063": "", "\u2064": "",
}  # fmt: skip
"""Words of operators; all others are read by the rules of the text."""

_POWERS = {"2": "squared", "3": "cubed", "\u2032": "prime", "prime": "prime", "\u2033": "double prime",
           "double prime": "double prime", "\u2218": "degrees", "degrees": "degrees", "times": "star"}  # fmt: skip
_ACCENTS = {
    "\u00af": "bar", "\u203e": "bar", "\u0305": "bar", "_": "bar", "^": "hat", "\u02c6": "hat", "\u0302": "hat",
    "~": "tilde", "\u02dc": "tilde", "\u0303": "tilde", "to": "vector", "\u20d7": "vector", "\u02d9": "dot",
    "\u0307": "dot", ".": "dot", "\u00a8": "double dot", "\u23de": "", "\u23df": "", "\ufe37": "", "\ufe38": "",
}  # fmt: skip
_LARGE = {"\u2211": "the sum", "\u220f": "the product", "\u222b": "the integral", "\u222e": "the contour integral",
          "\u22c3": "the union", "\u22c2": "the intersection"}  # fmt: skip
_LIMITS = {"lim": "the limit", "max": "the maximum", "min": "the minimum", "sup": "the supremum", "inf": "the infimum"}
_BARS = {"|": "the absolute value of", "\u2016": "the norm of", "\u2225": "the norm of"}
_SILENT = frozenset(["annotation", "annotation-xml", "mphantom", "mprescripts", "none", "maligngroup", "malignmark"])
_TOKENS = frozenset(["mi", "mn", "mtext", "ms"])
_FUNCTION = re.compile(r"\b([fghFGHP]) \(")
_GAP_AFTER, _GAP_BEFORE = re.compile(r"([(\[{]) "), re.compile(r" ([)\]},;:])")


@dataclass
class _Element:
    name: str
    attributes: dict[str, str] = field(default_factory=dict)
    parts: list[_Element | str] = field(default_factory=list)


class MathReader:
    """Collects a formula, from behind its `<math>` to its end."""

    def __init__(self, tag: Tag) -> None:
        self._root = _Element("math", tag.attributes)
        self._open = [self._root]
        self._num_parts = 0
        self._too_large = False

    @property
    def is_in_annotation(self) -> bool:
        """Whether the reader is within what is no part of the formula."""
        return any(each.name in _SILENT for each in self._open)

    def feed(self, found: Tag | str) -> bool:
        """Add a tag or a text; returns True for the end of the formula."""
        self._num_parts += 1
        self._too_large = self._too_large or self._num_parts > MAX_PARTS or len(self._open) > MAX_DEPTH
        if isinstance(found, str):
            if not self._too_large:
                self._open[-1].parts.append(found)
            return False
        name = found.name.rpartition(":")[2]
        if found.starts and not self._too_large:
            element = _Element(name, found.attributes)
            self._open[-1].parts.append(element)
            if not found.ends:
                self._open.append(element)
        elif found.ends and not found.starts:
            if name == "math":
                return True
            if len(self._open) > 1 and self._open[-1].name == name:
                self._open.pop()
        return False

    def words(self) -> str:
        """The formula in words; its `alttext` where it holds none, and nothing where that is missing, too."""
        said = "" if self._too_large else _tidy(_row(self._root.parts))
        if any(map(str.isalnum, said)):
            return said
        text = " ".join(self._root.attributes.get("alttext", "").split())
        return f"${text}$" if "\\" in text else text


def _tidy(words: str) -> str:
    """Without blanks within brackets and before marks."""
    words = _GAP_BEFORE.sub(r"\1", _GAP_AFTER.sub(r"\1", " ".join(words.split())))
    return _FUNCTION.sub(r"\1(", words).strip(" ,")


def _said(part: _Element | str) -> str:
    """The words of an element or a text."""
    if isinstance(part, str):
        return " ".join(part.split())
    name, children = part.name, [each for each in part.parts if isinstance(each, _Element)]
    if name in _SILENT:
        return ""
    if name in _TOKENS:
        return normalize("NFKC", _text_of(part))
    if name == "mo":
        text = _text_of(part)
        return _OPERATORS.get(text, text)
    if name in ("semantics", "maction"):
        return _said(children[0]) if children else ""
    if name == "mfenced":
        opening, closing = part.attributes.get("open", "("), part.attributes.get("close", ")")
        return f"{opening} {', '.join(map(_said, children))} {closing}"
    if name == "msqrt" or (name == "menclose" and "radical" in part.attributes.get("notation", "")):
        return f"the square root of {_row(part.parts)}"
    if name == "mmultiscripts":
        return _before_and_behind(part.parts)
    if name == "mtable":
        return "; ".join(map(_said, children))
    if name in ("mtr", "mlabeledtr"):
        return ", ".join(filter(None, map(_said, children)))
    reader = _SCRIPTS.get(name)
    return reader(part, children) if reader is not None and len(children) > 1 else _row(part.parts)


def _row(parts: Sequence[_Element | str]) -> str:
    """Words of what stands next to each other; between two bars is an absolute value."""
    said, bars = list(map(_said, parts)), dict[str, int]()
    for place, words in enumerate(said):
        if words in bars:
            said[bars.pop(words)], said[place] = _BARS[words], ","
        elif words in _BARS:
            bars[words] = place
    return " ".join(filter(None, said))


def _fraction(part: _Element, children: Sequence[_Element]) -> str:
    above, below = map(_said, children[:2])
    if part.attributes.get("linethickness", "").strip().rstrip("pxemt") == "0":
        return f"{above} choose {below}"
    if above.isdigit() and below in ("2", "3", "4"):
        return f"{above}/{below}"
    return f"{above}{',' if ' ' in above else ''} over {below}"


def _root(part: _Element, children: Sequence[_Element]) -> str:
    radicand, index = map(_said, children[:2])
    degree = {"2": "square", "3": "cube", "4": "fourth", "5": "fifth"}.get(index, f"{index}-th")
    return f"the {degree} root of {radicand}"


def _raised(part: _Element, children: Sequence[_Element]) -> str:
    return _power(*map(_said, children[:2]))


def _power(base: str, exponent: str) -> str:
    if not base or not exponent:
        return base or exponent
    if exponent in ("st", "nd", "rd", "th"):
        return base + exponent if base.isdigit() else f"{base}-{exponent}"
    return f"{base} {_POWERS.get(exponent) or f'to the power of {exponent}'}"


def _lowered(part: _Element, children: Sequence[_Element]) -> str:
    base, below = map(_said, children[:2])
    if large := _large(base, below, ""):
        return large
    return f"{base} {'base ' if base == 'log' else ''}{below}"


def _lowered_and_raised(part: _Element, children: Sequence[_Element]) -> str:
    base, below, above = [*map(_said, children[:3]), ""][:3]
    return _large(base, below, above) or _power(f"{base} {below}".strip(), above)


def _before_and_behind(parts: Sequence[_Element | str]) -> str:
    """What stands around a letter, such as that of a nuclide: first what is before it."""
    names = [each.name if isinstance(each, _Element) else "" for each in parts]
    border = names.index("mprescripts") if "mprescripts" in names else len(parts)
    return _row([*parts[border + 1 :], *parts[:border]])


def _with_accent(part: _Element, children: Sequence[_Element]) -> str:
    base, above = map(_said, children[:2])
    return f"{base} {_ACCENTS.get(above, above)}"


def _large(base: str, below: str, above: str) -> str:
    """The words of a sum, an integral or a limit with its bounds; nothing for another base."""
    if base in _LIMITS:
        return f"{_LIMITS[base]} as {below.replace(' to ', ' goes to ')} of"
    if base not in _LARGE:
        return ""
    bounds = f"from {below} to {above}" if below and above else f"over {below or above}"
    return f"{_LARGE[base]} {bounds} of"


_SCRIPTS = {
    "mfrac": _fraction, "mroot": _root, "msup": _raised, "msub": _lowered, "msubsup": _lowered_and_raised,
    "munder": _lowered, "mover": _with_accent, "munderover": _lowered_and_raised,
}  # fmt: skip


def _text_of(part: _Element) -> str:
    """All text within an element."""
    found = (each if isinstance(each, str) else _text_of(each) for each in part.parts)
    return " ".join("".join(found).split())
