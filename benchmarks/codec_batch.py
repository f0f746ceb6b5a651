"""An upper bound of what decoding many streams in one batch could save: cost of a patch in short and in long windows.

    python benchmarks/codec_batch.py --output docs/results/server/codec_batch.json

The codec's graphs have a batch of one. A window that is 24 times as long needs as many operations as a batch of 24
windows and reads the weights once, so its cost a patch stands for that of a batch. Times are processor time of one
thread, least of several runs, in milliseconds a patch of audio; codes are random.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from serve_bars import describe

from marstts.codec.base import start_decoding
from marstts.codec.mini import MiniCodec
from marstts.synthesis.loading import load

STREAMS, PATCHES, RUNS = 24, 72, 6
GRAPHS = ("hidden_states", "source_filter", "pitch")


def cost_of_graph(runs: dict[str, Callable[[int], object]], name: str, window: int) -> list[float]:
    """Milliseconds of a graph over `window` of its inputs: by itself, and within a window STREAMS times as long."""
    costs = []
    for factor in (1, STREAMS):
        times = []
        for _ in range(RUNS):
            started = time.thread_time()
            runs[name](factor * window)
            times.append(time.thread_time() - started)
        costs.append(1000 * min(times) / factor)
    return costs


def windows_of(codec: MiniCodec, codes: list[NDArray[np.int64]], chunk: int) -> tuple[float, dict[str, list[int]]]:
    """Milliseconds to decode PATCHES patches in chunks, and the windows of the graphs' runs."""
    windows: dict[str, list[int]] = defaultdict(list)

    def watched(name: str) -> Callable[..., Any]:
        original = getattr(codec, name)
        return lambda values, *rest: windows[name].append(len(values)) or original(values, *rest)

    for name in GRAPHS:
        setattr(codec, name, watched(name))
    times = []
    for _ in range(RUNS):
        windows.clear()
        decoding, started = start_decoding(codec), time.thread_time()
        for stop in range(chunk, PATCHES + 1, chunk):
            known = stop + codec.lookahead_patches
            decoding.decode_until([level[: known * len(level) // len(codes[0])] for level in codes], stop)
        times.append(time.thread_time() - started)
    for name in GRAPHS:
        delattr(codec, name)
    return 1000 * min(times), windows


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--chunks", type=int, nargs="+", default=[3, 6, 12, 24])
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    synthesizer = load(options.model)
    codec = synthesizer.codec_of(synthesizer.open_voice("ada"))
    assert isinstance(codec, MiniCodec), "windows of the mini codec"
    rng = np.random.default_rng(0)
    codes = [rng.integers(codec.spec.codebook_size, size=100 * n) for n in codec.spec.patch_layout]
    patches = rng.integers(codec.spec.codebook_size, size=(1500, sum(codec.spec.patch_layout)))
    hidden = rng.normal(size=(6000, codec.config.decoder_width)).astype(np.float32)
    runs: dict[str, Callable[[int], object]] = {
        "hidden_states": lambda count: codec.hidden_states(patches[:count]),
        "source_filter": lambda count: codec.source_filter(hidden[:count], slice(None)),
        "pitch": lambda count: codec.pitch(patches[:count]),
    }
    rows = []
    for chunk in options.chunks:
        total, windows = windows_of(codec, codes, chunk)
        saved = 0.0
        for name, sizes in windows.items():
            alone, together = cost_of_graph(runs, name, round(float(np.mean(sizes))))
            saved += len(sizes) * (alone - together)
        rows.append({"chunk": chunk, "now": round(total / PATCHES, 3), "saved_at_most": round(saved / PATCHES, 3)})
        print(rows[-1], flush=True)
    report = describe(sys.argv) | {"streams": STREAMS, "milliseconds_a_patch": rows}
    options.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
