"""Training of the mini codec: waveforms in, a codec that all three levels take part in out.

Upstream: a manifest of recordings.  Downstream: `export_codec`, the folder that `codec.mini.MiniCodec` runs.
Two stages with one configuration each: everything; then the decoder alone, while encoder and codebooks (and so every
token already made) stay as they are. Both learn from spectra and the pitch of the voice; discriminators may be added.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from safetensors.torch import load_file
from torch import Tensor, nn

from marstts import audio
from marstts.codec.mini import MiniCodecConfig, MiniCodecFolder
from marstts.codec.mini_model import CodesGraph, FiltersGraph, HiddenGraph, MiniCodecModel, PitchGraph
from marstts.config import Config, read_config, write_config
from marstts.data.manifest import Utterance, read_manifest
from marstts.errors import AudioError, CheckpointError, ConfigError, DataError
from marstts.onnx_export import Graph, export_graphs
from marstts.training.codec_losses import Discriminators, SpectralLoss, discriminator_loss, generator_loss
from marstts.training.damage import DAMAGED_FILE, Damage
from marstts.training.loop import LoopConfig, latest
from marstts.training.melody import PitchConfig, pitch_at, pitch_loss, read_pitches, semitones_off
from marstts.training.phonetics import AFTER_END, PhoneHeads, PhonesConfig, phones_at, read_timelines
from marstts.training.recording import RecordingConfig, record

T = TypeVar("T")

REVIVE_EVERY, REVIVE_BELOW = 25, 0.03
"""Codes used less than this share of the mean are replaced by fresh latents this often; without it codebooks collapse
to a few dozen entries within the first fifty steps."""
USAGE_DECAY = 0.97


class Stage(str, Enum):
    """Which part of the codec learns."""

    WHOLE = "whole"
    DECODER = "decoder"
    """Encoder and codebooks stay, so that codes made before remain valid."""


class AdversarialConfig(Config):
    """Discriminators, on from the first step of the stage that names them."""

    periods: tuple[int, ...] = (2, 3, 5, 7, 11)
    fft_sizes: tuple[int, ...] = (2048, 1024, 512)
    channels: int = 32
    learning_rate: float = 2e-4
    weight: float = 1.0
    feature_weight: float = 2.0


class CodecTrainingConfig(Config):
    """One stage of codec training."""

    model: MiniCodecConfig = MiniCodecConfig()
    loop: LoopConfig
    stage: Stage = Stage.WHOLE
    adversarial: AdversarialConfig | None = None
    """None = spectral losses only."""

    batch: int = Field(16, gt=0)
    segment_patches: int = Field(12, gt=1)
    """Length of a training segment (12 patches = 1.02 s)."""
    learning_rate: float = 6e-4
    warmup_steps: int = 200
    spectral_weight: float = 10.0
    recording: RecordingConfig = RecordingConfig()
    """How badly the segments are recorded, as recordings of people are."""

    pitch: PitchConfig = PitchConfig()
    phones: PhonesConfig | None = None
    """None = nobody says what is spoken; the codes follow the spectra alone."""

    max_damaged_share: float = Field(0.01, ge=0, le=1)
    """Recordings that cannot be used are left out and named, up to this share of them; more stop the run."""

    bf16: bool = True


class CodecTask:
    """The codec's `training.loop.Task`."""

    def __init__(
        self, config: CodecTrainingConfig, manifest: Path, device: str = "cpu", damaged: Path | None = None
    ) -> None:
        """`damaged`: the file that names what cannot be used of the manifest."""
        torch.manual_seed(config.loop.seed)
        self.config, self.device = config, torch.device(device)
        self.model = MiniCodecModel(config.model).to(self.device)
        self.spectral = SpectralLoss(config.model.sample_rate).to(self.device)
        learning = self.model.decoder if config.stage is Stage.DECODER else self.model
        self.model.requires_grad_(learning is self.model)
        learning.requires_grad_(True)
        self.parameters = list(learning.parameters())
        self.modules: dict[str, nn.Module] = {"codec": self.model}
        self.optimizers: dict[str, torch.optim.Optimizer] = {
            "codec": torch.optim.AdamW(self.parameters, config.learning_rate, betas=(0.8, 0.99), weight_decay=1e-3)
        }
        self.judge: Discriminators | None = None
        if config.adversarial:
            adversarial = config.adversarial
            self.judge = Discriminators(adversarial.periods, adversarial.fft_sizes, adversarial.channels).to(
                self.device
            )
            self.modules["discriminators"] = self.judge
            self.optimizers["discriminators"] = torch.optim.AdamW(
                self.judge.parameters(), adversarial.learning_rate, betas=(0.8, 0.99)
            )
        self.phone_heads: PhoneHeads | None = None
        if config.phones:
            if config.stage is Stage.DECODER:
                raise ConfigError(
                    "phones teach the codes, which the decoder stage leaves as they are; drop one of both"
                )
            self.phone_heads = PhoneHeads(config.model.latent_width, config.model.strides, config.phones).to(
                self.device
            )
            self.modules["phones"] = self.phone_heads
            self.parameters += list(self.phone_heads.parameters())
            self.optimizers["codec"].add_param_group({"params": list(self.phone_heads.parameters())})
        self.segments = Segments(manifest, config, damaged)

    def train_step(self, step: int) -> dict[str, float | Tensor]:
        batch = self.segments.train(step).to(self.device)
        wanted = batch.samples
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.bf16):
            heard, codes, latents, levels, octaves, quantisation = self.model(wanted, batch.pitch)
        scores: dict[str, float | Tensor] = {}
        if self.judge is not None:
            scores |= self.discriminator_step(heard, wanted)
        spectral = self.spectral(heard, wanted, step)
        melody = pitch_loss(octaves, batch.pitch, batch.voiced, self.config.pitch)
        loss = self.config.spectral_weight * spectral + self.config.pitch.weight * melody
        if self.config.stage is Stage.WHOLE:
            loss = loss + quantisation
        if self.phone_heads is not None and self.config.phones:
            said, rights = self.phone_heads(latents, levels, batch.phones)
            loss = loss + self.config.phones.weight * said
            scores |= {"phones": said.detach()} | name_shares(rights)
        if self.judge is not None and self.config.adversarial:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.bf16):
                fooling, features = generator_loss(self.judge, heard, wanted)
            loss = loss + self.config.adversarial.weight * fooling + self.config.adversarial.feature_weight * features
            scores |= {"fooling": fooling.detach(), "features": features.detach()}
        self.update("codec", loss, self.parameters, step)
        if self.config.stage is Stage.WHOLE:
            self.revive(codes, wanted, step)
        scores |= {
            f"perplexity{level}": perplexity(c, self.config.model.codebook_size) for level, c in enumerate(codes)
        }
        return scores | {"spectral": spectral.detach(), "pitch": melody.detach(), "quantisation": quantisation.detach()}

    def discriminator_step(self, heard: Tensor, wanted: Tensor) -> dict[str, Tensor]:
        """Teach the discriminators on this batch."""
        assert self.judge is not None
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.bf16):
            loss = discriminator_loss(self.judge, heard, wanted)
        self.update("discriminators", loss, list(self.judge.parameters()), None)
        return {"discriminators": loss.detach()}

    def update(self, name: str, loss: Tensor, parameters: list[nn.Parameter], step: int | None) -> None:
        """One optimizer step; the learning rate is a function of the step where one is given."""
        optimizer = self.optimizers[name]
        if step is not None:
            for group in optimizer.param_groups:
                group["lr"] = self.config.learning_rate * schedule(
                    step, self.config.warmup_steps, self.config.loop.steps
                )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0 if step is not None else 10.0)
        optimizer.step()

    @torch.no_grad()
    def revive(self, codes: list[Tensor], samples: Tensor, step: int) -> None:
        """Track how often each code is used; give the dead ones a latent of this batch as their new place."""
        for (_, book), level_codes in zip(self.model.quantizer.books, codes, strict=True):
            counts = torch.bincount(level_codes.flatten(), minlength=self.config.model.codebook_size).float()
            book.usage.mul_(USAGE_DECAY).add_(counts / counts.mean(), alpha=1 - USAGE_DECAY)
        if step % REVIVE_EVERY:
            return
        latents = self.model.encoder(self.model.log_mel(samples)).float()
        total = torch.zeros_like(latents)
        generator = torch.Generator().manual_seed(step)
        for stride, book in self.model.quantizer.books:
            left = latents - total
            left = F.avg_pool1d(left, stride) if stride > 1 else left
            queries = book.queries(left).flatten(0, 1)
            dead = torch.nonzero(book.usage < REVIVE_BELOW)[:, 0]
            if len(dead):
                chosen = torch.randint(len(queries), (len(dead),), generator=generator).to(dead.device)
                spread = 0.02 * torch.randn(len(dead), queries.shape[1], generator=generator).to(dead.device)
                book.entries[dead] = queries[chosen] + spread
                book.usage[dead] = 0.3
            total = total + book.decode(book.encode(left)).repeat_interleave(stride, dim=2)

    @torch.no_grad()
    def validate(self, step: int, writer: Any) -> dict[str, float]:
        """Spectral distance with the true pitch and with the codes' own, how far that is off, and codebook perplexity.

        On fixed validation segments, one of which is kept as audio.
        """
        scores, codes, rights = Means(), [], []
        for batch in self.segments.validation():
            batch = batch.to(self.device)
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)  # the same noise every time
                coded = self.model(batch.samples, batch.pitch)
                heard = self.model(batch.samples).samples
            scores.add("spectral", self.spectral(coded.samples, batch.samples))
            scores.add("spectral_own_pitch", self.spectral(heard, batch.samples))
            scores.add("pitch", pitch_loss(coded.octaves, batch.pitch, batch.voiced, self.config.pitch))
            scores.add("semitones", semitones_off(coded.octaves, batch.pitch, batch.voiced))
            codes.append(coded.codes)
            if self.phone_heads is not None:
                rights.append(torch.stack(self.phone_heads(coded.latents, coded.levels, batch.phones)[1]))
        for name, samples in (("source", batch.samples), ("resynthesis", heard)):
            writer.add_audio(name, samples[:1].cpu().clamp(-1, 1), step, self.config.model.sample_rate)
        found = scores.found()
        for level in range(len(self.config.model.strides)):
            together = torch.cat([batch[level].flatten() for batch in codes])
            found[f"perplexity{level}"] = float(perplexity(together, self.config.model.codebook_size))
        if rights:
            found |= name_shares(torch.stack(rights).mean(dim=0).tolist())
        return found


