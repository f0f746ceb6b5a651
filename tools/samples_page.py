"""The samples: takes of a model beside the recordings whose voices they have, and the pages that play them.

    python tools/samples_page.py speak [--model mini]     # `make samples`: all takes again, then the pages
    python tools/samples_page.py                          # the pages again

Upstream: docs/samples/samples.toml (texts and references), docs/samples/references.  Downstream: docs/samples/*.mp3,
takes.json, which says which take is of which weights, README.md (the page of the site) and player.html (the same for a
clone; it needs no server and no script).
"""

from __future__ import annotations

import argparse
import json
import tomllib
from collections.abc import Sequence
from datetime import date
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parents[1] / "docs" / "samples"

SEED = 0

TITLES = {"people": "Everyday sentences", "questions": "Questions and their statements", "names": "Names"}
"""The tables of samples.toml, in the order of the page."""

CORPORA = {"librispeech": "LibriSpeech", "vctk": "VCTK"}

ABOUT = """Each take is a clone of the recording beside it, 6 s of a person whom MARS6 was not trained on. No take
was selected by listening: all have seed 0, and the texts were chosen before they were spoken."""

SOURCES = """The references are LibriSpeech (c) 2014 Vassil Panayotov, openslr.org/12, from LibriVox recordings, and
CSTR VCTK Corpus (Veaux, Yamagishi, MacDonald, University of Edinburgh), both CC BY 4.0. They were cut and encoded
as MP3. The takes are synthetic speech."""

TO_PLAY = """GitHub shows no players: `make site` builds this page with them, and [player.html](player.html) plays
them in a clone. `make samples` speaks all takes again and writes both pages (`tools/samples_page.py`)."""

HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>marstts: samples</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
body { color: #1f2937; background: #fff; }
td, th { padding: .3rem .8rem .3rem 0; text-align: left; } audio { width: 15rem; display: block; }
</style>
</head>
<body>
"""


class Take(NamedTuple):
    """A row of the page."""

    section: str
    """A key of `TITLES`."""

    text: str

    reference: str
    """The name of a file of references/, without its suffix."""

    file: str
    """The take, an MP3 file of the folder."""

    model: str
    """`mini@` and the revision of its weights."""

    date: str

    @property
    def person(self) -> str:
        """Corpus and number of the person."""
        corpus, _, number = self.reference.partition("-")
        return f"{CORPORA[corpus]} {number}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Speak, if asked to, and write the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", nargs="?", choices=("speak", "write"), default="write")
    parser.add_argument("--model", default="mini", help="a packaged model, or the folder of a bundle")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args(arguments)
    if options.action == "speak":
        speak(options.model, options.folder)
    write(options.folder)


def speak(model: str, folder: Path) -> None:
    """Speak all texts of samples.toml; takes that it no longer has are deleted."""
    import marstts

    tts = marstts.load(model)
    plan = tomllib.loads((folder / "samples.toml").read_text(encoding="utf-8"))
    takes = []
    for section in TITLES:
        for number, row in enumerate(plan[section], start=1):
            speech = tts.speak(row["text"], folder / "references" / f"{row['reference']}.mp3", seed=SEED)
            take = Take(section, row["text"], row["reference"], f"{section}-{number}.mp3", speech.report()["model"],
                        date.today().isoformat())  # fmt: skip
            speech.save(folder / take.file)
            takes.append(take)
    for path in folder.glob("*.mp3"):
        if path.name not in {take.file for take in takes}:
            path.unlink()
    rows = [take._asdict() for take in takes]
    (folder / "takes.json").write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_takes(folder: Path = FOLDER) -> list[Take]:
    """The takes that are there."""
    rows: list[dict[str, Any]] = json.loads((folder / "takes.json").read_text(encoding="utf-8"))
    return [Take(**row) for row in rows]


def write(folder: Path) -> None:
    """Write both pages."""
    takes = read_takes(folder)
    (folder / "README.md").write_text(page(takes), encoding="utf-8")
    (folder / "player.html").write_text(player(takes), encoding="utf-8")


def page(takes: Sequence[Take]) -> str:
    """The page of the site. GitHub shows links in place of players."""
    parts = ["# Samples", ABOUT, f"Takes of {made(takes)}. [Results](../results.md) has the figures."]
    for section, rows in by_section(takes):
        table = ["| text | reference | take |", "|---|---|---|"]
        for take in rows:
            reference = f"{audio(f'references/{take.reference}.mp3')} [{take.person}](references/{take.reference}.mp3)"
            table.append(f"| {take.text} | {reference} | {audio(take.file)} [take]({take.file}) |")
        parts += [f"## {TITLES[section]}", "\n".join(table)]
    return "\n\n".join([*parts, SOURCES, TO_PLAY]) + "\n"


def player(takes: Sequence[Take]) -> str:
    """The same as one HTML file."""
    parts = [f"<h1>Samples</h1>\n<p>{ABOUT}</p>\n<p>Takes of {escape(made(takes))}.</p>"]
    for section, rows in by_section(takes):
        lines = [
            f"<tr><td>{escape(take.text)}</td><td>{escape(take.person)}"
            f"{audio(f'references/{take.reference}.mp3')}</td><td>take{audio(take.file)}</td></tr>"
            for take in rows
        ]
        parts.append(f"<h2>{TITLES[section]}</h2>\n<table>\n" + "\n".join(lines) + "\n</table>")
    return HEAD + "\n".join([*parts, f"<p>{SOURCES}</p>"]) + "\n</body>\n</html>\n"


def audio(file: str) -> str:
    """A player."""
    return f'<audio controls preload="none" src="{escape(file)}"></audio>'


def made(takes: Sequence[Take]) -> str:
    """The weights and the days of the takes."""
    return ", ".join(sorted({f"{take.model} ({take.date})" for take in takes}))


def by_section(takes: Sequence[Take]) -> list[tuple[str, list[Take]]]:
    """The takes of each section that has some, in the order of `TITLES`."""
    sections = [(section, [take for take in takes if take.section == section]) for section in TITLES]
    return [(section, rows) for section, rows in sections if rows]


if __name__ == "__main__":
    main()
