"""Training of the mini speaker encoders: a manifest in, an encoder of identity or of style out.

Upstream: a manifest of recordings with speakers and styles.  Downstream: `export_encoder`, whose
folder `speaker.mini` runs.

*Identity* tells speakers apart whatever their style: additive angular margin (arXiv:1801.07698) over speakers. Each
speaker counts several times, heard at different frequency warps, because a hundred voices are too few to learn what
may differ between voices. *Style* tells styles apart whoever speaks: it also predicts how pitch, timbre and rate differ
from the speaker's ordinary manner and how high the voice is, so that degrees are kept, and an adversary that names the
speaker from the embedding is trained against it (arXiv:1505.07818). Spectra are distorted in training as microphones,
rooms and lines do.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from safetensors.torch import load_file
from torch import Tensor, nn

from marstts import audio
from marstts.config import Config, read_config, write_config
from marstts.data.manifest import Utterance, read_manifest
from marstts.errors import AudioError, CheckpointError, DataError
from marstts.onnx_export import Graph, export_graphs
from marstts.speaker.mini import CONFIG_FILE, GRAPH_FILE, WEIGHTS_FILE, MiniEncoderConfig
from marstts.speaker.mini_model import MiniEncoderModel
from marstts.speaker.verification import equal_error_rate, trials
from marstts.spectral import LOG_FLOOR, magnitude_spectrogram
from marstts.training.damage import DAMAGED_FILE, Damage
from marstts.training.degrees import TOLD, height, measure, relative
from marstts.training.distortion import DistortionConfig, distort, warped_filterbank
from marstts.training.loop import LoopConfig, latest

# B batch · N samples · W warps · M mel bands · T frames · E embedding size · C classes

ORDINARY_STYLE = "regular"
VALIDATION_SECONDS = 4.0


class Kind(str, Enum):
    """What the encoder is to hear."""

    IDENTITY = "identity"
    STYLE = "style"


class SpeakerTrainingConfig(Config):
    """Training of one encoder."""

    kind: Kind
    model: MiniEncoderConfig
    loop: LoopConfig
    distortion: DistortionConfig = DistortionConfig()

    warps: tuple[float, ...] = (1.0,)
    """Frequency warps at which voices are heard. For identity each makes another speaker, for style none."""

    batch: int = Field(64, gt=1)
    crop_seconds: tuple[float, float] = (1.5, 4.0)
    """Length of the crops of a step, drawn uniformly."""

    hours: float = Field(12.0, gt=0)
    """At most this much of the training speech is held in memory (0.05 GB an hour and warp)."""

    learning_rate: float = 2e-3
    warmup_steps: int = 100
    weight_decay: float = 0.02
    margin: float = 0.2
    """Angle (radians) by which a class must win, reached halfway through training; identity only."""

    scale: float = 30.0
    """Sharpness of the softmax over cosines."""

    degree_weight: float = 0.5
    """Weight of predicting what `degrees.TOLD` names; style only."""

    adversary_weight: float = 0.1
    """Weight of the adversary that names the speaker, reached halfway through training; style only."""

    max_damaged_share: float = Field(0.01, ge=0, le=1)
    """Recordings that cannot be used are left out and named, up to this share of them; more stop the run."""

    bf16: bool = True


@dataclass(frozen=True)
class Clip:
    """A recording in memory, as heard."""

    utterance: Utterance
    mels: NDArray[np.float16]
    """(W, M, T) log-mels at each of W warps; kept instead of samples because they are smaller and never change."""

    degrees: tuple[float, ...]
    """What `measure` found; empty where nobody asks."""


class SpeakerTask(ABC):
    """What both encoders' `training.loop.Task`s share: crops, distortions, schedule, held-out embeddings."""

    def __init__(
        self, config: SpeakerTrainingConfig, manifest: Path, device: str = "cpu", damaged: Path | None = None
    ) -> None:
        """`damaged`: the file that names what cannot be used of the manifest."""
        torch.manual_seed(config.loop.seed)
        self.config, self.device = config, torch.device(device)
        self.known, self.held_out = read_corpus(manifest, config, damaged)
        self.model = MiniEncoderModel(config.model).to(self.device)
        self.head = self.build_head().to(self.device)
        self.modules: dict[str, nn.Module] = {"encoder": self.model, "head": self.head}
        self.parameters = [*self.model.parameters(), *self.head.parameters()]
        self.optimizers: dict[str, torch.optim.Optimizer] = {
            "encoder": torch.optim.AdamW(self.parameters, config.learning_rate, weight_decay=config.weight_decay)
        }

    @abstractmethod
    def build_head(self) -> nn.Module:
        """The part that judges embeddings in training and is thrown away after."""

    @abstractmethod
    def choose(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """(B,) indices of known clips for a step."""

    @abstractmethod
    def loss(self, embeddings: Tensor, chosen: NDArray[np.int64], warps: Tensor, step: int) -> dict[str, Tensor]:
        """Scores of embeddings (B, E) of the chosen clips at their warps (B,); `loss` is what to minimise."""

    def train_step(self, step: int) -> dict[str, float | Tensor]:
        rng = np.random.default_rng((self.config.loop.seed, step))
        chosen = self.choose(rng)
        warps = rng.integers(len(self.config.warps), size=len(chosen))
        log_mel = self.crops(chosen, warps, rng).to(self.device)
        generator = torch.Generator(self.device).manual_seed(self.config.loop.seed * 1_000_003 + step)
        distorted = distort(log_mel, self.config.model, self.config.distortion, generator)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.bf16):
            embeddings = self.model(distorted)
        scores = self.loss(embeddings, chosen, torch.from_numpy(warps).to(self.device), step)
        self.update(scores["loss"], step)
        return {name: value.detach() for name, value in scores.items()}

    def crops(self, chosen: NDArray[np.int64], warps: NDArray[np.int64], rng: np.random.Generator) -> Tensor:
        """(B, M, T) log-mels of the chosen clips at their warps, T the same for all; short clips are repeated."""
        frames = num_frames(rng.uniform(*self.config.crop_seconds), self.config.model)
        places = rng.uniform(size=len(chosen))
        rows = [crop(self.known[i].mels[w], frames, p) for i, w, p in zip(chosen, warps, places, strict=True)]
        return torch.from_numpy(np.stack(rows)).float()

    def update(self, loss: Tensor, step: int) -> None:
        """One optimizer step; the learning rate is a function of the step."""
        for group in self.optimizers["encoder"].param_groups:
            group["lr"] = self.config.learning_rate * schedule(step, self.config.warmup_steps, self.config.loop.steps)
        self.optimizers["encoder"].zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 5.0)
        self.optimizers["encoder"].step()

    def half_way(self, step: int) -> float:
        """0 at the start, 1 from half of the training on."""
        return min(1.0, 2.0 * step / self.config.loop.steps)

    @torch.no_grad()
    def embed_held_out(self) -> NDArray[np.float32]:
        """(clips, E) of the middle of each held-out clip, undistorted."""
        self.model.eval()
        frames = num_frames(VALIDATION_SECONDS, self.config.model)
        rows = []
        for start in range(0, len(self.held_out), self.config.batch):
            batch = self.held_out[start : start + self.config.batch]
            mels = torch.from_numpy(np.stack([crop(clip.mels[0], frames, 0.5) for clip in batch])).float()
            rows.append(self.model(mels.to(self.device)).cpu())
        self.model.train()
        return torch.cat(rows).numpy()


