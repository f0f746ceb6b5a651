"""Training of the mini speaker encoders: one corpus or several in, an encoder of identity or of style out.

Upstream: `clips`.  Downstream: the run folder (`training.loop`), `export`.

The *identity* encoder distinguishes speakers whatever their style: additive angular margin over speakers. Each speaker
counts several times, with different factors of vocal-tract-length perturbation (VTLP), because a hundred speakers are
too few to learn what may differ between voices. The *style* encoder distinguishes styles whatever the speaker. It also
predicts style attributes: how F0, timbre and speaking rate differ from the speaker's neutral style, and the F0 level.
An adversary that classifies the speaker from the embedding is trained against it. Spectra are augmented in training.
Shapes: B batch · M mel bands · T frames · E embedding size.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from marstts.errors import ConfigError
from marstts.io.config import write_config
from marstts.io.precision import autocast
from marstts.speaker.base import equal_error_rate, trials
from marstts.speaker.mini import CONFIG_FILE
from marstts.speaker.mini_model import MiniEncoderModel
from marstts_lab.training.bounds import step_seed
from marstts_lab.training.checkpoint import check_same_model, latest
from marstts_lab.training.distributed import pick_device, require_one_process
from marstts_lab.training.loss import Loss, total, values
from marstts_lab.training.optim import learning_rate, minimize
from marstts_lab.training.run_log import CORRUPT_FILE
from marstts_lab.training.speaker.augmentation import augment_mel
from marstts_lab.training.speaker.clips import NEUTRAL_STYLE, Clip, crop, num_frames, read_corpora, target_attributes
from marstts_lab.training.speaker.config import GRAD_CLIP_NORM, EncoderKind, SpeakerTrainingConfig
from marstts_lab.training.speaker.export import load_encoder
from marstts_lab.training.speaker.losses import (
    TARGETS,
    Prototypes,
    ReverseGradient,
    StyleHead,
    accuracy,
    angular_margin,
    correlation,
    masked_distance,
)

NO_SIZES = ("name", "one_speaker_similarity")
"""Fields of the model that do not describe its weights."""

VALIDATION_SECONDS = 4.0


class SpeakerTask(ABC):
    """The part that both encoders' `training.loop.Task`s share: crops, augmentation, updates, held-out embeddings."""

    def __init__(
        self, config: SpeakerTrainingConfig, manifests: Sequence[Path], device: str = "cpu", corrupt: Path | None = None
    ) -> None:
        """`corrupt`: the file that lists recordings of the manifests that cannot be used."""
        require_one_process("a speaker encoder")
        torch.manual_seed(config.loop.seed)
        self.config, self.device = config, pick_device(device)
        self.known, self.held_out = read_corpora(manifests, config, corrupt)
        self.model = MiniEncoderModel(config.model).to(self.device)
        self.head = self.build_head().to(self.device)
        self.modules: dict[str, nn.Module] = {"encoder": self.model, "head": self.head}
        self.optimizer = torch.optim.AdamW(
            [*self.model.parameters(), *self.head.parameters()], config.learning_rate, weight_decay=config.weight_decay
        )
        self.optimizers: dict[str, torch.optim.Optimizer] = {"encoder": self.optimizer}

    @abstractmethod
    def build_head(self) -> nn.Module:
        """The outputs on top of embeddings, which are not exported."""

    @abstractmethod
    def choose(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """(B,) indices of known clips for a step."""

    @abstractmethod
    def losses(
        self, embeddings: Tensor, chosen: NDArray[np.int64], vtlp_factors: Tensor, step: int
    ) -> tuple[Loss, ...]:
        """Losses of embeddings (B, E) of the chosen clips with the VTLP factors (B,)."""

    def train_step(self, step: int) -> dict[str, float | Tensor]:
        """One update on the crops of this step."""
        rng = np.random.default_rng((self.config.loop.seed, step))
        chosen = self.choose(rng)
        vtlp_factors = rng.integers(len(self.config.vtlp_factors), size=len(chosen))
        log_mel = self.crops(chosen, vtlp_factors, rng).to(self.device)
        generator = torch.Generator(self.device).manual_seed(step_seed(self.config.loop.seed, step))
        augmented = augment_mel(log_mel, self.config.model, self.config.augmentation, generator)
        with autocast(self.device.type, self.config.precision):
            embeddings = self.model(augmented)
        losses = self.losses(embeddings, chosen, torch.from_numpy(vtlp_factors).to(self.device), step)
        loss = total(losses)
        lr = learning_rate(step, self.config.loop.steps, self.config.schedule)
        minimize(self.optimizer, loss, lr, GRAD_CLIP_NORM)
        return {"loss": loss.detach(), **values(losses)}

    def crops(self, chosen: NDArray[np.int64], vtlp_factors: NDArray[np.int64], rng: np.random.Generator) -> Tensor:
        """(B, M, T) log-mels of the chosen clips with their VTLP factors, T the same for all; short clips repeat."""
        frames = num_frames(rng.uniform(*self.config.crop_seconds), self.config.model)
        positions = rng.uniform(size=len(chosen))
        rows = [crop(self.known[i].mels[w], frames, p) for i, w, p in zip(chosen, vtlp_factors, positions, strict=True)]
        return torch.from_numpy(np.stack(rows)).float()

    def half_way(self, step: int) -> float:
        """0 at the start, 1 from half of the training on."""
        return min(1.0, 2.0 * step / self.config.loop.steps)

    @abstractmethod
    def validate_corpus(self, clips: Sequence[Clip], embeddings: NDArray[np.float32]) -> dict[str, float]:
        """Scores of the embeddings (clips, E) of the held-out speakers of a corpus."""

    def validate(self, step: int) -> dict[str, float]:
        """`validate_corpus` of the first corpus, and of the others with their index after the names."""
        scores: dict[str, float] = {}
        for corpus, clips in enumerate(self.held_out):
            ours = self.validate_corpus(clips, self.embed(clips))
            scores |= {f"{name}_corpus{corpus}" if corpus else name: value for name, value in ours.items()}
        return scores

    @torch.no_grad()
    def embed(self, clips: Sequence[Clip]) -> NDArray[np.float32]:
        """(clips, E) of the middle of each clip, without augmentation."""
        self.model.eval()
        frames = num_frames(VALIDATION_SECONDS, self.config.model)
        rows = []
        for start in range(0, len(clips), self.config.batch_size):
            batch = clips[start : start + self.config.batch_size]
            mels = torch.from_numpy(np.stack([crop(clip.mels[0], frames, 0.5) for clip in batch])).float()
            rows.append(self.model(mels.to(self.device)).cpu())
        self.model.train()
        return torch.cat(rows).numpy()


class IdentityTask(SpeakerTask):
    """Training of the identity encoder."""

    def build_head(self) -> nn.Module:
        """A class per speaker and VTLP factor."""
        speakers = sorted({clip.utterance.speaker for clip in self.known})
        self.labels = np.array([speakers.index(clip.utterance.speaker) for clip in self.known])
        self.by_speaker = [np.flatnonzero(self.labels == label) for label in range(len(speakers))]
        return Prototypes(self.config.model.size, len(speakers) * len(self.config.vtlp_factors))

    def choose(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Random clips of random speakers."""
        speakers = rng.integers(len(self.by_speaker), size=self.config.batch_size)
        return np.array([rng.choice(self.by_speaker[speaker]) for speaker in speakers])

    def losses(
        self, embeddings: Tensor, chosen: NDArray[np.int64], vtlp_factors: Tensor, step: int
    ) -> tuple[Loss, ...]:
        """Cross-entropy with angular margin, and accuracy."""
        speakers = torch.from_numpy(self.labels[chosen]).to(self.device)
        classes = speakers * len(self.config.vtlp_factors) + vtlp_factors
        cosines = self.head(embeddings)
        logits = angular_margin(cosines, classes, self.config.margin * self.half_way(step)) * self.config.scale
        return Loss("loss", 1.0, F.cross_entropy(logits, classes)), Loss("accuracy", 0.0, accuracy(cosines, classes))

    def validate_corpus(self, clips: Sequence[Clip], embeddings: NDArray[np.float32]) -> dict[str, float]:
        """Equal error rate over all pairs of held-out speakers' clips, of all styles and of the neutral style."""
        speakers = [clip.utterance.speaker for clip in clips]
        neutral = [i for i, clip in enumerate(clips) if clip.utterance.style == NEUTRAL_STYLE]
        scores = {"equal_error_rate": equal_error_rate(*trials(embeddings, speakers))}
        if len(neutral) > 1:
            among = trials(embeddings[neutral], [speakers[i] for i in neutral])
            scores["equal_error_rate_neutral"] = equal_error_rate(*among)
        return scores


class StyleTask(SpeakerTask):
    """Training of the style encoder."""

    def build_head(self) -> nn.Module:
        """Style classes, style attributes, and the adversary."""
        self.styles = sorted({clip.utterance.style for clip in self.known})
        speakers = sorted({clip.utterance.speaker for clip in self.known})
        self.labels = np.array([self.styles.index(clip.utterance.style) for clip in self.known])
        self.speakers = np.array([speakers.index(clip.utterance.speaker) for clip in self.known])
        self.by_style = [np.flatnonzero(self.labels == label) for label in range(len(self.styles))]
        self.attributes = torch.from_numpy(target_attributes(self.known)).to(self.device)
        return StyleHead(self.config.model.size, len(self.styles), len(speakers), self.attributes.shape[1])

    def choose(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Random clips of random styles."""
        styles = rng.integers(len(self.by_style), size=self.config.batch_size)
        return np.array([rng.choice(self.by_style[style]) for style in styles])

    def losses(
        self, embeddings: Tensor, chosen: NDArray[np.int64], vtlp_factors: Tensor, step: int
    ) -> tuple[Loss, ...]:
        """Style classification, attribute regression, and the adversary through a reversed gradient."""
        head = self.head
        assert isinstance(head, StyleHead)
        styles = torch.from_numpy(self.labels[chosen]).to(self.device)
        speakers = torch.from_numpy(self.speakers[chosen]).to(self.device)
        cosines = head.styles(embeddings)
        classification = F.cross_entropy(cosines * self.config.scale, styles)
        targets = self.attributes[torch.from_numpy(chosen).to(self.device)]
        attributes = masked_distance(head.attributes(embeddings), targets)
        reversed_embeddings = ReverseGradient.apply(embeddings, self.config.adversary_weight * self.half_way(step))
        speaker_logits = head.speakers(reversed_embeddings)
        return (
            Loss("classification", 1.0, classification),
            Loss("attribute_loss", self.config.attribute_weight, attributes),
            Loss("adversary", 1.0, F.cross_entropy(speaker_logits, speakers)),
            Loss("accuracy", 0.0, accuracy(cosines, styles)),
            Loss("speaker_accuracy", 0.0, accuracy(speaker_logits, speakers)),
        )

    @torch.no_grad()
    def validate_corpus(self, clips: Sequence[Clip], embeddings: NDArray[np.float32]) -> dict[str, float]:
        """Scores on held-out speakers: style accuracy, correlation of each attribute, EER of speakers."""
        head = self.head
        assert isinstance(head, StyleHead)
        known_styles = [i for i, clip in enumerate(clips) if clip.utterance.style in self.styles]
        rows = torch.from_numpy(embeddings[known_styles]).to(self.device)
        labels = torch.tensor([self.styles.index(clips[i].utterance.style) for i in known_styles])
        targets = target_attributes(list(clips))
        predicted = head.attributes(torch.from_numpy(embeddings).to(self.device)).cpu().numpy()
        speakers = [clip.utterance.speaker for clip in clips]
        scores = {
            "accuracy": float(accuracy(head.styles(rows).cpu(), labels)),
            "speaker_equal_error_rate": equal_error_rate(*trials(embeddings, speakers)),
        }
        return scores | {
            f"correlation_{name}": correlation(predicted[:, column], targets[:, column])
            for column, name in enumerate(TARGETS)
        }


TASKS: dict[EncoderKind, type[IdentityTask] | type[StyleTask]] = {
    EncoderKind.IDENTITY: IdentityTask,
    EncoderKind.STYLE: StyleTask,
}


def build_task(
    config: SpeakerTrainingConfig, manifests: Sequence[Path], device: str = "cpu", corrupt: Path | None = None
) -> IdentityTask | StyleTask:
    """The task of the configured kind on the manifests' recordings."""
    return TASKS[config.kind](config, manifests, device, corrupt)


def open_task(
    config: SpeakerTrainingConfig,
    manifests: Sequence[Path],
    run: Path,
    base: Path | None = None,
    device: str = "cpu",
) -> IdentityTask | StyleTask:
    """`build_task`, with the resolved configuration written to the run folder, where `load_encoder` reads it.

    A new run begins with the weights of `base`, a run or an exported folder, where one is given; ConfigError where its
    sizes differ, CheckpointError where the folder has checkpoints of another model.
    """
    check_same_model(run / CONFIG_FILE, config.model, NO_SIZES)
    task = build_task(config, manifests, device, run / CORRUPT_FILE)
    if base is not None and latest(run) is None:
        init_from(task, base)
    run.mkdir(parents=True, exist_ok=True)
    write_config(config, run / CONFIG_FILE)
    return task


def init_from(task: IdentityTask | StyleTask, base: Path) -> None:
    """Set the encoder's weights to those of another run or of an exported folder; its outputs on top are new."""
    model = load_encoder(base)
    wanted = task.config.model
    if model.config.model_copy(update={name: getattr(wanted, name) for name in NO_SIZES}) != wanted:
        raise ConfigError(f"{base}: this encoder has other sizes than the configuration; copy its [model] table")
    task.model.load_state_dict(model.state_dict())
