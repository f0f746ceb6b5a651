"""A listening test over recordings made once, its host, and invitations to it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from simulated_listeners import TOML, Clock, Listener, opinion, write_folders

from marstts.evaluation.listening.config import ListeningTestConfig, read_listening_test
from marstts.evaluation.listening.design import Trial
from marstts.evaluation.listening.host import Host
from marstts.evaluation.listening.session import SessionSheet, open_session
from marstts.evaluation.listening.store import Store


@pytest.fixture(scope="session")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of three systems, references and recordings; to be read, not changed."""
    folder = tmp_path_factory.mktemp("listening")
    write_folders(folder)
    return folder


@pytest.fixture(scope="session")
def sheet(recordings: Path) -> SessionSheet:
    path = recordings / "sheet.toml"
    path.write_text(TOML.replace("FOLDER", "."), encoding="utf-8")
    return open_session(read_listening_test(path))


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
def host(sheet: SessionSheet, config: ListeningTestConfig, clock: Clock) -> Iterator[Host]:
    store = Store(config.database, sheet.digest)
    yield Host(sheet, store, clock)
    store.close()


@pytest.fixture
def invite(host: Host, clock: Clock) -> Callable[..., Listener]:
    """Makes a listener who has begun: honest unless told otherwise."""

    def make(choose: Callable[[Trial, random.Random], int] = opinion, seed: int = 0, **ways: Any) -> Listener:
        listener = Listener(host, clock, choose, random.Random(seed), **ways)
        listener.begin()
        return listener

    return make
