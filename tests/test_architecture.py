"""The structure of the code: imports without cycles, and models behind their protocol."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]

OWNERS = {
    "marstts.mars6": ("src/marstts/mars6/", "src/marstts/training/mars6/", "tests/mars6/", "tests/training/mars6/"),
    "marstts.mars5": ("src/marstts/mars5/", "src/marstts/training/mars5/", "tests/mars5", "tests/training/mars5/"),
}
"""Folders that may import a model: its own, its training, and the tests of both."""

COMMON = (
    "src/marstts/models.py",
    "tests/parity/",
    "tests/benchmark/",
    "tests/test_recipes.py",
    "tests/mars6/test_published_weights.py",
)
"""The module that knows which models there are, and tests of several of them."""


class Facts(NamedTuple):
    """Facts of a source file that the tests compare."""

    imports: tuple[str, ...]
    """The absolute name of everything that runs as an import, in functions too; not what only types need."""


@cache
def facts_of(path: Path) -> Facts:
    return read_facts(path.read_text(encoding="utf-8"))


def read_facts(source: str) -> Facts:
    imports: list[str] = []
    waiting: list[ast.AST] = [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            imports += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, "imports are absolute"
            imports += [f"{node.module}.{alias.name}" for alias in node.names]
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):  # statements; expressions import nothing
            inner = getattr(node, field, [])
            waiting += inner if isinstance(inner, list) and not is_for_types(node) else []
    return Facts(tuple(imports))


UNPICKLING = {"weights/published_checkpoint.py", "weights/pretrained.py"}
"""Modules that unpickle: foreign files without running them."""


def unpickles(source: str) -> bool:
    """Whether a module calls something that may run code of a file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in UNPICKLERS:
            owner, _, name = ast.unparse(node.func).rpartition(".")
            if owner.rpartition(".")[2] in UNPICKLERS[name]:
                return True
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            return not (isinstance(node.value, ast.Constant) and node.value.value is False)
    return False


UNPICKLERS = {
    "load": {"torch", "pickle", "cloudpickle", "dill", "joblib", "jit"},
    "loads": {"pickle", "cloudpickle", "dill", "marshal"},
    "Unpickler": {"pickle"},
    "load_state_dict_from_url": {"hub"},
}


def test_pickles_are_read_by_the_modules_that_run_nothing_of_them():
    package = ROOT / "src" / "marstts"
    sources = {path.relative_to(package).as_posix(): path.read_text("utf-8") for path in package.rglob("*.py")}
    assert {name for name, source in sources.items() if unpickles(source)} == UNPICKLING


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("torch.load(p, weights_only=False)", True),
        ("import pickle\npickle.loads(b)", True),
        ("np.load(p, allow_pickle=True)", True),
        ("np.load(p, allow_pickle=False)", False),
        ("json.load(f)", False),
    ],
)
def test_what_unpickles_is_found(source: str, expected: bool):
    assert unpickles(source) == expected


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def sources(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT / "src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def import_graph(facts: Mapping[str, Facts]) -> dict[str, set[str]]:
    """The modules that each module imports; `from package import module` is an import of the module."""

    def module_of(name: str) -> str:
        return name if name in facts else name.rpartition(".")[0]

    return {name: {module_of(one) for one in found.imports} & facts.keys() - {name} for name, found in facts.items()}


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """Modules that import one another in a circle, or nothing."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_module_imports_itself_through_others() -> None:
    graph = import_graph({module_name(path): facts_of(path) for path in sources("src")})
    assert len(graph) > 200 and "marstts.mars6.bundled" in graph and graph["marstts.cli.speak"]
    assert cycle(graph) == []


def test_a_cycle_is_found_though_one_import_is_within_a_function() -> None:
    sources = {"a": "import b", "b": "from c import name", "c": "def f():\n    import a"}
    assert set(cycle(import_graph({name: read_facts(source) for name, source in sources.items()}))) == {"a", "b", "c"}
    sources["c"] = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import a"
    assert cycle(import_graph({name: read_facts(source) for name, source in sources.items()})) == []


@pytest.mark.parametrize("model", OWNERS)
def test_a_model_is_imported_by_its_own_packages_and_tests_alone(model: str) -> None:
    files = {path.relative_to(ROOT).as_posix(): facts_of(path) for path in sources("src", "tests")}
    users = [name for name, facts in files.items() if any(f"{one}.".startswith(f"{model}.") for one in facts.imports)]
    assert len(users) > 20
    assert [name for name in users if not name.startswith((*OWNERS[model], *COMMON))] == []
