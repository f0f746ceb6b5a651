"""Checkpoints that name classes: nothing of them is imported or run, and tensors and plain data are kept."""

from __future__ import annotations

import argparse
import collections
import os
import pickle
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest
import torch

from marstts.errors import CheckpointError
from marstts.weights.pretrained import read_tensors
from marstts.weights.published_checkpoint import read_content


class Settings(dict):
    """A dictionary of another class, as many programs keep their settings in."""


class Kind(Enum):
    SMALL = 1


class Harmful:
    """Runs a command where it is unpickled."""

    def __init__(self, function: Any, *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call


WEIGHTS = {"a": torch.arange(6.0).reshape(2, 3).half(), "b": torch.nn.Parameter(torch.ones(2))}


@pytest.mark.parametrize(
    "value",
    [
        argparse.Namespace(width=3),
        PurePosixPath("/data"),
        np.float64(0.5),
        np.arange(3),
        Settings(width=3),
        Kind.SMALL,
        collections.defaultdict(list, a=[1]),
        [Settings(), {"deep": argparse.Namespace()}],
        torch.float16,
    ],
    ids=lambda value: str(type(value).__name__),
)
def test_tensors_and_plain_data_are_read_beside_objects_of_any_class(value: object, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    content = {"model": WEIGHTS, "vocab": {"text": "abc"}, "cfg": value, "steps": [1, 2.5, None, True]}
    torch.save(content, path)
    read = read_content(path)
    assert read.keys() == content.keys() and read["vocab"] == {"text": "abc"} and read["steps"] == [1, 2.5, None, True]
    for key, tensor in WEIGHTS.items():
        assert torch.equal(read["model"][key], tensor)


def test_the_items_of_a_dictionary_of_another_class_are_kept(tmp_path: Path) -> None:
    torch.save({"model": Settings(WEIGHTS)}, tmp_path / "model.pt")
    assert torch.equal(read_content(tmp_path / "model.pt")["model"]["a"], WEIGHTS["a"])


@pytest.mark.parametrize("function", [os.system, os.mkdir, eval, exec, getattr, Path.touch, pickle.loads])
def test_nothing_that_a_checkpoint_names_is_run(function: Any, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    arguments = {
        os.system: (f"touch {witness}",), os.mkdir: (str(witness),), eval: (f"open({str(witness)!r}, 'w')",),
        exec: (f"open({str(witness)!r}, 'w')",), getattr: (str(witness), "upper"), Path.touch: (witness,),
        pickle.loads: (pickle.dumps(Harmful(os.mkdir, str(witness))),),
    }[function]  # fmt: skip
    torch.save({"model": WEIGHTS, "cfg": Harmful(function, *arguments)}, tmp_path / "model.pt")
    content = read_content(tmp_path / "model.pt")
    assert torch.equal(content["model"]["a"], WEIGHTS["a"]) and not witness.exists()


def test_a_program_is_refused_unopened(tmp_path: Path) -> None:
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), tmp_path / "model.pt")
    with pytest.raises(CheckpointError, match="TorchScript"):
        read_content(tmp_path / "model.pt")


def test_weights_that_are_read_while_speaking_may_name_no_class_and_the_message_says_which(tmp_path: Path) -> None:
    path = tmp_path / "clap.pth"
    torch.save({"model": WEIGHTS, "args": argparse.Namespace()}, path)
    with pytest.raises(CheckpointError, match=r"it names argparse\.Namespace, .* save its tensors as safetensors"):
        read_tensors(path)
