"""Fixtures of several tests; makes `scripted.py` importable from every test."""

from __future__ import annotations

import functools
import gc
import os
import re
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from filelock import FileLock

from marstts.audio import Waveform, read, resample, write

if TYPE_CHECKING:
    from marstts.synthesis.synthesizer import Synthesizer

HERE = Path(__file__).parent
RECORDINGS = HERE / "audio"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file whose tests are all slow, or all end-to-end, where none of these is asked for."""
    excluded = {"not slow": "slow", "not end_to_end": "end_to_end"}.get(config.option.markexpr)
    if excluded is None or collection_path.suffix != ".py":
        return None
    marks = re.search(r"(?ms)^pytestmark = (\[.*?\]|[^\n]*)", collection_path.read_text(encoding="utf-8"))
    return True if marks and re.search(rf"\bpytest\.mark\.{excluded}\b", marks[1]) else None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--perturb N`; see `perturbed`."""
    parser.addoption("--perturb", type=int, metavar="N", help="run tests that speak with N perturbed models only")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests that speak with the packaged model, and as if on another processor."""
    if "packaged" in metafunc.fixturenames:
        count = metafunc.config.getoption("perturb")
        numbers = [0, 1] if count is None else range(1, count + 1)
        ids = [f"perturbed {number}" if number else "as packaged" for number in numbers]
        metafunc.parametrize("packaged", numbers, indirect=True, ids=ids, scope="module")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark tests that speak with the packaged model."""
    if "packaged" in getattr(item, "fixturenames", ()):
        item.add_marker("speaks")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Import all tests without looking for garbage, of which imports leave little; it takes a seventh of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that are slow as a whole, so that no process ends long after the others.

    Neighbors run in one process: those that need transformers, or export graphs, load these large packages once.
    """

    def place(item: pytest.Item) -> tuple[bool, bool]:
        is_fast = item.parent is None or item.parent.get_closest_marker("slow") is None
        return item.path.parent.name not in ("codec", "speaker"), is_fast

    items.sort(key=place)


WrittenOnce = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def written_once(tmp_path_factory: pytest.TempPathFactory) -> WrittenOnce:
    """A folder by its name, written when it is first asked for; to be read, not changed."""
    is_shared = "PYTEST_XDIST_WORKER" in os.environ  # the processes of a parallel run write it once
    parent = tmp_path_factory.getbasetemp().parent if is_shared else tmp_path_factory.mktemp("once")

    def write_once(name: str, write: Callable[[Path], object]) -> Path:
        with FileLock(parent / f"{name}.lock"):
            if not (parent / name).exists():
                write(parent / name)
        return parent / name

    return write_once


@pytest.fixture(autouse=True)
def own_voices_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep tests away from the voices of the user who runs them: the folder of own voices is a new one in each test."""
    monkeypatch.setenv("MARSTTS_VOICES", str(tmp_path_factory.getbasetemp() / f"own-voices-{uuid.uuid4().hex}"))


@pytest.fixture(scope="session", autouse=True)
def compressed_once() -> Iterator[None]:
    """Compress equal references of voices once: hundreds of tests clone the same one, and MP3 takes most of that."""
    from marstts.synthesis import clone

    compress, known = clone.compress, dict[tuple[int, bytes], bytes]()

    def compress_once(waveform: Waveform) -> bytes:
        key = (waveform.sample_rate, waveform.samples.tobytes())
        if key not in known:
            known[key] = compress(waveform)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clone, "compress", compress_once)
        yield


@pytest.fixture(scope="session")
def reference() -> Waveform:
    """Three seconds of a public-domain reader at 24 kHz, between edges of 0.2 s of silence; to be read, not changed."""
    rate = 24_000
    speech = resample(read(RECORDINGS / "sense-0930.flac"), rate).samples[rate // 4 :][: int(2.6 * rate)]
    speech, edge = speech - speech.mean(), np.zeros(rate // 5, np.float32)
    samples = np.concatenate([edge, speech, edge])
    samples.setflags(write=False)
    return Waveform(samples, rate)


@pytest.fixture
def reference_file(reference: Waveform, tmp_path: Path) -> Path:
    path = tmp_path / "anna.wav"
    write(reference, path)
    return path


@pytest.fixture(scope="session")
def operators_read_once() -> Iterator[None]:
    """Spare traced graphs a second each, for which PyTorch reads all of its operators again."""
    from torch.onnx._internal.exporter._registration import ONNXRegistry  # slow to import

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ONNXRegistry, "from_torchlib", staticmethod(functools.cache(ONNXRegistry.from_torchlib)))
        yield


@pytest.fixture(scope="session")
def toy_bundle(written_once: WrittenOnce) -> Path:
    """The folder of an exported model with random weights, a toy codec and toy encoders; to be read, not changed."""
    from toy_mars6 import write_toy_bundle  # needs PyTorch

    return written_once("toy", write_toy_bundle)


@pytest.fixture(scope="module")
def packaged(request: pytest.FixtureRequest, written_once: WrittenOnce) -> Iterator[int]:
    """Makes `mini` the packaged model (0) or a perturbed copy, by its number; for every test that speaks with it."""
    from marstts import bundle
    from perturbed import write_perturbed

    if request.param == 0:
        yield 0
        return
    source = bundle.PACKAGED_MODELS / "mini"
    folder = written_once(
        f"perturbed-{request.param}", lambda path: write_perturbed(source, path / "mini", request.param)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundle, "PACKAGED_MODELS", folder)
        yield request.param


@pytest.fixture(scope="module")
def mini(packaged: int) -> Synthesizer:
    """The packaged model; what a test says of its speech must hold for any take."""
    from marstts.synthesis.loading import load

    return load("mini")


@pytest.fixture(scope="session")
def surpassed() -> Waveform:
    """1.8 s, "has never been surpassed"."""
    return read(RECORDINGS / "LJ001-0008.flac")


@pytest.fixture(scope="session")
def amiable() -> Waveform:
    """3.3 s, "he might even have been made amiable himself"; another speaker."""
    return read(RECORDINGS / "sense-0930.flac")
