"""Compare what two commits speak: digests of codes and samples of the same voices and texts, in every mode.

    python tools/compare_speech.py before.json                  # at one commit, with PYTHONPATH=src
    python tools/compare_speech.py after.json --against before.json

Upstream: the command line and `Synthesizer`, which keep their options and arguments from commit to commit.
Downstream: a JSON file with a digest for each mode, voice and text; with `--against`, the names of those that differ.
Digests depend on the processor, so that both files must come from one machine.
"""

from __future__ import annotations

import functools
import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import soundfile
import typer
from typer.testing import CliRunner

import marstts
from marstts.cli.main import app
from marstts.generation.scheduler import AsyncScheduler

TEXTS = (
    "Good morning. The rain has stopped, and we can go outside.",
    "Shall we go out? On May 3rd, 12 of 40 people came at 10:30; it was 7 °C.",
    "She looked up. “You came late,” he said. [pause:0.4s] Nobody answered when she called.",
    "Stop!",
    "# A heading\n\nThe first line of a paragraph ends here. The second one is longer, and has a comma.\n\nThe end",
)
SSML = (
    '<speak>Good morning. <prosody rate="120%">The rain has stopped.</prosody> <break time="300ms"/> '
    '<voice name="ross">We can go outside.</voice></speak>'
)
BOOK = "Chapter 1\n\n{}\n\n{}\n\nChapter 2\n\n{}\n"
SEED = 3


def digest(*arrays: Any) -> str:
    """Short hash of the bytes of arrays."""
    hashed = hashlib.sha256()
    for array in arrays:
        hashed.update(np.ascontiguousarray(array).tobytes())
    return hashed.hexdigest()[:16]


def of_file(path: Path) -> str:
    """Digest of the samples of an audio file."""
    return digest(soundfile.read(path, dtype="int16")[0])


def of_takes(takes: Any) -> str:
    return digest(*(codes for take in takes for codes in take.codes))


def whole(tts: Any, text: str, voice: str) -> list[str]:
    """Codes and samples of `speak`, with its words."""
    speech = tts.speak(text, voice, seed=SEED)
    return [of_takes(speech.takes), digest(speech.samples), digest(np.array([word.start for word in speech.words]))]


def stream(tts: Any, text: str, voice: str) -> list[str]:
    """Codes and samples of `stream`, with its words."""
    chunks = list(tts.stream(text, voice, seed=SEED))
    takes = [chunk.take for chunk in chunks if chunk.take is not None]
    words = [word.start for chunk in chunks for word in chunk.words]
    return [of_takes(takes), digest(*(chunk.samples for chunk in chunks)), digest(np.array(words))]


def shared(tts: Any, text: str, voice: str) -> list[str]:
    """Codes and samples of `speak` in the batch of another caller's scheduler."""
    engine = tts.session.engine if hasattr(tts, "session") else tts.engine
    with AsyncScheduler(engine, capacity=4) as scheduler:
        speech = tts.speak(text, voice, seed=SEED, scheduler=scheduler)
    return [of_takes(speech.takes), digest(speech.samples)]


def command(arguments: list[str], folder: Path) -> str:
    """Digests of the audio files that `marstts speak` writes into a folder."""
    result = CliRunner().invoke(app, ["speak", *arguments, "--seed", str(SEED)])
    assert result.exit_code == 0, result.output
    audio = sorted(path for path in folder.rglob("*") if path.suffix in (".wav", ".flac"))
    assert audio, "nothing was written"
    return digest(*(soundfile.read(path, dtype="int16")[0] for path in audio))


def in_file(options: list[str]) -> Callable[[str, str], str]:
    """A mode of `marstts speak TEXT` that writes one file."""

    def made(text: str, voice: str) -> str:
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "out.wav"
            return command([text, "--voice", voice, "--output", str(output), *options], Path(folder))

    return made


