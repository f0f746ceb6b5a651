"""Bundles of the published model's size with random weights: speed does not ask what the numbers are.

Upstream: `mars6.config` (the paper's sizes), SNAC's published configuration.  Downstream: `measures`, through
`synthesis.loading.load`, as any other bundle.
Making one takes a minute and some gigabytes of memory, so it is kept in a work folder and made only once.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from marstts.benchmark.texts import SENTENCES
from marstts.checkpoint import BUNDLE_FILE, SnacPart, ToyEncoderPart, export_bundle
from marstts.errors import MarsError, require
from marstts.mars6.config import Mars6Config
from marstts.mars6.prompt import SPECIAL_TOKENS
from marstts.text.bpe import BPE

SNAC_24KHZ = {
    "sampling_rate": 24000, "encoder_dim": 48, "encoder_rates": [2, 4, 8, 8], "latent_dim": None, "decoder_dim": 1024,
    "decoder_rates": [8, 8, 4, 2], "attn_window_size": None, "codebook_size": 4096, "codebook_dim": 8,
    "vq_strides": [4, 2, 1], "noise": True, "depthwise": True,
}  # fmt: skip
"""The published codec's configuration."""


def random_bundle(work: Path) -> Path:
    """The folder of a bundle of the paper's size, with SNAC's shape for a codec, made if it is not there yet."""
    folder = work / "random-70m"
    if (folder / BUNDLE_FILE).is_file():
        return folder
    torch = require("torch", "train")
    from marstts.mars6.model import Mars6

    config = Mars6Config()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        export_bundle(
            folder, Mars6(config), BPE.train(SENTENCES, config.text_vocab_size, SPECIAL_TOKENS), name="random 70M",
            codec=SnacPart(source=str(random_snac(work / "random-snac"))),
            identity=ToyEncoderPart(size=config.identity_size), style=ToyEncoderPart(size=config.style_size),
        )  # fmt: skip
    return folder


def main() -> None:
    """Print the folders of all bundles as JSON."""
    try:
        print(json.dumps([str(random_bundle(Path(sys.argv[1])))]))
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
