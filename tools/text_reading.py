"""Written forms that are read correctly: this normalizer, an older version of it, wetext and NeMo text processing.

Usage: python tools/text_reading.py [--list TSV] [--system NAME=PYTHON] [--source NAME=FOLDER] [--plain FILE]
       [--output JSON]

`--system wetext=PYTHON` names an interpreter in whose environment that package is installed, `--source before=FOLDER` a
`src` folder of another version of marstts. Every system runs in a separate process. Readings are compared by words:
case, punctuation, hyphens and "and" inside numbers do not count; what is cut into sentences is not compared.
Prints a table; `--output` writes everything, every reading included, as JSON.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import subprocess
import sys
import time
from itertools import chain, product
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PLAIN_SENTENCES = 100
"""Number of plain sentences that are read from the file; a normalizer should not change them."""

RUNS = 2
TIMED_EVERY = 4
"""One of this many texts is timed: some systems need a second for each."""

DEPENDENCIES = {
    "marstts": ["num2words", "docopt"],
    "wetext": ["wetext", "kaldifst", "contractions", "textsearch", "anyascii", "pyahocorasick"],
    "nemo": [
        "nemo_text_processing",
        "pynini",
        "inflect",
        "sacremoses",
        "cdifflib",
        "editdistance",
        "pandas",
        "regex",
        "joblib",
    ],
}
"""Packages whose files count for the size."""

LICENSES = {"marstts": "Apache-2.0", "wetext": "Apache-2.0", "nemo": "Apache-2.0"}


def read_list(path: Path) -> list[tuple[str, list[str]]]:
    """Written forms and the readings that are right; `[a|b]` within a reading stands for two."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if "\t" in line]
    columns = [line.split("\t") for line in lines]
    return [(written.replace("\\n", "\n"), [*chain(*map(expand, readings))]) for written, *readings in columns]


def expand(reading: str) -> list[str]:
    """All readings that a reading with alternatives stands for: "[a|one] half" -> "a half", "one half"."""
    parts = re.split(r"\[([^\]]*)\]", reading)  # text, alternatives, text, ...
    choices = [part.split("|") if place % 2 else [part] for place, part in enumerate(parts)]
    return ["".join(each) for each in product(*choices)]


def words_of(reading: str) -> list[str]:
    """Words by which two readings are compared: small letters, initialisms letter by letter."""
    spaced = re.sub(r"(?<=\b[A-Z])\.(?=[A-Z]\b)", " ", reading).replace("-", " ").replace("'s", "s")
    words = re.sub(r"[^a-z0-9' ]", " ", spaced.lower()).replace("'", "").split()
    return [word for word in words if word != "and"]


def is_right(reading: str, right: list[str]) -> bool:
    return any(words_of(reading) == words_of(each) for each in right)


def load(system: str, cache: str) -> Any:
    """The function that reads a text, in the environment of the worker."""
    if system == "wetext":
        from wetext import Normalizer

        return Normalizer(lang="en", operator="tn").normalize
    if system == "nemo":
        import logging

        from nemo_text_processing.text_normalization.normalize import Normalizer as Nemo

        logging.disable(logging.CRITICAL)
        nemo = Nemo(input_case="cased", lang="en", cache_dir=cache)
        return lambda text: nemo.normalize(text, verbose=False, punct_post_process=False)
    from marstts.text.normalize import normalize

    return normalize


def work() -> None:
    """The worker: texts as JSON on standard input, readings and times as JSON on standard output."""
    request = json.load(sys.stdin)
    started = time.perf_counter()
    read = load(request["system"], request["cache"])
    read("It is 5 km.")
    load_seconds = time.perf_counter() - started
    readings = [_attempt(read, text) for text in request["texts"]]
    plain = [_attempt(read, text) for text in request["plain"]]
    timed = (request["texts"] + request["plain"])[::TIMED_EVERY]
    seconds = []
    for run in range(RUNS):
        texts = [f"{text} Then came {_name(run, number)}." for number, text in enumerate(timed)]
        started = time.process_time()
        for text in texts:
            _attempt(read, text)
        seconds.append(time.process_time() - started)
    characters = sum(map(len, texts))
    answer = {
        "load_seconds": load_seconds,
        "characters_per_second": characters / min(seconds),
        "megabytes": _megabytes(request["system"]),
        "versions": _versions(request["system"]),
        "readings": readings,
        "plain": plain,
    }
    print("\n" + json.dumps(answer))


def _name(run: int, number: int) -> str:
    """A name that no other text holds, so that no text is read from a cache."""
    return "A" + "".join(chr(ord("a") + int(digit)) for digit in f"{run}{number:04d}")


