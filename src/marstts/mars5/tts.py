"""The interface of the published MARS5, `Mars5TTS` and `InferenceConfig`, for PyTorch's hub (`hubconf.py`).

Upstream: published checkpoints, recordings.  Downstream: programs written for the release.

    tts = Mars5TTS("mars5_ar.safetensors", "mars5_nar.safetensors")
    ar_codes, waveform = tts.tts("The ship left at dawn.", reference, "We set sail.", InferenceConfig(top_k=100))

It is an adapter over the same parts that `speech` uses. The profile is the release's, until somebody has compared both
with the published weights; `CORRECTED` corrects its defects (`profiles`).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor

from marstts.audio import Waveform, trim_silence
from marstts.errors import AudioError, ConfigError, TextError
from marstts.generation.loop import generate
from marstts.generation.request import Limits, SamplingConfig, StopReason
from marstts.io.config import Config
from marstts.mars5.checkpoint import Models, Source, load_models, load_released
from marstts.mars5.engines.tokens import TokenEngine
from marstts.mars5.engines.torch import runnable
from marstts.mars5.pipeline import Pipeline, audible_span
from marstts.mars5.profiles import RELEASED, LengthLimit, Profile, Trim
from marstts.mars5.prompt import CloneMode, Mars5Prompt, Speaker, SpeechPrompt
from marstts.mars5.published import AR_FILES, HUB_MODEL, NAR_FILES, download_pickles
from marstts.mars5.sampling import TokenSampling
from marstts.mars5.steps import DiffusionConfig
from marstts.weights.pretrained import find_file

MAX_TOKENS = 2000
"""Longest sequence of the training, according to the release."""

SAMPLE_RATE, FRAME_RATE = 24_000, 75

MAX_REFERENCE_SECONDS = 60.0
"""Longer references are refused: attention over their frames grows with the square, and six seconds are best."""


class ReferenceEncoder(Protocol):
    """Waveforms to codes (T, L); `encodec.EncodecEncoder` is one."""

    def encode(self, waveform: Waveform) -> NDArray[np.int64]: ...


class Vocoder(Protocol):
    """Codes (T, L) to samples at 24 kHz; `vocos.VocosVocoder` is one."""

    def decode(self, codes: NDArray[np.int64]) -> NDArray[np.float32]: ...


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
    eos_penalty_decay: float = 0.5
    eos_penalty_factor: float = 1
    eos_estimated_gen_length_factor: float = 1.0
    timesteps: int = 200
    """Diffusion steps; the profile `released` always makes 200."""
    x_0_temp: float = 0.7
    q0_override_steps: int = 20
    nar_guidance_w: float = 3
    max_prompt_dur: float = 12
    """Seconds; longer references bring a warning."""
    generate_max_len_override: int = -1
    """Speech tokens at most; 1 and less = 2000. The profile `released` counts the prompt too."""
    deep_clone: bool = True
    use_kv_cache: bool = True
    """Must be True: without a cache the tokens are the same, but slower."""
    trim_db: float = 27
    beam_width: int = 1
    """Must be 1, as in the release."""
    ref_audio_pad: float = 0
    """Seconds of silence before the reference."""
    jump_len: int = 1
    """RePaint's jumps, which the release does not expose; the profile `released` makes none."""
    jump_n_sample: int = 1
    last_greedy: bool = True
    """Whether the last diffusion step takes the most probable codes; the profile `released` always draws."""

    def __post_init__(self) -> None:
        if self.beam_width != 1 or not self.use_kv_cache:
            raise ConfigError("only beam_width = 1 and use_kv_cache = True are supported: leave both as they are")
        try:
            self.sampling, self.diffusion  # noqa: B018 - built to be checked
        except ValidationError as error:
            complaints = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
            raise ConfigError(f"impossible settings: {complaints}") from error

    @property
    def sampling(self) -> TokenSampling:
        """Sampling settings of the AR."""
        return TokenSampling(**self._part(TokenSampling))

    @property
    def diffusion(self) -> DiffusionConfig:
        """Sampling settings of the NAR."""
        return DiffusionConfig(**self._part(DiffusionConfig))

    def _part(self, kind: type[Config]) -> dict[str, Any]:
        return {name: getattr(self, name) for name in kind.model_fields if hasattr(self, name)}

    @property
    def clone_mode(self) -> CloneMode:
        """Whether speech continues from the reference."""
        return CloneMode.DEEP if self.deep_clone else CloneMode.SHALLOW

    @property
    def max_tokens(self) -> int:
        """Limit of tokens per utterance."""
        return MAX_TOKENS if self.generate_max_len_override <= 1 else self.generate_max_len_override