def lines(texts: tuple[str, ...], voice: str) -> str:
    """`speak --file lines.txt --batch 3`."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as output:
        source = Path(folder) / "lines.txt"
        source.write_text("\n".join(" ".join(text.split()) for text in texts), encoding="utf-8")
        return command(["--file", str(source), "--batch", "3", "--output", output, "--voice", voice], Path(output))


def book(texts: tuple[str, ...], voice: str) -> str:
    """`speak --file book.txt --output book.m4b`, whose chapters are FLAC files."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as parent:
        source = Path(folder) / "book.txt"
        source.write_text(BOOK.format(*(texts * 3)[:3]), encoding="utf-8")
        output = str(Path(parent) / "book.m4b")
        return command(["--file", str(source), "--output", output, "--voice", voice], Path(parent))


def over_http(tts: Any, texts: tuple[str, ...], voice: str) -> Iterator[tuple[str, str]]:
    """The PCM of whole files of the server; the chunks of its streams depend on the machine's pace at the moment."""
    from starlette.testclient import TestClient

    from marstts.server.app import create_app
    from marstts.server.settings import ServeSettings

    with TestClient(create_app(tts, ServeSettings(capacity=4))) as client:
        for number, text in enumerate(texts):
            body = {"input": text, "voice": voice, "response_format": "pcm", "seed": SEED, "stream": False}
            response = client.post("/v1/audio/speech", json=body)
            assert response.status_code == 200, response.text
            yield f"http {voice} {number}", digest(np.frombuffer(response.content, np.uint8))


def results(voices: list[str], texts: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Every digest with its name."""
    load = functools.cache(marstts.load)
    tts = load()
    for module in list(sys.modules.values()):  # the command opens the model once
        if getattr(module, "__name__", "").startswith("marstts.cli.") and hasattr(module, "load"):
            module.load = load  # type: ignore[attr-defined]
    import marstts.cli.speak as speak_command

    speak_command.load = load
    for voice in voices:
        for number, text in [*enumerate(texts), ("ssml", SSML)]:
            for mode in (whole, stream, shared):
                yield f"{mode.__name__} {voice} {number}", mode(tts, text, voice)
            yield f"file {voice} {number}", in_file([])(text, voice)
            yield f"streamed file {voice} {number}", in_file(["--stream"])(text, voice)
        many = tts.speak_many(list(texts), voice, seeds=SEED, batch=3)
        for result in sorted(many, key=lambda each: each.index):
            assert result.speech is not None, result.error
            yield f"speak_many {voice} {result.index}", [of_takes(result.speech.takes), digest(result.speech.samples)]
        yield from over_http(tts, texts, voice)
        yield f"lines {voice}", lines(texts, voice)
        yield f"book {voice}", book(texts, voice)
        yield f"cast {voice}", in_file(["--dialogue", "emma", "--pauses", "sentence=0.5,end=0.2"])(texts[-1], voice)
        yield f"continued {voice}", in_file(["--continuation", "per-chunk"])(texts[0], voice)
        yield f"paper {voice}", in_file(["--paper"])(texts[0], voice)
        yield f"faster {voice}", in_file(["--speed", "1.2"])(texts[0], voice)
    reference = Path(__file__).parents[1] / "examples" / "reference.flac"
    yield "clone", digest(tts.speak(texts[0], tts.clone(reference), seed=SEED).samples)


def main(
    output: Annotated[Path, typer.Argument(help="JSON file to write.")],
    against: Annotated[Path | None, typer.Option(help="A JSON file of another commit.")] = None,
    voices: Annotated[str, typer.Option(help="Names of packaged voices.")] = "ada,ross",
    texts: Annotated[int, typer.Option(help="Texts at most.")] = 40,
    file: Annotated[Path | None, typer.Option(help="A text per line, instead of those of this tool.")] = None,
) -> None:
    """Write digests of what this commit speaks; exit code 1 where they differ from those of another file."""
    made = {}
    spoken = TEXTS if file is None else tuple(file.read_text(encoding="utf-8").splitlines())
    for name, found in results(voices.split(","), spoken[:texts]):
        made[name] = found
        typer.echo(f"{name}: {found}", err=True)
    output.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    if against is not None:
        before = json.loads(against.read_text(encoding="utf-8"))
        odd = [name for name in made | before if made.get(name) != before.get(name)]
        typer.echo(f"{len(made)} digests, {len(odd)} differ{''.join(f'{chr(10)}  {name}' for name in odd)}")
        raise typer.Exit(code=bool(odd))


if __name__ == "__main__":
    typer.run(main)
