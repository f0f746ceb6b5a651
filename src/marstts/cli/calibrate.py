"""`marstts bundle calibrate`: a bundle that finds the words which its takes leave out.

Upstream: `synthesis.word_calibrating`.  Downstream: `synthesis.word_evidence`, which reads the file it adds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from marstts.bundle import copy_tree_without, find_bundle, replacing
from marstts.cli.terminal import progress_of
from marstts.generation.engine import EngineKind
from marstts.io.file_errors import printable_name
from marstts.io.reading import read_text
from marstts.synthesis.loading import open_synthesizer
from marstts.synthesis.voices import packaged_names
from marstts.synthesis.word_calibrating import calibrate_words
from marstts.synthesis.word_evidence import CALIBRATION_FILE
from marstts.text.normalize import normalize

MAX_SENTENCES_BYTES = 2**24


def calibrate(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A bundle whose model has word times.")],
    sentences: Annotated[Path, typer.Option(help="A text file, one sentence per line; some hundred are best.")],
    output: Annotated[Path, typer.Option(help="The folder to write; an older bundle there is replaced.")],
    voice: Annotated[
        list[str] | None, typer.Option(help="A voice, by name or file; may be repeated (default: the packaged ones).")
    ] = None,
    engine: Annotated[EngineKind, typer.Option(help="The engine that computes the model.")] = EngineKind.AUTO,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the takes.")] = 0,
) -> None:
    """Write a bundle that can find words that takes leave out; it is calibrated on takes of the sentences."""
    lines = [normalize(line.strip()) for line in read_text(sentences, MAX_SENTENCES_BYTES).splitlines()]
    lines = [line for line in lines if line]
    folder = find_bundle(model)
    synthesizer = open_synthesizer(folder, engine)
    voices = [synthesizer.open_voice(name) for name in voice or packaged_names()]
    with progress_of("sentences") as bar:
        task = None if bar is None else bar.add_task("", total=len(lines))

        def show(done: int, _: int) -> None:
            if bar is not None and task is not None:
                bar.update(task, completed=done)

        calibration = calibrate_words(synthesizer, lines, voices, seed, show)
    with replacing(output) as temporary:
        copy_tree_without(folder, temporary, CALIBRATION_FILE)
        calibration.save(temporary / CALIBRATION_FILE)
    typer.echo(f"{printable_name(output)}: words calibrated with {len(lines)} sentences")