class IdentityTask(SpeakerTask):
    """Speakers apart, whatever their style."""

    def build_head(self) -> nn.Module:
        speakers = sorted({clip.utterance.speaker for clip in self.known})
        self.labels = np.array([speakers.index(clip.utterance.speaker) for clip in self.known])
        self.by_speaker = [np.flatnonzero(self.labels == label) for label in range(len(speakers))]
        return Prototypes(self.config.model.size, len(speakers) * len(self.config.warps))

    def choose(self, rng: np.random.Generator) -> NDArray[np.int64]:
        speakers = rng.integers(len(self.by_speaker), size=self.config.batch)
        return np.array([rng.choice(self.by_speaker[speaker]) for speaker in speakers])

    def loss(self, embeddings: Tensor, chosen: NDArray[np.int64], warps: Tensor, step: int) -> dict[str, Tensor]:
        speakers = torch.from_numpy(self.labels[chosen]).to(self.device)
        classes = speakers * len(self.config.warps) + warps
        cosines = self.head(embeddings)
        logits = angular_margin(cosines, classes, self.config.margin * self.half_way(step)) * self.config.scale
        return {"loss": F.cross_entropy(logits, classes), "accuracy": accuracy(cosines, classes)}

    def validate(self, step: int, writer: Any) -> dict[str, float]:
        """Equal error rate over all pairs of held-out speakers' clips, styles mixed, and among ordinary ones."""
        embeddings = self.embed_held_out()
        speakers = [clip.utterance.speaker for clip in self.held_out]
        ordinary = [i for i, clip in enumerate(self.held_out) if clip.utterance.style == ORDINARY_STYLE]
        scores = {"equal_error_rate": equal_error_rate(*trials(embeddings, speakers))}
        if len(ordinary) > 1:
            among = trials(embeddings[ordinary], [speakers[i] for i in ordinary])
            scores["equal_error_rate_ordinary"] = equal_error_rate(*among)
        return scores


