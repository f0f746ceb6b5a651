"""Time of reading 1 MB of text and splitting it into sentences, for plain prose and for texts that are hard to read.

Usage: python tools/text_speed.py [--plain FILE] [--bytes N] [--output JSON].  Prints a table in processor seconds;
with fewer bytes the seconds are still those of 1 MB, for the time is linear.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from pathlib import Path
from typing import Any

from text_reading import read_list, read_plain

from marstts.text.normalize import normalize
from marstts.text.reading import stream_sentences
from marstts.text.sentences import split_sentences
from marstts_lab.benchmark.report import gather_metadata

HERE = Path(__file__).parent
MEGABYTE = 1_000_000
PROSE = "The old man rose from his seat and looked along the shore, where nothing moved. "
REPEATED = [
    "½",
    "1/2 ",
    "a",
    "7",
    "1:",
    "1 ",
    "$1 ",
    "12/25/2024 ",
    "DNA ",
    "[a](http://b.c) ",
    "- x\n",
    "(",
    "A",
    "5 km, ",
]


def texts(plain: Path | None) -> dict[str, str]:
    """Texts of 1 MB in UTF-8 by name."""
    found = {repr(unit): unit * (MEGABYTE // len(unit.encode())) for unit in REPEATED}
    found["one sentence of prose"] = PROSE * (MEGABYTE // len(PROSE))
    sentences = read_plain(plain, MEGABYTE // 20)
    if sentences:
        joined = " ".join(each if each.endswith((".", "?", "!")) else each + "." for each in sentences)
        found["different sentences of prose"] = joined[:MEGABYTE]
    words = " ".join(written for written, _ in read_list(HERE / "text_reading.tsv")).split(" ")
    rng = random.Random(0)
    found["random digits"] = "".join(rng.choices("0123456789", k=MEGABYTE))
    found["random numbers"] = " ".join(str(rng.randrange(10 ** rng.randint(1, 9))) for _ in range(MEGABYTE))[:MEGABYTE]
    found["random punctuation"] = "".join(rng.choices(".,;:!?-()\"'", k=MEGABYTE))
    forms = [written for written, _ in read_list(HERE / "text_reading.tsv")]
    found["random lines of the list of written forms"] = "\n".join(rng.choices(forms, k=MEGABYTE // 20))[:MEGABYTE]
    mixed = " ".join(rng.choices(words, k=MEGABYTE // 3))
    found["random words of the list of written forms"] = mixed.encode()[:MEGABYTE].decode(errors="ignore")
    return found


def table_rows(rows: list[dict[str, Any]]) -> list[str]:
    """The results as lines of a Markdown table."""
    head = ["| 1 MB of | seconds | first sentence, ms | sentences |", "|---|---|---|---|"]
    return head + [
        f"| `{row['text']}` | {row['seconds']:.2f} | {1000 * row['first_sentence_seconds']:.1f} | {row['sentences']} |"
        for row in rows
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="How long 1 MB of text takes to be read.")
    parser.add_argument("--plain", type=Path)
    parser.add_argument("--bytes", type=int, default=MEGABYTE, help="bytes of each text that are read")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    normalize("It is 5 km.")
    rows = []
    for name, text in texts(arguments.plain).items():
        text = text.encode()[: arguments.bytes].decode(errors="ignore")
        size = max(len(text.encode()), 1)
        started = time.process_time()
        sentences = split_sentences(normalize(text))
        seconds = (time.process_time() - started) * MEGABYTE / size
        started = time.perf_counter()
        next(stream_sentences([text]), None)
        first = time.perf_counter() - started
        rows.append({"text": name, "seconds": seconds, "first_sentence_seconds": first, "sentences": len(sentences)})
    print("\n".join(table_rows(rows)))
    if arguments.output is not None:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        command = f"python tools/text_speed.py{' --plain FILE' if arguments.plain else ''} --bytes {arguments.bytes}"
        about = {**gather_metadata(command), "load": os.getloadavg()[0], "bytes": arguments.bytes}
        content = json.dumps({**about, "rows": rows}, indent=1, ensure_ascii=False)
        arguments.output.write_text(content + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
