"""What the documents promise: links that lead somewhere, commands that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from command_lines import parse

ROOT = Path(__file__).parents[1]
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("recipes/**/*.md")]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_that_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    for link in links:
        name, _, heading = link.partition("#")
        target = document.parent / name if name else document
        assert target.exists(), link
        assert not heading or heading in headings(target), link


def headings(document: Path) -> list[str]:
    """The anchors that a page has for its headings."""
    titles = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]


def test_the_commands_of_the_readme_exist_and_take_their_options() -> None:
    blocks = re.findall(r"^```\w*\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.M | re.S)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("marstts ")]
    assert len(lines) >= 4
    for line in lines:
        before_pipe = shlex.split(line.partition(" | ")[0])
        parse(before_pipe[1:])


def test_the_map_of_the_paper_names_code_that_exists() -> None:
    """Paths in the table's cells lie under src/marstts, and what follows them after a colon is defined there."""
    text = (ROOT / "docs" / "paper_map.md").read_text(encoding="utf-8")
    references = re.findall(r"`([\w/]+\.py)`(?::((?: (?:the defaults of )?`[\w.]+`,?)+))?", text)
    assert len(references) > 40
    for path, names in references:
        if path.startswith("tests/"):
            continue
        source = (ROOT / "src" / "marstts" / path).read_text(encoding="utf-8")
        for name in re.findall(r"`([\w.]+)`", names):
            last = name.split(".")[-1]
            assert re.search(rf"\b(?:class|def) {last}\b|^    {last}:|^{last} = ", source, flags=re.MULTILINE), (
                f"{path}: {name}"
            )
