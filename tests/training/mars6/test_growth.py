"""Model growth: a larger MARS6 that begins with the function of a smaller one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from toy_training import CORPUS, config, task

from marstts.errors import CheckpointError
from marstts.mars6.model import Mars6
from marstts.training.checkpoint import save
from marstts.training.mars6.growth import grow_state
from marstts.training.mars6.run_folder import init_from, open_run

LARGER = {
    "layers": {"encoder_layers": 2, "global_layers": 4, "local_layers": 2},
    "feed-forward units": {"feed_forward_factor": 5},
    "both": {"encoder_layers": 3, "global_layers": 3, "local_layers": 3, "feed_forward_factor": 3},
}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A run with one checkpoint."""
    folder, settings = tmp_path_factory.mktemp("base"), config()
    open_run(folder, settings, CORPUS)
    learner = task(settings)
    for step in range(3):
        learner.train_step(step)
    save(learner, folder, 1)
    return SimpleNamespace(folder=folder, model=learner.ema.eval())


@pytest.mark.parametrize("change", LARGER.values(), ids=LARGER)
def test_a_larger_model_begins_with_the_validation_losses_of_the_smaller_one(base, change):
    grown = task(config(model=change))
    assert sum(p.numel() for p in grown.ema.parameters()) > sum(p.numel() for p in base.model.parameters())
    untrained = grown.validate(0, None)["loss"]
    small = task(config())
    for each in (grown, small):
        init_from(each, base.folder)
    expected = small.validate(0, None)["loss"]
    assert abs(untrained - expected) > 1e-3
    assert grown.validate(0, None)["loss"] == pytest.approx(expected, abs=1e-5)
    for name, value in grown.modules["model"].state_dict().items():
        assert torch.equal(value, grown.modules["ema"].state_dict()[name])


def test_new_layers_and_units_learn(base):
    grown = task(config(model=LARGER["both"]))
    init_from(grown, base.folder)
    before = {name: value.clone() for name, value in grown.modules["model"].state_dict().items()}
    for step in range(3):
        grown.train_step(step)
    after = grown.modules["model"].state_dict()
    new = ["encoder.layers.2.feed_forward.inner.weight", "global_decoder.layers.2.attention.output.weight"]
    assert all((after[name] - before[name]).abs().max() > 0 for name in new)
    first_new = base.model.state_dict()["encoder.layers.0.feed_forward.inner.weight"].shape[0]
    units = after["encoder.layers.0.feed_forward.inner.weight"][first_new:]
    assert len({tuple(unit.tolist()) for unit in units}) == len(units)  # no two units learn the same


def test_a_model_is_not_made_smaller_or_of_another_width(base):
    for change in (
        {"feed_forward_factor": 1},
        {"encoder_layers": 3, "heads": 4, "feed_forward_factor": 1},
        {"width": 64, "encoder_layers": 3},
    ):
        with pytest.raises(CheckpointError, match="do not fit the configuration"):
            init_from(task(config(model=change)), base.folder)


def test_weights_of_the_same_sizes_stay_as_they_are(base):
    state = base.model.state_dict()
    grown = grow_state(state, Mars6(config().model).state_dict())
    assert set(grown) == set(state) and all(torch.equal(grown[name], state[name]) for name in state)
