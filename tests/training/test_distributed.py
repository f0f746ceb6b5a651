"""Two processes train as one: both are updated by the mean of their gradients."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import distributed as torch_distributed
from torch import multiprocessing as torch_multiprocessing
from torch import nn

from marstts.training import distributed
from marstts.training.loop import LoopConfig, latest, run

WEIGHTS = 5


class Slope:
    """Fits w to the step's target, which differs by rank: the mean of both is what a single process would see."""

    def __init__(self) -> None:
        distributed.init_distributed()
        self.model = nn.Linear(WEIGHTS, 1, bias=False)
        nn.init.zeros_(self.model.weight)
        self.forward = distributed.wrap_ddp(self.model)
        self.modules: dict[str, nn.Module] = {"model": self.model}
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.optimizers: dict[str, torch.optim.Optimizer] = {"model": self.optimizer}

    def rows(self, step: int) -> list[int]:
        world = distributed.world_size()
        return [step * world + distributed.rank()] if world > 1 else [2 * step, 2 * step + 1]

    def train_step(self, step: int) -> dict[str, float]:
        losses = []
        for row in self.rows(step):
            x = torch.sin(torch.arange(WEIGHTS) * (row + 1.0))
            losses.append((self.forward(x) - row % 3).square().sum())
        loss = torch.stack(losses).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return {"loss": float(loss.detach())}

    def validate(self, step: int, writer: object) -> dict[str, float]:
        return {"norm": float(self.model.weight.detach().norm())}


LOOP = LoopConfig(steps=4, log_every=2, validate_every=4)


def learn(rank: int, folder: Path, port: int) -> None:
    import os

    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    task = Slope()
    run(task, LOOP, folder)
    torch.save(task.model.weight.detach(), folder / f"rank{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_two_processes_reach_the_weights_of_one_with_both_batches(tmp_path: Path) -> None:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "two").mkdir()
    torch_multiprocessing.spawn(learn, args=(tmp_path / "two", port), nprocs=2)
    alone = Slope()
    run(alone, LOOP, tmp_path / "one")
    for rank in range(2):
        trained = torch.load(tmp_path / "two" / f"rank{rank}.pt", weights_only=True)
        torch.testing.assert_close(trained, alone.model.weight.detach())
    checkpoint = latest(tmp_path / "two")
    assert checkpoint is not None and checkpoint.name == "step-00000004"


def test_one_process_is_not_wrapped() -> None:
    model = nn.Linear(3, 1)
    assert distributed.wrap_ddp(model) is model
    assert (distributed.rank(), distributed.world_size()) == (0, 1)


@pytest.mark.parametrize("choice", [True, False])
def test_one_process_decides_for_itself(choice: bool) -> None:
    assert distributed.broadcast_bool(choice) is choice


def test_an_attempt_does_not_find_the_addresses_of_one_that_died(monkeypatch: pytest.MonkeyPatch) -> None:
    server = torch_distributed.TCPStore("127.0.0.1", 0, 2, is_master=True, wait_for_workers=False)
    environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(server.port), "WORLD_SIZE": "2", "RANK": "1",
            "GROUP_WORLD_SIZE": "1", "TORCHELASTIC_USE_AGENT_STORE": "True"}  # fmt: skip
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    dead = distributed.rendezvous_store()
    dead["store"].set("address", "of the dead")
    assert (dead["rank"], dead["world_size"]) == (1, 2)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert not distributed.rendezvous_store()["store"].check(["address"])
    monkeypatch.setenv("GROUP_WORLD_SIZE", "2")  # several machines count for themselves
    assert distributed.rendezvous_store() == {}
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE")
    assert distributed.rendezvous_store() == {}
