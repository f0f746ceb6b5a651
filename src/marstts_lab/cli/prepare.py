"""`marstts prepare`: from a corpus as it was downloaded, or from nothing, to a manifest."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from marstts.cli.terminal import say
from marstts.errors import DataError
from marstts.io.config import parse_config, read_config
from marstts.io.reading import printable_name
from marstts_lab.data.corpora.build_manifest import Audio, ManifestConfig, build_manifest
from marstts_lab.data.corpora.catalog import RECIPES, problem
from marstts_lab.data.workers import Processes

if TYPE_CHECKING:
    from marstts_lab.data.corpora.build_manifest import RawUtterance, RejectedItem

DEFAULTS = ManifestConfig()

Root = Annotated[Path, typer.Option(help="Folder of the corpus, as it was unpacked.")]
Output = Annotated[Path, typer.Option(help="Folder for utterances.jsonl and rejects.jsonl.")]
MANIFEST_OPTIONS = {
    "min_seconds": Annotated[float, typer.Option(help="Leave out shorter recordings.")],
    "max_seconds": Annotated[float, typer.Option(help="Leave out longer recordings.")],
    "max_characters": Annotated[int, typer.Option(help="Leave out longer texts.")],
    "max_per_speaker": Annotated[int, typer.Option(help="Keep at most this many utterances of a speaker.")],
    "language": Annotated[str, typer.Option(help="Leave out recordings that are labeled with another language.")],
    "max_reject_ratio": Annotated[
        float, typer.Option(help="Stop when a larger fraction of the recordings is invalid.")
    ],
    "audio": Annotated[Audio, typer.Option(help="Leave recordings where they are, or write each to a FLAC file.")],
}
"""The options of all commands that read a corpus: the fields of `ManifestConfig`."""
Manifest = Annotated[Path, typer.Argument(help="utterances.jsonl of a corpus.")]
Hours = Annotated[float, typer.Option(min=0.0, help="Stop after this many hours of audio; 0 = all.")]
Workers = Annotated[int, typer.Option(min=1, help="Processes.")]

app = typer.Typer(help="Prepare a corpus: recordings and utterances.jsonl.", no_args_is_help=True)


def with_manifest_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with MANIFEST_OPTIONS, which it takes as the `options` of a manifest."""

    def with_options(**values: Any) -> None:
        chosen = {name: values.pop(name) for name in MANIFEST_OPTIONS}
        command(**values, options=parse_config(ManifestConfig, chosen, "marstts prepare"))

    own = [one for name, one in inspect.signature(command, eval_str=True).parameters.items() if name != "options"]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=getattr(DEFAULTS, name), annotation=option)
        for name, option in MANIFEST_OPTIONS.items()
    ]
    keywords = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own]
    with_options.__signature__ = inspect.Signature([*keywords, *added])  # type: ignore[attr-defined]
    with_options.__annotations__ = {one.name: one.annotation for one in [*keywords, *added]}
    with_options.__name__, with_options.__doc__ = command.__name__, command.__doc__
    return with_options


@app.callback()
def prepare() -> None:
    """Prepare a corpus: recordings and utterances.jsonl."""


