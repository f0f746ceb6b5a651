"""The npm packages, for tests that run the tab's parts under Node."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from marstts.errors import ConfigError
from marstts.web.packages import find_packages


@pytest.fixture(scope="session")
def node_modules() -> Path:
    """The folder with the npm packages that a site needs; skips where there is none, or no Node.js."""
    if shutil.which("node") is None:
        pytest.skip("needs Node.js")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(Path(__file__).parents[2])
        try:
            return find_packages()
        except ConfigError as error:
            pytest.skip(f"`make npm` installs them: {error}")
