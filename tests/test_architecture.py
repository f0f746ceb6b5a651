"""What files may be read with: pickles by one module only. import-linter checks who imports whom."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]


UNPICKLING = {"marstts/weights/torch_archive.py"}
"""The module that unpickles: foreign files without running them."""


def unpickles(source: str) -> bool:
    """Whether a module calls something that may run code of a file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in UNPICKLERS:
            owner, _, name = ast.unparse(node.func).rpartition(".")
            if owner.rpartition(".")[2] in UNPICKLERS[name]:
                return True
        if isinstance(node, ast.Attribute) and node.attr == "_Unpickler":
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


def test_pickles_are_read_by_the_module_that_runs_nothing_of_them():
    source = ROOT / "src"
    sources = {path.relative_to(source).as_posix(): path.read_text("utf-8") for path in source.rglob("*.py")}
    assert {name for name, source in sources.items() if unpickles(source)} == UNPICKLING


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("torch.load(p, weights_only=False)", True),
        ("import pickle\npickle.loads(b)", True),
        ("class Reader(pickle._Unpickler): ...", True),
        ("np.load(p, allow_pickle=True)", True),
        ("np.load(p, allow_pickle=False)", False),
        ("json.load(f)", False),
    ],
)
def test_what_unpickles_is_found(source: str, expected: bool):
    assert unpickles(source) == expected
