"""Chess moves, "Nf3" -> "knight f three", and codes that look like them, "RxB-Nd7", which are spelled.

Upstream: folded text.  Downstream: the rules of codes and numbers.  A move without x, + or # is one only where the text
is about chess: another move, a numbered move or a word of the game stands near.
"""

from __future__ import annotations

import re

from marstts.text.numbers.words import cardinal, spelled
from marstts.text.rules.engine import rule
from marstts.text.rules.tables import either, word_set

_PIECES = {"K": "king", "Q": "queen", "R": "rook", "B": "bishop", "N": "knight"}
_ENDS = {"+": " check", "#": " checkmate", "": "", "++": " double check"}
_START, _END = r"(?<![A-Za-z0-9_/.-])", r"(?![A-Za-z0-9_/]|-[A-Za-z0-9]|\.[A-Za-z0-9])"
_MOVE = (
    r"(?P<piece>[KQRBN])(?P<from>[a-h]?[1-8]?)(?P<takes>x?)(?P<file>[a-h])(?P<rank>[1-8])"
    r"(?:=(?P<new>[QRBN]))?(?P<mark>\+\+?|#)?[!?]{0,2}"
)
_ANY_MOVE = r"(?:[KQRBN][a-h]?[1-8]?x?[a-h][1-8]|[a-h]x[a-h][1-8]|O-O(?:-O)?)"
_SURE = re.compile(
    rf"(?<![\w/-])(?:[KQRBN][a-h]?[1-8]?x[a-h][1-8](?![\w/-])|{_ANY_MOVE}[+#](?![\w])|[a-h]x[a-h][1-8](?![\w/-])|O-O(?![\w])"
    rf"|[1-9][0-9]?(?:\.{{1,3}} ?|, | )(?:{_ANY_MOVE}|[a-h][1-8])(?![\w/-]))"
)
"""What only a game of chess has."""

_WORDS = re.compile(
    r"\b(?:[Cc]hess|[Cc]heckmates?|[Mm]ates?|[Kk]nights?|[Bb]ishops?|[Rr]ooks?|[Pp]awns?|[Gg]ambit|[Ee]ndgame|[Gg]randmaster"
    r"|White|Black|[Mm]oves?|[Mm]oved|[Pp]lays?|[Pp]layed|[Rr]esign(?:s|ed)|[Cc]astles?|[Bb]lunder(?:s|ed)?|[Ss]acrifices?)\b"
)
_LONE = re.compile(rf"(?<![\w/-]){_ANY_MOVE}(?![\w/-])")
_CODE_BEFORE = re.compile(
    rf"\b{either(word_set('names', 'before_codes'))}(?: no\.?| number| code)?[:=]? \Z", re.IGNORECASE
)


def _is_chess(match: re.Match[str]) -> bool:
    text = match.string
    if _SURE.search(text):
        return True
    if _CODE_BEFORE.search(text, max(match.start() - 24, 0), match.start()):
        return False
    return _WORDS.search(text) is not None or len(_LONE.findall(text)) > 1


def _read_move(match: re.Match[str]) -> str:
    """A piece, where it stood, what it takes and where it goes; the signs one by one where there is no game."""
    if not (match["takes"] or match["mark"] or _is_chess(match)):
        return spelled(match[0])
    words = [_PIECES[match["piece"]]]
    words += [cardinal(sign) if sign.isdigit() else sign for sign in match["from"]]
    words += ["takes"] if match["takes"] else []
    words += [match["file"], cardinal(match["rank"])]
    words += ["becomes", _PIECES[match["new"]]] if match["new"] else []
    return " ".join(words) + _ENDS[match["mark"] or ""]


def _read_pawn(match: re.Match[str]) -> str | None:
    takes, new, mark = match["takes"], match["new"], match["mark"] or ""
    if not (takes or new) and not (mark and _is_chess(match)):
        return None
    words = ([takes, "takes"] if takes else []) + [match["file"], cardinal(match["rank"])]
    words += ["becomes", _PIECES[new]] if new else []
    return " ".join(words) + _ENDS[mark]


def _read_long_move(match: re.Match[str]) -> str | None:
    """Ng1-f3 -> knight g one to f three."""
    if not _is_chess(match):
        return None
    piece = _PIECES[match["piece"]] + " " if match["piece"] else ""
    joint = "takes" if match["joint"] == "x" else "to"
    start, goal = f"{match['a']} {cardinal(match['b'])}", f"{match['c']} {cardinal(match['d'])}"
    return f"{piece}{start} {joint} {goal}{_ENDS[match['mark'] or '']}"


def _read_number(match: re.Match[str]) -> str | None:
    """The number of a move within a line of moves: "Nc6 3. Bb5" -> "Nc6; 3, Bb5"."""
    if _SURE.search(match.string) is None:
        return None
    before = match.string[: match.start()].rstrip()
    return f"{'; ' if before and before[-1] not in '.,;:!?(' else ' ' if before else ''}{match['number']}, "


def _spell_code(match: re.Match[str]) -> str:
    return spelled(*re.split("[-/_]", match[0]))


RULES = [
    rule(
        "chess.move",
        rf"{_START}(?P<piece>[KQRBN]?)(?P<a>[a-h])(?P<b>[1-8])(?P<joint>[-x])(?P<c>[a-h])(?P<d>[1-8])(?P<mark>[+#])?(?![\w/-])",
        _read_long_move,
    ),
    rule(
        "number.code",
        r"(?<![A-Za-z0-9_/.-])(?=[A-Za-z0-9/_-]{0,24}(?<![A-Za-z0-9])[KQRBN](?:[a-h][1-8]|x[A-Z]))[A-Za-z0-9]{1,6}(?:[-/_][A-Za-z0-9]{1,6}){1,5}"
        r"(?![A-Za-z0-9_/-])",
        _spell_code,
    ),
    rule(
        "chess.number",
        rf"(?:(?<=^)|(?<= ))(?P<number>[1-9][0-9]?)\.{{1,3}} ?(?=(?:{_ANY_MOVE}|[a-h][1-8])(?![\w/-]))",
        _read_number,
        parted=False,
    ),
    rule(
        "chess.number",
        rf"(?<![\w.,-])(?P<number>[1-9][0-9]?)(?=[a-h][1-8](?![\w]))(?=.{{0,80}}(?<![\w/-])"
        rf"(?:{_ANY_MOVE}|[1-9][0-9]?\.? [a-h][1-8])(?![\w/-]))",
        lambda match: f"{match['number']}, ",
        parted=False,
    ),
    rule("chess.castling", r"(?<![A-Za-z0-9-])O-O-O(?![A-Za-z0-9-])", "castles long"),
    rule("chess.castling", r"(?<![A-Za-z0-9-])O-O(?![A-Za-z0-9-])", "castles"),
    rule("chess.move", rf"{_START}{_MOVE}{_END}", _read_move),
    rule(
        "chess.move",
        rf"{_START}(?:(?P<takes>[a-h])x)?(?P<file>[a-h])(?P<rank>[1-8])(?:=(?P<new>[QRBN]))?(?P<mark>\+\+?|#)?(?![A-Za-z0-9_/+#=-])",
        _read_pawn,
    ),
]