class StyleTask(SpeakerTask):
    """Styles apart, whoever speaks."""

    def build_head(self) -> nn.Module:
        self.styles = sorted({clip.utterance.style for clip in self.known})
        speakers = sorted({clip.utterance.speaker for clip in self.known})
        self.labels = np.array([self.styles.index(clip.utterance.style) for clip in self.known])
        self.speakers = np.array([speakers.index(clip.utterance.speaker) for clip in self.known])
        self.by_style = [np.flatnonzero(self.labels == label) for label in range(len(self.styles))]
        self.degrees = torch.from_numpy(told_degrees(self.known)).to(self.device)
        return StyleHead(self.config.model.size, len(self.styles), len(speakers), self.degrees.shape[1])

    def choose(self, rng: np.random.Generator) -> NDArray[np.int64]:
        styles = rng.integers(len(self.by_style), size=self.config.batch)
        return np.array([rng.choice(self.by_style[style]) for style in styles])

    def loss(self, embeddings: Tensor, chosen: NDArray[np.int64], warps: Tensor, step: int) -> dict[str, Tensor]:
        head = self.head
        assert isinstance(head, StyleHead)
        styles = torch.from_numpy(self.labels[chosen]).to(self.device)
        speakers = torch.from_numpy(self.speakers[chosen]).to(self.device)
        cosines = head.styles(embeddings)
        classification = F.cross_entropy(cosines * self.config.scale, styles)
        degree = masked_distance(head.degrees(embeddings), self.degrees[torch.from_numpy(chosen).to(self.device)])
        reversed_embeddings = ReverseGradient.apply(embeddings, self.config.adversary_weight * self.half_way(step))
        named = head.speakers(reversed_embeddings)
        adversary = F.cross_entropy(named, speakers)
        return {
            "loss": classification + self.config.degree_weight * degree + adversary,
            "classification": classification,
            "degree": degree,
            "adversary": adversary,
            "accuracy": accuracy(cosines, styles),
            "speaker_accuracy": accuracy(named, speakers),
        }

    @torch.no_grad()
    def validate(self, step: int, writer: Any) -> dict[str, float]:
        """Style accuracy on held-out speakers, how well degrees are told, and how little is known of the speaker."""
        head = self.head
        assert isinstance(head, StyleHead)
        known_styles = [i for i, clip in enumerate(self.held_out) if clip.utterance.style in self.styles]
        embeddings = self.embed_held_out()
        rows = torch.from_numpy(embeddings[known_styles]).to(self.device)
        labels = torch.tensor([self.styles.index(self.held_out[i].utterance.style) for i in known_styles])
        wanted = told_degrees(self.held_out)
        told = head.degrees(torch.from_numpy(embeddings).to(self.device)).cpu().numpy()
        speakers = [clip.utterance.speaker for clip in self.held_out]
        scores = {
            "accuracy": float(accuracy(head.styles(rows).cpu(), labels)),
            "speaker_equal_error_rate": equal_error_rate(*trials(embeddings, speakers)),
        }
        return scores | {
            f"correlation_{name}": correlation(told[:, column], wanted[:, column]) for column, name in enumerate(TOLD)
        }


TASKS: dict[Kind, type[IdentityTask] | type[StyleTask]] = {Kind.IDENTITY: IdentityTask, Kind.STYLE: StyleTask}


