"""What the package promises to run on: no word of a newer Python in its sources."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

NEWER = {
    "tomllib": {"*"}, "compression": {"*"}, "annotationlib": {"*"}, "builtins": {"ExceptionGroup"},
    "typing": {"Self", "Never", "LiteralString", "Required", "NotRequired", "Unpack", "TypeVarTuple", "assert_never",
               "assert_type", "override", "TypeAliasType", "ReadOnly", "TypeIs", "dataclass_transform", "reveal_type"},
    "enum": {"StrEnum", "ReprEnum", "verify", "member", "nonmember"}, "datetime": {"UTC"}, "itertools": {"batched"},
    "asyncio": {"TaskGroup", "timeout", "Runner", "Barrier"}, "contextlib": {"chdir"}, "hashlib": {"file_digest"},
    "math": {"cbrt", "exp2", "sumprod", "fma"}, "collections.abc": {"Buffer"}, "copy": {"replace"},
    "os": {"process_cpu_count"}, "operator": {"call"}, "warnings": {"deprecated"}, "sys": {"exception", "monitoring"},
}  # fmt: skip
"""Names by module that came after Python 3.10, `*` where the module did."""


def names_used(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """(module, name) of what is imported, or taken from a module of that name; not behind a check of versions."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "version_info" in ast.dump(node.test):
            continue
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "*") for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield node.value.id, node.attr
        elif isinstance(node, ast.Name):
            yield "builtins", node.id
        waiting.extend(ast.iter_child_nodes(node))


def too_new(source: str) -> set[tuple[str, str]]:
    """What of a source only a newer Python has; SyntaxError where its grammar is newer."""
    tree = ast.parse(source, feature_version=(3, 10))
    return {(module, name) for module, name in names_used(tree) if NEWER.get(module, set()) & {name, "*"}}


def test_the_oldest_python_promised_reads_every_source() -> None:
    promised = re.search(r'requires-python = ">=(.*)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert promised and promised[1] == "3.10"
    found = {path.name: too_new(path.read_text(encoding="utf-8")) for path in (ROOT / "src").rglob("*.py")}
    assert len(found) > 150
    assert not {name: words for name, words in found.items() if words}


@pytest.mark.parametrize(
    "source",
    ["from typing import Self", "import tomllib", "import datetime\ndatetime.UTC", "raise ExceptionGroup('', [])"],
)
def test_newer_words_are_noticed(source: str) -> None:
    assert too_new(source)
    assert not too_new(f"import sys\nif sys.version_info >= (3, 13):\n    {source.splitlines()[0]}")


def test_newer_grammar_is_noticed() -> None:
    with pytest.raises(SyntaxError):
        too_new("try:\n    pass\nexcept* ValueError:\n    pass")
