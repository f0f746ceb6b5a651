r"""LaTeX: formulas within dollar signs, `\(…\)` and `\[…\]`, and commands that stand in plain text.

Upstream: a block of text before its characters are folded; `markdown`, which leaves the formulas as they are.
Downstream: the other rules, which get words: `$x_{1} + 5{y}_{2}$` -> "x one plus five y two".
Not a library: those that read LaTeX give trees or MathML, and none of Python's gives words. A command of no table is
read by its name; what only typesets (`\label{…}`, `\usepackage{…}`) is left out with a warning.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from marstts.text.numbers.words import number, ordinal
from marstts.text.rules.engine import Trace
from marstts.text.rules.tables import either, table, word_set

MAX_DEPTH = 12
"""Levels of groups within groups; those that lie deeper are read without their scripts."""

_TABLE = table("latex")
_SAID: dict[str, str] = _TABLE["said"]
_FUNCTIONS = word_set("latex", "functions")
_ACCENTS: dict[str, str] = _TABLE["accents"]
_PAIRS: dict[str, str] = _TABLE["pairs"]
_OVER: dict[str, str] = _TABLE["over"]
_STYLES = word_set("latex", "styles")
_SILENT = word_set("latex", "silent")
_TYPESETTING = word_set("latex", "typesetting")
_WORDS = word_set("latex", "words")
_FRACTIONS = frozenset(("frac", "dfrac", "tfrac", "cfrac", "sfrac", "nicefrac"))
_KNOWN = (
    frozenset(_SAID) | _FUNCTIONS | frozenset(_ACCENTS) | frozenset(_PAIRS) | frozenset(_OVER) | _STYLES | _SILENT
    | _FRACTIONS | frozenset(("sqrt", "binom", "dbinom", "tbinom", "text", "operatorname", "left", "right"))
)  # fmt: skip

_DOLLARS = (
    r"(?<![\\\w$])\$(?P<inline>(?![\s$])(?:[^$\\\n]|\\.){1,300}?(?:(?<![\s\\,;.+*/=<>-])|(?<=\^[*+-])))\$(?![\w$])"
)
FORMULA = re.compile(
    r"\$\$(?P<display>(?:[^$\\]|\\.){1,600})\$\$"
    r"|\\begin\{(?P<kind>equation|align|aligned|alignat|gather|gathered|multline|eqnarray|cases|[pbvBV]?matrix|split|math"
    r"|displaymath)\*?\}(?P<body>(?:[^\\]|\\(?!end\{)){1,600})\\end\{(?P=kind)\*?\}"
    r"|\\\[(?P<square>(?:[^\\\]]|\\[^\]]){1,600})\\\]|\\\((?P<round>(?:[^\\]|\\[^)]){1,400}?)\\\)|" + _DOLLARS
)
"""A formula with the signs around it; two amounts of dollars in a line are none (`is_formula`)."""

_CONTENTS = ("display", "body", "square", "round", "inline")
_MATH = re.compile(r"[\\^_{}]")
_AMOUNT = re.compile(r"\s*[0-9]")
_SHORT = re.compile(rf"(?:[0-9.,]|[A-Za-z](?![A-Za-z])|(?:{either(_FUNCTIONS)})(?![A-Za-z])|[\s()|'!=<>+*/:-])+")
_COMMAND = re.compile(r"\\(?P<name>[A-Za-z]+)\*?")
_PATH = re.compile(r"(?:^|[\s\"'(\[])(?:(?:[A-Za-z]:|~|\.{1,2}|%\w{1,20}%)\\|\\\\)\S{0,200}\Z")
"""A path of Windows up to a backslash, which is no command."""
_ARGUMENTS = re.compile(r"(?:\s?(?:\[[^\[\]]{0,200}\]|\{[^{}]{0,300}\})){0,4}")
_NUMERAL = re.compile(r"[0-9]{1,3}(?:(?:,|\{,\})[0-9]{3})+(?![0-9])|[0-9]+(?:\.[0-9]+)?")
_LETTERS = re.compile("[A-Za-z]+")
_PRIMES = re.compile("'{1,3}")
_OPERATORS = {"+": "plus", "=": "equals", "<": "less than", ">": "greater than", "*": "times", "/": "over"}
_BEFORE_MINUS = frozenset("+-*/=<>([{,:|")
_CALLED = frozenset("fghuvwpFGHPEOTφψ")
"""Letters that usually name a function where a bracket follows."""


_PLACE = "\ue00f"
"""Stands for a formula; a character for private use, which no text has."""


def is_formula(content: str) -> bool:
    """Whether what stands between two dollar signs is a formula, and no amount of money: `$5 and 6$`."""
    if _AMOUNT.match(content) is None:
        return True
    return _MATH.search(content) is not None or _SHORT.fullmatch(content) is not None


def without_formulas(text: str, change: Callable[[str], str]) -> str:
    """`text` after `change` of all that is no formula; formulas stay."""
    formulas: list[str] = []

    def hide(match: re.Match[str]) -> str:
        if match["inline"] is not None and not is_formula(match["inline"]):
            return match[0]
        formulas.append(match[0])
        return _PLACE

    if _PLACE in text or not ("$" in text or "\\" in text):
        return change(text)
    hidden = FORMULA.sub(hide, text)
    if not formulas:
        return change(text)
    changed = change(hidden)
    waiting = iter(formulas)
    return re.sub(_PLACE, lambda _: next(waiting, ""), changed)


_SAID_ROOT = re.compile(
    r"\b(?:(?:square|cube|fourth|fifth|[a-z]{1,3}th) )?root(?= ?(?:\$ ?|\\\( ?)?\\sqrt)", re.IGNORECASE
)
"""The name of a root before its formula, which says it."""


def read_latex(text: str, trace: Trace) -> str:
    """`text` with its formulas and commands in words."""
    if "$" not in text and "\\" not in text:
        return text

    def read(match: re.Match[str]) -> str:
        content = next(match[name] for name in _CONTENTS if match[name] is not None)
        if match["inline"] is not None and not is_formula(content):
            return match[0]
        words = read_formula(content, match.string[: match.start()])
        trace.record("latex.formula", match[0], words)
        mark = " , " if match["square"] is not None or match["kind"] or len(content) > 100 else " "
        return mark + words + mark

    text = FORMULA.sub(read, _SAID_ROOT.sub("", text) if "sqrt" in text else text)
    return _read_commands(text, trace) if "\\" in text else text


def read_formula(source: str, before: str = "") -> str:
    """A formula in words; `before` is the text before it."""
    words = _Reader(source, 0).sequence()
    words = " ".join(words.split())
    if words.startswith("the ") and re.search(r"\b(?:the|an?|sum|limit|integral|product) *\Z", before[-12:]):
        words = words[4:]
    return words


def _read_commands(text: str, trace: Trace) -> str:
    """The commands that stand in plain text, with their arguments."""
    parts: list[str] = []
    place = 0
    for match in _COMMAND.finditer(text):
        if match.start() < place:
            continue
        before = text[max(place, match.start() - 200) : match.start()]
        name = match["name"]
        if _PATH.search(before + "\\") or before.endswith("\\"):
            continue
        if name in _TYPESETTING:
            arguments = _ARGUMENTS.match(text, match.end())
            end = arguments.end() if arguments else match.end()
            trace.leave_out(text[match.start() : end])
            words = " "
        elif name in _KNOWN or name in _WORDS:
            reader = _Reader(text, match.start())
            words = f" {reader.element()} "
            end = reader.place
            trace.record("latex.command", text[match.start() : end], words)
        elif text[match.end() : match.end() + 1] in ("{", "[") and not before[-1:].isalnum() and len(name) > 2:
            words, end = f"{name} ", match.end()
            trace.record("latex.command", match[0], words)
        else:
            continue
        parts += [text[place : match.start()], words]
        place = end
    return "".join(parts) + text[place:]


class _Reader:
    """Reads LaTeX from a place on; each method gives the words of what it passed over."""

    def __init__(self, source: str, place: int, depth: int = 0) -> None:
        self.source, self.place, self.depth = source, place, depth
        self._last = ""  # the last sign, for what a minus or a bar is

    def sequence(self, end: str = "") -> str:
        """All up to `end` or the end of the source."""
        words: list[str] = []
        while self.place < len(self.source):
            if end and self.source.startswith(end, self.place):
                self.place += len(end)
                break
            words.append(self.element())
        return " ".join(words)

    def element(self) -> str:
        """One sign, number, command or group, with its scripts."""
        start = self.place
        words = self._atom()
        self.place = max(self.place, start + 1)
        return words + self._scripts()

    def _atom(self) -> str:
        source, character = self.source, self.source[self.place]
        if character == "\\":
            return self._command()
        if character == "{":
            return self.argument()
        if numeral := _NUMERAL.match(source, self.place):
            self._last, self.place = "0", numeral.end()
            return number(numeral[0].replace("{", "").replace("}", ""))
        if letters := _LETTERS.match(source, self.place):
            return self._letters(letters)
        self.place += 1
        last = self._last
        if not character.isspace():
            self._last = character
        if character == "-":
            return "minus"
        if character == "|":
            return self._bar(last)
        if character in "&~$":
            return (
                ", "
                if character == "&" and self.source[self.place :].lstrip()[:1] not in ("=", "<", ">", "\\")
                else " "
            )
        if character in "^_":  # a script of nothing
            self.place -= 1
            return self._scripts() or self._skip()
        if character == "!":
            return "factorial" if last.isalnum() or last == ")" else "!"
        return _OPERATORS.get(character, character if character not in "}" else " ")

    def _skip(self) -> str:
        self.place += 1
        return ""

    def _letters(self, letters: re.Match[str]) -> str:
        """A function or a word as it stands, else one letter; before a bracket it may be a function."""
        word = letters[0]
        if word in _FUNCTIONS or len(word) > 3:
            self.place, self._last = letters.end(), "f"
            return word
        self.place, self._last = letters.start() + 1, "a"
        primes = _PRIMES.match(self.source, self.place)
        words = word[0]
        if primes:
            self.place = primes.end()
            words += (" prime", " double prime", " triple prime")[len(primes[0]) - 1]
        if len(word) == 1 and word in _CALLED and self.source.startswith("(", self.place) and self.depth < MAX_DEPTH:
            self.place += 1
            inner = _Reader(self.source, self.place, self.depth + 1)
            inside = inner.sequence(")")
            self.place = inner.place
            return f"{words} of {inside}"
        return words

    def _bar(self, last: str) -> str:
        """The bars of an absolute value; else "given" or "such that"."""
        end = self.source.find("|", self.place)
        opens = not last or last in _BEFORE_MINUS or last == "m"
        if opens and end > 0 and self.depth < MAX_DEPTH:
            inner = _Reader(self.source[self.place : end], 0, self.depth + 1)
            self.place = end + 1
            return f"the absolute value of {inner.sequence()}"
        return "such that" if "\\{" in self.source[: self.place] else "given"

    def argument(self) -> str:
        """A group in braces, or one sign."""
        self._pass_spaces()
        if self.place >= len(self.source):
            return ""
        if self.source[self.place] != "{":
            if self.source[self.place] == "\\" and not self.source[self.place + 1 : self.place + 2].isalpha():
                self.place += 2
                return self.source[self.place - 1 : self.place]
            if self.source[self.place].isdigit():
                self.place += 1
                return number(self.source[self.place - 1])
            return self._one()
        if self.depth >= MAX_DEPTH:
            self.place += 1
            return ""
        inner = _Reader(self.source, self.place + 1, self.depth + 1)
        words = inner.sequence("}")
        self.place, self._last = inner.place, inner._last or "a"
        return words.strip()

    def _one(self) -> str:
        if self.source[self.place].isalpha():
            self.place += 1
            return self.source[self.place - 1]
        return self._atom()

    def raw_argument(self) -> str:
        """The characters of a group in braces; empty where there is none."""
        self._pass_spaces()
        match = re.compile(r"\{((?:[^{}]|\{[^{}]{0,300}\}){0,300})\}").match(self.source, self.place)
        if match is None:
            return ""
        self.place = match.end()
        return match[1].replace("{", "").replace("}", "")

    def _option(self) -> str:
        match = re.compile(r"\s?\[([^\[\]]{0,120})\]").match(self.source, self.place)
        if match is None:
            return ""
        self.place = match.end()
        return match[1]

    def _pass_spaces(self) -> None:
        while self.source[self.place : self.place + 1] == " ":
            self.place += 1

    def _scripts(self) -> str:
        """What is raised or lowered behind an element."""
        words: list[str] = []
        for _ in range(4):
            mark = self.source[self.place : self.place + 1]
            if mark not in ("^", "_") or not mark or not self.source[self.place + 1 :].strip():
                break
            self.place += 1
            raw = self.source[self.place : self.place + 12]
            script = self.argument()
            if mark == "_":
                words.insert(0, script.replace(",", " "))
            else:
                words.append(_raised(script, raw))
        return " " + " ".join(words) if words else ""

    def _limits(self) -> tuple[str, str, str]:
        """What stands below and above a sum, and the source of what stands below."""
        below, above, raw = "", "", ""
        for _ in range(4):
            self._pass_spaces()
            if self.source.startswith(("\\limits", "\\nolimits"), self.place):
                self.place += len("\\limits") + 2 * self.source.startswith("\\no", self.place)
                continue
            mark = self.source[self.place : self.place + 1]
            if mark not in ("_", "^") or not mark:
                break
            self.place += 1
            start = self.place
            words = self.argument()
            if mark == "_":
                below, raw = words, self.source[start : self.place]
            else:
                above = words
        return below, above, raw

    def _command(self) -> str:
        match = _COMMAND.match(self.source, self.place)
        if match is None:
            return self._escaped()
        self.place = match.end()
        name, last = match["name"], self._last
        self._last = "m" if name in _SAID or name in _OVER else "a"
        if name in _FRACTIONS:
            over, under = self.argument(), self.argument()
            return f"{over}, over {under}" if len(over.split()) > 3 else f"{over} over {under}"
        if name == "sqrt":
            option = self._option()
            return f"{_root(option)} root of {self.argument()}"
        if name in ("binom", "dbinom", "tbinom"):
            return f"{self.argument()} choose {self.argument()}"
        if name in _OVER:
            return self._over(name)
        if name in _FUNCTIONS:
            return self._function(name)
        if name in _ACCENTS:
            inside = self.argument()
            return f"vector {inside}" if name == "vec" else f"{inside} {_ACCENTS[name]}".strip()
        if name in ("text", "operatorname") or name in _STYLES:
            return self.raw_text(name)
        if name in _PAIRS:
            return _PAIRS[name]
        if name in ("left", "right", "middle"):
            if self.source.startswith((".", "\\|"), self.place):
                self.place += 1 + self.source.startswith("\\", self.place)
            self._last = last
            return ""
        if name in ("begin", "end"):
            self.raw_argument()
            if name == "begin":
                self._option()
                if re.match(r"\{[lcr|@ ]{1,20}\}", self.source[self.place : self.place + 22]):
                    self.raw_argument()
            return ", "
        if name == "href":
            self.raw_argument()
            return self.raw_argument()
        if name in ("url", "footnote"):
            return f" , {self.raw_argument()} , "
        if name in (
            "section",
            "subsection",
            "subsubsection",
            "chapter",
            "part",
            "title",
            "author",
            "caption",
            "paragraph",
        ):
            return f"{self.raw_argument()}. "
        if name == "circ" and not last:
            return "degrees"
        if name in _SILENT:
            self._last = last
            return " "
        return _SAID.get(name, name)

    def raw_text(self, name: str) -> str:
        """The argument of a command of style: text as it stands, or a formula in another type."""
        self._pass_spaces()
        if name in ("text", "operatorname") or name.startswith(("text", "emph", "mbox", "underline")):
            if self.source[self.place : self.place + 1] != "{":
                return ""
            raw = self.raw_argument()
            return read_latex(raw, Trace()) if "\\" in raw or "$" in raw else raw
        return self.argument()

    def _escaped(self) -> str:
        sign = self.source[self.place + 1 : self.place + 2]
        self.place += 2
        if sign in "{}":
            self._last = sign
            return ", "
        if sign == "|":
            end = self.source.find("\\|", self.place)
            if end < 0:
                return ""
            inner = _Reader(self.source[self.place : end], 0, self.depth + 1)
            self.place = end + 2
            return f"the norm of {inner.sequence()}" if self.depth < MAX_DEPTH else ""
        if sign == "\\":
            return ", "
        if sign in ",;:!> \n":
            return " "
        if sign == "$" and (numeral := _NUMERAL.match(self.source, self.place)):
            self.place = numeral.end()
            return f"{number(numeral[0])} dollars"
        self._last = sign
        return {"%": "percent", "&": "and", "_": " "}.get(sign, sign)

    def _over(self, name: str) -> str:
        """A sum, an integral or a limit, with what stands below and above it."""
        below, above, raw = self._limits()
        self._last = "m"
        kind = _OVER[name]
        if kind == "limit" or "argmax" in name or name in ("max", "min", "sup", "inf", "argmin"):
            approach = raw.replace("\\to", "\0").replace("\\rightarrow", "\0")
            if "\0" in approach:
                below = re.sub(r"\b(?:approaches|to)\b", "approaches", below, count=1)
                return f"the {kind} as {below} of"
            return f"the {kind} over {below} of" if below else f"the {kind} of"
        if below and above:
            return f"the {kind} from {below} to {above} of"
        if below:
            return f"the {kind} over {below} of"
        return f"the {kind} of"

    def _function(self, name: str) -> str:
        """A function: its power, its base, and what it is of."""
        words = {"ln": "natural log", "lg": "log"}.get(name, name)
        if self.source.startswith("_", self.place):
            self.place += 1
            words += f" base {self.argument()} of"
        elif self.source.startswith("^", self.place):
            self.place += 1
            raw = self.source[self.place : self.place + 12]
            words += f" {_raised(self.argument(), raw)}"
        return words


def _root(option: str) -> str:
    """The rank of a root: nothing -> "square", 3 -> "cube", 4 -> "fourth", n -> "nth"."""
    option = option.strip()
    if option in ("", "2"):
        return "square"
    if option == "3":
        return "cube"
    return ordinal(option) if option.isdigit() else f"{read_formula(option)}th"


def _raised(words: str, raw: str) -> str:
    """What a raised script reads as."""
    raw = raw.strip("{} ")
    marks = {"*": "star", "\\ast": "star", "\\prime": "prime", "'": "prime", "\\circ": "degrees", "+": "plus",
             "-": "minus", "\\top": "transpose", "\\dagger": "dagger", "\\star": "star", "\\perp": "perp"}  # fmt: skip
    for mark, said in marks.items():
        if (
            raw == mark
            or (mark[0] == "\\" and raw.startswith(mark))
            or (len(mark) == 1 and raw[:2].strip("} ") == mark)
        ):
            return said
    if raw[:2].strip("} ") == "T":
        return "transpose"
    words = words.strip()
    if words == "two":
        return "squared"
    if words == "three":
        return "cubed"
    digits = re.match(r"[0-9]{1,9}(?![0-9A-Za-z+*/^_\\-])", raw)
    return f"to the {ordinal(digits[0]) if digits and ' ' not in words.replace('-', '') else words}"
