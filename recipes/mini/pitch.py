"""Trains the codec's pitch predictor: where hardly anything sounds, F0 stays as it is where something sounds.

Usage: python recipes/mini/pitch.py CODEC SPEAKER FOLDER --pairs FILE [...] [--steps 600] [--seed 0]

CODEC: an exported codec.  SPEAKER: the folder of the speaker encoder that its timbre embeddings depend on
(campplus.py).  FOLDER: the codec is written here.  FILE: pairs of a model's own takes (pairs_of_sounds.py), whose codes
and timbre embeddings are used.  Needs the extra train; four minutes of a core for 736 takes.

Predicted F0 used to fall by 12 to 20 semitones in the soft tail of a take, for trackers find such values in the noise
of recordings' tails. The teacher is the predictor itself: frames within `SOFT_BELOW_PEAK_DB` of the loudest one keep
its F0; in softer ones F0 is interpolated in octaves, and held at both ends. All other weights stay as they are.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from marstts.codec.mini import CONFIG_FILE, MiniCodecFolder
from marstts.codec.mini_model import MiniCodecModel
from marstts.errors import DataError
from marstts.io.config import read_config
from marstts.io.part_provenance import PartProvenance, command_line, commit, write_part
from marstts_lab.data.pairs import read_pairs
from marstts_lab.training.codec.export import copy_notices, export_codec, load_codec
from marstts_lab.training.mars6.orpo import files_hash
from marstts_lab.training.speaker.export import load_frozen

SOFT_BELOW_PEAK_DB = 26.0
SMOOTHED_FRAMES = 5
"""Frames over which the level is averaged."""

BATCH, LEARNING_RATE, WARMUP, EMA_DECAY = 8, 3e-4, 30, 0.98
HELD_OUT = 0.1


@dataclass(frozen=True, eq=False)
class Take:
    """What the predictor reads, (1, D, L) and (1, V), and the F0 in octaves that it shall predict, (1, F)."""

    latents: Tensor
    timbre: Tensor
    octaves: Tensor
    is_soft: Tensor


@torch.no_grad()
def as_take(model: MiniCodecModel, codes: list[Tensor], timbre: Tensor) -> Take:
    """A take with the predictor's own F0 where it sounds."""
    latents = model.quantizer.decode(codes)
    octaves = model.decoder.pitch(latents, timbre).float()
    power = model.decode(codes, timbre).reshape(1, 1, -1, model.config.hop).square().mean(dim=3)
    level = F.avg_pool1d(power, SMOOTHED_FRAMES, 1, SMOOTHED_FRAMES // 2, count_include_pad=False)[0, 0]
    is_soft = level < level.max() * 10 ** (-SOFT_BELOW_PEAK_DB / 10)
    loud = np.flatnonzero(~is_soft.numpy())
    held = np.interp(np.arange(octaves.shape[1]), loud, octaves[0].numpy()[loud])
    return Take(latents, timbre, torch.from_numpy(held).float()[None], is_soft)


def read_takes(model: MiniCodecModel, files: list[Path]) -> list[Take]:
    """Both sides of all pairs, with what comes before them; equal ones once."""
    found: dict[bytes, Take] = {}
    for pair in (pair for file in files for pair in read_pairs(file)):
        timbre = torch.from_numpy(pair.embeddings["timbre"])[None]
        for side in (pair.chosen, pair.rejected):
            levels = [np.concatenate(parts) for parts in zip(pair.prefix, side, strict=True)]
            codes = [torch.from_numpy(level.astype(np.int64))[None] for level in levels]
            key = b"".join(level.tobytes() for level in levels)
            if key not in found:
                found[key] = as_take(model, codes, timbre)
    return list(found.values())


def distance(model: MiniCodecModel, take: Take) -> Tensor:
    """Smooth L1 distance of predicted and wanted octaves, (1, F)."""
    return F.smooth_l1_loss(model.decoder.pitch(take.latents, take.timbre), take.octaves, reduction="none", beta=0.05)


@torch.no_grad()
def errors(model: MiniCodecModel, takes: list[Take]) -> tuple[float, float]:
    """Mean distance in semitones where takes sound, and where they are soft."""
    found = [12 * (model.decoder.pitch(one.latents, one.timbre) - one.octaves)[0].abs() for one in takes]
    soft = torch.cat([one.is_soft for one in takes])
    return float(torch.cat(found)[~soft].mean()), float(torch.cat(found)[soft].mean())


def train(model: MiniCodecModel, takes: list[Take], held_out: list[Take], steps: int, rng: random.Random) -> None:
    """The pitch predictor becomes the moving average of its weights during training."""
    pitch = model.decoder.pitch
    optimizer = torch.optim.AdamW(pitch.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    average = torch.optim.swa_utils.AveragedModel(
        pitch, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(EMA_DECAY)
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / WARMUP, 1.0) * (1 - step / steps)
    )
    for step in range(steps):
        loss = torch.stack([distance(model, one).mean() for one in rng.sample(takes, BATCH)]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        average.update_parameters(pitch)
        if not step % 50:
            loud, soft = errors(model, held_out)
            print(f"step {step}: loss {loss.item():.4f}, held out {loud:.2f} and {soft:.2f} semitones", flush=True)
    pitch.load_state_dict(average.module.state_dict())


def main() -> None:
    """Read the command line, train, and write the codec."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    for name in ("codec", "speaker", "folder"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--pairs", nargs="+", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    model = load_codec(options.codec).eval()
    rng = random.Random(options.seed)
    torch.manual_seed(options.seed)
    takes = read_takes(model, options.pairs)
    rng.shuffle(takes)
    first = max(1, round(HELD_OUT * len(takes)))
    if len(takes) - first < BATCH:
        raise DataError(f"{len(takes)} takes: expected {BATCH + 1} or more; give more files of pairs")
    train(model, takes[first:], takes[:first], options.steps, rng)
    loud, soft = errors(model, takes[:first])
    print(f"{len(takes)} takes; held out: {loud:.2f} semitones where they sound, {soft:.2f} where they are soft")
    export_codec(
        model,
        read_config(MiniCodecFolder, options.codec / CONFIG_FILE).name,
        options.folder,
        load_frozen(options.speaker),
    )
    copy_notices(options.speaker, options.folder)
    record = PartProvenance(
        command=command_line(),
        commit=commit(),
        data={"pairs": files_hash(*options.pairs)},
        parent=str(options.codec),
        date=date.today().isoformat(),
        note="The pitch predictor was trained by itself; all other weights are those of the parent",
    )
    write_part(record, options.folder)


if __name__ == "__main__":
    main()
