"""The types of the tab's modules, by TypeScript's compiler."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from marstts.web.packages import VARIABLE
from marstts.web.site import STATIC, write_page

REPOSITORY = Path(__file__).parents[2]
UNTYPED = {"player-worklet.js", "service-worker.js"}
"""Scripts of other worlds, for which the compiler would need libraries of their own."""

OPTIONS = {
    "allowJs": True,
    "noEmit": True,
    "strict": True,
    "target": "es2023",
    "module": "es2022",
    "moduleResolution": "bundler",
    "lib": ["es2023", "dom", "dom.iterable"],
    "types": [],
    "skipLibCheck": True,
}


def compiler() -> Path:
    """TypeScript's compiler next to the npm packages of a site, or on the path."""
    named = os.environ.get(VARIABLE)
    places = [Path(named)] if named else [REPOSITORY / "node_modules", REPOSITORY / "build" / "npm" / "node_modules"]
    for place in places:
        if (found := place / ".bin" / "tsc").exists():
            return found
    if (found_on_path := shutil.which("tsc")) is None:
        pytest.skip("needs TypeScript: `make npm`")
    return Path(found_on_path)


def check(folder: Path) -> str:
    """What the compiler says of a folder of modules."""
    tsc = compiler()
    (folder / "tsconfig.json").write_text(json.dumps({"compilerOptions": OPTIONS, "include": ["*.js"]}))
    return subprocess.run([str(tsc), "-p", str(folder)], capture_output=True, text=True).stdout


@pytest.mark.slow
def test_types_are_consistent(tmp_path: Path) -> None:
    list(write_page(tmp_path))
    assert check(tmp_path) == ""
    module = tmp_path / "backoff.js"
    module.write_text(module.read_text(encoding="utf-8") + "\nusual('fast', 3);\n", encoding="utf-8")
    assert "backoff.js" in check(tmp_path), "the compiler looks at the modules"


def test_every_module_is_checked() -> None:
    modules = {file.name: file.read_text(encoding="utf-8") for file in STATIC.iterdir() if file.name.endswith(".js")}
    assert {name for name, code in modules.items() if not code.startswith("// @ts-check\n")} == UNTYPED
