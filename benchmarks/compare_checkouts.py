"""Compare two checkouts of marstts: start of `marstts speak`, takes of ten seeds, and processor time of speech.

    git worktree add ../old dab94fc
    python benchmarks/compare_checkouts.py --old ../old --new . --reference tests/audio/LJ001-0008.flac --output F.json

Both run in this environment, in turn. Takes are compared by the hash of their codes, for which the weights of MARS6 and
of the encoders must be the same. A newer checkout may reject takes for their words, so it is
also run without that check.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SENTENCE = "It is a fine day for a walk along the river."

PROBE = """
import hashlib, json, sys, time
import numpy as np
import marstts
reference, transcript, seeds, with_words = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "words"
if not with_words:
    try:
        from marstts.synthesis import guard, model_session
        model_session.ModelSession.path_search = lambda *_: None
        guard.TakeGuard.judge = lambda self, row: row
    except (ImportError, AttributeError):
        pass  # an older checkout has no such check
texts = ["The ship left the harbor at dawn.", "She closed the window and sat down again.",
         "A long road leads through the quiet valley. Nobody had walked on it for years.",
         "We will know more tomorrow, I think."]
tts, takes, seconds = marstts.load(), {}, 0.0
voices = {"shallow": tts.clone(reference), "deep": tts.clone(reference, transcript)}
begin = time.process_time()
for kind, voice in voices.items():
    for seed in range(seeds):
        for number, text in enumerate(texts):
            speech = tts.speak(text, voice, seed=seed)
            seconds += speech.seconds
            for index, take in enumerate(speech.takes):
                codes = b"".join(np.asarray(level).astype("<i4").tobytes() for level in take.codes)
                takes[f"{kind} {seed} {number} {index}"] = take.attempts, hashlib.sha256(codes).hexdigest()
print(json.dumps({"takes": takes, "cpu_seconds_per_second": (time.process_time() - begin) / seconds}))
"""


def environment_of(checkout: Path) -> dict[str, str]:
    """The environment in which the checkout is imported, with bytecode kept as after an installation."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": str(checkout / "src")}


def start(checkout: Path, reference: Path) -> tuple[float, float]:
    """Wall time and processor time of a process from its start to the first bytes of audio in its pipe."""
    command = [
        sys.executable,
        "-m",
        "marstts",
        "speak",
        SENTENCE,
        "--reference",
        reference,
        "--stream",
        "--output",
        "-",
    ]
    began = time.perf_counter()
    with subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env=environment_of(checkout), cwd=checkout,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert os.read(process.stdout.fileno(), 2000), "no audio came"
        wall = time.perf_counter() - began
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        process.stdout.read()
    assert process.returncode == 0
    return wall, cpu


def probe(checkout: Path, reference: Path, transcript: str, seeds: int, words: str) -> dict[str, Any]:
    """Takes and speed of one checkout."""
    command = [sys.executable, "-c", PROBE, str(reference), transcript, str(seeds), words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment_of(checkout))
    return dict(json.loads(done.stdout.splitlines()[-1]))


def agreement(old: dict[str, Any], new: dict[str, Any]) -> dict[str, int]:
    """Number of takes that are equal in codes and attempts."""
    keys = old["takes"].keys() | new["takes"].keys()
    return {"takes": len(keys), "equal": sum(old["takes"].get(key) == new["takes"].get(key) for key in keys)}


def commit_of(checkout: Path) -> str:
    command = ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("old", "new", "reference", "output"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--transcript", default="has never been surpassed.")
    parser.add_argument("--pairs", type=int, default=14)
    parser.add_argument("--seeds", type=int, default=10)
    given = parser.parse_args()
    checkouts = {"old": given.old.resolve(), "new": given.new.resolve()}
    reference = given.reference.resolve()
    starts: dict[str, list[tuple[float, float]]] = {"old": [], "new": []}
    for name in [*checkouts, *(sorted(checkouts, reverse=turn % 2 == 0) for turn in range(given.pairs))]:
        for each in [name] if isinstance(name, str) else name:
            starts[each].append(start(checkouts[each], reference))
    medians = {
        name: {"wall_s": statistics.median(wall), "cpu_s": statistics.median(cpu)}
        for name, (wall, cpu) in ((name, zip(*found[1:], strict=True)) for name, found in starts.items())
    }
    probes = {
        words: {name: probe(path, reference, given.transcript, given.seeds, words) for name, path in checkouts.items()}
        for words in (("words", "no words") if given.seeds else ())
    }
    result = {
        "command": f"python benchmarks/compare_checkouts.py --pairs {given.pairs} --seeds {given.seeds}",
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "commits": {name: commit_of(path) for name, path in checkouts.items()},
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "load_average": os.getloadavg(),
        "pairs": given.pairs,
        "start_to_first_sample": medians,
        "takes_with_check_of_words": agreement(**probes["words"]) if probes else None,
        "takes_without_check_of_words": agreement(**probes["no words"]) if probes else None,
        "cpu_seconds_per_second_of_audio": {
            words: {name: each["cpu_seconds_per_second"] for name, each in found.items()}
            for words, found in probes.items()
        },
    }
    given.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
