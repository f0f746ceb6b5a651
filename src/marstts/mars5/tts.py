"""The interface of the published MARS5: `Mars5TTS`, its `InferenceConfig`, and the entry of PyTorch's hub.

Upstream: published checkpoints or a bundle; recordings.  Downstream: programs written for the release.
Names, defaults and units are those of its document (github.com/Camb-ai/MARS5-TTS).

    mars5, config_class = torch.hub.load("OWNER/marstts", "mars5_english")
    ar_codes, waveform = mars5.tts("The quick brown rat.", reference, "We set sail.", cfg=config_class(top_k=100))

The facade adds nothing to what the pipeline does; sentences, limits and repeated attempts are those of `marstts.load`.
The profile is the release's unless another is given (`profiles`).
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from marstts.audio import Waveform, trim_silence
from marstts.bundle import BUNDLE_FILE, CODEC_FOLDER, model_folder, read_info
from marstts.codec.base import Codec
from marstts.codec.registry import EncodecPart, open_codec
from marstts.errors import AudioError, ConfigError
from marstts.generation.loop import generate
from marstts.generation.request import Limits, SamplingConfig, StopReason
from marstts.io.config import Config, parse_config
from marstts.mars5.bundled import parse_settings
from marstts.mars5.checkpoint import Models, Source, load_models, load_released
from marstts.mars5.diffusion import NUM_TIMESTEPS
from marstts.mars5.engine import TokenEngine
from marstts.mars5.pipeline import Pipeline
from marstts.mars5.profiles import PROFILES, RELEASED, Profile
from marstts.mars5.prompt import CloneMode, Mars5Prompt, Speaker, SpeechPrompt
from marstts.mars5.published import HUB_MODEL, download_pickles, find_released, load_examined
from marstts.mars5.repaint import DiffusionConfig
from marstts.mars5.sampling import TokenSampling

logger = logging.getLogger(__name__)

Part = TypeVar("Part", bound=Config)

SAMPLE_RATE, FRAME_RATE = 24_000, 75

MAX_TOKENS = 2000
"""Longest sequence of the training, according to the release."""

MAX_REFERENCE_SECONDS = 60.0
"""Longer references are refused: attention over their frames grows with the square, and six seconds are best."""


@dataclass
class InferenceConfig:
    """The release's settings, by its names and with its defaults."""

    temperature: float = 0.7
    top_k: int | None = 200
    top_p: float = 0.2
    typical_p: float = 1.0
    freq_penalty: float = 3
    presence_penalty: float = 0.4
    rep_penalty_window: int = 80
    """Speech tokens; 80 are 5 s."""

    eos_penalty_decay: float = 0.5
    eos_penalty_factor: float = 1
    eos_estimated_gen_length_factor: float = 1.0
    """Speech tokens per character of the text, until which the end is penalized."""

    timesteps: int = 200
    """Steps of the diffusion; the profile `released` always makes 200."""

    x_0_temp: float = 0.7
    q0_override_steps: int = 20
    nar_guidance_w: float = 3
    max_prompt_dur: float = 12
    """Seconds; longer references bring a warning."""

    generate_max_len_override: int = -1
    """New speech tokens at most; 1 and less = 2000."""

    deep_clone: bool = True
    use_kv_cache: bool = True
    """Without effect: the cache changes no token, so it is always used."""

    trim_db: float = 27
    """Silence at the ends, this many dB below the loudest frame, is cut off."""

    beam_width: int = 1
    """Must be 1, as in the release."""

    ref_audio_pad: float = 0
    """Seconds of silence before the reference."""

    jump_len: int = 1
    """Steps of RePaint's jumps; the profile `released` makes none."""

    jump_n_sample: int = 1
    last_greedy: bool = True
    """Whether the last step of the diffusion takes the most probable codes; the profile `released` always draws."""

    def __post_init__(self) -> None:
        """ConfigError where a setting is impossible."""
        if self.beam_width != 1:
            raise ConfigError(f"beam_width is {self.beam_width}, but beams are not searched; leave it at 1")
        for name in ("max_prompt_dur", "ref_audio_pad", "trim_db"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigError(f"{name} is {getattr(self, name)}, expected a number of at least 0")
        if self.trim_db == 0:
            raise ConfigError("trim_db is 0, which would cut off everything; the release has 27")
        self.sampling, self.diffusion  # noqa: B018 - built to be checked

    @property
    def sampling(self) -> TokenSampling:
        """Sampling settings of the AR."""
        return self._part(TokenSampling)

    @property
    def diffusion(self) -> DiffusionConfig:
        """Sampling settings of the NAR."""
        return self._part(DiffusionConfig)

    def _part(self, kind: type[Part]) -> Part:
        given = {name: value for name, value in asdict(self).items() if name in kind.model_fields}
        return parse_config(kind, given, "InferenceConfig")

    @property
    def clone_mode(self) -> CloneMode:
        """Whether speech continues from the reference."""
        return CloneMode.DEEP if self.deep_clone else CloneMode.SHALLOW

    @property
    def max_tokens(self) -> int:
        """Limit of new speech tokens of one utterance."""
        return MAX_TOKENS if self.generate_max_len_override <= 1 else self.generate_max_len_override


class Mars5TTS:
    """The published model, or one of the same kind."""

    sr = SAMPLE_RATE
    latent_sr = FRAME_RATE
    default_T = NUM_TIMESTEPS

    def __init__(
        self,
        ar_ckpt: Source,
        nar_ckpt: Source,
        device: torch.device | str | None = None,
        *,
        profile: Profile = RELEASED,
        codec: Codec | None = None,
    ) -> None:
        """Checkpoints are files, or the content of a published `.pt`; device None = a GPU if there is one.

        `codec` None = EnCodec with Vocos, opened when it is first needed.  Raises CheckpointError where something
        published is missing, corrupt or unsafe.
        """
        self._set_up(load_sources(ar_ckpt, nar_ckpt), device, profile, codec)

    @classmethod
    def from_models(
        cls,
        models: Models,
        device: torch.device | str | None = None,
        *,
        profile: Profile = RELEASED,
        codec: Codec | None = None,
    ) -> Mars5TTS:
        """The same interface over models that are in memory already."""
        made = cls.__new__(cls)
        made._set_up(models, device, profile, codec)
        return made

    @classmethod
    def from_pretrained(
        cls,
        name: Path | str = HUB_MODEL,
        device: torch.device | str | None = None,
        *,
        revision: str | None = None,
        cache_dir: Path | str | None = None,
        codec: Codec | None = None,
    ) -> Mars5TTS:
        """The model of a folder or of the hub: the published safetensors files, or a bundle of `marstts convert`.

        A bundle brings its codec and its profile.  `revision` and `cache_dir` are the hub client's.
        """
        folder = Path(name)
        if not (folder / BUNDLE_FILE).is_file():
            return cls(*find_released(name, revision=revision, cache_dir=cache_dir), device, codec=codec)
        info = read_info(folder)
        if info.architecture != "mars5":
            raise ConfigError(f"{name}: expected a MARS5, but this is a {info.architecture}; open it by marstts.load")
        settings = parse_settings(info.settings, f"{folder}/{BUNDLE_FILE}: settings")
        models = load_models(model_folder(folder, info))
        codec = codec or open_codec(info.codec, folder / CODEC_FOLDER, str(find_device(device)))
        return cls.from_models(models, device, profile=PROFILES[settings.profile], codec=codec)

    def _set_up(self, models: Models, device: torch.device | str | None, profile: Profile, codec: Codec | None) -> None:
        self.device = find_device(device)
        models.ar.to(self.device)
        models.nar.to(self.device)
        self.pipeline = Pipeline(models, profile=profile)
        if codec is not None:
            self.codec = codec

    @cached_property
    def codec(self) -> Codec:
        """Recordings to codes and back."""
        return open_codec(EncodecPart(), device=str(self.device))

    @property
    def diffusion_n_classes(self) -> int:
        """Classes of the diffusion: the codes and padding."""
        return self.pipeline.models.nar.config.num_classes

    def tts(
        self,
        text: str,
        ref_audio: Tensor | NDArray[np.float32],
        ref_transcript: str | None = None,
        cfg: InferenceConfig | None = None,
        *,
        seed: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """`text` in the voice of a recording at 24 kHz, (samples,) or (channels, samples).

        Returns the AR's level-0 codes (T,) and a waveform (N,) at 24 kHz, both on the CPU.  Without a `seed` it is
        drawn from PyTorch's generator, which `torch.manual_seed` sets.
        Raises TextError, AudioError, VoiceError or ConfigError in words.
        """
        cfg = cfg or InferenceConfig()
        pipeline = replace(self.pipeline, diffusion=cfg.diffusion)
        prompt = pipeline.prompt(text, self.speaker(ref_audio, ref_transcript, cfg), cfg.clone_mode)
        rng = np.random.default_rng(draw_seed() if seed is None else seed)
        tokens = self.generate(prompt, cfg, rng)
        level0 = pipeline.level0(prompt, tokens)
        [codes] = pipeline.codes([prompt], [tokens], [rng])
        if len(codes) == 0:
            warnings.warn("no speech came: the model ended at once; try again, or another reference", stacklevel=2)
            return torch.from_numpy(level0), torch.zeros(0)
        samples = trim_silence(self.decode(codes), below_peak_db=cfg.trim_db).samples
        return torch.from_numpy(level0), torch.from_numpy(samples)

    def generate(self, prompt: Mars5Prompt, cfg: InferenceConfig, rng: np.random.Generator) -> NDArray[np.int64]:
        """The AR's speech tokens (N,) as joint ids; warns where the limit cuts them."""
        legal_text_ids = self.pipeline.profile.legal_text_ids
        engine = TokenEngine(self.pipeline.models, "mars5", cfg.sampling, legal_text_ids)
        [generated] = generate(
            engine,
            [SpeechPrompt(prompt, engine.numbers.of(prompt.speech_ids)[:, None])],
            top_p=[cfg.top_p],
            limits=[Limits(0, cfg.max_tokens)],
            rngs=[rng],
            sampling=SamplingConfig(),
        )
        if generated.stop is StopReason.MAX_PATCHES:
            warnings.warn(
                f"the speech was cut after {len(generated.tokens)} tokens, the limit; speak the text in pieces",
                stacklevel=3,
            )
        return engine.numbers.joint_ids[generated.tokens[:, 0]]

    def speaker(
        self, ref_audio: Tensor | NDArray[np.float32], ref_transcript: str | None, cfg: InferenceConfig
    ) -> Speaker:
        """Speaker vectors of both models for a recording at 24 kHz, after `ref_audio_pad` seconds of silence."""
        waveform = to_mono(ref_audio)
        if not 0 < waveform.seconds <= MAX_REFERENCE_SECONDS:
            raise AudioError(
                f"the reference has {waveform.seconds:.1f} s; expected up to {MAX_REFERENCE_SECONDS:g} s of speech, of "
                "which about 6 s are best"
            )
        if waveform.seconds > cfg.max_prompt_dur:
            warnings.warn(
                f"the reference has {waveform.seconds:.1f} s; more than {cfg.max_prompt_dur:g} s seldom help",
                stacklevel=3,
            )
        padding = np.zeros(int(cfg.ref_audio_pad * SAMPLE_RATE), np.float32)
        padded = Waveform(np.concatenate((padding, waveform.samples)), SAMPLE_RATE)
        return self.pipeline.speaker(np.stack(self.codec.encode(padded), axis=1), ref_transcript)

    def vocode(self, tokens: Tensor) -> Tensor:
        """Codes (T, levels), of the first level alone or of more -> waveform (1, samples) at 24 kHz."""
        return torch.from_numpy(self.decode(tokens.cpu().numpy().astype(np.int64)).samples)[None]

    def decode(self, codes: NDArray[np.int64]) -> Waveform:
        """The audio of codes (T, levels)."""
        if codes.ndim != 2:
            raise ConfigError(f"expected codes of shape (frames, levels), not {codes.shape}")
        return self.codec.decode([np.ascontiguousarray(level) for level in codes.T])

    def get_speaker_embedding(self, ref_audio: Tensor | NDArray[np.float32]) -> Tensor:
        """The AR's speaker vector (1, D) of a recording at 24 kHz."""
        return torch.from_numpy(self.speaker(ref_audio, None, InferenceConfig()).ar_vector)[None]


def mars5_english(
    pretrained: bool = True,
    progress: bool = True,
    device: torch.device | str | None = None,
    ckpt_format: str = "safetensors",
    ar_path: Path | str | None = None,
    nar_path: Path | str | None = None,
) -> tuple[Mars5TTS, type[InferenceConfig]]:
    """The result of `torch.hub.load` for the release: the model, and the class of its settings.

    Without paths, `ckpt_format` "safetensors" comes from the Hugging Face hub, and "pt" from GitHub's releases; nothing
    in either is run.  `progress` shows the download on standard error.
    Raises ConfigError where something else is asked for.
    """
    if (ar_path is None) != (nar_path is None):
        raise ConfigError("a path was given for one of the two models: give both ar_path and nar_path, or neither")
    if ar_path is not None and nar_path is not None:
        return Mars5TTS(ar_path, nar_path, device), InferenceConfig
    if not pretrained or ckpt_format not in ("safetensors", "pt"):
        raise ConfigError(
            "only pretrained = True with ckpt_format = 'safetensors' or 'pt' is fetched: "
            "for other files give ar_path and nar_path"
        )
    files = download_pickles(progress) if ckpt_format == "pt" else find_released(HUB_MODEL, progress=progress)
    return Mars5TTS(*files, device), InferenceConfig


def load_sources(ar: Source, nar: Source) -> Models:
    """The models of two checkpoints, which are examined where both are files."""
    if isinstance(ar, Mapping) or isinstance(nar, Mapping):
        return load_released(ar, nar)
    models, findings = load_examined(Path(ar), Path(nar), as_release=False)
    for finding in findings:
        logger.warning("%s", finding)
    return models


def find_device(device: torch.device | str | None) -> torch.device:
    """The device, or where None is given a GPU if there is one, else the CPU."""
    return torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))


def draw_seed() -> int:
    """A seed from PyTorch's generator."""
    return int(torch.randint(2**63 - 1, ()).item())


def to_mono(audio: Any) -> Waveform:
    """(samples,) or (channels, samples) at 24 kHz as a waveform; channels are averaged."""
    samples = np.asarray(audio.detach().cpu() if isinstance(audio, Tensor) else audio)
    waveform = Waveform(samples.mean(axis=0) if samples.ndim == 2 and samples.size else samples, SAMPLE_RATE)
    if not np.isfinite(waveform.samples).all():
        raise AudioError("the reference holds samples that are not numbers (NaN or infinite); export it again")
    return waveform