def _attempt(read: Any, text: str) -> str:
    try:
        return str(read(text))
    except Exception as error:  # what another package raises is one of its results
        return f"failed: {type(error).__name__}"


def _files(package: str) -> list[Path]:
    from importlib.metadata import PackageNotFoundError, files

    try:
        return [Path(str(each.locate())) for each in files(package) or []]
    except PackageNotFoundError:
        return []


def _megabytes(system: str) -> float:
    """Size of what is installed for this system alone, Python files and data."""
    paths = [path for package in DEPENDENCIES[system] for path in _files(package)]
    if system == "marstts":
        import marstts.text

        paths += list(Path(str(marstts.text.__file__)).parent.rglob("*"))
    return sum(path.stat().st_size for path in paths if path.is_file() and path.suffix != ".pyc") / 1e6


def _versions(system: str) -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for package in DEPENDENCIES[system]:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def run_system(kind: str, python: str, source: str | None, request: dict[str, Any]) -> dict[str, Any]:
    """One system in a separate process."""
    path = {"PYTHONPATH": source} if source else {}
    done = subprocess.run(
        [python, __file__, "--work"],
        input=json.dumps({**request, "system": kind}),
        capture_output=True,
        text=True,
        env={**os.environ, **path, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{kind} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def score(answer: dict[str, Any], texts: list[tuple[str, list[str]]], plain: list[str]) -> dict[str, Any]:
    """The answer of a system with what was right in it."""
    right = [is_right(reading, known) for reading, (_, known) in zip(answer["readings"], texts, strict=True)]
    unchanged = [words_of(reading) == words_of(text) for reading, text in zip(answer["plain"], plain, strict=True)]
    rows = [
        {"written": written, "read": reading, "right": each}
        for (written, _), reading, each in zip(texts, answer["readings"], right, strict=True)
    ]
    kept = {key: answer[key] for key in ("load_seconds", "characters_per_second", "megabytes", "versions")}
    return {
        "right": sum(right),
        "of": len(right),
        "plain_unchanged": sum(unchanged),
        "plain": len(unchanged),
        **kept,
        "rows": rows,
    }


def read_plain(path: Path | None, count: int = PLAIN_SENTENCES) -> list[str]:
    """Sentences without numbers or abbreviations, the last column of each line."""
    if path is None:
        return []
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8")
    lines = [line.split("\t")[-1] for line in text.splitlines()]
    return lines[:: max(len(lines) // count, 1)][:count]


def table_rows(results: dict[str, dict[str, Any]]) -> list[str]:
    """The results as lines of a Markdown table."""
    head = "| system | read right | plain sentences unchanged | size, MB | license |"
    rows = [
        f"| {name} | {result['right']} of {result['of']} | {result['plain_unchanged']} of {result['plain']} "
        f"| {result['megabytes']:.1f} | {result['license']} |"
        for name, result in results.items()
    ]
    return [head, "|---|---|---|---|---|", *rows]


def main() -> None:
    parser = argparse.ArgumentParser(description="How many written forms are read right.")
    parser.add_argument("--list", type=Path, default=HERE / "text_reading.tsv")
    parser.add_argument("--system", action="append", default=[], metavar="NAME=PYTHON")
    parser.add_argument("--source", action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--plain", type=Path)
    parser.add_argument("--cache", default="", help="folder in which NeMo keeps its compiled grammars")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    texts, plain = read_list(arguments.list), read_plain(arguments.plain)
    request = {"texts": [written for written, _ in texts], "plain": plain, "cache": arguments.cache or None}
    jobs = [("marstts", "marstts", sys.executable, os.environ.get("PYTHONPATH"))]
    jobs += [
        (name, "marstts", sys.executable, folder)
        for name, _, folder in (each.partition("=") for each in arguments.source)
    ]
    jobs += [(name, name, python, None) for name, _, python in (each.partition("=") for each in arguments.system)]
    systems = [each.partition("=")[0] for each in arguments.system]
    results = {}
    for name, kind, python, source in jobs:
        results[name] = {**score(run_system(kind, python, source, request), texts, plain), "license": LICENSES[kind]}
    print("\n".join(table_rows(results)))
    if arguments.output is not None:
        from marstts_lab.benchmark.report import gather_metadata  # a worker may lack marstts

        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        command = " ".join(["python tools/text_reading.py", *(f"--system {name}=PYTHON" for name in systems)])
        about = {"list": arguments.list.name, **gather_metadata(command)}
        arguments.output.write_text(
            json.dumps({**about, "systems": results}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    work() if "--work" in sys.argv[1:] else main()
