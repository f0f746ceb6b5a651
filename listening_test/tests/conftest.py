"""A listening test over recordings made once, its service, and simulated listeners."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from marstts_listening_test.config import ListeningTestConfig, read_listening_test
from marstts_listening_test.design import ListeningTrial
from marstts_listening_test.rating import RatingPlan, open_rating_plan
from marstts_listening_test.service import SessionService
from marstts_listening_test.store import AnswerStore
from simulated_listeners import TOML, Clock, Listener, opinion, write_folders


@pytest.fixture(scope="session")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of three systems, references and recordings; to be read, not changed."""
    folder = tmp_path_factory.mktemp("listening")
    write_folders(folder)
    return folder


@pytest.fixture(scope="session")
def plan(recordings: Path) -> RatingPlan:
    path = recordings / "plan.toml"
    path.write_text(TOML.replace("FOLDER", "."), encoding="utf-8")
    return open_rating_plan(read_listening_test(path))


@pytest.fixture
def config_file(recordings: Path, tmp_path: Path) -> Path:
    path = tmp_path / "test.toml"
    path.write_text(TOML.replace("FOLDER", str(recordings)), encoding="utf-8")
    return path


@pytest.fixture
def config(config_file: Path) -> ListeningTestConfig:
    return read_listening_test(config_file)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def service(plan: RatingPlan, config: ListeningTestConfig, clock: Clock) -> Iterator[SessionService]:
    store = AnswerStore(config.database, plan.digest)
    yield SessionService(plan, store, clock)
    store.close()


@pytest.fixture
def invite(service: SessionService, clock: Clock) -> Callable[..., Listener]:
    """A function that starts a session of a simulated listener, attentive by default."""

    def make(
        choose: Callable[[ListeningTrial, random.Random], int] = opinion, seed: int = 0, **options: Any
    ) -> Listener:
        listener = Listener(service, clock, choose, random.Random(seed), **options)
        listener.start()
        return listener

    return make
