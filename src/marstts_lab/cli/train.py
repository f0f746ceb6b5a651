"""`marstts train`: from prepared data to weights; every training resumes when it is run again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from marstts.cli.terminal import check_not_read, check_utf8, say
from marstts.errors import ConfigError, DataError
from marstts.io.config import read_config
from marstts.io.part_provenance import pass_on
from marstts.io.reading import printable_name, printable_text

if TYPE_CHECKING:
    from marstts_lab.training.codec.config import CodecTrainingConfig
    from marstts_lab.training.mars5.config import TrainConfig
    from marstts_lab.training.mars6.config import PretrainConfig
    from marstts_lab.training.speaker.config import SpeakerTrainingConfig

    Settings = TypeVar("Settings", CodecTrainingConfig, PretrainConfig, SpeakerTrainingConfig, TrainConfig)

app = typer.Typer(help="Train a tokenizer, a codec, speaker encoders or a model.", no_args_is_help=True)

MaxMinutes = Annotated[
    float, typer.Option(min=0.0, help="Stop after this many minutes; 0 = by steps only. The run can be resumed.")
]
Threads = Annotated[
    int, typer.Option(min=0, help="CPU threads; 0 = PyTorch's choice. More threads than free cores are slow.")
]
Device = Annotated[str, typer.Option(help="PyTorch's name of the device, such as cpu or cuda.")]
RunFolder = Annotated[Path, typer.Option(help="Run folder: checkpoints and logs.")]
Shards = Annotated[
    list[Path], typer.Option(help="Folder of shards, see `marstts tokenize`; may be given several times.")
]


@app.callback()
def train() -> None:
    """Train a tokenizer, a codec, speaker encoders or a model."""


@app.command()
def codec(
    config: Annotated[Path, typer.Option(help="TOML with stage, sizes, steps and losses.")],
    data: Annotated[
        list[str],
        typer.Option(help="Corpus: its utterances.jsonl, optionally FILE:WEIGHT; may be given several times."),
    ],
    output: RunFolder,
    export: Annotated[Path | None, typer.Option(help="Folder for the trained codec: graphs and weights.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the exported codec, which voices and models store.")] = None,
    init_from: Annotated[
        Path | None, typer.Option("--init-from", help="Run or exported codec with the initial weights (next stage).")
    ] = None,
    max_minutes: MaxMinutes = 0.0,
    device: Device = "cpu",
    threads: Threads = 0,
) -> None:
    """Train a codec on recordings, one stage at a time; run it again to resume."""
    from marstts_lab.training.codec.config import CodecTrainingConfig
    from marstts_lab.training.codec.export import copy_notices, export_codec
    from marstts_lab.training.codec.segments import weighted_manifest
    from marstts_lab.training.codec.task import open_task
    from marstts_lab.training.distributed import lock_run
    from marstts_lab.training.loop import run
    from marstts_lab.training.provenance import file_digests, record_training
    from marstts_lab.training.speaker.export import load_frozen

    if export is not None and not name:
        raise ConfigError("an exported codec needs a --name, which voices and models store")
    check_utf8(name=name)
    manifests = [weighted_manifest(item) for item in data]
    for manifest, _ in manifests:
        check_manifest(manifest)
    set_threads(threads)
    settings = stop_after(max_minutes, read_config(CodecTrainingConfig, config))
    with lock_run(output):
        task = open_task(settings, manifests, output, init_from, device)
        record_training(output, settings, file_digests([manifest for manifest, _ in manifests]), init_from)
        say(f"{len(task.segments.known)} utterances to train on, stage {settings.stage.value}")
        run(task, settings.loop, output)
    if export is not None and name:
        source = None if settings.timbre_speaker is None else Path(settings.timbre_speaker.encoder)
        speaker = None if source is None else load_frozen(source)
        export_codec(task.model_to_export(output, init_from), name, export, speaker)
        if source is not None:
            copy_notices(source, export)
        pass_on(output, export)


@app.command()
def mars6(
    data: Shards,
    config: Annotated[Path, typer.Option(help="TOML with sizes, steps and rates.")],
    output: Annotated[Path, typer.Option(help="Run folder: checkpoints, logs, tokenizer.")],
    init_from: Annotated[
        Path | None,
        typer.Option("--init-from", help="Run or bundle with the initial weights, whose model has the same sizes."),
    ] = None,
    max_minutes: MaxMinutes = 0.0,
    threads: Threads = 0,
) -> None:
    """Train a MARS6 on shards; run it again to resume."""
    from marstts_lab.data.corpus import load_corpus
    from marstts_lab.training.checkpoint import latest
    from marstts_lab.training.distributed import is_main, lock_run
    from marstts_lab.training.loop import run
    from marstts_lab.training.mars6 import run_folder
    from marstts_lab.training.mars6.config import PretrainConfig
    from marstts_lab.training.mars6.task import PretrainTask
    from marstts_lab.training.provenance import record_training

    set_threads(threads)
    check_shards(data)
    settings = stop_after(max_minutes, read_config(PretrainConfig, config))
    with lock_run(output):
        corpus = load_corpus(*data)
        tokenizer = run_folder.open_run(output, settings, corpus, init_from)
        task = PretrainTask(settings, corpus, tokenizer)
        if init_from is not None and latest(output) is None:
            run_folder.init_from(task, init_from)
        if is_main():
            record_training(output, settings, {"shards": corpus.digest}, init_from)
        say(f"{len(corpus)} utterances, {corpus.seconds / 3600:.1f} h; {task.summary}")
        run(task, settings.loop, output)


@app.command()
def mars5_ar(
    data: Shards,
    config: Annotated[Path, typer.Option(help="TOML with sizes, steps and rates.")],
    output: Annotated[Path, typer.Option(help="Run folder: checkpoints, logs, both tokenizers.")],
    tokenizers_from: Annotated[
        Path | None, typer.Option("--tokenizers-from", help="Run whose tokenizers are used (default: new ones).")
    ] = None,
    max_minutes: MaxMinutes = 0.0,
    threads: Threads = 0,
) -> None:
    """Train the AR of a MARS5 (text to level 0) on shards; run it again to resume."""
    from marstts_lab.training.mars5.config import ArTrainConfig

    settings = stop_after(max_minutes, read_config(ArTrainConfig, config))
    train_mars5(settings, data, output, tokenizers_from, threads)


@app.command()
def mars5_nar(
    data: Shards,
    config: Annotated[Path, typer.Option(help="TOML with sizes, steps and rates.")],
    output: Annotated[Path, typer.Option(help="Run folder: checkpoints, logs, both tokenizers.")],
    tokenizers_from: Annotated[Path, typer.Option("--tokenizers-from", help="Run of the AR: both share tokenizers.")],
    max_minutes: MaxMinutes = 0.0,
    threads: Threads = 0,
) -> None:
    """Train the NAR of a MARS5 (level 0 to all levels) on shards; run it again to resume."""
    from marstts_lab.training.mars5.config import NarTrainConfig

    settings = stop_after(max_minutes, read_config(NarTrainConfig, config))
    train_mars5(settings, data, output, tokenizers_from, threads)


def train_mars5(settings: Any, data: list[Path], output: Path, tokenizers_from: Path | None, threads: int) -> None:
    """Train the model that the configuration is of, or resume its run."""
    from marstts_lab.data.corpus import load_corpus
    from marstts_lab.training.distributed import is_main, lock_run
    from marstts_lab.training.mars5.run_folder import open_vocabulary, train
    from marstts_lab.training.provenance import record_training

    set_threads(threads)
    check_shards(data)
    with lock_run(output):
        corpus = load_corpus(*data)
        vocabulary = open_vocabulary(settings, corpus, output, tokenizers_from)
        if is_main():
            record_training(output, settings, {"shards": corpus.digest})
        say(
            f"{len(corpus)} utterances, {corpus.seconds / 3600:.1f} h; {vocabulary.text.vocab_size} text and "
            f"{vocabulary.speech.vocab_size} speech tokens"
        )
        train(settings, corpus, vocabulary, output)


@app.command()
def tokenizer(
    texts: Annotated[list[Path], typer.Argument(help="Manifests (.jsonl), or files with a sentence a line (or .gz).")],
    output: Annotated[Path, typer.Option(help="File to write; a run uses RUN/tokenizer.json if it exists.")],
    vocab_size: Annotated[int, typer.Option(help="Entries, special tokens included.")] = 512,
) -> None:
    """Train the text tokenizer (BPE), with the special tokens and quality prefixes of the prompt."""
    from marstts_lab.training.mars6.tokenizer import texts_of, train_bpe

    check_not_read([output], *texts)
    trained = train_bpe(texts_of(texts), vocab_size)
    output.parent.mkdir(parents=True, exist_ok=True)
    trained.save(output)
    tokens = printable_text(" ".join(trained.special_tokens))
    say(f"{printable_name(output)}: {trained.vocab_size} entries; special tokens: {tokens}")


@app.command()
def speaker(
    config: Annotated[Path, typer.Option(help="TOML with kind (identity or style), sizes, steps and augmentation.")],
    data: Annotated[
        list[Path],
        typer.Option(help="Corpus: its utterances.jsonl, see `marstts prepare`; may be given several times."),
    ],
    output: RunFolder,
    export: Annotated[Path | None, typer.Option(help="Folder for the trained encoder: graph and weights.")] = None,
    init_from: Annotated[
        Path | None, typer.Option("--init-from", help="Run or exported encoder with the initial weights.")
    ] = None,
    max_minutes: MaxMinutes = 0.0,
    device: Device = "cpu",
    threads: Threads = 0,
) -> None:
    """Train a speaker encoder on recordings; run it again to resume."""
    from marstts_lab.training.distributed import lock_run
    from marstts_lab.training.loop import run
    from marstts_lab.training.provenance import file_digests, record_training
    from marstts_lab.training.speaker.config import SpeakerTrainingConfig
    from marstts_lab.training.speaker.export import export_encoder, load_encoder
    from marstts_lab.training.speaker.task import open_task

    for manifest in data:
        check_manifest(manifest)
    set_threads(threads)
    settings = stop_after(max_minutes, read_config(SpeakerTrainingConfig, config))
    with lock_run(output):
        task = open_task(settings, data, output, init_from, device)
        record_training(output, settings, file_digests(data), init_from)
        held_out = sum(map(len, task.held_out))
        say(f"{len(task.known)} utterances to train on, {held_out} of held-out speakers")
        run(task, settings.loop, output)
    if export is not None:
        export_encoder(load_encoder(output), export)
        pass_on(output, export)


def check_shards(folders: list[Path]) -> None:
    """DataError where a folder does not exist, or holds recordings instead of shards."""
    from marstts_lab.data.corpora.folder import holds_recordings
    from marstts_lab.training.run_log import check_data_folders

    check_data_folders(folders)
    for folder in folders:
        if holds_recordings(folder):
            raise DataError(
                f"{folder} holds recordings, not shards; fine-tune a model with `marstts finetune --data {folder}`, or "
                "make shards with `marstts prepare folder` and `marstts tokenize`"
            )


def set_threads(threads: int) -> None:
    """Let PyTorch compute with this many threads; 0 = its own choice."""
    import torch

    if threads:
        torch.set_num_threads(threads)


def check_manifest(path: Path) -> None:
    """DataError if a manifest does not exist, before anything slow begins."""
    if not path.exists():
        raise DataError(f"{path}: no such file; --data takes the utterances.jsonl of a corpus, see `marstts prepare`")


def stop_after(max_minutes: float, settings: Settings) -> Settings:
    """The settings with another limit on wall time; unchanged where `max_minutes` is 0."""
    if not max_minutes:
        return settings
    return settings.model_copy(update={"loop": settings.loop.model_copy(update={"max_minutes": max_minutes})})
