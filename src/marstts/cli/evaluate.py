"""`marstts evaluate`: from models and recordings to tables with intervals."""

from __future__ import annotations

import os
import shlex
import sys
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import marstts
from marstts.cli.terminal import messages, printed_warnings
from marstts.codec.base import Codec
from marstts.errors import DataError
from marstts.evaluation.metrics.identity import Resemblyzer
from marstts.evaluation.reconstruction import evaluate_codec, read_clips, write_reconstruction
from marstts.evaluation.report import as_markdown, write_report
from marstts.evaluation.score import Judges, read_scores, score_system
from marstts.evaluation.systems import CodecResynthesis, Model, SourceRecordings, System, TakesFolder, folder_digest
from marstts.evaluation.testset import make_testset, read_testset, trials_digest, write_testset

if TYPE_CHECKING:
    from marstts.synthesis.synthesizer import Synthesizer

evaluate = typer.Typer(help="Judge a model's speech, or a codec, beside real recordings.", no_args_is_help=True)


@evaluate.callback()
def one_thread() -> None:
    """Judge a model's speech, or a codec, beside real recordings."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read by PyTorch, which an adapter may import later


@evaluate.command("make-testset")
def make_testset_command(
    manifest: Annotated[Path, typer.Argument(help="utterances.jsonl; its test split is used.")],
    output: Annotated[Path, typer.Option(help="Test set to write, e.g. testset.jsonl.")],
    speakers: Annotated[str, typer.Option(help="How many speakers, or their names with commas between.")] = "4",
    sentences: Annotated[int, typer.Option(min=1, help="How many sentences in all.")] = 40,
    style: Annotated[str, typer.Option(help="Style of sentences and references.")] = "regular",
) -> None:
    """Pair test utterances with references by the same speaker; the same manifest gives the same test set."""
    named = [] if speakers.isdigit() else [name.strip() for name in speakers.split(",")]
    number = int(speakers) if speakers.isdigit() else len(named)
    trials = make_testset(manifest, num_speakers=number, num_sentences=sentences, speakers=named, style=style)
    write_testset(trials, output)
    chosen = sorted({trial.speaker for trial in trials})
    messages().print(f"{output}: {len(trials)} trials by {', '.join(chosen)}")


@evaluate.command("speech")
def speech_command(
    testset: Annotated[Path, typer.Argument(help="testset.jsonl, see make-testset.")],
    output: Annotated[Path, typer.Option(help="Folder for takes, scores and tables; goes on where it stopped.")],
    system: Annotated[
        list[str],
        typer.Option(
            help="What to judge, may be given several times: source (the recordings), codec (their resynthesis), "
            "a model by name or folder, or a folder of <id>.wav."
        ),
    ],
    deep: Annotated[bool, typer.Option("--deep", help="Clone deep: continue from reference and transcript.")] = False,
    judge: Annotated[
        str, typer.Option(help="Model whose codec makes 'codec' and whose identity encoder judges; 'none' for none.")
    ] = "mini",
    seed: Annotated[int, typer.Option(help="Seed of the models' takes.")] = 0,
) -> None:
    """Speak and judge a test set; results.md has one row for every system ever judged into the output folder."""
    trials = read_testset(testset)
    judging_model = None if judge == "none" else load_model(judge)
    systems = [find_system(name, judging_model, deep=deep, seed=seed) for name in system]
    judges = Judges(trials, None if judging_model is None else judging_model.identity_encoder, Resemblyzer())
    output.mkdir(parents=True, exist_ok=True)
    with printed_warnings():
        for one in systems:
            score_system(one, trials, output, judges, messages().print)
    told = {**facts(), "test set": f"{testset.name}, {len(trials)} trials, {trials_digest(trials)}", **judges.versions}
    typer.echo(as_markdown(write_report(read_scores(output), output, told), told))


@evaluate.command("codec")
def codec_command(
    codec: Annotated[str, typer.Argument(help="Folder of a model or a codec, the name of a model, snac, or toy.")],
    audio: Annotated[Path, typer.Option(help="Folder of recordings, or a manifest, whose test split is used.")],
    output: Annotated[Path, typer.Option(help="Folder for codec.json and codec.md.")],
    limit: Annotated[int, typer.Option(min=1, help="Recordings to use at most.")] = 40,
) -> None:
    """Judge a codec by what it makes of recordings: STOI, PESQ, mel distance, CER, codebook use, speed."""
    result = evaluate_codec(load_codec(codec), read_clips(audio, limit), messages().print)
    typer.echo(write_reconstruction(result, output, {**facts(), "audio": audio.name}))


def find_system(name: str, judging_model: Synthesizer | None, *, deep: bool, seed: int) -> System:
    """A system from its name on the command line."""
    if name == "source":
        return SourceRecordings()
    if name == "codec":
        if judging_model is None:
            raise DataError("the system 'codec' needs a model to take the codec from; name one with --judge")
        return CodecResynthesis(judging_model.codec)
    folder = model_folder(name)
    if folder is None:
        return TakesFolder(Path(name))
    return Model(load_model(name), Path(name).name, folder_digest(folder), deep=deep, seed=seed)


def model_folder(name: str) -> Path | None:
    """The folder of a model by name or path; None if there is none."""
    from marstts.checkpoint import PACKAGED_MODELS

    candidates = [PACKAGED_MODELS / name, Path(name)]
    return next((folder for folder in candidates if (folder / "bundle.json").is_file()), None)


def load_model(name: str) -> Synthesizer:
    return marstts.load(name)


def load_codec(name: str) -> Codec:
    """A codec by name, by its own folder, or by that of a model that has one."""
    if name == "toy":
        from marstts.codec.toy import ToyCodec

        return ToyCodec()
    if name == "snac":
        from marstts.codec.snac import SnacCodec

        return SnacCodec()
    if model_folder(name) is not None:
        return load_model(name).codec
    from marstts.codec.mini import MiniCodec

    return MiniCodec(Path(name))


def facts() -> dict[str, Any]:
    """What a reader needs to know to print the figures again."""
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    return {"date": date.today().isoformat(), "marstts": marstts.__version__, "command": command}
