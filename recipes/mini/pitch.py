"""Trains the codec's pitch predictor: contour of the codes, median of the voice, and held in soft sound.

Usage: python recipes/mini/pitch.py CODEC SPEAKER FOLDER (--pairs FILE [...] | --takes TAKES [...])
       [--recordings MANIFEST [--f0 F0]] [--teacher CODEC] [--steps 600] [--seed 0]

CODEC: an exported codec.  SPEAKER: the folder of the speaker encoder that its timbre embeddings depend on
(campplus.py).  FOLDER: the codec is written here.  FILE: pairs of a model's own takes (pairs_of_sounds.py).  TAKES: a
folder of `marstts preference mine`.  MANIFEST: a corpus in whose voices takes are spoken, too.  F0: its contours
(f0_by_swift.py; default: f0.jsonl next to it).  TEACHER: the codec whose F0 takes have, if not CODEC itself.  Needs the
extra train; minutes of a core.

Predicted F0 used to fall by 12 to 20 semitones in the soft tail of a take, for trackers find such values in the noise
of recordings' tails. The teacher is a predictor's own F0: frames within `SOFT_BELOW_PEAK_DB` of the loudest one keep
it; in softer ones F0 is interpolated in octaves, and held at both ends. Codes of takes also lie 2.2 semitones, on
average, above or below the person whose voice they should have: with MANIFEST the contour of a take is moved to the
median F0 of a recording whose timbre embedding the predictor reads. All other weights stay as they are.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from dataclasses import dataclass
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from marstts.codec.mini import CONFIG_FILE, MIDDLE_PITCH, MiniCodecFolder
from marstts.codec.mini_model import MiniCodecModel
from marstts.errors import DataError
from marstts.io.config import read_config
from marstts.io.part_provenance import PartProvenance, command_line, commit, write_part
from marstts_lab.data.held_out_people import refuse_test_people
from marstts_lab.data.manifest import Utterance, read_for_training
from marstts_lab.data.mined_takes import TAKES_PATTERN, read_takes
from marstts_lab.data.pairs import read_pairs
from marstts_lab.training.codec.export import copy_notices, export_codec, load_codec
from marstts_lab.training.codec.losses import F0Config, SpeakerEmbedding, read_f0
from marstts_lab.training.codec.recordings import MAX_SECONDS, Recording
from marstts_lab.training.codec.segments import recording_of
from marstts_lab.training.mars6.orpo import files_hash
from marstts_lab.training.speaker.export import load_frozen

SOFT_BELOW_PEAK_DB = 26.0
SMOOTHED_FRAMES = 5
"""Frames over which the level is averaged."""

BATCH, LEARNING_RATE, WARMUP, EMA_DECAY = 8, 3e-4, 30, 0.98
HELD_OUT = 0.1

MIN_VOICED_VALUES = 60
"""Of a recording whose median F0 is learned, 10 ms each."""


@dataclass(frozen=True, eq=False)
class Voice:
    """A timbre embedding (1, V), and the median F0 in octaves of its recording."""

    timbre: Tensor
    median: float


@dataclass(frozen=True, eq=False)
class Take:
    """What the predictor reads, (1, D, L), its F0 in octaves (1, F), where it is soft (F,), and the voice it has."""

    latents: Tensor
    octaves: Tensor
    is_soft: Tensor
    voice: Voice

    def wanted(self, voice: Voice) -> Tensor:
        """The contour of the take about the median of a voice, (1, F) in octaves."""
        return self.octaves + (voice.median - self.voice.median)


@torch.no_grad()
def as_take(model: MiniCodecModel, teacher: MiniCodecModel, codes: list[Tensor], own: Tensor, former: Tensor) -> Take:
    """A take with the teacher's F0 where it sounds; `own` and `former`: its timbre embeddings of both codecs."""
    octaves = teacher.decoder.pitch(teacher.quantizer.decode(codes), former).float()
    power = teacher.decode(codes, former).reshape(1, 1, -1, model.config.hop).square().mean(dim=3)
    level = F.avg_pool1d(power, SMOOTHED_FRAMES, 1, SMOOTHED_FRAMES // 2, count_include_pad=False)[0, 0]
    is_soft = level < level.max() * 10 ** (-SOFT_BELOW_PEAK_DB / 10)
    loud = np.flatnonzero(~is_soft.numpy())
    held = np.interp(np.arange(octaves.shape[1]), loud, octaves[0].numpy()[loud])
    voice = Voice(own, float(np.median(held[loud])))
    return Take(model.quantizer.decode(codes), torch.from_numpy(held).float()[None], is_soft, voice)


class Reader:
    """Takes and voices for a codec and its teacher."""

    def __init__(self, model: MiniCodecModel, teacher: MiniCodecModel, speaker: Path) -> None:
        self.model, self.teacher = model, teacher
        self.encoder = SpeakerEmbedding(str(speaker), model.config.sample_rate).eval()

    @torch.no_grad()
    def timbres(self, recording: Recording) -> tuple[Tensor, Tensor]:
        """The timbre embeddings (1, V) of a recording, by the codec and by its teacher."""
        samples = recording.read(self.model.config.sample_rate, MAX_SECONDS)
        whole = torch.from_numpy(samples[: len(samples) // self.model.config.hop * self.model.config.hop])[None]
        embedding = self.encoder.embed(whole)
        own = self.model.timbre_of(whole, embedding)
        former = own if self.teacher is self.model else self.teacher.timbre_of(whole, embedding)
        assert own is not None and former is not None
        return own, former

    def pairs(self, files: list[Path]) -> list[Take]:
        """Both sides of all pairs, with what comes before them; equal ones once."""
        found: dict[bytes, Take] = {}
        for pair in (pair for file in files for pair in read_pairs(file)):
            timbre = torch.from_numpy(pair.embeddings["timbre"])[None]
            for side in (pair.chosen, pair.rejected):
                levels = [np.concatenate(parts) for parts in zip(pair.prefix, side, strict=True)]
                key = b"".join(level.tobytes() for level in levels)
                if key not in found:
                    found[key] = as_take(self.model, self.teacher, as_codes(levels), timbre, timbre)
        return list(found.values())

    def takes(self, folders: list[Path], most: int) -> list[Take]:
        """Up to `most` mined takes."""
        mined = (take for folder in folders for path in sorted(folder.glob(TAKES_PATTERN)) for take in read_takes(path))
        found = []
        for take in islice((take for take in mined if take.forward is not None), most):
            assert take.forward is not None
            refuse_test_people([(take.plan.speaker, (str(take.plan.audio),))], ", ".join(map(str, folders)))
            timbres = self.timbres(Recording(take.plan.audio))
            found.append(as_take(self.model, self.teacher, as_codes(list(take.forward.codes)), *timbres))
        return found

    def voices(self, manifest: Path, file: Path, rng: random.Random, most: int) -> dict[str, list[Voice]]:
        """The voices of up to `most` recordings of a corpus by speaker, people in turn."""
        f0 = read_f0(file)
        utterances = [u for u in read_for_training(manifest) if u.split == "train" and is_voiced(f0.get(u.id))]
        rng.shuffle(utterances)
        found: dict[str, list[Voice]] = {}
        for utterance in in_turn(utterances)[:most]:
            own, _ = self.timbres(recording_of(manifest.parent, utterance))
            hertz = f0[utterance.id]
            median = float(np.log2(np.median(hertz[hertz > 0]) / MIDDLE_PITCH))
            found.setdefault(utterance.speaker, []).append(Voice(own, median))
        return found


def in_turn(utterances: list[Utterance]) -> list[Utterance]:
    """First one of each speaker, then a second one, and so on."""
    counts: Counter[str] = Counter()
    turns = []
    for utterance in utterances:
        counts[utterance.speaker] += 1
        turns.append(counts[utterance.speaker])
    return [utterances[index] for index in sorted(range(len(utterances)), key=turns.__getitem__)]


def is_voiced(f0: NDArray[np.float32] | None) -> bool:
    """Whether a recording has enough F0 for a median."""
    return f0 is not None and int((f0 > 0).sum()) >= MIN_VOICED_VALUES


def as_codes(levels: list[NDArray[Any]]) -> list[Tensor]:
    """Codes per level as a batch of one."""
    return [torch.from_numpy(level.astype(np.int64))[None] for level in levels]


class Chooser:
    """Takes in voices of people: their own alone, if no others are known."""

    def __init__(self, takes: list[Take], people: list[list[Voice]], rng: random.Random) -> None:
        self.takes, self.people, self.rng = takes, people, rng

    def __call__(self, count: int) -> list[tuple[Take, Voice]]:
        """Takes, each with the voice in which it shall be spoken."""
        chosen = self.rng.sample(self.takes, count)
        return [(take, self.rng.choice(self.rng.choice(self.people)) if self.people else take.voice) for take in chosen]


def distance(model: MiniCodecModel, take: Take, voice: Voice) -> Tensor:
    """Smooth L1 distance of predicted and wanted octaves, (1, F)."""
    predicted = model.decoder.pitch(take.latents, voice.timbre)
    return F.smooth_l1_loss(predicted, take.wanted(voice), reduction="none", beta=0.05)


@torch.no_grad()
def errors(model: MiniCodecModel, takes: list[tuple[Take, Voice]]) -> tuple[float, float, float]:
    """In semitones: distance of the medians, and mean distances where takes sound and where they are soft."""
    medians, found = [], []
    for take, voice in takes:
        off = 12 * (model.decoder.pitch(take.latents, voice.timbre) - take.wanted(voice))[0]
        medians.append(off[~take.is_soft].median().abs())
        found.append(off.abs())
    soft = torch.cat([take.is_soft for take, _ in takes])
    together = torch.cat(found)
    return float(torch.stack(medians).mean()), float(together[~soft].mean()), float(together[soft].mean())


def train(model: MiniCodecModel, choose: Chooser, held_out: list[tuple[Take, Voice]], steps: int) -> None:
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
        loss = torch.stack([distance(model, take, voice).mean() for take, voice in choose(BATCH)]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        average.update_parameters(pitch)
        if not step % 50:
            print(f"step {step}: loss {loss.item():.4f}; {report(model, held_out)}", flush=True)
    pitch.load_state_dict(average.module.state_dict())


def contours_of(options: argparse.Namespace) -> Path:
    """The file with the F0 of the recordings."""
    return Path(options.f0 or options.recordings.parent / F0Config().file)


def data_of(options: argparse.Namespace) -> dict[str, str]:
    """Digests of what was read, by kind."""
    takes = [path for folder in options.takes for path in sorted(folder.glob(TAKES_PATTERN))]
    recordings = [options.recordings, contours_of(options)] if options.recordings else []
    return {
        name: files_hash(*files)
        for name, files in (("pairs", options.pairs), ("takes", takes), ("recordings", recordings))
        if files
    }


def report(model: MiniCodecModel, held_out: list[tuple[Take, Voice]]) -> str:
    """The errors in words."""
    median, loud, soft = errors(model, held_out)
    return f"held out, semitones: medians {median:.2f}, {loud:.2f} where takes sound, {soft:.2f} where they are soft"


def main() -> None:
    """Read the command line, train, and write the codec."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    for name in ("codec", "speaker", "folder"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--pairs", nargs="+", type=Path, default=[])
    parser.add_argument("--takes", nargs="+", type=Path, default=[])
    parser.add_argument("--f0", type=Path)
    parser.add_argument("--recordings", type=Path)
    parser.add_argument("--teacher", type=Path)
    parser.add_argument("--most-takes", type=int, default=1000)
    parser.add_argument("--most-recordings", type=int, default=1500)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    model = load_codec(options.codec).eval()
    teacher = load_codec(options.teacher).eval() if options.teacher else model
    rng = random.Random(options.seed)
    torch.manual_seed(options.seed)
    reader = Reader(model, teacher, options.speaker)
    takes = reader.pairs(options.pairs) + reader.takes(options.takes, options.most_takes)
    rng.shuffle(takes)
    first = max(1, round(HELD_OUT * len(takes)))
    if len(takes) - first < BATCH:
        raise DataError(f"{len(takes)} takes: expected {BATCH + 1} or more; give more files of pairs, or more takes")
    people: list[list[Voice]] = []
    if options.recordings:
        people = [
            voices
            for _, voices in sorted(
                reader.voices(options.recordings, contours_of(options), rng, options.most_recordings).items()
            )
        ]
        rng.shuffle(people)
    apart = round(HELD_OUT * len(people))
    held_out = Chooser(takes[:first], people[:apart], random.Random(1))(first)
    print(f"{len(takes)} takes, {len(people)} people; {report(model, held_out)}", flush=True)
    train(model, Chooser(takes[first:], people[apart:], rng), held_out, options.steps)
    print(f"after training: {report(model, held_out)}")
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
        data=data_of(options),
        parent=str(options.codec),
        date=date.today().isoformat(),
        note="The pitch predictor was trained by itself; all other weights are those of the parent",
    )
    write_part(record, options.folder)


if __name__ == "__main__":
    main()
