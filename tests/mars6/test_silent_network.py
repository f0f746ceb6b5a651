"""Networks that take connections and never answer: one attempt, ended in time by one sentence."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from marstts.bundle import PACKAGED_MODELS
from marstts.errors import CheckpointError
from marstts.mars6 import published
from marstts.weights import pretrained

pytestmark = [pytest.mark.slow, pytest.mark.end_to_end]

IMPATIENT = """
from marstts.cli.main import app
from marstts.weights import pretrained
pretrained.NETWORK_SECONDS = 0.5
app()
"""


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept: list[object] = []

        def accept() -> None:
            try:
                while True:
                    kept.append(server.accept())
            except OSError:
                pass

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> float:
    monkeypatch.setattr(pretrained, "NETWORK_SECONDS", 0.5)
    return 0.5


@pytest.mark.slow
def test_an_answer_byte_by_byte_and_a_name_that_is_looked_up_for_ever_are_ended_in_time(limit: float):
    started = time.monotonic()
    problem = pretrained.problem_in_time("the hub", lambda: time.sleep(30))
    assert str(problem) == "the hub did not answer within 0.5 s" and time.monotonic() < started + 5
    assert pretrained.problem_in_time("the hub", lambda: None) is None


@pytest.mark.slow
def test_the_published_checkpoint_is_asked_for_in_limited_time(
    limit: float, silent_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for address in (f"http://127.0.0.1:{silent_port}/", "http://name.invalid/"):
        monkeypatch.setattr(published, "RELEASE", address)
        started = time.monotonic()
        with pytest.raises(CheckpointError, match=r"mars6-turbo: the download of .* failed .*connect to the network"):
            published.download("model.pt", tmp_path)
        assert time.monotonic() < started + 5 and not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_command_with_published_parts_ends_soon_on_a_silent_network(
    silent_port: int, tmp_path: Path, reference_file: Path
):
    """The whole command, with the true client of the hub."""
    pytest.importorskip("huggingface_hub")
    bundle = tmp_path / "published"
    shutil.copytree(PACKAGED_MODELS / "mini", bundle)
    text = (bundle / "bundle.json").read_text(encoding="utf-8")
    info = json.loads(text)
    info["codec"] = {"kind": "snac", "source": "nobody/nothing"}
    (bundle / "bundle.json").write_text(json.dumps(info), encoding="utf-8")
    environment = {**os.environ, "HF_ENDPOINT": f"http://127.0.0.1:{silent_port}", "HF_HOME": str(tmp_path / "hub")}
    words = ["speak", "Hi.", "--model", bundle, "--reference", reference_file, "--output", tmp_path / "out.wav"]
    done = subprocess.run(
        [sys.executable, "-c", IMPATIENT, *map(str, words)], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2 and "connect to the network" in done.stderr and not (tmp_path / "out.wav").exists()
