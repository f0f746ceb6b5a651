"""Published checkpoints: files of tensors from elsewhere, read strictly, and compared with the model that they are for.

Upstream: `pretrained` and `torch_archive`, which read tensors without running code.  Downstream: `mars6.released` and
`mars5.released`, which know the names and sizes of their models.
Every tensor is expected and every expected tensor is there. A file that gives a wrong size, asks for code to be run, or
was cut short is refused before anything is built from it. Every class that a pickle names is replaced by an inert one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from marstts.errors import CheckpointError, require
from marstts.weights.pretrained import EXTRA, fingerprint, read_tensors
from marstts.weights.torch_archive import read_torch_archive

if TYPE_CHECKING:
    from torch import Tensor, nn

Model = TypeVar("Model", bound="nn.Module")

SUFFIXES = (".pt", ".safetensors")

MAX_NAMED = 8
"""Complaints that a message lists at most."""


def check_file(path: Path, expected_sha256: str | None) -> str:
    """SHA-256 of the file; CheckpointError where there is none, or it has another hash than expected."""
    if path.suffix not in SUFFIXES:
        raise CheckpointError(f"{path}: expected a published checkpoint, {' or '.join(SUFFIXES)}")
    if not path.is_file():
        raise CheckpointError(f"{path}: no such checkpoint file")
    return fingerprint(path, expected_sha256)


def read_content(path: Path) -> dict[str, Any]:
    """Read a published file: the tensors of a `.safetensors`, the entries of a `.pt`.

    Classes that a `.pt` names are neither imported nor run (`torch_archive`).
    """
    return read_archive(path) if path.suffix == ".pt" else read_tensors(path)


def read_archive(path: Path) -> dict[str, Any]:
    """The entries of a `.pt`."""
    content = read_torch_archive(path)
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: expected a dictionary of PyTorch, but it holds a {type(content).__name__}")
    return content


def check_numbers(source: str, tensors: Mapping[Any, Any], num_bytes: int | None) -> None:
    """CheckpointError unless all are tensors of finite real numbers that a file of `num_bytes` is large enough for."""
    torch = require("torch", EXTRA)
    size = 0
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point() or tensor.layout != torch.strided:
            raise CheckpointError(f"{source}: expected {name} to be a tensor of real numbers")
        size += tensor.numel() * tensor.element_size()
    if num_bytes is not None and size > num_bytes:
        raise CheckpointError(f"{source}: claims {size} bytes of weights, more than the file has; fetch it again")
    if any(not bool(torch.isfinite(tensor).all()) for tensor in tensors.values()):
        raise CheckpointError(f"{source}: some weights are not finite numbers; fetch it again")


@contextmanager
def inferring_sizes(source: str, model: str) -> Iterator[None]:
    """Turn what reading sizes off tensors raises into a CheckpointError: `source` is no published `model`."""
    try:
        yield
    except KeyError as error:
        raise CheckpointError(f"{source}: no published {model}, for it lacks {error.args[0]}") from error
    except IndexError as error:
        raise CheckpointError(f"{source}: no published {model}, for its tables are not matrices") from error
    except ValidationError as error:
        reasons = "; ".join(f"{'.'.join(map(str, e['loc']))} {e['msg']}".strip() for e in error.errors())
        raise CheckpointError(f"{source}: no published {model}, for its sizes are impossible: {reasons}") from error


def count_layers(tensors: Mapping[str, Any], stack: str) -> int:
    """Number of layers of a stack."""
    return count_numbers(tensors, rf"{re.escape(stack)}\.layers\.(\d+)\.")


def count_numbers(tensors: Mapping[str, Any], pattern: str) -> int:
    """Number of different numbers in names that begin with `pattern`."""
    found = (re.match(pattern, name) for name in tensors)
    return len({match[1] for match in found if match})


def sizes_only(build: Callable[[Any], Model], config: Any) -> Model:
    """A model on the device `meta`, where nothing is allocated, without initial values: a file's tensors replace them.

    Normal values would import PyTorch's compiler, two seconds, to draw nothing.
    """
    torch = require("torch", EXTRA)
    from torch.overrides import TorchFunctionMode

    class NoNormalValues(TorchFunctionMode):
        def __torch_function__(
            self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            if function is torch.nn.init.normal_:
                return kwargs["tensor"]
            return (torch.empty if function is torch.randn else function)(*args, **(kwargs or {}))

    with torch.device("meta"), NoNormalValues():
        return build(config)


def load_renamed(
    source: str,
    kind: str,
    model: nn.Module,
    tensors: Mapping[str, Tensor],
    names: Iterable[tuple[str, tuple[str, ...]]],
    row_names: Collection[str],
) -> None:
    """Give `model` the published tensors, and set it to evaluation mode.

    `names` has each of them, with the tensors of ours that its rows make up; those in `row_names` are matrices of one
    row, and vectors of ours. The model is one of `sizes_only`: nothing is allocated for tensors that may not fit.
    Raises CheckpointError naming tensors that are missing, unexpected, or of another shape.
    """
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    pairs = list(names)
    expected = {}
    for name, ours in pairs:
        rows, *others = shapes[ours[0]]
        whole = (sum(shapes[target][0] for target in ours), *others)
        expected[name] = (1, rows, *others) if name in row_names else whole
    check_shapes(source, kind, tensors, expected)
    renamed: dict[str, Tensor] = {}
    for name, ours in pairs:
        tensor = tensors[name][0] if name in row_names else tensors[name]
        parts = tensor.split([shapes[target][0] for target in ours])
        renamed |= {target: part if len(ours) == 1 else part.clone() for target, part in zip(ours, parts, strict=True)}
    model.load_state_dict(renamed, assign=True)
    model.eval().requires_grad_(True)


def check_shapes(
    source: str, model: str, tensors: Mapping[str, Tensor], expected: Mapping[str, tuple[int, ...]]
) -> None:
    """Raise CheckpointError naming tensors that are missing, unexpected, or of another shape."""
    complaints = shape_complaints({name: tuple(tensor.shape) for name, tensor in tensors.items()}, expected)
    if complaints:
        rest = f"; and {len(complaints) - MAX_NAMED} more" if len(complaints) > MAX_NAMED else ""
        raise CheckpointError(f"{source}: no published {model}: {'; '.join(complaints[:MAX_NAMED])}{rest}")


def shape_complaints(shapes: Mapping[str, tuple[int, ...]], expected: Mapping[str, tuple[int, ...]]) -> list[str]:
    """List what is missing, unexpected, or of another shape than expected."""
    complaints = [f"{name} is missing" for name in sorted(expected.keys() - shapes.keys())]
    complaints += [f"{name} is not expected" for name in sorted(shapes.keys() - expected.keys())]
    complaints += [
        f"{name} is {shapes[name]} instead of {expected[name]}"
        for name in sorted(expected.keys() & shapes.keys())
        if shapes[name] != expected[name]
    ]
    return complaints
