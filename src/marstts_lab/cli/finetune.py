"""`marstts finetune`: from a folder of recordings to a bundle of that voice."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from marstts.cli.terminal import say
from marstts.errors import check_installed
from marstts.io.config import read_config
from marstts.io.reading import printable_name
from marstts.onnx.build import EXPORT_PACKAGES

DID_NOT_HELP = 3
"""Exit status where the bundle has the initial model."""


def finetune(
    data: Annotated[
        list[Path],
        typer.Option(help="Folder of recordings with their texts, or of shards; may be given several times."),
    ],
    output: Annotated[Path, typer.Option(help="Run folder: shards, checkpoints, logs, and the bundle.")],
    init_from: Annotated[str, typer.Option("--init-from", help="Bundle to start with, by name or folder.")] = "mini",
    config: Annotated[
        Path | None, typer.Option(help="TOML as for `train mars6` (default: a low learning rate and early stopping).")
    ] = None,
    max_minutes: Annotated[
        float, typer.Option(min=0.0, help="Stop after this many minutes; 0 = never. The run can be resumed.")
    ] = 0,
    workers: Annotated[int, typer.Option(min=1, help="Processes that tokenize the recordings.")] = 1,
    threads: Annotated[int, typer.Option(min=0, help="CPU threads; 0 = PyTorch's choice.")] = 0,
    recognizer: Annotated[
        str | None,
        typer.Option(
            help="Recognizer that counts word errors, such as faster-whisper=FOLDER (default: faster-whisper where it "
            "is available, else the model's own alignment).",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Fine-tune a model on your recordings; run it again to resume. Exit code 3: it did not help."""
    check_installed(EXPORT_PACKAGES, "train")  # the bundle at the end has graphs
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read when PyTorch is imported: threads that wait by
    import torch  # spinning take ten times as long on a busy machine

    from marstts_lab.cli.train import stop_after
    from marstts_lab.evaluation.finetuning import evaluator_of
    from marstts_lab.training.mars6.config import PretrainConfig
    from marstts_lab.training.mars6.finetune import check_folders, finetune_defaults
    from marstts_lab.training.mars6.finetune import finetune as finetune_bundle

    if threads:
        torch.set_num_threads(threads)
    check_folders(data)
    given = finetune_defaults(init_from) if config is None else read_config(PretrainConfig, config)
    settings = stop_after(max_minutes, given)
    found = finetune_bundle(
        init_from,
        data,
        output,
        settings,
        open_evaluator=evaluator_of(recognizer),
        workers=workers,
    )
    if found is None:  # another process of torchrun than the first
        return
    bundle = printable_name(output / "bundle")
    say(f"{found.table}\n{found.summary}")
    say(f"{bundle}: written; listen with `marstts-listening-test ab {printable_name(init_from)} {bundle}`")
    if not found.helped:
        raise typer.Exit(DID_NOT_HELP)
