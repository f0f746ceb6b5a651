"""The words of the page in the tab next to those of the Python engine: sentences in packaged voices and in clones.

    marstts web --output site
    python tools/tab_words.py --site site --whisper FOLDER --recordings A.flac B.flac C.flac D.flac --takes takes \
        --output docs/results/tab/words.json

Headless Chromium clones the recordings and speaks every sentence in every voice by the page itself; the Python engine
does the same with the recordings and the packaged voices. Whisper writes down both. Takes rest in a folder, and what is
there is not spoken again. Errors are summed over the voices of a sentence, and intervals are over sentences.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tab_visitor import visiting
from word_sentences import sentences_of_length

from marstts.audio import read, write
from marstts.generation.engine import EngineKind
from marstts.synthesis.loading import load
from marstts_lab.benchmark.report import gather_metadata, print_json
from marstts_lab.metrics.intervals import bootstrap, bootstrap_difference, ratio
from marstts_lab.metrics.recognition import FasterWhisperRecognizer, word_edits
from marstts_lab.metrics.words import plain_words

VOICES = ("ada", "alan", "linda", "ross")
FEWEST, MOST = 6, 18
"""Words of a sentence."""


def take_name(system: str, voice: str, number: int) -> str:
    return f"{system}-{voice}-{number:02}.wav"


def missing(takes: Path, system: str, voices: Iterable[str], count: int) -> list[tuple[str, int]]:
    """Voices and numbers of sentences that have no take yet."""
    return [
        (voice, number)
        for number in range(count)
        for voice in voices
        if not (takes / take_name(system, voice, number)).exists()
    ]


def speak_in_tab(site: Path, takes: Path, texts: list[str], recordings: dict[str, Path]) -> str:
    """Speak what is missing by the page -> the browser's version."""
    with visiting(site) as visitor:
        wanted = missing(takes, "tab", (*VOICES, *recordings), len(texts))
        if wanted:
            visitor.open()
            for name, recording in recordings.items():
                visitor.clone(recording, name)
        for voice, number in wanted:
            visitor.speak(texts[number], voice)
            (takes / take_name("tab", voice, number)).write_bytes(base64.b64decode(visitor.wav()))
            visitor.run("document.querySelector(\"[aria-label='Remove this take']\").click()")
        return visitor.version


def speak_in_python(takes: Path, texts: list[str], recordings: dict[str, Path]) -> None:
    """Speak what is missing by the Python engine."""
    synthesizer = load("mini", EngineKind.ONNX)
    voices = {name: synthesizer.open_voice(name).without_prefix() for name in VOICES}
    voices |= {name: synthesizer.clone(recording) for name, recording in recordings.items()}
    for voice, number in missing(takes, "python", voices, len(texts)):
        speech = synthesizer.speak(texts[number], voices[voice])
        write(speech.waveform, takes / take_name("python", voice, number))


def count_errors(takes: Path, texts: list[str], voices: Iterable[str], whisper: str) -> dict[str, NDArray[np.float64]]:
    """By system and voice: word errors and words of each sentence (N, 2)."""
    recognizer, found = FasterWhisperRecognizer(whisper), {}
    for system in ("tab", "python"):
        for voice in voices:
            path = takes / f"{system}-{voice}.json"
            rows = json.loads(path.read_text()) if path.exists() else []
            for number, text in list(enumerate(texts))[len(rows) :]:
                words = plain_words(text)
                spoken = recognizer.transcribe(read(takes / take_name(system, voice, number)))
                rows.append([word_edits(words, spoken).errors, len(words)])
            path.write_text(json.dumps(rows))
            found[f"{system}-{voice}"] = np.array(rows[: len(texts)], float)
    return found


def compare(counts: dict[str, NDArray[np.float64]], voices: Iterable[str]) -> dict[str, Any]:
    """Word error rates of both, and their difference, with intervals over sentences."""
    tab, python = (sum(counts[f"{system}-{voice}"] for voice in voices) for system in ("tab", "python"))
    assert isinstance(tab, np.ndarray) and isinstance(python, np.ndarray)
    intervals = {
        "tab": bootstrap(tab, ratio),
        "python": bootstrap(python, ratio),
        "difference": bootstrap_difference(tab, python, ratio),
    }
    return {
        name: None if one is None else {key: round(getattr(one, key), 4) for key in ("value", "low", "high")}
        for name, one in intervals.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--site", type=Path, required=True, help="a folder that `marstts web` wrote")
    parser.add_argument("--whisper", required=True, help="weights for faster-whisper: a size or a folder")
    parser.add_argument(
        "--recordings", type=Path, nargs="+", required=True, help="of speakers to clone, each 5 to 15 s"
    )
    parser.add_argument("--takes", type=Path, required=True, help="folder of the takes")
    parser.add_argument("--sentences", type=int, default=40)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    given.takes.mkdir(parents=True, exist_ok=True)
    texts = sentences_of_length(given.sentences, FEWEST, MOST, seed=5)
    recordings = {f"clone {path.stem}": path.resolve() for path in given.recordings}
    browser = speak_in_tab(given.site, given.takes, texts, recordings)
    speak_in_python(given.takes, texts, recordings)
    counts = count_errors(given.takes, texts, (*VOICES, *recordings), given.whisper)
    names = " ".join(path.stem for path in given.recordings)
    command = f"python tools/tab_words.py --sentences {given.sentences} --recordings {names}"
    found = {
        **gather_metadata(command, ["mini"]),
        "browser": browser,
        "recognizer": f"faster-whisper {Path(given.whisper).name}",
        "load": round(os.getloadavg()[0], 2),
        "sentences": len(texts),
        "packaged": compare(counts, VOICES),
        "clones": compare(counts, list(recordings)),
        "all": compare(counts, (*VOICES, *recordings)),
        "voices": {voice: compare(counts, (voice,)) for voice in (*VOICES, *recordings)},
    }
    if given.output:
        given.output.parent.mkdir(parents=True, exist_ok=True)
    print_json(found, given.output)


if __name__ == "__main__":
    main()
