"""SNAC 24 kHz with random weights, decoded by the package and by its graphs: difference and speed.

Usage: python tools/snac_graphs.py [SECONDS].  Prints a table and JSON; needs marstts[released].
Processor seconds are of one thread, so that other load has little influence. Wall seconds are of up to two threads, and
need an idle machine. The fastest of several runs counts, after one to warm up.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from snac import SNAC

from marstts.benchmark.random_model import SNAC_24KHZ
from marstts.codec.snac import SnacCodec
from marstts.codec.snac_graphs import export_snac
from marstts.codec.snac_onnx import SnacOnnx

RUNS = 3
FIRST_PATCHES = 2
"""Patches in the first chunk of a stream."""


def fastest(work: Callable[[], object], clock: Callable[[], float]) -> float:
    """Seconds of the fastest of several runs, after one to warm up."""
    work()
    times = []
    for _ in range(RUNS):
        start = clock()
        work()
        times.append(clock() - start)
    return min(times)


def random_snac(folder: Path) -> Path:
    """Write a model as on the hub, with different factors of its snakes, as in trained ones."""
    torch.manual_seed(0)
    model = SNAC(**SNAC_24KHZ)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("alpha"):
                parameter.copy_(0.1 + 2 * torch.rand_like(parameter))
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(SNAC_24KHZ))
    save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, folder / "model.safetensors")
    return folder


def main() -> None:
    """Print a table, and the figures as JSON."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seconds", type=float, nargs="?", default=5.0, help="length of the decoded audio")
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as temporary:
        source, graphs = random_snac(Path(temporary) / "source"), Path(temporary) / "graphs"
        export_snac(source, graphs)
        package, one, more = SnacCodec(source), SnacOnnx(graphs, threads=1), SnacOnnx(graphs)
    patches = round(seconds * package.spec.patch_rate)
    rng = np.random.default_rng(0)
    codes = [rng.integers(package.spec.codebook_size, size=patches * n) for n in package.spec.patch_layout]
    expected = package.decode(codes).samples
    error = one.decode(codes).samples - expected
    audio = patches / package.spec.patch_rate
    figures = {
        "seconds": audio,
        "snr_db": float(10 * np.log10(np.square(expected).sum() / np.square(error).sum())),
        "package_rtf": fastest(lambda: package.decode(codes), time.process_time) / audio,
        "graphs_rtf": fastest(lambda: one.decode(codes), time.process_time) / audio,
        "graphs_wall_rtf": fastest(lambda: more.decode(codes), time.perf_counter) / audio,
        "first_chunk_seconds": fastest(lambda: one.decode_window(codes, 0, FIRST_PATCHES), time.process_time),
    }
    print("| decoding SNAC 24 kHz, random weights | RTF |\n|---|---|")
    print(f"| package, PyTorch, processor time | {figures['package_rtf']:.3f} |")
    print(f"| graphs, ONNX Runtime, processor time | {figures['graphs_rtf']:.3f} |")
    print(f"| graphs, ONNX Runtime, wall time, up to two threads | {figures['graphs_wall_rtf']:.3f} |")
    print(f"Signal over difference: {figures['snr_db']:.1f} dB. First {FIRST_PATCHES} patches of a stream: ", end="")
    print(f"{1000 * figures['first_chunk_seconds']:.0f} ms of one thread.")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
