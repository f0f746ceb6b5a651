"""One process without a group, and the store by which the attempts of several find one another; see `test_ranks`."""

from __future__ import annotations

import pytest
from torch import distributed as torch_distributed
from torch import nn

from marstts_lab.training import distributed


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
