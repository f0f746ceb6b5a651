"""An application around a scripted model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from marstts.server.app import create_app
from marstts.server.settings import ServeSettings
from marstts.synthesis.synthesizer import Synthesizer
from scripted import good, scripted_synthesizer


@pytest.fixture(scope="session")
def synthesizer() -> Synthesizer:
    return scripted_synthesizer(good)


@pytest.fixture
def settings(tmp_path: Path) -> ServeSettings:
    return ServeSettings(capacity=3, voices_folder=tmp_path / "voices")


@pytest.fixture
def app(synthesizer: Synthesizer, settings: ServeSettings) -> FastAPI:
    return create_app(synthesizer, settings)


@pytest.fixture
def client(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client
