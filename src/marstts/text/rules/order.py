"""All rules of written forms in the order in which they are applied.

Upstream: `normalize`, which imports this module for the first text: its tables take a while to read.
Downstream: `rules`, which applies them; the modules of rules.
"""

from __future__ import annotations

from marstts.text.numbers import dates, money, quantities, roman, telephones, times, units
from marstts.text.rules import abbreviations, addresses, chess, citations, forms, identifiers, symbols
from marstts.text.rules.engine import RuleList, Trace
from marstts.text.rules.initialisms import spell_initialisms
from marstts.text.rules.latex import read_latex
from marstts.text.rules.symbols import name_symbols

MARKUP = (*symbols.MARKUP, *citations.BRACKETS, *units.POWERS, *forms.RAW)
"""The rules that come before characters are folded."""

RULES = (
    *citations.NOTES,
    *units.DOTTED,
    *symbols.EMOTICONS,
    *identifiers.PLACES,
    *chess.RULES,
    *addresses.HEXADECIMAL,
    *forms.EARLY,
    *addresses.RULES,
    *citations.RULES,
    *telephones.TELEPHONES,
    *abbreviations.RULES,
    *roman.RULES,
    *symbols.OPERATORS,
    *dates.RULES,
    *times.RULES,
    *dates.DECADES,
    *quantities.RANGES,
    *identifiers.IDENTIFIERS,
    *money.RULES,
    *quantities.SCALES,
    *units.RULES,
    *quantities.POWERS,
    *symbols.RULES,
    *forms.LATE,
    *quantities.NUMBERS,
    *abbreviations.INITIALS,
)
"""Every rule on folded text, the most specific first; a numeral that no rule claims is a plain number."""


_ALL = RuleList(MARKUP, RULES)
_MARKUP_STAGE, _RULES_STAGE = range(2)


def may_be_read(text: str) -> bool:
    """Whether a rule may read something in `text`, which is words and punctuation."""
    return _ALL.may_apply(text)


def read_markup(text: str, trace: Trace) -> str:
    """`text` without markup, for `characters.fold_characters`."""
    return _ALL.apply(read_latex(text, trace), trace, _MARKUP_STAGE)


def read_written_forms(text: str, trace: Trace) -> str:
    """Folded `text` with its written forms read by rule: numbers, abbreviations, operators."""
    return _ALL.apply(text, trace, _RULES_STAGE)


def read_signs(text: str, trace: Trace) -> str:
    """`text` in letters and punctuation: the symbols that no rule has read, and initialisms."""
    return spell_initialisms(name_symbols(text, trace), trace)
