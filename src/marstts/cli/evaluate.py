"""`marstts evaluate`: from models and recordings to tables with intervals."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import soundfile
import typer

import marstts
from marstts.cli.terminal import messages, printed_warnings
from marstts.codec.base import Codec
from marstts.errors import DataError
from marstts.evaluation.comparison import gather
from marstts.evaluation.judges import Bench, open_encoder, open_judges, parse_bench
from marstts.evaluation.reconstruction import evaluate_codec, read_clips, write_reconstruction
from marstts.evaluation.report import BOUNDS, write_report
from marstts.evaluation.rival_runner import RIVALS
from marstts.evaluation.rivals import Rival
from marstts.evaluation.score import HerePanel, Panel, ProcessPanel, score_system
from marstts.evaluation.systems import (
    Clone,
    CodecResynthesis,
    EspeakNg,
    Model,
    SourceRecordings,
    System,
    TakesFolder,
    Variant,
    folder_digest,
    source_of,
    take_away,
)
from marstts.evaluation.testset import Trial, make_testset, read_testset, trials_digest, write_testset
from marstts.evaluation.testsets.catalogue import STUDIO, open_testset, thin_out
from marstts.evaluation.verification import measure_encoder

if TYPE_CHECKING:
    from marstts.synthesis.synthesizer import Synthesizer

COMPANY = "source,codec,espeak-ng"
"""What a model is read beside."""

evaluate = typer.Typer(help="Judge speech beside real recordings.", invoke_without_command=True)


class Clones(str, Enum):
    """Which clones of a model are judged."""

    BOTH = "both"
    SHALLOW = "shallow"
    DEEP = "deep"

    @property
    def kinds(self) -> list[Clone]:
        return list(Clone) if self is Clones.BOTH else [Clone(self.value)]


@evaluate.callback()
def evaluate_systems(
    context: typer.Context,
    system: Annotated[
        list[str] | None,
        typer.Option(
            help="What to judge, may be given several times: a model by name or folder (mini; mini@no-ras or "
            "mini@no-quality-prefix without that), a folder of <id>.wav, xttsv2, styletts2, metavoice, source, codec, "
            "espeak-ng.",
            show_default=False,
        ),
    ] = None,
    testset: Annotated[
        str,
        typer.Option(help="studio, torture, ears, ears-validation, seed-tts, librispeech, people, a testset.jsonl, an "
                     "utterances.jsonl, or a folder of recordings with their words."),
    ] = STUDIO,
    output: Annotated[
        Path, typer.Option(help="Folder for takes, scores and tables; goes on where it stopped.")
    ] = Path("runs/evaluation"),
    root: Annotated[
        Path | None, typer.Option(help="Where the test set's recordings lie (studio: where to render them).")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Trials to use at most, styles evenly.")] = None,
    clone: Annotated[Clones, typer.Option(help="How models take up a reference.")] = Clones.BOTH,
    beside: Annotated[
        str, typer.Option(help="Systems judged as well, with commas between; empty for none.")
    ] = COMPANY,
    judges: Annotated[
        str, typer.Option(help="offline, paper, or judges by name, as in whisper=FOLDER,resemblyzer,dnsmos.")
    ] = "offline",
    judge_model: Annotated[
        str | None,
        typer.Option(help="Model whose codec makes 'codec' and whose encoder is the judge 'identity' [default: the "
                     "first model among the systems, else mini]; 'none' for none."),
    ] = None,
    python: Annotated[
        list[str] | None, typer.Option(help="NAME=INTERPRETER of a rival's own environment, e.g. xttsv2=envs/x/python.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the models' takes.")] = 0,
    workers: Annotated[int, typer.Option(min=1, help="Processes that judge at the same time.")] = 2,
) -> None:  # fmt: skip
    """Speak and judge a test set; results.md has one row for every system ever judged into the output folder."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read by PyTorch, which an adapter may import later
    if context.invoked_subcommand is not None:
        return
    if not system:
        raise DataError("say what to judge with --system, e.g. --system mini or --system FOLDER_OF_WAVS")
    trials = thin_out(open_testset(testset, root, messages().print), limit)
    names = [*system, *(name for name in company(beside.split(","), trials) if name not in system)]
    wanted = Wanted(clone.kinds, seed, parse_pythons(python or []), choose_judge_model(judge_model, names))
    told = f"{testset}, {len(trials)} trials, {trials_digest(trials)}"
    typer.echo(judge_systems(names, trials, output, wanted, judges, workers, told))


