"""Inputs of the recorded runs of a golden folder, as values of this package."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from torch import Tensor

from marstts.generation.request import Limits
from marstts.mars6.model import Mars6
from marstts.mars6.prompt import Mars6Prompt


def of(name: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of one model, by their names without its prefix."""
    prefix = "" if name == "main" else f"{name}."
    return {key.removeprefix(prefix): tensor for key, tensor in tensors.items() if key.startswith(prefix)}


def greedy_runs(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """The runs of a model in which nothing is drawn or guided: they can be spoken side by side."""
    return [
        run
        for run in entry["generation"]
        if run["top_p"] == 0.0 and run["cfg_guidance"] == 1.0 and not run["ras_enabled"]
    ]


def prompt_of(run: dict[str, Any], io: dict[str, Tensor]) -> Mars6Prompt:
    words, identity, style = (io[f"enc.{part}"][0].numpy() for part in ("text_ids", "speaker", "clap"))
    return Mars6Prompt(words, identity, style, np.array(run["prefix"] or [], dtype=np.int64).reshape(-1, 7))


def limits_of(run: dict[str, Any]) -> Limits:
    """Bounds on new patches; the least is what is complete when end of speech first becomes legal."""
    following = 1
    while following / 12 < run["lower_bound_dur"]:
        following += 1
    return Limits(min(following - 1, run["max_len"]), run["max_len"])


def in_first_language(model: Mars6, io: dict[str, Tensor]) -> Mars6:
    """A copy whose first language, which engines always speak as published, is the recorded one."""
    model, language = copy.deepcopy(model), int(io["enc.language"])
    for table in (model.encoder.slots.language, model.encoder.slots.memory_language):
        table.weight.data[0] = table.weight.data[language]
    return model
