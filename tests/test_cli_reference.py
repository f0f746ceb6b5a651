"""docs/cli.md is what the commands are."""

from __future__ import annotations

import importlib.util
import shlex
import sys
from pathlib import Path
from types import ModuleType

import pytest

from command_lines import parse

ROOT = Path(__file__).parents[1]


def load_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cli_reference", ROOT / "tools" / "cli_reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


TOOL = load_tool()


def test_the_command_reference_is_what_the_commands_are() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert page == TOOL.render(), "run `python tools/cli_reference.py`"


@pytest.mark.parametrize("name", TOOL.EXAMPLES)
def test_every_example_of_the_reference_is_a_command_line_of_its_command(name: str) -> None:
    words = shlex.split(TOOL.EXAMPLES[name])
    assert words[: 1 + len(name.split())] == ["marstts", *name.split()]
    parse(words[1:])
