"""The samples: takes of a model, beside the recordings whose voices they have and a rival's takes; the pages with them.

    python tools/samples_page.py speak [--model mini]     # `make samples`: all takes again, then the pages
    python tools/samples_page.py rival --kokoro FOLDER    # the rival's takes again, then the pages
    python tools/samples_page.py                          # the pages again

Upstream: docs/samples/samples.toml (texts, references, the rival's voices), docs/samples/references; for the rival,
Kokoro-82M and its packages (docs/data/corpora.md, Synthetic).  Downstream: docs/samples/*.mp3 and takes.json, which
says which take is of which weights; rival/*.mp3 and rival/takes.json, which `speak` keeps; README.md (the page of the
site) and player.html (the same for a clone; it needs no server and no script).
"""

from __future__ import annotations

import argparse
import json
import tomllib
from collections.abc import Mapping, Sequence
from datetime import date
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parents[1] / "docs" / "samples"

SEED = 0

TITLES = {"people": "Everyday sentences", "questions": "Questions and their statements", "names": "Names"}
"""The tables of samples.toml, in the order of the page."""

CORPORA = {"librispeech": "LibriSpeech", "vctk": "VCTK"}

RIVAL = "Kokoro-82M"
RIVAL_MODEL = f"{RIVAL} v1.0 (int8)"

ABOUT = """Each take is a clone of the recording beside it, 6 s of a person whom MARS6 was not trained on. No take
was selected by listening: all have seed 0, and the texts were chosen before they were spoken."""

ABOUT_RIVAL = f"""The last column is a rival, {RIVAL} v1.0 (Apache-2.0, huggingface.co/hexgrad/Kokoro-82M). It cannot
clone: it says the same text in a voice of its own, of the person's sex. These takes were not selected, either."""

SOURCES = """The references are LibriSpeech (c) 2014 Vassil Panayotov, openslr.org/12, from LibriVox recordings, and
CSTR VCTK Corpus (Veaux, Yamagishi, MacDonald, University of Edinburgh), both CC BY 4.0. They were cut and encoded
as MP3. All takes, the rival's too, are synthetic speech."""

TO_PLAY = """GitHub shows no players: `make site` builds this page with them, and [player.html](player.html) plays
them in a clone. `make samples` speaks all takes again and writes both pages (`tools/samples_page.py`)."""

HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>marstts: samples</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
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


class RivalTake(NamedTuple):
    """The rival's take of a text."""

    text: str

    reference: str
    """Of the row; it decides the voice, and is not cloned."""

    file: str
    """The take, an MP3 file of the folder."""

    voice: str
    """The rival's name of its voice."""

    model: str
    date: str


Rivals = Mapping[tuple[str, str], RivalTake]
"""The rival's takes by text and reference."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Speak, if asked to, and write the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", nargs="?", choices=("speak", "rival", "write"), default="write")
    parser.add_argument("--model", default="mini", help="a packaged model, or the folder of a bundle")
    parser.add_argument("--kokoro", help="the folder of Kokoro's files, which `rival` needs")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args(arguments)
    if options.action == "speak":
        speak(options.model, options.folder)
    if options.action == "rival":
        speak_rival(options.kokoro or "", options.folder)
    write(options.folder)


def speak(model: str, folder: Path) -> None:
    """Speak all texts of samples.toml; takes that it no longer has are deleted. The rival's takes stay."""
    import marstts

    tts = marstts.load(model)
    plan = read_plan(folder)
    takes = []
    for section in TITLES:
        for number, row in enumerate(plan[section], start=1):
            speech = tts.speak(row["text"], folder / "references" / f"{row['reference']}.mp3", seed=SEED)
            take = Take(section, row["text"], row["reference"], f"{section}-{number}.mp3", speech.report()["model"],
                        date.today().isoformat())  # fmt: skip
            speech.save(folder / take.file)
            takes.append(take)
    keep(takes, folder)