def company(beside: Sequence[str], trials: Sequence[Trial]) -> list[str]:
    """Those of the systems that can be read beside others on these trials: without recordings there are no bounds."""
    bounded = any(trial.source is not None for trial in trials)
    return [name for name in beside if name and (bounded or name not in BOUNDS)]


@dataclass(frozen=True)
class Wanted:
    """How the systems named on the command line are to be opened."""

    clones: list[Clone]
    seed: int
    pythons: dict[str, str]
    """Interpreters by the rival's name."""

    judge_model: str | None
    """Model that lends its codec and its identity encoder."""


def judge_systems(
    names: list[str], trials: list[Trial], output: Path, wanted: Wanted, judges: str, workers: int, testset: str
) -> str:
    """Speak and judge all systems into the output folder, and write its tables; returns them."""
    systems = [one for name in names for one in find_systems(name, wanted)]
    bench = parse_bench(judges, wanted.judge_model)
    output.mkdir(parents=True, exist_ok=True)
    with printed_warnings(), seated(bench, trials, workers) as panel:
        for one in systems:
            score_system(one, trials, output, panel, messages().print)
            if isinstance(one, Rival):
                one.close()
    pool = gather([output])
    return write_report(pool.scores, output, {**facts(), "test set": testset, **pool.judges}, pool.remarks)


@contextmanager
def seated(bench: Bench, trials: list[Trial], workers: int) -> Iterator[Panel]:
    """The judges, in this process or in several."""
    if workers == 1:
        yield HerePanel(open_judges(bench, trials))
        return
    with ProcessPanel(bench, trials, workers) as panel:
        yield panel


def parse_pythons(items: list[str]) -> dict[str, str]:
    """Interpreters by the rival's name."""
    pairs = [item.partition("=") for item in items]
    for name, _, interpreter in pairs:
        if name not in RIVALS or not interpreter:
            raise DataError(f"--python {name}: expected NAME=INTERPRETER, the name one of {', '.join(RIVALS)}")
    return {name: interpreter for name, _, interpreter in pairs}


def choose_judge_model(named: str | None, systems: list[str]) -> str | None:
    """The model that lends its codec and its identity encoder; None where none is wanted."""
    if named is not None:
        return None if named == "none" else named
    return next((name.partition("@")[0] for name in systems if model_folder(name.partition("@")[0])), "mini")


def find_systems(name: str, wanted: Wanted) -> list[System]:
    """The systems behind a name on the command line: both clones of a model, else one."""
    if name == "source":
        return [SourceRecordings()]
    if name == "codec":
        if wanted.judge_model is None:
            raise DataError("the system 'codec' needs a model to take the codec from; name one with --judge-model")
        return [CodecResynthesis(load_model(wanted.judge_model).codec)]
    if name == EspeakNg.name:
        return [EspeakNg()]
    if name in RIVALS:
        if name not in wanted.pythons:
            raise DataError(f"{name} runs in an environment of its own: say which with --python {name}=INTERPRETER")
        return [Rival(name, wanted.pythons[name])]
    model, _, variant = name.partition("@")
    folder = model_folder(model)
    if folder is None:
        return [TakesFolder(Path(name))]
    return find_clones(load_model(model), Path(model).name, folder_digest(folder), variant, wanted)


def find_clones(synthesizer: Synthesizer, name: str, version: str, variant: str, wanted: Wanted) -> list[System]:
    """The clones of a model, or of a model with one thing taken away."""
    if variant:
        known = [one.value for one in Variant]
        if variant not in known:
            raise DataError(
                f"{name}@{variant}: there is no such variant of a model; expected one of {', '.join(known)}"
            )
        synthesizer = take_away(synthesizer, Variant(variant))
        name, version = f"{name}@{variant}", f"{version} {variant}"
    return [Model(synthesizer, name, version, clone=kind, seed=wanted.seed) for kind in wanted.clones]


