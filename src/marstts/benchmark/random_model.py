"""Bundles to measure that nobody trained: the published model's size with random weights, and any model in int8.

Upstream: `mars6.config` (the paper's sizes), SNAC's published configuration, bundles.  Downstream: `measures`, through
`synthesis.loading.load`, as any other bundle.
Speed hardly asks what the numbers are, but sampling does: where all tokens are about as likely, the nucleus is a tenth
of them, which no trained model's is. Exporting a model takes a minute and some gigabytes of memory, so that it is kept
in a work folder.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from marstts.benchmark.texts import SENTENCES
from marstts.checkpoint import (
    BUNDLE_FILE,
    GRAPH_FILES,
    MODEL_FOLDER,
    SnacPart,
    ToyEncoderPart,
    export_bundle,
    rewrite_bundle,
)
from marstts.errors import MarsError, require
from marstts.mars6.config import Mars6Config
from marstts.mars6.prompt import SPECIAL_TOKENS
from marstts.mars6.quantise import Precision
from marstts.text.bpe import BPE

SNAC_24KHZ = {
    "sampling_rate": 24000, "encoder_dim": 48, "encoder_rates": [2, 4, 8, 8], "latent_dim": None, "decoder_dim": 1024,
    "decoder_rates": [8, 8, 4, 2], "attn_window_size": None, "codebook_size": 4096, "codebook_dim": 8,
    "vq_strides": [4, 2, 1], "noise": True, "depthwise": True,
}  # fmt: skip
"""The published codec's configuration."""

SHARPNESS = 8.0
"""What random logits are multiplied by: their entropy is then 3.8 nats and the nucleus of 0.2 two ids, instead of
8.2 nats and 430 ids. mini's have 2.6 nats, and its nucleus 1.4 ids."""


def random_bundle(work: Path, config: Mars6Config) -> Path:
    """The folder of a bundle of this size, with SNAC's shape for a codec, made if it is not there yet.

    One that was made by an earlier version gets the graphs of this one.
    """
    folder = work / "random-70m-sharp"
    if is_whole(folder):
        rewrite_bundle(folder, folder, Precision.FLOAT32)
        return folder
    torch = require("torch", "train")
    from marstts.mars6.model import Mars6

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Mars6(config)
        model.local_decoder.output.weight.data.mul_(SHARPNESS)
        export_bundle(
            folder, model, BPE.train(SENTENCES, config.text_vocab_size, SPECIAL_TOKENS), name="random 70M",
            codec=SnacPart(source=str(random_snac(work / "random-snac").resolve())),
            identity=ToyEncoderPart(size=config.identity_size), style=ToyEncoderPart(size=config.style_size),
        )  # fmt: skip
    return folder


def int8_bundle(source: Path, work: Path) -> Path:
    """The folder of a bundle that is `source` but for int8 weights; made anew, by the rounding of this version."""
    folder = work / f"{source.name}-int8"
    rewrite_bundle(source, folder, Precision.INT8)
    return folder


def is_whole(folder: Path) -> bool:
    """Whether a bundle with graphs lies there."""
    return (folder / BUNDLE_FILE).is_file() and all((folder / MODEL_FOLDER / name).is_file() for name in GRAPH_FILES)


def main() -> None:
    """Print the folder of the published size, and that of its int8 version, as JSON."""
    work = Path(sys.argv[1])
    try:
        single = random_bundle(work, Mars6Config())
        print(json.dumps([str(single), str(int8_bundle(single, work))]))
    except MarsError as error:
        sys.exit(str(error))


def random_snac(folder: Path) -> Path:
    """A folder that `codec.snac.SnacCodec` opens."""
    snac = require("snac", "released")
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    state = snac.SNAC(**SNAC_24KHZ).state_dict()
    save_file({name: tensor.contiguous() for name, tensor in state.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(SNAC_24KHZ, indent=2) + "\n", encoding="utf-8")
    return folder


if __name__ == "__main__":
    main()