class Means:
    """Means by name."""

    def __init__(self) -> None:
        self.values: dict[str, list[float]] = {}

    def add(self, name: str, value: Tensor) -> None:
        self.values.setdefault(name, []).append(float(value))

    def found(self) -> dict[str, float]:
        return {name: float(np.mean(values)) for name, values in self.values.items()}


def schedule(step: int, warmup: int, steps: int) -> float:
    """Linear warm-up, then a cosine down to a twentieth."""
    if step < warmup:
        return (step + 1) / warmup
    progress = min(1.0, (step - warmup) / max(1, steps - warmup))
    return 0.05 + 0.95 * 0.5 * (1 + float(np.cos(np.pi * progress)))


def name_shares(rights: Sequence[T]) -> dict[str, T]:
    """Names for the log: right phones before quantisation, then by the levels so far."""
    return {"phones_right": rights[0]} | {f"phones_right{level}": share for level, share in enumerate(rights[1:])}


def perplexity(codes: Tensor, codebook_size: int) -> Tensor:
    """Exponential of the codes' entropy: how many codes are in use, counting rare ones less."""
    share = torch.bincount(codes.flatten(), minlength=codebook_size).float()
    share = share / share.sum()
    return torch.exp(-(share * torch.log(share + 1e-10)).sum())