def build_task(
    config: SpeakerTrainingConfig, manifest: Path, device: str = "cpu", damaged: Path | None = None
) -> IdentityTask | StyleTask:
    """The task of the configured kind over the manifest's recordings."""
    return TASKS[config.kind](config, manifest, device, damaged)


def open_task(
    config: SpeakerTrainingConfig, manifest: Path, run: Path, device: str = "cpu"
) -> IdentityTask | StyleTask:
    """`build_task`, with the resolved configuration saved in the run folder, where `load_encoder` looks for it."""
    task = build_task(config, manifest, device, run / DAMAGED_FILE)
    run.mkdir(parents=True, exist_ok=True)
    write_config(config, run / CONFIG_FILE)
    return task


# Corpus


def read_corpus(
    manifest: Path, config: SpeakerTrainingConfig, damaged: Path | None = None
) -> tuple[list[Clip], list[Clip]]:
    """Clips to learn from, at most `config.hours`, and those of speakers held out (all their clips are in `test`).

    Recordings that cannot be read are left out, and named in `damaged`; DataError where they are too many.
    """
    utterances = read_manifest(manifest)
    known = [utterance for utterance in utterances if utterance.split == "train"]
    known_speakers = {utterance.speaker for utterance in known}
    held_out = [u for u in utterances if u.split != "train" and u.speaker not in known_speakers]
    if len(known_speakers) < 2 or len({utterance.speaker for utterance in held_out}) < 2:
        raise DataError(f"{manifest}: expected at least two training speakers, and two others in validation or test")
    heard = within_hours(known, config.hours)
    damage = Damage(len(heard) + len(held_out), config.max_damaged_share, damaged)

    def clips(some: list[Utterance], warps: tuple[float, ...]) -> Iterator[Clip]:
        for utterance in some:
            try:
                yield read_clip(manifest.parent, utterance, config, warps)
            except AudioError as error:
                damage.leave_out(utterance, error)

    return list(clips(heard, config.warps)), list(clips(held_out, (1.0,)))


def read_clip(folder: Path, utterance: Utterance, config: SpeakerTrainingConfig, warps: tuple[float, ...]) -> Clip:
    """An utterance's recording, heard at each of the warps."""
    samples = audio.resample(audio.read(folder / utterance.audio), config.model.sample_rate).samples
    magnitudes = magnitude_spectrogram(samples, config.model.fft_size, config.model.hop)
    mels = np.stack([warped_filterbank(config.model, warp) @ magnitudes for warp in warps])
    degrees = measure(samples, utterance.text, config.model.sample_rate) if config.kind is Kind.STYLE else ()
    return Clip(utterance, np.log(np.maximum(mels, LOG_FLOOR)).astype(np.float16), degrees)


def within_hours(utterances: list[Utterance], hours: float) -> list[Utterance]:
    """The first `hours` of the utterances in an order shuffled by their names, which later additions leave alone."""
    shuffled = sorted(utterances, key=lambda utterance: hashlib.sha256(utterance.id.encode()).digest())
    totals = np.cumsum([utterance.seconds for utterance in shuffled])
    return [utterance for utterance, total in zip(shuffled, totals, strict=True) if total <= hours * 3600]


def num_frames(seconds: float, model: MiniEncoderConfig) -> int:
    """Spectral frames in so many seconds."""
    return int(seconds * model.sample_rate / model.hop)


