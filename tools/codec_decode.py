"""Time to decode 10 s on one thread: the mini codec, and SNAC 24 kHz with random weights.

Usage: python tools/codec_decode.py CODEC_FOLDER.  Prints a table and JSON; needs marstts[released].
Times are processor seconds, the fastest of several runs, so that other load has little influence.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from snac import SNAC

from marstts.benchmark.random_model import SNAC_24KHZ
from marstts.codec.mini import MiniCodec

SECONDS, RUNS = 10.0, 5


def fastest(work: Callable[[], object]) -> float:
    """Processor seconds of the fastest of several runs, after one to warm up."""
    work()
    times = []
    for _ in range(RUNS):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    """Print a table, and the figures as JSON."""
    torch.set_num_threads(1)
    codec = MiniCodec(Path(sys.argv[1]))
    patches = round(SECONDS * codec.spec.patch_rate)
    rng = np.random.default_rng(0)
    codes = [rng.integers(codec.spec.codebook_size, size=patches * n) for n in codec.spec.patch_layout]
    snac = SNAC(**SNAC_24KHZ).eval()
    snac_codes = [torch.from_numpy(level)[None] for level in codes]
    with torch.inference_mode():
        figures = {
            "mini_seconds": fastest(lambda: codec.decode(codes)),
            "snac_pytorch_seconds": fastest(lambda: snac.decode(snac_codes)),
        }
    figures["ratio"] = figures["snac_pytorch_seconds"] / figures["mini_seconds"]
    print(f"| decoding {patches / codec.spec.patch_rate:.1f} s, one thread | processor seconds |\n|---|---|")
    print(f"| {codec.spec.name}, ONNX Runtime | {figures['mini_seconds']:.3f} |")
    print(f"| SNAC 24 kHz, PyTorch float32 | {figures['snac_pytorch_seconds']:.3f} |")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
