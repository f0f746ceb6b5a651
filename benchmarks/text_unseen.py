"""Count forms that are read right although the reader had not been written for them: at first, and now.

Usage: python benchmarks/text_unseen.py [--output JSON].  Prints a table. Each list of `tests/text/unseen` says how many
of its lines were right when it was first read; then the rules were mended, and the next list was written.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

from text_reading import is_right, read_list

from marstts.benchmark.machine import gather_metadata
from marstts.text.normalize import normalize

LISTS = Path(__file__).parents[1] / "tests" / "text" / "unseen"
_FIRST = re.compile("Right at first: ([0-9]+) of")


def measure(path: Path) -> dict[str, Any]:
    """The counts of one list, and the lines that are wrong now."""
    forms = read_list(path)
    first = _FIRST.search(path.read_text(encoding="utf-8"))
    assert first is not None, path
    wrong = [
        {"written": written, "read": normalize(written), "right": right[0]}
        for written, right in forms
        if not is_right(normalize(written), right)
    ]
    right = len(forms) - len(wrong)
    return {"list": path.stem, "lines": len(forms), "right_at_first": int(first[1]), "right_now": right, "wrong": wrong}


def main() -> None:
    parser = argparse.ArgumentParser(description="Forms that the reader was not written for.")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    rows = [measure(path) for path in sorted(LISTS.glob("*.tsv"), key=lambda each: int(each.stem))]
    print("| list | lines | right at first | right now |\n|---|---|---|---|")
    for row in rows:
        first, now = (f"{row[key]} ({row[key] / row['lines']:.0%})" for key in ("right_at_first", "right_now"))
        print(f"| {row['list']} | {row['lines']} | {first} | {now} |")
    if arguments.output is not None:
        about = gather_metadata("python benchmarks/text_unseen.py")
        content = json.dumps({**about, "rows": rows}, indent=1, ensure_ascii=False)
        arguments.output.write_text(content + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
