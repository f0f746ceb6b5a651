"""The figures of what ships: measured, and written into the pages that show them.

    python tools/figures.py measure --people FOLDER --whisper FOLDER     # `make figures`: 30 minutes at most
    python tools/figures.py write                                        # the tables again, from the JSON files

`measure` needs the extras eval and eval-models (CTranslate2's Whisper, DistillMOS, Resemblyzer, pocketsphinx) and
espeak-ng, the folder of a Whisper base in CTranslate2's format, and recordings of ten test people or more
(`data/test_people.tsv`): a folder for each person, with transcripts (`NAME.txt`, or a table as `marstts prepare folder`
reads it) of several recordings of some. Nothing else should run on the machine while speed is measured. `--only` names
some of the measurements.

Each JSON of docs/results says the command, the date, the commit, and the revision of the model. A table stands between
`<!-- figures: NAME -->` and `<!-- end -->`, and is a function of its JSON; a test compares both.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from marstts.bundle import label_of
from marstts.errors import DataError
from marstts_lab.data.held_out_people import judged_people, persons_of
from marstts_lab.evaluation.recordings import find_recordings

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
PAGES = (
    ROOT / "README.md",
    ROOT / "docs" / "results.md",
    ROOT / "docs" / "word-times.md",
    ROOT / "src" / "marstts" / "models_data" / "mini" / "README.md",
)

BLOCK = re.compile(r"(<!-- figures: ([a-z-]+) -->)(.*?)(<!-- end -->)", re.DOTALL)

MODEL = "mini"
TAKES, SENTENCES = 100, 40
"""Takes of people, and sentences with a recording, at most."""

Results = Mapping[str, Any]


# Tables: each is a function of one JSON file.


def interval(score: Mapping[str, float] | None, digits: int = 3, *, bounds: bool = True) -> str:
    """A score with its 95 % interval."""
    if score is None:
        return ""
    low, high = (f"{score[end]:.{digits}f}" for end in ("low", "high"))
    return f"{score['value']:.{digits}f}" + (f" [{low}, {high}]" if bounds else "")


def about(results: Results) -> str:
    """The sentence that says what a table is of."""
    told = results.get("metadata", results)
    return f"Of {told['models']}, {told['date']}, commit {told['commit']}."


SOUND = {
    "WER ↓": ("wer", 3),
    "CER ↓": ("cer", 3),
    "DistillMOS ↑": ("distillmos", 2),
    "similarity ↑": ("similarity_resemblyzer", 3),
    "own reference first ↑": ("speaker_id_accuracy_resemblyzer", 2),
}
"""Columns of evaluations: key and digits."""


def evaluation_table(results: Results) -> str:
    """Systems and their scores."""
    lines = [about(results), "", f"| system | takes | {' | '.join(SOUND)} |", f"|{'---|' * (2 + len(SOUND))}"]
    for system in results["systems"]:
        cells = [interval(system["scores"].get(key), digits) for key, digits in SOUND.values()]
        if "mini" not in system["system"] and system["system"] not in ("ground-truth", "codec-resynthesis"):
            cells[-2:] = ["no cloning", ""]
        lines.append(f"| {system['system']} | {system['takes']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def speed_table(results: Results) -> str:
    """Speed, latency, start and memory of the packaged weights."""
    rows = {(row["measure"], row.get("seconds"), row.get("concurrency")): row for row in results["rows"]}
    speech = [(seconds, row["rtf"]) for (measure, seconds, _), row in rows.items() if measure == "speech"]
    [one] = [row for (measure, _, callers), row in rows.items() if measure == "concurrency" and callers == 1]
    [start] = [row for (measure, *_), row in rows.items() if measure == "cold-start"]
    [memory] = [row for (measure, *_), row in rows.items() if measure == "memory"]
    return "\n".join(
        [
            f"{about(results)[:-1]}; {results['metadata']['machine']}; {one['engine']}, {one['weights']}.",
            "",
            "| | |",
            "|---|---|",
            f"| text to audio, RTF at {', '.join(f'{seconds:g}' for seconds, _ in speech)} s | "
            f"{', '.join(f'{rtf:.3f}' for _, rtf in speech)} |",
            "| first audible sample of a stream, 95th percentile, one caller | "
            f"{1000 * one['first_audible_p95']:.0f} ms |",
            f"| process start to first sample | {start['first_sample_seconds']:.2f} s |",
            f"| peak memory | {memory['peak_megabytes']:.0f} MB |",
        ]
    )


def boundaries_table(results: Results) -> str:
    """Errors of word boundaries, in short and in long sentences."""
    short, long = results["short"], results["long"]

    def cell(errors: Mapping[str, float]) -> str:
        return f"{1000 * errors['median']:.0f} ms, {1000 * errors['p90']:.0f} ms"

    rows = {"all": "all", "starts of last words": "last_starts", "ends of last words": "last_ends"}
    return "\n".join(
        [
            f"{about(results)[:-1]}; {short['takes'] + long['takes']} takes.",
            "",
            "| boundary | short sentences (2 to 6 words): median, 90 % below | long ones (7 to 20 words) |",
            "|---|---|---|",
            *(f"| {name} | {cell(short[key])} | {cell(long[key])} |" for name, key in rows.items()),
        ]
    )


def readme_cells(results: Results) -> str:
    """The sentence of the README that has words and sound."""
    [mini] = [row for row in results["systems"] if row["system"] == f"{MODEL} (shallow)"]
    wer, mos = (interval(mini["scores"][key], digits, bounds=False) for key, digits in (("wer", 3), ("distillmos", 2)))
    return (
        f"Words and sound of mini, means of {mini['takes']} takes: WER {wer} by Whisper base, DistillMOS {mos}. "
        f"{about(results)}"
    )


def readme_speed(results: Results) -> str:
    """The sentence of the README that has the speed."""
    rows = results["rows"]
    slowest = max(row["rtf"] for row in rows if row["measure"] == "speech")
    [one] = [row for row in rows if row["measure"] == "concurrency" and row["concurrency"] == 1]
    return (
        f"Speed of mini: real-time factor {slowest:.2f} at most, and the first audible sample of a stream within "
        f"{1000 * one['first_audible_p95']:.0f} ms (95th percentile, one caller). {about(results)[:-1]}; "
        f"{results['metadata']['machine']}."
    )


TABLES: dict[str, tuple[str, Callable[[Results], str]]] = {
    "speech": ("speech.json", evaluation_table),
    "codec": ("codec.json", evaluation_table),
    "codec-kokoro": ("codec-kokoro.json", evaluation_table),
    "clones": ("clones.json", evaluation_table),
    "speed": ("speed.json", speed_table),
    "boundaries": ("words/boundaries.json", boundaries_table),
    "readme": ("speech.json", readme_cells),
    "readme-speed": ("speed.json", readme_speed),
}
"""Blocks of pages: the JSON file below docs/results, and what makes a table of it."""

NOT_MEASURED = "Not measured yet for the weights that ship; `make figures` does."


def block(name: str) -> str:
    """The content of a block."""
    file, make = TABLES[name]
    path = RESULTS / file
    return make(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else NOT_MEASURED


def with_tables(page: str) -> str:
    """The text of a page with all blocks as the JSON files have them."""
    return BLOCK.sub(lambda found: f"{found[1]}\n{block(found[2])}\n{found[4]}", page)


def write_pages() -> None:
    """Write the blocks of all pages."""
    for page in PAGES:
        page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")


# Measurements: each is a command of this repository.


def check_people(folder: Path) -> list[str]:
    """The people in a folder, all of them test people; DataError names another one."""
    people = set()
    for recording in find_recordings(folder):
        known = persons_of(recording.speaker, recording.path.name) & judged_people()
        if not known:
            raise DataError(f"{recording.path}: not of a test person; data/test_people.tsv names them")
        people |= known
    return sorted(people)


def evaluate(name: str, people: Path, whisper: str, work: Path, *options: str) -> None:
    """Run an evaluation, and keep its figures with the people whose voices it has."""
    metrics = f"faster-whisper={whisper},distillmos,resemblyzer"
    run("marstts", "evaluate", *options, "--metrics", metrics, "--workers", "1", "--output", str(work / name))
    results = json.loads((work / name / "results.json").read_text(encoding="utf-8"))
    trials = [json.loads(line) for line in (work / name / "trials.jsonl").read_text(encoding="utf-8").splitlines()]
    used = {trial["speaker"] for trial in trials}
    takes = dict(option.split("=", 1)[::-1] for option in options if "=" in option)  # of --also
    # Folders of this machine say nothing.
    places = {str(people): "PEOPLE", str(work): "WORK", whisper: "WHISPER", **takes}
    results["metadata"] = {key: without_places(value, places) for key, value in results["metadata"].items()}
    results["metadata"]["people"] = sorted(used)
    save(f"{name}.json", results)


def without_places(value: str, places: Mapping[str, str]) -> str:
    """A line of metadata with names in place of folders."""
    for folder, name in places.items():
        value = value.replace(folder, name)
    return value


def run(*command: str) -> None:
    """Run a command of this repository; its errors end the measurement."""
    print(shlex.join(command), flush=True)
    program = [sys.executable, "-m", *command] if command[0] == "marstts" else [sys.executable, *command]
    subprocess.run(program, check=True, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"})


def save(name: str, results: Mapping[str, Any]) -> None:
    """Write the JSON of a measurement, which must be of the weights that ship."""
    assert label_of(MODEL) in json.dumps(results), f"{name} is not of {label_of(MODEL)}"
    path = RESULTS / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


MEASUREMENTS = ("speed", "words", "speech", "clones", "codec")


def measure(people: Path, whisper: str, work: Path, only: list[str], also: list[str]) -> None:
    """Measure all, or `only` some, and write the tables."""
    check_people(people)
    if "speed" in only:
        measures = [word for name in ("speech", "concurrency", "cold-start", "memory") for word in ("--measure", name)]
        run("marstts", "benchmark", "--model", MODEL, "--engine", "onnx", *measures, "--lengths", "5,10,60",
            "--concurrency", "1", "--json", str(work / "speed.json"))  # fmt: skip
        results = json.loads((work / "speed.json").read_text(encoding="utf-8"))
        results["metadata"]["command"] = without_places(results["metadata"]["command"], {str(work): "WORK"})
        save("speed.json", results)
    if "words" in only:
        run("tools/word_times.py", "--seed", "3", "--output", str(work / "boundaries.json"))
        save("words/boundaries.json", json.loads((work / "boundaries.json").read_text(encoding="utf-8")))
    if "speech" in only:
        evaluate("speech", people, whisper, work, "--system", MODEL, "--testset", "real-speakers", "--root",
                 str(people), "--limit", str(TAKES), "--clone", "shallow", "--baselines", "espeak-ng",
                 "--metrics-model", "none", *(word for system in also for word in ("--system", system)))  # fmt: skip
    if "clones" in only:
        evaluate("clones", people, whisper, work, "--system", MODEL, "--testset", str(people), "--limit",
                 str(SENTENCES), "--clone", "both", "--baselines", "", "--metrics-model", "none")  # fmt: skip
    if "codec" in only:
        evaluate("codec", people, whisper, work, "--system", "ground-truth", "--system", "codec-resynthesis",
                 "--testset", str(people), "--limit", str(SENTENCES), "--baselines", "", "--metrics-model",
                 MODEL)  # fmt: skip
    write_pages()


def main() -> None:
    """Measure, or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True)
    commands.add_parser("write")
    measuring = commands.add_parser("measure")
    measuring.add_argument("--people", type=Path, required=True)
    measuring.add_argument("--whisper", required=True)
    measuring.add_argument("--work", type=Path, help="folder of takes and scores, to resume in (a temporary one)")
    measuring.add_argument("--only", nargs="+", choices=MEASUREMENTS, default=list(MEASUREMENTS))
    measuring.add_argument("--also", nargs="*", default=[], help="NAME=FOLDER of takes, for the first table")
    options = parser.parse_args()
    if options.what == "write":
        return write_pages()
    with tempfile.TemporaryDirectory() as temporary:
        work = (options.work or Path(temporary)).absolute()
        work.mkdir(parents=True, exist_ok=True)
        measure(options.people.absolute(), os.path.abspath(options.whisper), work, options.only, options.also)


if __name__ == "__main__":
    main()
