"""Check the contents of a wheel and an sdist: the weights once, all licenses and data, and no tests in the wheel.

    python tests/release/check_contents.py dist

Needs only Python. Exits with one sentence where something is wrong.
"""

from __future__ import annotations

import sys
import tarfile
import zipfile
from collections import Counter
from pathlib import Path

MAX_BYTES = 100_000_000
"""PyPI's limit of a file."""

REQUIRED = (
    "marstts/py.typed",
    "marstts_lab/py.typed",
    "marstts/models_data/mini/bundle.json",
    "marstts/models_data/mini/mars6/mars6.safetensors",
    "marstts/models_data/mini/codec/speaker/encoder.safetensors",
    "marstts/models_data/mini/codec/speaker/LICENSE",
    "marstts/models_data/mini/codec/speaker/NOTICE",
    "marstts/voices_data/voices.toml",
    "marstts/audio/silero_vad/silero_vad_16k.onnx",
    "marstts_lab/data/test_people.tsv",
    "marstts/web/package.json",
    "marstts/web/static/index.html",
    "marstts/web/static/service-worker.js",
)


def problems_of(names: list[str], sizes: list[int], required: tuple[str, ...], forbidden: tuple[str, ...]) -> list[str]:
    """Missing, forbidden and doubled files among `names`."""
    found = [f"{name} is missing" for name in required if name not in names]
    found += [f"{name} does not belong in it" for name in names if name.startswith(forbidden)]
    weights = Counter((Path(n).name, size) for n, size in zip(names, sizes, strict=True) if n.endswith(".safetensors"))
    return found + [
        f"{name} is in it {count} times" for (name, size), count in weights.items() if count > 1 and size > 1e6
    ]


def wheel_problems(path: Path) -> list[str]:
    """Problems of a wheel: it holds the package and its metadata only."""
    with zipfile.ZipFile(path) as archive:
        files = [info for info in archive.infolist() if not info.is_dir()]
    names = [info.filename for info in files]
    others = [
        f"{name} is outside the package"
        for name in names
        if not name.startswith(("marstts/", "marstts_lab/", "marstts-"))
    ]
    forbidden = ("tests/", "marstts/tests/")
    return others + problems_of(names, [info.file_size for info in files], REQUIRED, forbidden)


def sdist_problems(path: Path) -> list[str]:
    """Problems of an sdist: everything that building and testing needs."""
    with tarfile.open(path) as archive:
        files = [member for member in archive.getmembers() if member.isfile()]
    names = [member.name.partition("/")[2] for member in files]
    required = (*(f"src/{name}" for name in REQUIRED), "pyproject.toml", "README.md", "LICENSE", "tests/conftest.py")
    forbidden = (".git/", "dist/", "work/", "runs/")
    return problems_of(names, [member.size for member in files], required, forbidden)


def main(folder: Path) -> None:
    """Check the only wheel and the only sdist in a folder."""
    [wheel], [sdist] = folder.glob("*.whl"), folder.glob("*.tar.gz")
    for path, problems in ((wheel, wheel_problems(wheel)), (sdist, sdist_problems(sdist))):
        size = path.stat().st_size
        if size > MAX_BYTES:
            problems.append(f"it has {size} bytes, more than {MAX_BYTES}")
        if problems:
            sys.exit(f"{path}: {'; '.join(problems)}")
        print(f"{path}: {size / 1e6:.1f} MB, contents as expected")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