class Mars5TTS:
    """The published model, or one of the same kind."""

    sr = SAMPLE_RATE
    latent_sr = FRAME_RATE
    default_T = 200
    diffusion_n_classes = 1025

    def __init__(
        self,
        ar_ckpt: Source,
        nar_ckpt: Source,
        device: torch.device | str | None = None,
        *,
        profile: Profile = RELEASED,
        encoder: ReferenceEncoder | None = None,
        vocoder: Vocoder | None = None,
    ) -> None:
        """Checkpoints are files, or what `torch.load` gives for a published `.pt`.

        `encoder` and `vocoder` default to EnCodec and Vocos from the hub.  Raises CheckpointError where something
        published is missing, corrupt or unsafe.
        """
        self._build(load_released(ar_ckpt, nar_ckpt), device, profile, encoder, vocoder)

    @classmethod
    def from_models(
        cls,
        models: Models,
        device: torch.device | str | None = None,
        *,
        profile: Profile = RELEASED,
        encoder: ReferenceEncoder | None = None,
        vocoder: Vocoder | None = None,
    ) -> Mars5TTS:
        """The same interface over models that are there already."""
        made = cls.__new__(cls)
        made._build(models, device, profile, encoder, vocoder)
        return made

    @classmethod
    def from_pretrained(
        cls,
        name: Path | str = HUB_MODEL,
        device: torch.device | str | None = None,
        *,
        revision: str | None = None,
        cache_dir: Path | str | None = None,
        profile: Profile = RELEASED,
    ) -> Mars5TTS:
        """The models of a folder or of the hub: converted ones (`checkpoint`), or the published safetensors files.

        `revision` and `cache_dir` are the hub client's.
        """
        if (Path(name) / "config.json").is_file():
            return cls.from_models(load_models(name), device, profile=profile)
        ar, nar = (find_file(name, files, revision=revision, cache_dir=cache_dir) for files in (AR_FILES, NAR_FILES))
        return cls(ar, nar, device, profile=profile)

    def _build(
        self,
        models: Models,
        device: torch.device | str | None,
        profile: Profile,
        encoder: ReferenceEncoder | None,
        vocoder: Vocoder | None,
    ) -> None:
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        models.ar.to(self.device)
        models.nar.to(self.device)
        self.pipeline = Pipeline(runnable(models), profile=profile)
        self._encoder, self._vocoder = encoder, vocoder

    @property
    def encoder(self) -> ReferenceEncoder:
        """Recordings to codes; EnCodec is fetched when it is first needed."""
        if self._encoder is None:
            from marstts.codec.encodec import EncodecEncoder

            self._encoder = EncodecEncoder(device=self.device)
        return self._encoder

    @property
    def vocoder(self) -> Vocoder:
        """Codes to samples; Vocos is fetched when it is first needed."""
        if self._vocoder is None:
            from marstts.codec.vocos import VocosVocoder

            self._vocoder = VocosVocoder(padding_spills=self.pipeline.profile.padding_is_legal, device=self.device)
        return self._vocoder

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

        Returns the AR's level-0 codes (T,) and a waveform (N,) at 24 kHz.  Without a `seed` every call differs.
        Raises TextError, AudioError, VoiceError or ConfigError in words.
        """
        cfg = cfg or InferenceConfig()
        pipeline = replace(self.pipeline, diffusion=cfg.diffusion)
        speaker = self.speaker(ref_audio, ref_transcript, cfg)
        prompt = pipeline.prompt(text, speaker, cfg.clone_mode)
        rng = np.random.default_rng(seed)
        tokens = self.generate(prompt, cfg, rng)
        level0 = pipeline.level0(prompt, tokens)
        [codes] = pipeline.codes([prompt], [tokens], [rng])
        if len(codes) == 0:
            warnings.warn("no speech came: the model ended at once; try again, or another reference", stacklevel=2)
        samples = self.trim(self.vocoder.decode(codes), cfg.trim_db)
        return torch.from_numpy(level0), torch.from_numpy(samples)

    def generate(self, prompt: Mars5Prompt, cfg: InferenceConfig, rng: np.random.Generator) -> NDArray[np.int64]:
        """The AR's speech tokens (N,) for a prompt; warns where the limit cuts them, TextError where it leaves none."""
        profile = self.pipeline.profile
        engine = TokenEngine(self.pipeline.models, "mars5", cfg.sampling, legal_text_ids=profile.legal_text_ids)
        counts_prompt = profile.limit is LengthLimit.WHOLE
        limit = cfg.max_tokens - (len(prompt.tokens) if counts_prompt else 0)
        if limit < 1:
            raise TextError(
                f"the prompt has {len(prompt.tokens)} tokens, and the limit of {cfg.max_tokens} with its prompt leaves "
                "none for speech: raise generate_max_len_override, or give a shorter text or reference"
            )
        [generated] = generate(
            engine,
            [SpeechPrompt(prompt, engine.numbers.of(prompt.speech_ids)[:, None])],
            top_p=[cfg.top_p],
            limits=[Limits(0, limit)],
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
        minimum = self.pipeline.profile.min_reference_seconds
        if not minimum <= waveform.seconds <= MAX_REFERENCE_SECONDS or len(waveform.samples) == 0:
            raise AudioError(
                f"the reference has {waveform.seconds:.1f} s; expected {minimum:g} to {MAX_REFERENCE_SECONDS:g} s of "
                "speech, of which about 6 s are best"
            )
        if waveform.seconds > cfg.max_prompt_dur:
            warnings.warn(
                f"the reference has {waveform.seconds:.1f} s; more than {cfg.max_prompt_dur:g} s seldom help",
                stacklevel=3,
            )
        padding = np.zeros(int(cfg.ref_audio_pad * SAMPLE_RATE), np.float32)
        codes = self.encoder.encode(Waveform(np.concatenate((padding, waveform.samples)), SAMPLE_RATE))
        return self.pipeline.speaker(codes, ref_transcript)

    def vocode(self, codes: Tensor) -> Tensor:
        """Codes (T, levels) of any number of levels -> (1, samples)."""
        return torch.from_numpy(self.vocoder.decode(codes.cpu().numpy().astype(np.int64)))[None]

    def get_speaker_embedding(self, ref_audio: Tensor | NDArray[np.float32]) -> Tensor:
        """The AR's speaker vector (1, D) of a recording at 24 kHz."""
        return torch.from_numpy(self.speaker(ref_audio, None, InferenceConfig()).ar_vector)[None]

    def trim(self, samples: NDArray[np.float32], top_db: float) -> NDArray[np.float32]:
        """`samples` without the silence at its ends, measured as the profile specifies."""
        if len(samples) == 0:
            return samples
        if self.pipeline.profile.trim is Trim.REFLECT:
            start, end = audible_span(samples, top_db)
            return samples[start:end]
        return trim_silence(Waveform(samples, SAMPLE_RATE), below_peak_db=top_db).samples


def mars5_english(
    pretrained: bool = True,
    progress: bool = True,
    device: torch.device | str | None = None,
    ckpt_format: str = "safetensors",
    ar_path: Path | str | None = None,
    nar_path: Path | str | None = None,
) -> tuple[Mars5TTS, type[InferenceConfig]]:
    """The result of `torch.hub.load` for the release: the model, and the class of its settings.

    Without paths, `ckpt_format` "safetensors" comes from the Hugging Face hub, and "pt" from GitHub's releases; the
    latter is read as `convert` reads it, and nothing in it is run. `progress` is accepted and has no effect.
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
    if ckpt_format == "pt":
        return Mars5TTS(*download_pickles(), device), InferenceConfig
    return Mars5TTS.from_pretrained(HUB_MODEL, device), InferenceConfig


def to_mono(audio: Tensor | NDArray[np.float32]) -> Waveform:
    """(samples,) or (channels, samples) at 24 kHz as a waveform; channels are averaged."""
    samples = np.asarray(audio.detach().cpu() if isinstance(audio, Tensor) else audio)
    if samples.ndim == 2:
        samples = samples.mean(axis=0)
    waveform = Waveform(samples, SAMPLE_RATE)
    if not np.isfinite(waveform.samples).all():
        raise AudioError("the reference holds samples that are not numbers (NaN or infinite); export it again")
    return waveform