@app.command()
def synthetic(
    output: Annotated[Path, typer.Option(help="Folder for the recordings and utterances.jsonl.")],
    config: Annotated[Path, typer.Option(help="TOML with base voices and hours.")],
    sentences: Annotated[
        list[str], typer.Option(help="File of sentences, optionally FILE:WEIGHT; may be given several times.")
    ],
    workers: Workers = 1,
    kokoro: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the base voice kokoro: *.onnx, voices/*.bin and vocab.json.",
        ),
    ] = None,
) -> None:
    """Build the synthetic corpus from open speech engines; an interrupted run resumes."""
    from marstts_lab.data.corpora.kokoro import FOLDER_VARIABLE
    from marstts_lab.data.corpora.synthetic import SyntheticConfig, build  # keeps `prepare --help` quick

    if kokoro is not None:
        os.environ[FOLDER_VARIABLE] = str(kokoro)  # for the workers
    files = [weighted_file(item) for item in sentences]
    report = build(read_config(SyntheticConfig, config), files, output, Processes(workers))
    say(
        f"{printable_name(output / 'utterances.jsonl')}: {report.utterances} utterances, "
        f"{report.seconds / 3600:.2f} h, {report.made_now} rendered now; {report.rejects} rejected, see rejects.jsonl"
    )


@app.command()
def check(
    names: Annotated[list[str], typer.Argument(help=f"Corpora by name: {', '.join(RECIPES)}.")],
    root: Annotated[Path, typer.Option(help="Folder with a folder of each name.")],
) -> None:
    """Read the first recordings of several corpora, and name everything that is missing, before hours of work."""
    unknown = [name for name in names if name not in RECIPES]
    if unknown:
        raise DataError(f"{', '.join(unknown)}: expected some of {', '.join(RECIPES)}")
    problems = [found for name in names if (found := problem(name, root / name))]
    if problems:
        raise DataError("; ".join(problems))
    say(f"{printable_name(root)}: {', '.join(names)} can be read")


@app.command()
def f0(
    manifest: Manifest,
    output: Annotated[Path | None, typer.Option(help="Where to write (default: f0.jsonl next to it).")] = None,
    hours: Hours = 0.0,
    workers: Workers = 1,
) -> None:
    """Measure the F0 of each recording, to train a codec with an F0 loss; an interrupted run resumes."""
    from marstts_lab.metrics.annotations import extract_corpus_f0  # needs pyworld

    extract_corpus_f0(manifest, output or manifest.parent / "f0.jsonl", hours=hours, workers=workers)


def weighted_file(item: str) -> tuple[Path, float]:
    """`FILE` or `FILE:WEIGHT` as a path and a weight."""
    name, _, weight = item.rpartition(":")
    if not name:
        return Path(item), 1.0
    try:
        value = float(weight)
    except ValueError as error:
        raise DataError(f"{item}: expected FILE or FILE:WEIGHT, with a number as the weight") from error
    if not 0 < value < float("inf"):
        raise DataError(f"{item}: expected a positive number as the weight")
    return Path(name), value


@app.command()
@with_manifest_options
def folder(
    root: Root,
    output: Output,
    license: Annotated[str, typer.Option(help="License of the recordings, in a few words.")],
    options: ManifestConfig,
) -> None:
    """Your recordings, with metadata.csv (file|text, file|text|speaker, LJSpeech's) or a .txt file next to each."""
    from marstts_lab.data.corpora.folder import folder as read_folder  # `folder` is this command

    if not root.is_dir():
        raise DataError(f"{root}: no such folder")
    write(read_folder(root, license), output, options)


@app.command()
@with_manifest_options
def people(
    root: Root,
    output: Output,
    options: ManifestConfig,
    exclude: Annotated[
        list[str] | None, typer.Option(help="Leave out a corpus of the table; may be given several times.")
    ] = None,
) -> None:
    """Recordings of many speakers with a table utterances.tsv; speakers are held out by a hash of their name."""
    from marstts_lab.data.corpora.people_table import people_table

    if not root.is_dir():
        raise DataError(f"{root}: no such folder")
    write(people_table(root, exclude or ()), output, options)


def corpus_command(name: str) -> Callable[..., None]:
    """The command for a corpus of the catalog."""
    recipe = RECIPES[name]

    def command(root: Root, output: Output, options: ManifestConfig) -> None:
        write(recipe.open(root), output, options)

    command.__doc__ = f"{recipe.summary}\n\n{recipe.download}"
    return with_manifest_options(command)


def write(recordings: Iterable[RawUtterance | RejectedItem], output: Path, options: ManifestConfig) -> None:
    """Build the manifest, and print a summary."""
    report = build_manifest(recordings, output, options)
    say(f"{printable_name(output / 'utterances.jsonl')}: {report.summary} (see rejects.jsonl)")


for corpus in RECIPES:
    app.command(corpus)(corpus_command(corpus))
