"""Write docs/samples/player.html, a static page with players, from the tables in docs/samples/README.md.

    python tools/samples_page.py

Upstream: docs/samples/README.md and the MP3 files next to it.  Downstream: browsers; it needs no server and no script.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs" / "samples"

HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>marstts: takes of mini</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem; }
body { color: #1f2937; background: #fff; }
li { margin: 0 0 1.6rem; } audio { display: block; width: 100%; margin: .3rem 0; }
.about { color: #4b5563; font-size: .9rem; }
</style>
</head>
<body>
<h1>Takes of mini</h1>
<p>mini is the model in the package. Each take is a shallow clone of the recording above it.
References: LibriSpeech (c) 2014 Vassil Panayotov, and CSTR VCTK Corpus, both CC BY 4.0, cut to 6 s.
The takes are not selected by ear. The transcript below each take is the output of Whisper base.</p>
<ol>
"""


def main() -> None:
    """Write the page."""
    (FOLDER / "player.html").write_text(render((FOLDER / "README.md").read_text(encoding="utf-8")), encoding="utf-8")


def render(table: str) -> str:
    """Return the page for the rows of the tables that link an MP3."""
    return HEAD + "\n".join(entry(cells) for cells in rows(table)) + "\n</ol>\n</body>\n</html>\n"


def rows(table: str) -> list[list[str]]:
    """Return the cells of each row: take, reference, similarity, text, transcript."""
    lines = [line for line in table.splitlines() if line.startswith("|") and ".mp3)" in line]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def entry(cells: list[str]) -> str:
    """Return one take as a list item with a player of the reference, and one of the take."""
    take, reference, similarity, text, transcript = cells
    players = "\n".join(
        f'<audio controls preload="none" src="{escape(name)}"></audio>'
        for cell in (reference, take)
        for name in re.findall(r"\(([^()]+\.mp3)\)", cell)
    )
    reader = reference.partition(" (")[0]
    return (
        f"<li><strong>{escape(text)}</strong>\n{players}\n"
        f'<span class="about">Reference and take, {escape(reader)}, similarity {escape(similarity)}. '
        f"Transcript: “{escape(transcript)}”</span></li>"
    )


if __name__ == "__main__":
    main()
