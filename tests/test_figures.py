"""Figures in pages are those of their JSON files, which say which weights they are of and how they are made again."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from command_lines import parse
from marstts.audio import Waveform, write
from marstts.errors import DataError

ROOT = Path(__file__).parents[1]
RESULTS = sorted((ROOT / "docs" / "results").rglob("*.json"))
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("models_data/*/README.md")]
)

LABEL = re.compile(r"\b[a-z][\w.-]*@[0-9a-f]{12}\b")

OF_THE_TEXT_RULES = {"text/reading.json", "text/speed.json"}
"""Figures that no weights have a part in."""


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def metadata_of(path: Path) -> dict[str, Any]:
    found = json.loads(path.read_text(encoding="utf-8"))
    return found.get("metadata", found)


@pytest.fixture(scope="module")
def figures() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tools_figures", ROOT / "tools" / "figures.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", RESULTS, ids=name_of)
def test_every_json_says_its_weights_its_date_its_commit_and_a_command_that_exists(path: Path):
    metadata = metadata_of(path)
    assert metadata["date"] and re.fullmatch(r"[0-9a-f]{7,}\+?", metadata["commit"]), metadata
    if str(path.relative_to(ROOT / "docs/results")) not in OF_THE_TEXT_RULES:
        assert LABEL.fullmatch(metadata["models"]), metadata
    words = shlex.split(metadata["command"])
    if words[0] == "python":
        assert (ROOT / words[1]).is_file(), f"{words[1]} is gone, and so should its figures be"
    else:
        assert words[0] == "marstts"
        parse(words[1:])


@pytest.mark.parametrize("path", RESULTS, ids=name_of)
def test_every_json_is_shown_by_a_page(path: Path):
    relative = str(path.relative_to(ROOT / "docs"))
    assert any(relative in page.read_text(encoding="utf-8") for page in DOCUMENTS)


def test_the_tables_of_all_pages_are_those_of_their_json(figures: ModuleType):
    for page in figures.PAGES:
        text = page.read_text(encoding="utf-8")
        assert figures.with_tables(text) == text, f"{page}: run python tools/figures.py write"


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_no_page_claims_another_revision_than_the_json_it_links(document: Path):
    """A paragraph with figures and a link to their JSON names no other weights than those of the JSON."""
    text = document.read_text(encoding="utf-8")
    for section in re.split(r"^#+ .*$|^\*\*", text, flags=re.MULTILINE):
        linked = [document.parent / link for link in re.findall(r"\]\(([^)\s]+results/[^)\s]+\.json)\)", section)]
        known = {metadata_of(path).get("models") for path in linked}
        claimed = set(LABEL.findall(section))
        assert not known - {None} or claimed <= known, f"{document}: {claimed} in a section of {known}"


def test_a_table_changes_with_its_json(figures: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    page = "before\n<!-- figures: boundaries -->\nold\n<!-- end -->\nafter\n"
    assert "Not measured yet" in figures.with_tables(page)
    (tmp_path / "words").mkdir()
    errors = {key: {"median": 0.014, "p90": 0.0485} for key in ("all", "last_starts", "last_ends")}
    results = {"models": "mini@0123456789ab", "date": "2026-01-01", "commit": "abc1234"}
    results |= {"short": {"takes": 100, **errors}, "long": {"takes": 100, **errors}}
    (tmp_path / "words/boundaries.json").write_text(json.dumps(results))
    shown = figures.with_tables(page)
    assert (
        "| all | 14 ms, 48 ms | 14 ms, 48 ms |" in shown
        and "Of mini@0123456789ab" in shown
        and shown.endswith("after\n")
    )


def test_the_speed_that_is_shown_is_the_slowest_of_all_texts(figures: ModuleType):
    row = {"model": "mini", "engine": "onnx", "weights": "int8"}
    rows = [
        row | {"measure": "speech", "seconds": 5.0, "rtf": 0.05},
        row | {"measure": "speech", "seconds": 60.0, "rtf": 0.03},
        row | {"measure": "concurrency", "concurrency": 1, "seconds": 4.0, "first_audible_p95": 0.034},
        row | {"measure": "cold-start", "first_sample_seconds": 0.6},
        row | {"measure": "memory", "peak_megabytes": 190.4},
    ]  # fmt: skip
    about = {"models": "mini@0123456789ab", "date": "2026-01-01", "commit": "abc1234", "machine": "two cores"}
    results = {"metadata": about, "rows": rows}
    assert "real-time factor 0.05 at most" in figures.readme_speed(results) and "34 ms" in figures.readme_speed(results)
    assert "| 0.050, 0.030 |" in figures.speed_table(results) and "190 MB" in figures.speed_table(results)


def test_people_who_are_no_test_people_are_not_measured_on(figures: ModuleType, tmp_path: Path, reference: Waveform):
    (tmp_path / "1688").mkdir()
    write(reference, tmp_path / "1688" / "1688-142285-0003.wav")
    assert figures.check_people(tmp_path) == ["libri-1688"]
    (tmp_path / "ann").mkdir()
    write(reference, tmp_path / "ann" / "1.wav")
    with pytest.raises(DataError, match=r"ann.1\.wav: not of a test person"):
        figures.check_people(tmp_path)
