"""The walk of a text from the command line to the tokens of its prompt: no file is visited twice.

Calls are traced. A visit begins where one file hands another the text, or what the text has become: a string, a match,
or a value that holds it. A visit lasts as long as that of the caller, who may call the same helper again. So no file is
visited twice where each is handed the text by one other file alone, and none by a file that it has called itself. A
call that hands the text to no other file and returns nothing (a check, a note) is left out.
"""

from __future__ import annotations

import re
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import marstts
from marstts.cli.main import app
from marstts.text import normalize
from marstts.text.reading import read_text

PACKAGE = str(Path(marstts.__file__).parent) + "/"

MARKER = "quill"
"""A word that every form of the text holds, whatever was read before."""

TEXT = (
    "# The *Quill*\n\nDr. Nguyen of quill paid **$5** for [tea](http://x.org) at 3 pm on 4 May, e.g. quill & co. "
    "<b>Quill</b> is ~5 km, a <= b, 20% :-)"
)
"""Markdown, a word of the lexicon, an abbreviation, money, times, dates, units, markup and symbols."""

READING = [
    "text/blocks", "text/markdown", "text/lexicon", "text/normalize", "text/plain", "text/punctuation",
    "text/sentences", "text/rule_order", "text/rules", "text/prefilter_grams", "text/symbols", "text/characters",
    "text/abbreviations", "text/dates", "text/times", "text/money", "text/units", "text/symbol_names",
    "text/initialisms",
]  # fmt: skip
"""Files that read a text, in the order in which they come to it: the heading is plain, the sentence after it is not."""

SPEAK = [
    "cli/speak", "cli/speak_input", "synthesis/synthesizer", "synthesis/in_order", "synthesis/model_session",
    "synthesis/prepared_text", "text/ssml", "text/reading", *READING, "synthesis/written_forms", "synthesis/batch",
    "mars6/speech", "mars6/prompt", "mars6/spelling", "text/bpe",
]  # fmt: skip
"""Files from the command line to the tokens."""


class Arrived(Exception):
    """The text has become tokens."""


def holds_text(value: Any, depth: int = 0) -> bool:
    """Whether a value is the text or has it as a part."""
    if isinstance(value, str):
        return MARKER in value.lower()
    if isinstance(value, re.Match):
        return MARKER in value.string.lower()
    if isinstance(value, (list, tuple)) and depth < 3:
        return any(holds_text(each, depth + 1) for each in value[:20])
    if is_dataclass(value) and not isinstance(value, type) and depth < 3:
        return any(holds_text(value.__dict__.get(each.name), depth + 1) for each in fields(value))
    return False


class Walk:
    """Calls between files of the package that hand on the text, until its tokens are there."""

    def __init__(self, last: str) -> None:
        self.last = last
        self.calls: list[tuple[str, str, str]] = []
        """Caller, callee and function of every call, in order."""
        self._open: dict[int, tuple[int, str]] = {}

    def __call__(self, frame: FrameType, event: str, result: Any) -> None:
        file = file_of(frame)
        if file is None:
            return
        if event == "return":
            index, callee = self._open.pop(id(frame), (None, ""))
            if index is not None and result is None and not any(caller == callee for caller, *_ in self.calls[index:]):
                del self.calls[index]
            if frame.f_code.co_name == self.last and holds_text(arguments(frame)):
                raise Arrived
        elif event == "call" and holds_text(arguments(frame)):
            caller = caller_of(frame)
            if caller not in (file, None):
                self._open[id(frame)] = len(self.calls), file
                self.calls.append((caller, file, frame.f_code.co_name))


def file_of(frame: FrameType) -> str | None:
    name = frame.f_code.co_filename
    return name.removeprefix(PACKAGE).removesuffix(".py") if name.startswith(PACKAGE) else None


def caller_of(frame: FrameType) -> str | None:
    """The nearest file of the package on the stack."""
    before = frame.f_back
    while before is not None:
        if file := file_of(before):
            return file
        before = before.f_back
    return None


def arguments(frame: FrameType) -> list[Any]:
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return [frame.f_locals[name] for name in names if name in frame.f_locals and name != "self"]


def walk(command: list[str], last: str) -> list[tuple[str, str, str]]:
    """The calls of a command up to the return of the function `last`."""
    found = Walk(last)
    before = sys.getprofile()
    sys.setprofile(found)
    try:
        app(command)
    except Arrived:
        pass
    except SystemExit as end:
        assert end.code == 0
    finally:
        sys.setprofile(before)
    return found.calls


def order_of(calls: list[tuple[str, str, str]]) -> list[str]:
    """The files that are handed the text, each where it is handed the text first."""
    return list(dict.fromkeys(callee for _, callee, _ in calls))


def visited_again(calls: list[tuple[str, str, str]]) -> dict[str, set[str]]:
    """Files that are handed the text by more than one file, with these."""
    callers: dict[str, set[str]] = {}
    for caller, callee, _ in calls:
        callers.setdefault(callee, set()).add(caller)
    return {callee: found for callee, found in callers.items() if len(found) > 1}


@pytest.fixture
def lexicon(tmp_path: Path) -> Path:
    path = tmp_path / "names.tsv"
    path.write_text("Nguyen\twin\n", encoding="utf-8")
    read_text(TEXT)  # now the tables of the rules are read
    normalize._read_block.cache_clear()
    return path


@pytest.mark.slow
def test_the_walk_from_the_command_line_to_tokens_visits_no_file_twice(
    lexicon: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mini = marstts.load()
    monkeypatch.setattr("marstts.cli.speak.load", lambda *how: mini)
    output = str(tmp_path / "speech.wav")
    calls = walk(["speak", TEXT, "--lexicon", str(lexicon), "--output", output], "encode_with_offsets")
    assert visited_again(calls) == {}
    assert order_of(calls) == SPEAK
    roots = {caller for caller, _, _ in calls} - {callee for _, callee, _ in calls}
    assert roots == {"cli/main"}


def test_the_walk_of_the_command_text_visits_no_file_twice(lexicon: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls = walk(["text", TEXT, "--lexicon", str(lexicon)], last="")
    assert visited_again(calls) == {}
    assert order_of(calls) == ["cli/text", "text/reading", "text/ssml", *READING, "text/language"]
    assert "Doctor win of quill paid five dollars for tea" in capsys.readouterr().out


def test_a_second_visit_is_found() -> None:
    """A file that two files hand the text to, and a file that is called back."""
    assert visited_again([("a", "b", "f"), ("b", "c", "g"), ("a", "c", "h")]) == {"c": {"a", "b"}}
    assert visited_again([("a", "b", "f"), ("b", "c", "g"), ("c", "b", "back")]) == {"b": {"a", "c"}}
    assert visited_again([("a", "b", "f"), ("b", "c", "g"), ("b", "c", "again")]) == {}
