"""The npm packages that a site needs: which versions, where they are looked for, and which of their files are copied.

Upstream: `package.json`, which pins the versions; a folder `node_modules`.  Downstream: `site`.
Nothing of them is in this package or its repository.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from marstts.errors import ConfigError
from marstts.io.reading import parse_object, printable_name, read_text

VARIABLE = "MARSTTS_NODE_MODULES"
"""Environment variable that names a folder with the packages."""

MAX_DESCRIPTION_BYTES = 2**20

COPIED = {
    "onnxruntime-web": {
        "dist/ort.wasm.min.mjs": "ort.wasm.min.mjs",
        "dist/ort-wasm-simd-threaded.mjs": "ort-wasm-simd-threaded.mjs",
        "dist/ort-wasm-simd-threaded.wasm": "ort-wasm-simd-threaded.wasm",
    },
    "pyodide": {
        name: name
        for name in ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
    },
}
"""Files of each package, and their names in the site."""


def pinned() -> dict[str, str]:
    """The version of each package."""
    content = files(__package__).joinpath("package.json").read_text(encoding="utf-8")
    return dict(parse_object(content, "package.json")["dependencies"])


def find_packages(folder: Path | None = None) -> Path:
    """The folder `node_modules` with the packages: the one that is given, that of the environment variable, or one in
    the working folder, its `build/npm`, or a folder above.

    ConfigError that says what to install where one of them is missing or of another version.
    """
    tried = [Path(folder)] if folder is not None else list(_usual_places())
    complaints: dict[Path, list[str]] = {place: list(_complaints(place)) for place in tried}
    for place, found in complaints.items():
        if not found:
            return place
    nearest = min(complaints, key=lambda place: len(complaints[place]), default=Path("node_modules"))
    wanted = " ".join(f"{name}@{version}" for name, version in pinned().items())
    looked = ", ".join(printable_name(place) for place in tried)
    raise ConfigError(
        f"a site needs npm packages that are not there ({'; '.join(complaints.get(nearest, []))}); looked in {looked}: "
        f"run `npm install --ignore-scripts {wanted}` in the working folder, or name a folder node_modules by "
        f"--packages or {VARIABLE}"
    )


def _usual_places() -> Iterator[Path]:
    if named := os.environ.get(VARIABLE):
        yield Path(named)
        return
    here = Path.cwd()
    yield here / "node_modules"
    yield here / "build" / "npm" / "node_modules"
    for parent in here.parents:
        if (parent / "node_modules").is_dir():
            yield parent / "node_modules"


def _complaints(place: Path) -> Iterator[str]:
    """What is missing in a folder node_modules."""
    for name, version in pinned().items():
        description = place / name / "package.json"
        if not description.is_file():
            yield f"{name} {version} is missing"
            continue
        found = parse_object(read_text(description, MAX_DESCRIPTION_BYTES), printable_name(description)).get("version")
        if found != version:
            yield f"{name} is {found}, expected {version}"
        elif missing := [each for each in COPIED[name] if not (place / name / each).is_file()]:
            yield f"{name} lacks {missing[0]}"
