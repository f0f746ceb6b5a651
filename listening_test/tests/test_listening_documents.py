"""The command lines of the listening test in documents and recipes are those that it takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from marstts_listening_test.command import app

ROOT = Path(__file__).parents[2]
SOURCES = [*ROOT.glob("docs/**/*.md"), ROOT / "listening_test" / "README.md", *ROOT.glob("recipes/**/*.sh")]
LINES = [
    line
    for source in SOURCES
    for line in re.findall(
        r'^(?:echo ")?(marstts-listening-test [^#"\n]*)', source.read_text(encoding="utf-8"), re.MULTILINE
    )
]


def test_there_are_command_lines_to_check():
    assert len(LINES) > 8


@pytest.mark.parametrize("line", LINES)
def test_a_documented_command_takes_its_options(line: str):
    group = typer.main.get_command(app)
    _, name, *arguments = shlex.split(line)
    group.get_command(None, name).make_context(name, arguments)
