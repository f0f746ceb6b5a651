"""Write `src/marstts/text/data/prefilters.json`: what every match of a text rule needs, found from its pattern.

Usage: python tools/text_prefilters.py, after any change of the text rules.  A test fails while the file is out of date;
until then the changed rules are analyzed when the first text is read.
"""

from __future__ import annotations

import json
from pathlib import Path

from marstts.text.prefilter import analyze, key_of, to_json
from marstts.text.rules.order import MARKUP, RULES

TARGET = Path(__file__).parents[1] / "src" / "marstts" / "text" / "data" / "prefilters.json"


def content() -> str:
    """The file: a line per pattern, sorted."""
    patterns = {(rule.source, not rule.words) for rule in (*MARKUP, *RULES)}
    entries = sorted((key_of(*each), to_json(analyze(*each))) for each in patterns)
    lines = [f"{json.dumps(key)}: {json.dumps(facts, separators=(',', ':'))}" for key, facts in entries]
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    TARGET.write_text(content(), encoding="utf-8")
