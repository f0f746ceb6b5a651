"""Adds what a training changed to the weights of another training of the same initial model (task arithmetic).

Usage: python recipes/mini/add_difference.py MODEL BEFORE AFTER OUTPUT [--scale 1.0]

MODEL, BEFORE, AFTER: folders of MARS6 bundles. MODEL and AFTER were trained from BEFORE; MODEL may read more tokens
than both.  OUTPUT: the bundle of MODEL with its weights plus `--scale` times the difference of AFTER and BEFORE.
G. Ilharco et al., "Editing models with task arithmetic" (arXiv:2212.04089).
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from marstts import models
from marstts.bundle import read_info, write_info
from marstts.errors import ConfigError
from marstts.io.precision import WeightFormat
from marstts.mars6 import bundled


def with_difference(
    model: Mapping[str, Tensor], before: Mapping[str, Tensor], after: Mapping[str, Tensor], scale: float
) -> dict[str, Tensor]:
    """model + scale * (after - before); rows that the model has beyond theirs stay as they are.

    ConfigError where they are no weights of one architecture.
    """
    found = {}
    for name, tensor in model.items():
        one, other = before.get(name), after.get(name)
        if one is None or other is None or one.shape != other.shape or one.shape[1:] != tensor.shape[1:]:
            raise ConfigError(
                f"expected the tensor {name} of one shape in all models; train all from one initial model"
            )
        added = tensor.clone()
        added[: len(one)] += scale * (other - one)[: len(tensor)]
        found[name] = added
    return found


def main() -> None:
    """Read the command line and write the bundle."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "before", "after", "output"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--scale", type=float, default=1.0)
    found = parser.parse_args()
    model = models.load_for_training(found.model)
    before, after = (models.load_for_training(each).state_dict() for each in (found.before, found.after))
    model.load_state_dict(with_difference(model.state_dict(), before, after, found.scale))
    shutil.copytree(found.model, found.output)
    bundled.write_model(model, found.output / "mars6", WeightFormat.FLOAT32)
    write_info(read_info(found.output), found.output)


if __name__ == "__main__":
    main()
