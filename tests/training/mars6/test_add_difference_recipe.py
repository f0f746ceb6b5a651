"""The recipe that adds what one training changed to the weights of another."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

from marstts.errors import ConfigError

RECIPE = Path(__file__).resolve().parents[3] / "recipes" / "mini" / "add_difference.py"


@pytest.fixture
def recipe() -> ModuleType:
    spec = importlib.util.spec_from_file_location("add_difference_recipe", RECIPE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def weights(*shapes: tuple[int, ...], seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {str(number): torch.randn(shape, generator=generator) for number, shape in enumerate(shapes)}


def test_the_difference_of_two_models_is_added_and_rows_beyond_theirs_stay(recipe: ModuleType) -> None:
    shapes = ((4, 3), (5,))
    model = weights((6, 3), (5,), seed=0)
    before, after = weights(*shapes, seed=1), weights(*shapes, seed=2)
    found = recipe.with_difference(model, before, after, 0.5)
    assert torch.equal(found["0"][4:], model["0"][4:])
    torch.testing.assert_close(found["0"][:4], model["0"][:4] + 0.5 * (after["0"] - before["0"]))
    torch.testing.assert_close(found["1"], model["1"] + 0.5 * (after["1"] - before["1"]))
    assert all(torch.equal(recipe.with_difference(model, before, before, 1.0)[name], model[name]) for name in model)


@pytest.mark.parametrize("other", [((4, 2), (5,)), ((4, 3),)])
def test_models_of_another_architecture_are_refused(recipe: ModuleType, other: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(ConfigError, match="one shape"):
        recipe.with_difference(weights((4, 3), (5,), seed=0), weights(*other, seed=1), weights(*other, seed=2), 1.0)
