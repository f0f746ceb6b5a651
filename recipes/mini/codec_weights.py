"""Writes a codec whose decoder and timbre embeddings have other weights; its codes are those of before.

Usage: python recipes/mini/codec_weights.py CODEC WEIGHTS SPEAKER FOLDER

CODEC: an exported codec, whose encoder, codebooks and name are kept. WEIGHTS: safetensors with the codec's names from
`decoder.`, `timbre_encoder.` and `timbre_speaker.` on. SPEAKER: the folder of the speaker encoder that the timbre
embeddings depend on (campplus.py). FOLDER: may be CODEC itself. Needs the extra train.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from marstts.codec.mini import CONFIG_FILE, MiniCodecFolder
from marstts.codec.mini_model import MiniCodecModel
from marstts.errors import CheckpointError
from marstts.io.config import read_config
from marstts_lab.training.checkpoint import open_tensors
from marstts_lab.training.codec.export import copy_notices, export_codec, load_codec
from marstts_lab.training.speaker.export import load_frozen

PREFIXES = {"codec.": "", "mlp.": "timbre_speaker."}
"""Names of a trial's weights, and ours."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("codec", "weights", "speaker", "folder"):
        parser.add_argument(name, type=Path)
    options = parser.parse_args()
    before, speaker = load_codec(options.codec), load_frozen(options.speaker)
    name = read_config(MiniCodecFolder, options.codec / CONFIG_FILE).name
    model = MiniCodecModel(before.config.model_copy(update={"timbre_speaker_size": speaker.config.size}))
    found = {ours(name): tensor.float() for name, tensor in open_tensors(options.weights).items()}
    replaced = {name for name in model.state_dict() if name.startswith(("decoder.", "timbre_"))}
    if found.keys() != replaced:
        differ = sorted(found.keys() ^ replaced)
        raise CheckpointError(
            f"{options.weights}: expected all weights of decoder and timbre alone; {differ[:5]} differ"
        )
    model.load_state_dict(before.state_dict() | found)
    export_codec(model, name, options.folder, speaker)
    copy_notices(options.speaker, options.folder)
    for path in sorted(path for path in options.folder.rglob("*") if path.is_file()):
        print(f"{path.relative_to(options.folder)}: {path.stat().st_size / 1e6:.2f} MB")


def ours(name: str) -> str:
    """Our name of a tensor."""
    for prefix, replacement in PREFIXES.items():
        if name.startswith(prefix):
            return replacement + name.removeprefix(prefix)
    return name


if __name__ == "__main__":
    main()