def crop(mels: NDArray[np.float16], frames: int, place: float) -> NDArray[np.float16]:
    """(M, T) -> (M, frames), starting `place` (0 to 1) of the way to the last possible start; repeated if too short."""
    if mels.shape[1] < frames:
        mels = np.tile(mels, (1, -(-frames // mels.shape[1])))
    start = int(place * (mels.shape[1] - frames))
    return mels[:, start : start + frames]


def told_degrees(clips: list[Clip]) -> NDArray[np.float32]:
    """(clips, 6), what `degrees.TOLD` names."""
    measured = np.array([clip.degrees for clip in clips])
    speakers = np.array([clip.utterance.speaker for clip in clips])
    ordinary = np.array([clip.utterance.style == ORDINARY_STYLE for clip in clips])
    return np.concatenate([relative(measured, speakers, ordinary), height(measured)], axis=1)


# Losses


class Prototypes(nn.Module):
    """One direction per class; embeddings (B, E) -> cosines (B, C)."""

    def __init__(self, size: int, classes: int) -> None:
        super().__init__()
        self.directions = nn.Parameter(torch.randn(classes, size) * 0.1)

    def forward(self, embeddings: Tensor) -> Tensor:
        return embeddings @ F.normalize(self.directions, dim=1).T


class StyleHead(nn.Module):
    """What judges style embeddings: classes, degrees, and the adversary."""

    def __init__(self, size: int, styles: int, speakers: int, degrees: int) -> None:
        super().__init__()
        self.styles = Prototypes(size, styles)
        self.degrees = nn.Linear(size, degrees)
        self.speakers = nn.Sequential(nn.Linear(size, 128), nn.ReLU(), nn.Linear(128, speakers))


class ReverseGradient(torch.autograd.Function):
    """The identity, whose gradient comes back negated and weighted."""

    @staticmethod
    def forward(context: Any, values: Tensor, weight: float) -> Tensor:
        context.weight = weight
        return values.view_as(values)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return -context.weight * gradients[0], None


def angular_margin(cosines: Tensor, classes: Tensor, margin: float) -> Tensor:
    """cosines (B, C) with `margin` radians added to the angle of each row's own class (B,)."""
    own = F.one_hot(classes, cosines.shape[1]).bool()
    clamped = cosines.clamp(-1 + 1e-6, 1 - 1e-6)
    moved = torch.cos((torch.acos(clamped) + margin).clamp(max=math.pi))
    return torch.where(own, moved, cosines)


def masked_distance(told: Tensor, wanted: Tensor) -> Tensor:
    """Mean smooth L1 distance where `wanted` is a number."""
    applies = ~torch.isnan(wanted)
    return F.smooth_l1_loss(told[applies], wanted[applies])


def accuracy(scores: Tensor, classes: Tensor) -> Tensor:
    """Share of rows (B, C) whose best score is at their class (B,)."""
    return (scores.argmax(dim=1) == classes).float().mean()


def correlation(told: NDArray[np.float32], wanted: NDArray[np.float32]) -> float:
    """Pearson's, where `wanted` is a number; 0 where it does not vary."""
    applies = ~np.isnan(wanted)
    told, wanted = told[applies], wanted[applies]
    if len(told) < 2 or not told.std() or not wanted.std():
        return 0.0
    return float(np.corrcoef(told, wanted)[0, 1])


def schedule(step: int, warmup: int, steps: int) -> float:
    """Linear warm-up, then a cosine down to a hundredth."""
    if step < warmup:
        return (step + 1) / warmup
    progress = min(1.0, (step - warmup) / max(1, steps - warmup))
    return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * progress))


# Export


def load_encoder(run: Path) -> MiniEncoderModel:
    """The encoder of a training run's newest checkpoint, or of an exported folder."""
    checkpoint = latest(run)
    if checkpoint is None:
        config, weights = read_config(MiniEncoderConfig, run / CONFIG_FILE), run / WEIGHTS_FILE
    else:
        config, weights = read_config(SpeakerTrainingConfig, run / CONFIG_FILE).model, checkpoint / WEIGHTS_FILE
    model = MiniEncoderModel(config)
    try:
        model.load_state_dict({name: tensor.float() for name, tensor in load_file(weights).items()})
    except (OSError, RuntimeError, ValueError) as error:
        raise CheckpointError(f"{weights}: expected the weights of {run / CONFIG_FILE}, but {error}") from error
    return model.eval()


def export_encoder(model: MiniEncoderModel, folder: Path) -> None:
    """Write the folder that `speaker.mini` runs: config.json, encoder.safetensors (fp16), encoder.onnx."""
    model = model.float().cpu().eval()
    with torch.no_grad():
        for buffer in model.buffers():
            buffer.copy_(buffer.half().float())  # as `export_graphs` does with the parameters
    mels = torch.randn(1, model.config.num_mels, 200)
    graph = Graph(model, {"log_mel": mels}, ["embedding"], {"log_mel": {2: "frames"}})
    export_graphs(folder, WEIGHTS_FILE, model, {Path(GRAPH_FILE).stem: graph})
    write_config(model.config, folder / CONFIG_FILE)