class Batch(NamedTuple):
    """Segments of recordings."""

    samples: Tensor
    """(B, N)"""

    phones: Tensor
    """(B, L), the phone at each latent."""

    pitch: Tensor
    """(B, F) in Hertz, without gaps."""

    voiced: Tensor
    """(B, F), 1 where there is a pitch, else 0."""

    def to(self, device: torch.device) -> Batch:
        """There."""
        return Batch(*(tensor.to(device) for tensor in self))


Cut = tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]
"""One row of a batch."""


class Segments:
    """Random stretches of a manifest's recordings, as a function of the step."""

    def __init__(self, manifest: Path, config: CodecTrainingConfig, damaged: Path | None = None) -> None:
        self.folder, self.config = manifest.parent, config
        self.samples = config.segment_patches * config.model.hop_lengths[0]
        utterances = [u for u in read_manifest(manifest) if u.seconds * config.model.sample_rate > self.samples]
        self.timelines = read_timelines(self.folder / config.phones.file) if config.phones else None
        self.pitches = read_pitches(self.folder / config.pitch.file)
        utterances = [u for u in utterances if u.id in self.pitches]
        if self.timelines is not None:
            utterances = [u for u in utterances if u.id in self.timelines]
        self.known = [u for u in utterances if u.split == "train"]
        self.held_out = [u for u in utterances if u.split == "validation"][:96]
        if not self.known or not self.held_out:
            raise DataError(
                f"{manifest}: needs training and validation recordings longer than {self.samples} samples, "
                f"with their pitch in {config.pitch.file}"
                + (f" and their phones in {config.phones.file}" if config.phones else "")
            )
        self.damage = Damage(len(self.known) + len(self.held_out), config.max_damaged_share, damaged)

    def train(self, step: int) -> Batch:
        """Segments of step `step`, at random levels and more or less well recorded."""
        rng = np.random.default_rng((self.config.loop.seed, step))
        cuts = []
        for index in rng.integers(len(self.known), size=self.config.batch):
            samples, phones, pitch, voiced = self.cut_sound(index, float(rng.uniform()))
            samples = samples * np.float32(10 ** (rng.uniform(-9, 6) / 20))
            samples = record(samples, self.config.model.sample_rate, self.config.recording, rng)
            cuts.append((samples / max(1.0, float(np.abs(samples).max())), phones, pitch, voiced))
        return stack(cuts)

    def validation(self) -> list[Batch]:
        """Fixed batches from the middle of held-out recordings, as they are."""
        cuts = []
        for utterance in self.held_out:
            try:
                cuts.append(self.cut(utterance, 0.5))
            except AudioError as error:
                self.damage.leave_out(utterance, error)
        if not cuts:
            raise DataError("none of the recordings for validation can be used")
        size = self.config.batch
        return [stack(cuts[start : start + size]) for start in range(0, len(cuts), size)]

    def cut_sound(self, index: int, place: float) -> Cut:
        """`cut` of the training recording with this number, or of the first one after it that can be used."""
        for number in range(index, index + len(self.known)):
            utterance = self.known[number % len(self.known)]
            try:
                return self.cut(utterance, place)
            except AudioError as error:
                self.damage.leave_out(utterance, error)
        raise DataError("none of the recordings for training can be used")

    def cut(self, utterance: Utterance, place: float) -> Cut:
        """One segment of a recording, read without decoding the rest, and what sounds there, as in `Batch`.

        AudioError if it cannot be read there; DataError if the corpus has another rate than the codec.
        """
        path, model = self.folder / utterance.audio, self.config.model
        first = int(place * max(0, round(utterance.seconds * model.sample_rate) - self.samples))
        waveform = audio.read_span(path, first / model.sample_rate, self.samples / model.sample_rate)
        if waveform.sample_rate != model.sample_rate:
            raise DataError(f"{path}: codec training needs {model.sample_rate} Hz, not {waveform.sample_rate}")
        samples = waveform.samples[: self.samples]
        latent = model.hop_lengths[-1]
        times = (first + latent * (np.arange(self.samples // latent) + 0.5)) / model.sample_rate
        phones = np.full(len(times), AFTER_END)
        if self.timelines is not None:
            inside = times < utterance.seconds
            phones[inside] = phones_at(self.timelines[utterance.id], times[inside])
        frames = (first + model.hop * (np.arange(self.samples // model.hop) + 0.5)) / model.sample_rate
        pitch, voiced = pitch_at(self.pitches[utterance.id], frames)
        return np.pad(samples, (0, self.samples - len(samples))), phones, pitch, voiced


def stack(cuts: Sequence[Cut]) -> Batch:
    """Rows side by side."""
    samples, *taught = (torch.from_numpy(np.stack(rows)) for rows in zip(*cuts, strict=True))
    return Batch(samples.float(), *taught)


def export_codec(model: MiniCodecModel, name: str, folder: Path) -> None:
    """Write the folder that `codec.mini.MiniCodec` runs: config.json, codec.safetensors (fp16), four graphs."""
    model = model.float().cpu().eval()
    config = model.config
    frames = config.hop_lengths[0] // config.hop
    positions = sum(config.strides[0] // stride for stride in config.strides)
    mels = torch.randn(1, 5, frames, config.num_mels)
    codes = torch.zeros(1, 5, positions, dtype=torch.int64)
    hidden = torch.randn(1, 20, config.decoder_width)
    graphs = {
        "encoder": Graph(CodesGraph(model), {"mels": mels}, ["codes"], {"mels": {1: "patches"}}),
        "decoder": Graph(HiddenGraph(model), {"codes": codes}, ["hidden"], {"codes": {1: "patches"}}),
        "filters": Graph(
            FiltersGraph(model), {"hidden": hidden}, ["pulse_gain", "noise_gain", "shift"], {"hidden": {1: "latents"}}
        ),
        "pitch": Graph(PitchGraph(model), {"codes": codes}, ["pitch"], {"codes": {1: "patches"}}),
    }
    export_graphs(folder, "codec.safetensors", model, graphs)
    write_config(MiniCodecFolder(name=name, model=config), folder / "config.json")


def open_task(
    config: CodecTrainingConfig, manifest: Path, run: Path, base: Path | None = None, device: str = "cpu"
) -> CodecTask:
    """The task of a run folder, with the resolved configuration saved there, where `load_codec` looks for it.

    A fresh run begins with the weights of `base`, a run or an exported folder, where one is given.
    """
    task = CodecTask(config, manifest, device, run / DAMAGED_FILE)
    if base is not None and latest(run) is None:
        start_from(task, base)
    run.mkdir(parents=True, exist_ok=True)
    write_config(config, run / "config.json")
    return task


def start_from(task: CodecTask, base: Path) -> None:
    """Begin with the weights of another run or of an exported folder; ConfigError where its sizes differ."""
    model = load_codec(base)
    if model.config != task.config.model:
        raise ConfigError(f"{base}: this codec has other sizes than the configuration asks for; copy its [model] table")
    task.model.load_state_dict(model.state_dict())


def load_codec(run: Path) -> MiniCodecModel:
    """The codec of a training run's newest checkpoint, or of an exported folder."""
    checkpoint = latest(run)
    if checkpoint is None:
        config = read_config(MiniCodecFolder, run / "config.json").model
        weights = run / "codec.safetensors"
    else:
        config = read_config(CodecTrainingConfig, run / "config.json").model
        weights = checkpoint / "codec.safetensors"
    model = MiniCodecModel(config)
    try:
        model.load_state_dict({name: tensor.float() for name, tensor in load_file(weights).items()})
    except (OSError, RuntimeError, ValueError) as error:
        raise CheckpointError(f"{weights}: expected the weights of {run / 'config.json'}, but {error}") from error
    return model
