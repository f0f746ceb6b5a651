"""`marstts prepare`: from a corpus as its makers laid it out, or from nothing, to a manifest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from marstts.config import parse_config, read_config
from marstts.data.corpora.catalogue import RECIPES
from marstts.data.corpora.gather import Audio, GatherConfig, gather
from marstts.errors import DataError

if TYPE_CHECKING:
    from marstts.data.corpora.gather import Found, Refused

DEFAULTS = GatherConfig()

Root = Annotated[Path, typer.Option(help="Folder of the corpus, as it was unpacked.")]
Output = Annotated[Path, typer.Option(help="Folder for utterances.jsonl and rejects.jsonl.")]
MinSeconds = Annotated[float, typer.Option(help="Leave out shorter recordings.")]
MaxSeconds = Annotated[float, typer.Option(help="Leave out longer recordings.")]
MaxCharacters = Annotated[int, typer.Option(help="Leave out longer texts.")]
MaxPerSpeaker = Annotated[int, typer.Option(help="Keep at most so many utterances of a speaker.")]
Language = Annotated[str, typer.Option(help="Leave out what is marked with another language.")]
MaxFaults = Annotated[float, typer.Option(help="Stop when a larger share of the recordings is faulty.")]
WhichAudio = Annotated[
    Audio, typer.Option("--audio", help="Leave recordings where they are, or write each to a FLAC file of its own.")
]

app = typer.Typer(help="Make a corpus ready: recordings and utterances.jsonl.", no_args_is_help=True)


@app.callback()
def prepare() -> None:
    """Make a corpus ready: recordings and utterances.jsonl."""


@app.command()
def studio(
    output: Annotated[Path, typer.Option(help="Folder for the recordings and utterances.jsonl.")],
    config: Annotated[Path, typer.Option(help="TOML with the voices and hours wanted.")],
    sentences: Annotated[
        list[str], typer.Option(help="File of sentences, optionally FILE:WEIGHT; may be given several times.")
    ],
    workers: Annotated[int, typer.Option(min=1, help="Processes that speak at the same time.")] = 1,
) -> None:
    """Build the studio corpus from open speech engines (ordinary Debian packages); goes on where it stopped."""
    from marstts.data.corpora.studio import StudioConfig, build

    build(read_config(StudioConfig, config), [weighted_file(item) for item in sentences], output, workers, typer.echo)


@app.command()
def phones(
    manifest: Annotated[Path, typer.Argument(help="utterances.jsonl of a corpus.")],
    output: Annotated[Path | None, typer.Option(help="Where to write (default: phones.jsonl beside it).")] = None,
    hours: Annotated[float, typer.Option(min=0.0, help="Stop after so many hours of audio; 0 = all.")] = 0.0,
    workers: Annotated[int, typer.Option(min=1, help="Processes that listen at the same time.")] = 1,
) -> None:
    """Find out when each phone sounds, which helps a codec to follow what is said; goes on where it stopped."""
    from marstts.evaluation.timelines import align_corpus

    align_corpus(manifest, output or manifest.parent / "phones.jsonl", hours=hours, workers=workers, say=typer.echo)


@app.command()
def pitch(
    manifest: Annotated[Path, typer.Argument(help="utterances.jsonl of a corpus.")],
    output: Annotated[Path | None, typer.Option(help="Where to write (default: pitch.jsonl beside it).")] = None,
    hours: Annotated[float, typer.Option(min=0.0, help="Stop after so many hours of audio; 0 = all.")] = 0.0,
    workers: Annotated[int, typer.Option(min=1, help="Processes that listen at the same time.")] = 1,
) -> None:
    """Find out how high each recording is spoken, which teaches a codec melody; goes on where it stopped."""
    from marstts.evaluation.melody import follow_corpus

    follow_corpus(manifest, output or manifest.parent / "pitch.jsonl", hours=hours, workers=workers, say=typer.echo)


def weighted_file(item: str) -> tuple[Path, float]:
    """`FILE` or `FILE:WEIGHT`."""
    name, _, weight = item.rpartition(":")
    if not name:
        return Path(item), 1.0
    try:
        return Path(name), float(weight)
    except ValueError as error:
        raise DataError(f"{item}: expected FILE or FILE:WEIGHT, with a number as the weight") from error


@app.command()
def folder(
    root: Root,
    output: Output,
    licence: Annotated[str, typer.Option(help="What may be done with the recordings, in a few words.")],
    min_seconds: MinSeconds = DEFAULTS.min_seconds,
    max_seconds: MaxSeconds = DEFAULTS.max_seconds,
    max_characters: MaxCharacters = DEFAULTS.max_characters,
    max_per_speaker: MaxPerSpeaker = DEFAULTS.max_per_speaker,
    language: Language = DEFAULTS.language,
    max_faults: MaxFaults = DEFAULTS.max_fault_share,
    where: WhichAudio = DEFAULTS.audio,
) -> None:
    """Your own recordings, with metadata.csv (file|text or file|text|speaker) or a .txt file beside each."""
    from marstts.data.corpora.folder import folder as read_folder

    if not root.is_dir():
        raise DataError(f"{root}: no such folder")
    options = gather_options(min_seconds, max_seconds, max_characters, max_per_speaker, language, max_faults, where)
    write(read_folder(root, licence), output, options)


def corpus_command(name: str) -> Callable[..., None]:
    """The command for a corpus of the catalogue."""
    recipe = RECIPES[name]

    def command(
        root: Root,
        output: Output,
        min_seconds: MinSeconds = DEFAULTS.min_seconds,
        max_seconds: MaxSeconds = DEFAULTS.max_seconds,
        max_characters: MaxCharacters = DEFAULTS.max_characters,
        max_per_speaker: MaxPerSpeaker = DEFAULTS.max_per_speaker,
        language: Language = DEFAULTS.language,
        max_faults: MaxFaults = DEFAULTS.max_fault_share,
        where: WhichAudio = DEFAULTS.audio,
    ) -> None:
        options = gather_options(min_seconds, max_seconds, max_characters, max_per_speaker, language, max_faults, where)
        write(recipe.open(root), output, options)

    command.__doc__ = f"{recipe.summary}\n\n{recipe.download}"
    return command


def gather_options(
    min_seconds: float, max_seconds: float, max_characters: int, max_per_speaker: int, language: str, max_faults: float,
    where: Audio,
) -> GatherConfig:  # fmt: skip
    """The options of the command line as a configuration; ConfigError where one is impossible."""
    values = {
        "min_seconds": min_seconds, "max_seconds": max_seconds, "max_characters": max_characters,
        "max_per_speaker": max_per_speaker, "language": language, "max_fault_share": max_faults, "audio": where,
    }  # fmt: skip
    return parse_config(GatherConfig, values, "marstts prepare")


def write(recordings: Iterable[Found | Refused], output: Path, options: GatherConfig) -> None:
    """Gather the recordings, and say what came of it."""
    report = gather(recordings, output, options)
    typer.echo(f"{output / 'utterances.jsonl'}: {report.summary} (see rejects.jsonl)")


for corpus in RECIPES:
    app.command(corpus)(corpus_command(corpus))
