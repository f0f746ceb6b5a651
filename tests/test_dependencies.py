"""Bounds of dependencies: no version with known trouble is allowed, and the locked versions fit the bounds."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def requirements() -> Iterator[Requirement]:
    lists = [
        PROJECT["project"]["dependencies"],
        *PROJECT["project"]["optional-dependencies"].values(),
        *PROJECT["dependency-groups"].values(),
    ]
    yield from (Requirement(line) for lines in lists for line in lines)


@pytest.mark.parametrize(
    ("package", "troubled"),
    [
        ("h11", "0.14.0"),  # CVE-2025-43859
        ("python-multipart", "0.0.18"),  # a header of 100 KB takes seconds
        ("starlette", "0.38.6"),  # CVE-2024-47874, CVE-2025-54121
        ("uvicorn", "0.32.0"),  # WebSocket messages of any size
        ("filelock", "3.16.0"),  # CVE-2025-68146
        ("requests", "2.32.0"),  # CVE-2024-47081
        ("ray", "2.50.0"),  # CVE-2025-62593
        ("onnxruntime", "1.23.2"),  # weights outside of a model's folder
    ],
)
def test_versions_with_known_trouble_are_not_allowed(package: str, troubled: str) -> None:
    found = [one for one in requirements() if one.name == package]
    assert found
    assert not [str(one) for one in found if troubled in one.specifier]


def test_locked_versions_fit_the_bounds() -> None:
    locked = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines() if "==" in line
    )
    fixed = [one for one in requirements() if one.name in locked]
    assert len(fixed) > 40
    assert not [str(one) for one in fixed if locked[one.name] not in one.specifier]