def speak_rival(kokoro: str, folder: Path) -> None:
    """Speak all texts of samples.toml with the rival, in the voices that it names; DataError without Kokoro's files."""
    from marstts import audio
    from marstts_lab.data.corpora.kokoro import open_kokoro, parse_blend

    engine, plan, output = open_kokoro(kokoro), read_plan(folder), folder / "rival"
    output.mkdir(exist_ok=True)
    takes = []
    for section in TITLES:
        for number, row in enumerate(plan[section], start=1):
            voice = plan["rival"][row["reference"]]
            path = output / f"{section}-{number}.mp3"
            audio.write(engine.speak(row["text"], parse_blend(voice), 1.0), path)
            name = path.relative_to(folder).as_posix()
            takes.append(RivalTake(row["text"], row["reference"], name, voice, RIVAL_MODEL, date.today().isoformat()))
    keep(takes, output)


def read_plan(folder: Path) -> dict[str, Any]:
    """The rows of each section, and the rival's voice for each reference."""
    return tomllib.loads((folder / "samples.toml").read_text(encoding="utf-8"))


def keep(takes: Sequence[Take] | Sequence[RivalTake], folder: Path) -> None:
    """Write takes.json of a folder, and delete the takes in it that are not of these."""
    for path in folder.glob("*.mp3"):
        if path.name not in {Path(take.file).name for take in takes}:
            path.unlink()
    rows = [take._asdict() for take in takes]
    (folder / "takes.json").write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_takes(folder: Path = FOLDER) -> list[Take]:
    """The takes that are there."""
    rows: list[dict[str, Any]] = json.loads((folder / "takes.json").read_text(encoding="utf-8"))
    return [Take(**row) for row in rows]


def read_rivals(folder: Path = FOLDER) -> Rivals:
    """The rival's takes that are there."""
    path = folder / "rival" / "takes.json"
    rows = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return {(take.text, take.reference): take for take in (RivalTake(**row) for row in rows)}


def write(folder: Path) -> None:
    """Write both pages."""
    takes, rivals = read_takes(folder), read_rivals(folder)
    (folder / "README.md").write_text(page(takes, rivals), encoding="utf-8")
    (folder / "player.html").write_text(player(takes, rivals), encoding="utf-8")


def page(takes: Sequence[Take], rivals: Rivals) -> str:
    """The page of the site. GitHub shows links in place of players."""
    parts = ["# Samples", ABOUT, ABOUT_RIVAL, f"Takes of {made(takes)}. [Results](../results.md) has the figures."]
    for section, rows in by_section(takes):
        table = [f"| text | reference | take | {RIVAL} |", "|---|---|---|---|"]
        for take in rows:
            reference = f"{audio(f'references/{take.reference}.mp3')} [{take.person}](references/{take.reference}.mp3)"
            rival = rivals.get((take.text, take.reference))
            other = f"{audio(rival.file)} [{rival.voice}]({rival.file})" if rival else ""
            table.append(f"| {take.text} | {reference} | {audio(take.file)} [take]({take.file}) | {other} |")
        parts += [f"## {TITLES[section]}", "\n".join(table)]
    return "\n\n".join([*parts, SOURCES, TO_PLAY]) + "\n"


def player(takes: Sequence[Take], rivals: Rivals) -> str:
    """The same as one HTML file."""
    parts = [f"<h1>Samples</h1>\n<p>{ABOUT}</p>\n<p>{ABOUT_RIVAL}</p>\n<p>Takes of {escape(made(takes))}.</p>"]
    for section, rows in by_section(takes):
        lines = []
        for take in rows:
            rival = rivals.get((take.text, take.reference))
            cells = [
                escape(take.text),
                f"{escape(take.person)}{audio(f'references/{take.reference}.mp3')}",
                f"take{audio(take.file)}",
                f"{RIVAL}, {escape(rival.voice)}{audio(rival.file)}" if rival else "",
            ]
            lines.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
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
