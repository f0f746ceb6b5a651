"""`marstts train`: from prepared data to weights; every training goes on where it stopped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from marstts.errors import ConfigError

if TYPE_CHECKING:
    from marstts.training.codec import CodecTrainingConfig
    from marstts.training.pretrain import PretrainConfig
    from marstts.training.speaker import SpeakerTrainingConfig

    Settings = TypeVar("Settings", CodecTrainingConfig, PretrainConfig, SpeakerTrainingConfig)

app = typer.Typer(help="Train a codec, speaker encoders or a MARS6.", no_args_is_help=True)


@app.callback()
def train() -> None:
    """Train a codec, speaker encoders or a MARS6."""


@app.command()
def codec(
    config: Annotated[Path, typer.Option(help="TOML with stage, sizes, steps and losses.")],
    manifest: Annotated[Path, typer.Option("--manifest", "--data", help="Corpus to listen to: its utterances.jsonl.")],
    output: Annotated[Path, typer.Option(help="Run folder: checkpoints and logs.")],
    export: Annotated[Path | None, typer.Option(help="Folder for the finished codec, as ONNX and weights.")] = None,
    name: Annotated[str | None, typer.Option(help="What to call the exported codec; voices remember it.")] = None,
    base: Annotated[
        Path | None, typer.Option("--from", help="Begin with the weights of this run or exported codec (next stage).")
    ] = None,
    minutes: Annotated[float, typer.Option(help="Stop, resumably, after so many minutes; 0 = by steps only.")] = 0.0,
    device: Annotated[str, typer.Option(help="PyTorch's name of the device, such as cpu or cuda.")] = "cpu",
    threads: Annotated[int, typer.Option(help="CPU threads; 0 = PyTorch's choice. More than are free is slow.")] = 0,
) -> None:
    """Train a codec from recordings, one stage at a time; run it again to go on."""
    import torch

    from marstts.config import read_config
    from marstts.training.codec import CodecTrainingConfig, export_codec, load_codec, open_task
    from marstts.training.loop import run

    if export is not None and not name:
        raise ConfigError("an exported codec needs a --name, by which voices and models know it")
    if threads:
        torch.set_num_threads(threads)
    settings = stop_after(minutes, read_config(CodecTrainingConfig, config))
    task = open_task(settings, manifest, output, base, device)
    typer.echo(f"{len(task.segments.known)} utterances to learn from, stage {settings.stage.value}")
    run(task, settings.loop, output, typer.echo)
    if export is not None and name:
        export_codec(load_codec(output), name, export)


@app.command()
def mars6(
    data: Annotated[
        list[Path],
        typer.Option(help="Folder of shards, see `marstts tokenize`, or of your recordings; may be given again."),
    ],
    output: Annotated[Path, typer.Option(help="Run folder: checkpoints, logs, tokenizer.")],
    config: Annotated[
        Path | None, typer.Option(help="TOML with sizes, steps and rates (default, with --from: gentle ones).")
    ] = None,
    minutes: Annotated[float, typer.Option(help="Stop, resumably, after so many minutes; 0 = by steps only.")] = 0.0,
    base: Annotated[
        Path | None, typer.Option("--from", help="Begin with the weights of this run or bundle (fine-tuning).")
    ] = None,
    before: Annotated[
        Path | None,
        typer.Option(
            "--translate-from",
            help="Shards that the --from model learnt from, of the same recordings: its codec or encoders were others.",
        ),
    ] = None,
    codec: Annotated[
        str | None, typer.Option(help="Codec for samples in TensorBoard: a folder, `snac`, or `toy:CODES`.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes that listen to recordings.")] = 1,
    max_damaged: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Go on without damaged shards, up to this share of them.")
    ] = 0.0,
    threads: Annotated[int, typer.Option(help="CPU threads; 0 = PyTorch's choice. More than are free is slow.")] = 0,
) -> None:
    """Train a MARS6 from shards, or fine-tune one to your own recordings; run it again to go on."""
    import torch

    from marstts.cli.tokenize import load_codec
    from marstts.config import read_config
    from marstts.data.shards import load_corpus
    from marstts.training import finetune, pretrain
    from marstts.training.loop import latest, run

    if threads:
        torch.set_num_threads(threads)
    own = any(finetune.holds_recordings(folder) for folder in data)
    if base is None and (own or config is None):
        what = "a folder of recordings is fine-tuned to" if own else "without --config there is nothing to train"
        raise ConfigError(f"{what}; say what to begin with: --from mini, or a bundle's folder")
    if before is not None and base is None:
        raise ConfigError("--translate-from says what the model to begin with learnt from; say which: --from RUN")
    given = None if config is None else read_config(pretrain.PretrainConfig, config)
    settings = stop_after(minutes, given or finetune.gentle_settings(str(base)))
    folders = [
        finetune.listen(folder, output, str(base), workers, typer.echo) if finetune.holds_recordings(folder) else folder
        for folder in data
    ]
    corpus = pretrain.load_sound(folders, output, max_damaged, typer.echo)
    tokenizer = pretrain.open_run(output, settings, corpus, base)
    task = pretrain.PretrainTask(settings, corpus, tokenizer, None if codec is None else load_codec(codec))
    if base is not None and latest(output) is None:
        pretrain.start_from(task, base, None if before is None else load_corpus(before))
    typer.echo(f"{len(corpus)} utterances, {corpus.seconds / 3600:.1f} h; {task.summary}")
    run(task, settings.loop, output, typer.echo)
    if own:
        bundle = finetune.export_like(str(base), output, name=output.name)
        typer.echo(f"{bundle}: it speaks, as in `marstts speak --model {bundle}`")


@app.command()
def bpe(
    texts: Annotated[list[Path], typer.Argument(help="Manifests (.jsonl), or files with a sentence a line (or .gz).")],
    output: Annotated[
        Path, typer.Option(help="Where to write the tokenizer; a run takes RUN/tokenizer.json as its own.")
    ],
    vocab_size: Annotated[int, typer.Option(help="Entries, special tokens included.")] = 512,
) -> None:
    """Learn the text vocabulary, with the special tokens and quality prefixes of the prompt."""
    from marstts.training.vocabulary import texts_of, train_bpe

    tokenizer = train_bpe(texts_of(texts), vocab_size)
    output.parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(output)
    typer.echo(f"{output}: {tokenizer.vocab_size} entries, of them special: {' '.join(tokenizer.special_tokens)}")


@app.command()
def speaker(
    config: Annotated[Path, typer.Option(help="TOML with kind (identity or style), sizes, steps and distortions.")],
    manifest: Annotated[
        Path, typer.Option("--manifest", "--data", help="Corpus with speakers and styles: its utterances.jsonl.")
    ],
    output: Annotated[Path, typer.Option(help="Run folder: checkpoints and logs.")],
    export: Annotated[Path | None, typer.Option(help="Folder for the finished encoder, as ONNX and weights.")] = None,
    minutes: Annotated[float, typer.Option(help="Stop, resumably, after so many minutes; 0 = by steps only.")] = 0.0,
    device: Annotated[str, typer.Option(help="PyTorch's name of the device, such as cpu or cuda.")] = "cpu",
    threads: Annotated[int, typer.Option(help="CPU threads; 0 = PyTorch's choice. More than are free is slow.")] = 0,
) -> None:
    """Train a speaker encoder from recordings; run it again to go on."""
    import torch

    from marstts.config import read_config
    from marstts.training.loop import run
    from marstts.training.speaker import SpeakerTrainingConfig, export_encoder, load_encoder, open_task

    if threads:
        torch.set_num_threads(threads)
    settings = stop_after(minutes, read_config(SpeakerTrainingConfig, config))
    task = open_task(settings, manifest, output, device)
    typer.echo(f"{len(task.known)} utterances to learn from, {len(task.held_out)} of speakers held out")
    run(task, settings.loop, output, typer.echo)
    if export is not None:
        export_encoder(load_encoder(output), export)


def stop_after(minutes: float, settings: Settings) -> Settings:
    """The settings with another limit on wall time; as they are where `minutes` is 0."""
    if not minutes:
        return settings
    return settings.model_copy(update={"loop": settings.loop.model_copy(update={"minutes": minutes})})
