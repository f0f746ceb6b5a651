"""A fixture of the tests of the tab."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def monkeypatch_session() -> Iterator[pytest.MonkeyPatch]:
    """A monkeypatch that lasts."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch
