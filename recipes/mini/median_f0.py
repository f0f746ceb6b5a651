"""Gives a codec's timbre embeddings the median F0 of their reference: a network that tells it from spectra.

Usage: python recipes/mini/median_f0.py CODEC SPEAKER FOLDER --recordings MANIFEST [--f0 FILE] [--steps 1500] [--seed 0]

CODEC: an exported codec without `timbre_f0_width`.  SPEAKER: the folder of the speaker encoder that its timbre
embeddings depend on (campplus.py).  FOLDER: the codec is written here.  MANIFEST: a corpus.  FILE: its contours
(f0_by_swift.py; default: f0.jsonl next to it).  Needs the extra train; some ten minutes of a core for 4,000 recordings.

The median takes the direction of the embedding that the decoder's projections amplify least; they no longer read it.
The pitch predictor does not either, before pitch.py has trained it. A timbre encoder of another name makes voices
again from the recordings that they keep.
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
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from marstts.codec.mini import CONFIG_FILE, MIDDLE_PITCH, MiniCodecFolder
from marstts.codec.mini_model import MedianF0, MiniCodecModel, Modulation
from marstts.errors import DataError
from marstts.io.config import read_config
from marstts.io.part_provenance import PartProvenance, command_line, commit, write_part
from marstts_lab.data.manifest import read_for_training
from marstts_lab.training.codec.export import copy_notices, export_codec, load_codec
from marstts_lab.training.codec.losses import F0Config, f0_at, read_f0
from marstts_lab.training.codec.recordings import Recording
from marstts_lab.training.codec.segments import recording_of
from marstts_lab.training.mars6.orpo import files_hash
from marstts_lab.training.speaker.export import load_frozen

WIDTH = 96
SPEEDS = (0.8, 1.25)
"""Each recording is used as it is, and once at a speed between these, with its F0 times as high."""

CROP, BATCH, LEARNING_RATE, WARMUP, EMA_DECAY = 3.0, 12, 2e-3, 50, 0.98
"""Seconds of a training crop; the rest as usual."""

MAX_SECONDS, HELD_OUT, MIN_VOICED = 12.0, 0.1, 40


@dataclass(frozen=True, eq=False)
class Labelled:
    """A recording: log-mel (M, F), and F0 in octaves about the middle pitch with voicing, (F / 2,) each."""

    mels: Tensor
    octaves: Tensor
    voiced: Tensor

    def crop(self, frames: int, rng: random.Random) -> Labelled:
        """A part of so many pairs of frames, or all of it where it is no longer."""
        first = rng.randrange(max(1, len(self.voiced) - frames + 1))
        span = slice(first, first + frames)
        return Labelled(self.mels[:, 2 * first : 2 * (first + frames)], self.octaves[span], self.voiced[span])

    @property
    def median(self) -> float:
        """The median F0 of what is voiced, in octaves."""
        return float(self.octaves[self.voiced > 0].median())


@torch.no_grad()
def label(model: MiniCodecModel, recording: Recording, f0: NDArray[np.float32]) -> Labelled:
    """A recording at its speed; `f0` is that of the recording as it is."""
    sizes = model.config
    samples = recording.read(sizes.sample_rate, MAX_SECONDS)
    samples = samples[: len(samples) // (2 * sizes.hop) * 2 * sizes.hop]
    mels = model.log_mel(torch.from_numpy(samples)[None])[0]
    middles = 2 * sizes.hop * (np.arange(mels.shape[1] // 2) + 0.5) / sizes.sample_rate
    hertz, voiced = f0_at(f0, middles * recording.speed)
    octaves = np.log2(hertz * recording.speed / MIDDLE_PITCH)
    return Labelled(mels, torch.from_numpy(octaves).float(), torch.from_numpy(voiced).float())


def corpus(model: MiniCodecModel, manifest: Path, file: Path, rng: random.Random) -> dict[str, list[Labelled]]:
    """The recordings of each speaker, each twice."""
    f0, found = read_f0(file), dict[str, list[Labelled]]()
    for utterance in read_for_training(manifest):
        contour = f0.get(utterance.id)
        if utterance.split != "train" or contour is None:
            continue
        for speed in (1.0, float(np.exp(rng.uniform(*np.log(SPEEDS))))):
            example = label(model, recording_of(manifest.parent, utterance, speed), contour)
            if int(example.voiced.sum()) >= MIN_VOICED:
                found.setdefault(utterance.speaker, []).append(example)
    return found


def loss_of(network: MedianF0, batch: list[Labelled]) -> Tensor:
    """Distances of the F0 and the voicing of frames, and of medians."""
    mels = pad_sequence([one.mels.T for one in batch], batch_first=True).transpose(1, 2)
    octaves, voiced = (
        pad_sequence(rows, batch_first=True) for rows in ([one.octaves for one in batch], [one.voiced for one in batch])
    )
    found, weights = network.of_frames(mels)
    frames = (F.smooth_l1_loss(found, octaves, reduction="none", beta=0.05) * voiced).sum() / voiced.sum()
    voice = F.binary_cross_entropy(weights.clamp(1e-5, 1 - 1e-5), voiced)
    medians = torch.tensor([one.median for one in batch])
    pooled = (found * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1e-4)
    return frames + 0.2 * voice + F.smooth_l1_loss(pooled, medians, beta=0.05)


@torch.no_grad()
def error_semitones(network: MedianF0, held_out: list[Labelled]) -> float:
    """Mean distance of the medians of whole recordings."""
    errors = [abs(float(network(one.mels[None])) - one.median) for one in held_out]
    return 12 * float(np.mean(errors))


def train(
    network: MedianF0, people: list[list[Labelled]], held_out: list[Labelled], steps: int, rng: random.Random
) -> None:
    """The network becomes the moving average of its weights during training."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, weight_decay=1e-3)
    average = torch.optim.swa_utils.AveragedModel(
        network, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(EMA_DECAY)
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / WARMUP, 1.0) * (1 - step / steps)
    )
    frames = round(CROP * 46.875)
    for step in range(steps):
        batch = [rng.choice(rng.choice(people)).crop(frames, rng) for _ in range(BATCH)]
        batch = [one for one in batch if int(one.voiced.sum()) >= MIN_VOICED // 2]
        loss = loss_of(network, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        average.update_parameters(network)
        if not step % 100:
            print(f"step {step}: loss {loss.item():.4f}, held out {error_semitones(network, held_out):.2f}", flush=True)
    network.load_state_dict(average.module.state_dict())


@torch.no_grad()
def free_a_direction(model: MiniCodecModel, network: MedianF0) -> float:
    """The direction that the decoder's projections amplify least, which nothing reads from now on; returns its gain."""
    projections = {
        name: module.project.weight for name, module in model.decoder.named_modules() if isinstance(module, Modulation)
    }
    of_sound = torch.cat([weight for name, weight in projections.items() if not name.startswith("pitch.")])
    _, gains, directions = torch.linalg.svd(of_sound.double(), full_matrices=False)
    network.direction.copy_(directions[-1].float())
    for weight in projections.values():
        weight.sub_(torch.outer(weight @ network.direction, network.direction))
    return float(gains[-1] / gains[0])


def with_network(before: MiniCodecModel) -> tuple[MiniCodecModel, MedianF0]:
    """The same codec with a new network for the median F0; DataError where it has one or can have none."""
    if before.config.timbre_f0_width or not before.config.timbre_width:
        raise DataError("expected a codec with timbre embeddings that hold no median F0")
    model = MiniCodecModel(before.config.model_copy(update={"timbre_f0_width": WIDTH}))
    model.load_state_dict(model.state_dict() | before.state_dict())
    assert model.timbre_f0 is not None
    return model.eval(), model.timbre_f0


def main() -> None:
    """Read the command line, train, and write the codec."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    for name in ("codec", "speaker", "folder"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--f0", type=Path)
    parser.add_argument("--recordings", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    rng = random.Random(options.seed)
    model, network = with_network(load_codec(options.codec))
    contours = options.f0 or options.recordings.parent / F0Config().file
    people = list(corpus(model, options.recordings, contours, rng).values())
    rng.shuffle(people)
    apart = max(1, round(HELD_OUT * len(people)))
    if len(people) - apart < 1:
        raise DataError(f"{options.recordings}: expected recordings of two people or more with their F0")
    held_out = [example for examples in people[:apart] for example in examples[:2]]
    print(f"{len(people)} people, {sum(map(len, people))} recordings at all speeds", flush=True)
    train(network, people[apart:], held_out, options.steps, rng)
    gain = free_a_direction(model, network)
    print(f"held out: {error_semitones(network, held_out):.2f} semitones; relative gain of the direction {gain:.3f}")
    name = read_config(MiniCodecFolder, options.codec / CONFIG_FILE).name
    export_codec(model, name, options.folder, load_frozen(options.speaker))
    copy_notices(options.speaker, options.folder)
    record = PartProvenance(
        command=command_line(),
        commit=commit(),
        data={"recordings": files_hash(options.recordings, contours)},
        parent=str(options.codec),
        date=date.today().isoformat(),
        note="Timbre embeddings hold the median F0 of the reference; the decoder does not read it",
    )
    write_part(record, options.folder)


if __name__ == "__main__":
    main()
