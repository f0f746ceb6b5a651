"""The style of the documents: short sentences, few numbers in prose, bounded tables (docs/development.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
PAGES += sorted(
    path
    for path in (ROOT / "docs").rglob("*.md")
    if not path.relative_to(ROOT / "docs").as_posix().startswith(("log/", "results/", "cli.md"))
)
"""Pages of prose, without the log, the machine-written tables and the generated command reference."""

RESULTS = ROOT / "docs" / "results.md"

MAX_WORDS = 25
MAX_NUMBERS = 3
MAX_RESULTS_LINES = 150
MAX_RESULTS_COLUMNS = 9

NUMBER = re.compile(r"(?<![\w.])[+-]?\d[\d,.]*(?:\s*%)?(?![\w.])")
NAMES = re.compile(
    r"arXiv:[\d.]+|\b(?:19|20)\d\d-\d\d(?:-\d\d)?\b|\b(?:version|v|Python|Sec\.|equation|eq\.) ?\d[\d.]*"
)
"""Identifiers, dates and versions, which are not figures."""


def prose_blocks(text: str) -> Iterator[str]:
    """Paragraphs and list items, without code, tables, headings and front matter; links and code as one word."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    block: list[str] = []
    for line in [*text.splitlines(), ""]:
        starts = re.match(r"\s*(?:[-*]|\d+\.) ", line)
        if block and (starts or not line.strip() or line.lstrip().startswith(("#", "|"))):
            yield plain(" ".join(block))
            block = []
        if line.strip() and not line.lstrip().startswith(("#", "|", "!", "[!", "<")):
            block.append(re.sub(r"^\s*(?:[-*]|\d+\.) ", "", line).strip())


def plain(text: str) -> str:
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"`[^`]*`", "CODE", text).replace("*", "")


def sentences(block: str) -> list[str]:
    block = re.sub(r"\b(e\.g|i\.e|Sec|eq|vs|cf|No|approx|et al|incl|min)\.", r"\1", block)
    return [part for part in re.split(r"(?<=[.!?])[\"')]*\s+(?=\S)", block) if part.strip()]


def numbers(text: str) -> list[str]:
    return NUMBER.findall(NAMES.sub("", text))


def count_words(text: str) -> int:
    return sum(bool(re.search(r"\w", word)) for word in text.split())


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_sentences_are_short_and_have_few_numbers(page: Path) -> None:
    long = [
        (count_words(sentence), len(numbers(sentence)), sentence)
        for block in prose_blocks(page.read_text(encoding="utf-8"))
        for sentence in sentences(block)
        if count_words(sentence) > MAX_WORDS or len(numbers(sentence)) > MAX_NUMBERS
    ]
    assert not long, "\n".join(f"{words} words, {figures} numbers: {sentence}" for words, figures, sentence in long)


def test_the_results_page_is_bounded() -> None:
    text = RESULTS.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_RESULTS_LINES
    columns = [line.count("|") - 1 for line in text.splitlines() if line.startswith("|")]
    assert columns and max(columns) <= MAX_RESULTS_COLUMNS
    crowded = [block for block in prose_blocks(text) if len(numbers(block)) > MAX_NUMBERS]
    assert not crowded, "\n".join(crowded)


def test_prose_is_split_into_sentences_without_code_and_tables() -> None:
    text = "# Title\n\nOne `a b c` two\nthree. Four, at 5.5 %.\n\n| 1 | 2 |\n|---|---|\n\n- item [link](x.md)\n"
    text += "\n```\ncode.\n```\n"
    blocks = list(prose_blocks(text))
    assert [sentences(block) for block in blocks] == [["One CODE two three.", "Four, at 5.5 %."], ["item link"]]
    assert numbers("arXiv:2501.05787 of 2026-11-22 has 3 to 4.5 %, L0 and v6") == ["3", "4.5 %"]
