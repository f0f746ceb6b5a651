"""Untrained bundles for measurements: the published model's size with random weights, and any model in int8.

Upstream: `models.random_bundle` (the paper's sizes), SNAC's published configuration, bundles.  Downstream: `measures`,
through `synthesis.loading.load`, as any other bundle.
Speed hardly depends on the weights, with one exception: where all tokens are about equally likely, the nucleus is a
tenth of them, which no trained model's is. Exporting a model takes a minute and some gigabytes of memory, so the result
is kept in a cache folder.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marstts import models
from marstts.bundle import BUNDLE_FILE
from marstts.codec.registry import SnacPart
from marstts.errors import MarsError, require
from marstts.io.files import atomic_folder
from marstts.io.precision import WeightFormat
from marstts.synthesis.backoff import BackoffConfig
from marstts.synthesis.synthesizer import Synthesizer
from marstts.voice import Voice

SNAC_24KHZ = {
    "sampling_rate": 24000, "encoder_dim": 48, "encoder_rates": [2, 4, 8, 8], "latent_dim": None, "decoder_dim": 1024,
    "decoder_rates": [8, 8, 4, 2], "attn_window_size": None, "codebook_size": 4096, "codebook_dim": 8,
    "vq_strides": [4, 2, 1], "noise": True, "depthwise": True,
}  # fmt: skip
"""The published codec's configuration."""

LOGIT_SCALE = 8.0
"""Factor of random logits: their entropy is then 3.8 nats and the nucleus of 0.2 two ids, instead of 8.2 nats and 430
ids. The logits of mini have 2.6 nats, and its nucleus 1.4 ids."""


def random_bundle(cache_dir: Path) -> Path:
    """The folder of a bundle of the paper's size, with SNAC's shape for a codec, made if it is missing.

    A bundle of an earlier version gets the graphs of this one.
    """
    folder = cache_dir / "random-70m"
    if (folder / BUNDLE_FILE).is_file() and models.has_graphs(folder):
        models.upgrade_bundle(folder, folder)
        return folder
    codec = SnacPart(source=str(random_snac(cache_dir / "random-snac").resolve()))
    models.random_bundle(folder, codec, LOGIT_SCALE, list(SENTENCES), "random 70M")
    return folder


def int8_bundle(source: Path, cache_dir: Path) -> Path:
    """The folder of a bundle that is `source` with int8 weights, quantized by this version."""
    folder = cache_dir / f"{source.name}-int8"
    models.upgrade_bundle(source, folder, WeightFormat.INT8)
    return folder


def random_snac(folder: Path) -> Path:
    """Write a folder that `codec.snac.SnacCodec` opens, with random weights."""
    snac = require("snac", "released")
    from safetensors.torch import save_file  # needs PyTorch

    state = snac.SNAC(**SNAC_24KHZ).state_dict()
    with atomic_folder(folder, replace=lambda old: True) as temporary:
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, temporary / "model.safetensors")
        (temporary / "config.json").write_text(json.dumps(SNAC_24KHZ, indent=2) + "\n", encoding="utf-8")
    return folder


def main() -> None:
    """Print the folder of the published size, and that of its int8 version, as JSON."""
    cache_dir = Path(sys.argv[1])
    try:
        single = random_bundle(cache_dir)
        print(json.dumps([str(single), str(int8_bundle(single, cache_dir))]))
    except MarsError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()


# Sample text of any length, and a random voice: measurements must not depend on a corpus.
# Not from the paper.

CHARACTERS_PER_SECOND = 15.0
"""Rate of ordinary reading."""

SENTENCES = (
    "The harbour was quiet when the first boat came in, and no one had expected it before noon.",
    "She put down her cup and listened.",
    "There were voices on the water, then a bell, then the long scrape of wood against stone.",
    "Most of the fishermen had gone up the hill to look at the new lighthouse, whose lamp would be lit that evening.",
    "He counted twelve crates, all of them marked with the same blue letter.",
    "No one could say what was in them or who had sent for them.",
    "By the time the mayor arrived, half of the village stood along the quay and argued about the price of herring.",
    "A dog barked twice and fell asleep again.",
    "If the weather holds, we shall sail at dawn; if it does not, we shall wait and mend the nets.",
    "Years later people would still ask each other where they had been on that particular morning.",
)


def sample_text(seconds: float) -> str:
    """Sentences that take about `seconds` to read; the last one may be cut after a word."""
    size = max(4, round(seconds * CHARACTERS_PER_SECOND))
    text = ""
    for index in range(size):
        if len(text) >= size:
            break
        text = f"{text} {SENTENCES[index % len(SENTENCES)]}".strip()
    return text if len(text) <= size else text[: size - 1].rsplit(" ", 1)[0].rstrip(" ,;.") + "."


def fixed_length_backoff() -> BackoffConfig:
    """One attempt per sentence, whose duration is its number of characters over CHARACTERS_PER_SECOND."""
    return BackoffConfig(
        attempts=1,
        max_chars_per_second=CHARACTERS_PER_SECOND,
        min_chars_per_second=CHARACTERS_PER_SECOND,
        onset_seconds=0.0,
        slack_seconds=0.0,
        max_length_factor=1.0,
    )


def random_voice(synthesizer: Synthesizer) -> Voice:
    """A shallow voice of random unit embeddings that fits the model."""
    rng = np.random.default_rng(0)
    return Voice(
        name="random",
        embeddings={role: unit_vector(rng, encoder.size) for role, encoder in synthesizer.encoders.items()},
        prefix=None,
        codec=synthesizer.codec.spec.name,
        encoders=synthesizer.encoder_names,
        source_sha256="0" * 64,
        consent="random numbers, not a person's voice",
    )


def unit_vector(rng: np.random.Generator, size: int) -> NDArray[np.float32]:
    """A random direction, (size,)."""
    vector = rng.standard_normal(size)
    return (vector / np.linalg.norm(vector)).astype(np.float32)
