"""The commands of the lab, which `marstts` lists beside its own; each is imported when it is called."""

from __future__ import annotations

from functools import partial

from marstts.cli.commands import LazyCommand

lab_command = partial(LazyCommand, package="marstts_lab.cli")

COMMANDS = {
    "prepare": lab_command("prepare", "app", "Prepare a corpus for training.", extra="synthetic"),
    "tokenize": lab_command(
        "tokenize", "tokenize", "Encode a corpus into shards of codes and embeddings.", extra="train"
    ),
    "estimate": lab_command("estimate", "estimate", "Estimate hours and disk of a training recipe.", extra="train"),
    "train": lab_command("train", "app", "Train a tokenizer, a codec, speaker encoders or a model.", extra="train"),
    "finetune": lab_command("finetune", "finetune", "Fine-tune a model on a folder of recordings.", extra="train"),
    "preference": lab_command(
        "preference", "app", "Mine takes, rank them into pairs, train on the pairs.", extra="eval"
    ),
    "export": lab_command("export", "export", "Write a trained model and all it needs as one bundle.", extra="train"),
    "quantize": lab_command("export", "quantize", "Quantize the weights of a bundle to int8.", extra="train"),
    "bundle": lab_command("export", "bundle_app", "Upgrade the graphs of a bundle.", extra="train"),
    "benchmark": lab_command("benchmark", "benchmark", "Measure speed, latency and memory on this machine."),
    "evaluate": lab_command("evaluate", "evaluate", "Score synthesized speech against recordings.", extra="eval"),
    "report": lab_command("report", "report", "Compare the scores of several systems.", extra="eval"),
}