@evaluate.command("testset")
def testset_command(
    manifest: Annotated[Path, typer.Argument(help="utterances.jsonl; its test split is used.")],
    output: Annotated[Path, typer.Option(help="Test set to write, e.g. testset.jsonl.")],
    speakers: Annotated[str, typer.Option(help="How many speakers, or their names with commas between.")] = "4",
    sentences: Annotated[int, typer.Option(min=1, help="How many sentences in all.")] = 40,
    style: Annotated[str, typer.Option(help="Style of sentences and references, or `any`.")] = "regular",
    without: Annotated[Path | None, typer.Option(help="Test set whose sentences are left out.")] = None,
) -> None:
    """Pair test utterances with references by the same speaker; the same manifest gives the same test set."""
    named = [] if speakers.isdigit() else [name.strip() for name in speakers.split(",")]
    number = int(speakers) if speakers.isdigit() else len(named)
    trials = make_testset(
        manifest,
        num_speakers=number,
        num_sentences=sentences,
        speakers=named,
        style=None if style == "any" else style,
        without=[] if without is None else read_testset(without),
    )
    write_testset(trials, output)
    chosen = sorted({trial.speaker for trial in trials})
    messages().print(f"{output}: {len(trials)} trials by {', '.join(chosen)}")


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


@evaluate.command("speakers")
def speakers_command(
    manifest: Annotated[Path, typer.Argument(help="utterances.jsonl.")],
    encoder: Annotated[
        str, typer.Option(help="identity or style (of --model), resemblyzer, or wavlm.")
    ] = "identity",
    model: Annotated[str, typer.Option(help="Model whose encoder is measured.")] = "mini",
    split: Annotated[str, typer.Option(help="train, validation or test.")] = "test",
    limit: Annotated[int, typer.Option(min=2, help="Recordings per speaker to use at most.")] = 50,
) -> None:  # fmt: skip
    """Print how often a speaker encoder takes one person for another: its equal error rate, overall and by style."""
    bench = Bench(names={encoder: None}, model=model)
    found = load_model(model).style_encoder if encoder == "style" else open_encoder(encoder, bench)
    typer.echo(measure_encoder(found, manifest, split, limit))


@evaluate.command("judges")
def judges_command(
    recordings: Annotated[Path, typer.Argument(help="Folder of recordings with transcripts.")],
    output: Annotated[Path, typer.Option(help="Folder for judges.md and judges.json.")],
    codec: Annotated[str, typer.Option(help="Codec of the second rung, as for `codec`.")] = "mini",
    judges: Annotated[str, typer.Option(help="As for evaluating systems.")] = "offline",
    limit: Annotated[int, typer.Option(min=1, help="Recordings to use at most.")] = 10,
    max_seconds: Annotated[float, typer.Option(help="Longest recording to use; long ones take judges long.")] = 12.0,
    workers: Annotated[int, typer.Option(min=1, help="Processes that judge at the same time.")] = 2,
) -> None:
    """Judge the judges: each must rank recordings above their resynthesis, above noise, above scrambled pieces."""
    from marstts.evaluation.ladder import climb, known_orders, write_ladder

    trials = thin_out(short_enough(open_testset(str(recordings), None, messages().print), max_seconds), limit)
    bench = parse_bench(judges, codec if model_folder(codec) else None)
    output.mkdir(parents=True, exist_ok=True)
    with seated(bench, trials, workers) as panel:
        for rung in known_orders(load_codec(codec)):
            score_system(rung, trials, output, panel, messages().print)
    typer.echo(write_ladder(climb(output), output, {**facts(), "recordings": f"{len(trials)} of {recordings.name}"}))


def short_enough(trials: list[Trial], max_seconds: float) -> list[Trial]:
    """The trials whose recording is not longer than that; DataError where there are none."""
    kept = [trial for trial in trials if soundfile.info(source_of(trial)).duration <= max_seconds]
    if not kept:
        raise DataError(f"all {len(trials)} recordings are longer than {max_seconds:g} s; raise --max-seconds")
    return kept


def model_folder(name: str) -> Path | None:
    """The folder of a model by name or path; None if there is none. The authors' model is fetched if need be."""
    from marstts.checkpoint import PACKAGED_MODELS
    from marstts.synthesis.conversion import TURBO
    from marstts.synthesis.loading import Engine, turbo_folder

    if name == TURBO:
        return turbo_folder(Engine.AUTO)  # the one that `load_model` opens

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
    machine = f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()} {platform.release()}"
    return {
        "date": date.today().isoformat(),
        "marstts": marstts.__version__,
        "command": command,
        "machine": f"{machine}, Python {platform.python_version()}",
    }
