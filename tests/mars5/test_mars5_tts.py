"""The release's own interface."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from mars5_published import AR, NAR, ar_content, nar_content, save
from marstts.audio import Waveform
from marstts.errors import AudioError, CheckpointError, ConfigError, TextError, VoiceError
from marstts.mars5.checkpoint import convert, load_released
from marstts.mars5.pipeline import audible_span
from marstts.mars5.profiles import CORRECTED, RELEASED, Profile
from marstts.mars5.tts import InferenceConfig, Mars5TTS, mars5_english

QUICK: dict[str, Any] = {"timesteps": 2, "generate_max_len_override": 6, "deep_clone": False}


class ToyEncoder:
    """One frame per 320 samples: its codes grow with the samples' mean."""

    def encode(self, waveform: Waveform) -> NDArray[np.int64]:
        self.given = waveform
        frames = np.resize(waveform.samples, (-(-len(waveform.samples) // 320), 320))
        return np.clip((frames.mean(axis=1, keepdims=True) * 900).astype(np.int64) + np.arange(8), 0, 1023)


class ToyVocoder:
    """A buzz between two quiet seconds, as long as the codes."""

    def decode(self, codes: NDArray[np.int64]) -> NDArray[np.float32]:
        self.given = codes
        samples = np.zeros(320 * len(codes), np.float32)
        samples[len(samples) // 3 :: 7] = 0.5
        return samples


def made(profile: Profile = CORRECTED) -> Mars5TTS:
    models = load_released(ar_content(), nar_content(), ar_heads=4, nar_heads=3)
    return Mars5TTS.from_models(models, "cpu", profile=profile, encoder=ToyEncoder(), vocoder=ToyVocoder())


@pytest.fixture(scope="module")
def tts() -> Mars5TTS:
    return made()


def reference(seconds: float) -> torch.Tensor:
    return 0.3 + 0.1 * torch.sin(torch.arange(int(24_000 * seconds)) / 3.0)


def speak(
    tts: Mars5TTS, audio: Any, transcript: str | None = None, **settings: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the speech was cut|no speech came")
        return tts.tts("The cat.", audio, transcript, InferenceConfig(**QUICK | settings), seed=3)


def test_the_settings_have_the_published_names_and_defaults() -> None:
    published = {
        "temperature": 0.7, "top_k": 200, "top_p": 0.2, "typical_p": 1.0, "freq_penalty": 3, "presence_penalty": 0.4,
        "rep_penalty_window": 80, "eos_penalty_decay": 0.5, "eos_penalty_factor": 1, "timesteps": 200,
        "eos_estimated_gen_length_factor": 1.0, "x_0_temp": 0.7, "q0_override_steps": 20, "nar_guidance_w": 3,
        "max_prompt_dur": 12, "generate_max_len_override": -1, "deep_clone": True, "use_kv_cache": True, "trim_db": 27,
        "beam_width": 1, "ref_audio_pad": 0,
    }  # fmt: skip
    config = InferenceConfig()
    assert {name: getattr(config, name) for name in published} == published
    assert config.max_tokens == InferenceConfig(generate_max_len_override=-2).max_tokens == 2000


def test_settings_reach_sampling_and_diffusion() -> None:
    config = InferenceConfig(top_k=7, nar_guidance_w=1.5, jump_len=4, generate_max_len_override=50)
    config.timesteps = 9
    assert (config.sampling.top_k, config.diffusion.nar_guidance_w, config.diffusion.jump_len) == (7, 1.5, 4)
    assert (config.diffusion.timesteps, config.max_tokens) == (9, 50)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"beam_width": 2}, "beam_width = 1"),
        ({"use_kv_cache": False}, "use_kv_cache"),
        ({"temperature": 0}, "temperature"),
    ],
)
def test_impossible_settings_are_refused(wrong: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        InferenceConfig(**wrong)


@pytest.mark.slow
def test_speech_in_both_modes_and_profiles(tts: Mars5TTS) -> None:
    for model in (
        tts,
        made(replace(RELEASED, effective_config=CORRECTED.effective_config)),
    ):  # not 200 steps
        for deep in (False, True):
            codes, waveform = speak(model, reference(1.2), "She sells.", deep_clone=deep, generate_max_len_override=150)
            assert codes.ndim == 1 and codes.dtype == torch.int64 and len(codes) > 0
            assert waveform.ndim == 1 and waveform.dtype == torch.float32


def test_a_seed_repeats_what_it_gave(tts: Mars5TTS) -> None:
    first, second = (speak(tts, reference(1.2), generate_max_len_override=20) for _ in range(2))
    assert torch.equal(first[0], second[0]) and torch.equal(first[1], second[1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        takes = [tts.tts("The cat.", reference(1.2), None, InferenceConfig(**QUICK))[0] for _ in range(6)]
    assert len({tuple(codes.tolist()) for codes in takes}) > 1


def test_channels_are_averaged_and_padding_comes_first(tts: Mars5TTS) -> None:
    mono = reference(1.2)
    speak(tts, torch.stack((mono * 2, mono * 0)), ref_audio_pad=0.5)
    given = tts.encoder.given.samples  # type: ignore[attr-defined]
    assert not given[:12_000].any()
    np.testing.assert_allclose(given[12_000:], mono.numpy(), atol=1e-6)


def test_references_too_short_and_too_long_are_refused_in_one_sentence(tts: Mars5TTS) -> None:
    for seconds in (0.0, 0.1, 600.0):
        with pytest.raises(AudioError, match=rf"the reference has {seconds:.1f} s; expected 1 to 60 s of speech"):
            speak(tts, torch.zeros(int(24_000 * seconds)))
    with pytest.raises(AudioError, match="expected 0 to 60 s"):
        speak(made(RELEASED), torch.zeros(0))
    assert len(made(RELEASED).speaker(reference(0.1), None, InferenceConfig()).codes) == 8
    with pytest.warns(UserWarning, match=r"has 13\.0 s; more than 12 s seldom help"):
        tts.speaker(reference(13.0), None, InferenceConfig())
    with pytest.raises(AudioError, match="not numbers"):
        speak(tts, torch.full((30_000,), torch.nan))
    with pytest.raises(AudioError, match="floating-point"):
        speak(tts, torch.zeros(30_000, dtype=torch.int16))


def test_a_deep_clone_needs_a_transcript_and_a_shallow_one_does_not(tts: Mars5TTS) -> None:
    with pytest.raises(VoiceError, match="give the transcript"):
        speak(tts, reference(1.2), deep_clone=True)
    speak(tts, reference(1.2))


def test_limits_give_warnings_or_errors(tts: Mars5TTS) -> None:
    with pytest.warns(UserWarning, match="cut after 6 tokens"):
        tts.tts(
            "The cat.",
            reference(1.2),
            None,
            InferenceConfig(**QUICK, eos_penalty_factor=99, eos_penalty_decay=1),
            seed=3,
        )
    with pytest.raises(TextError, match=r"limit of 6 with its prompt leaves none"):
        made(RELEASED).tts("The cat.", reference(1.2), None, InferenceConfig(**QUICK), seed=3)


def test_levels_can_be_vocoded_alone(tts: Mars5TTS) -> None:
    samples = tts.vocode(torch.zeros(5, 1, dtype=torch.int32))
    assert samples.shape == (1, 1600)
    assert tts.vocoder.given.shape == (5, 1)  # type: ignore[attr-defined]


def test_speaker_embedding_is_the_ars(tts: Mars5TTS) -> None:
    embedding = tts.get_speaker_embedding(reference(1.2))
    codes = torch.from_numpy(tts.encoder.encode(Waveform(reference(1.2).numpy(), 24_000)))
    assert embedding.shape == (1, AR.width)
    expected = tts.pipeline.models.ar.encode_speaker(codes[None].numpy(), np.array([len(codes)]))
    np.testing.assert_array_equal(embedding, expected)


def test_attributes_of_the_release(tts: Mars5TTS) -> None:
    assert (tts.sr, tts.latent_sr, tts.default_T, tts.diffusion_n_classes) == (24_000, 75, 200, 1025)


def test_from_pretrained_reads_converted_folders(tmp_path: Path) -> None:
    ar, nar = save(ar_content(), tmp_path / "mars5_ar.pt"), save(nar_content(), tmp_path / "mars5_nar.pt")
    convert(ar, nar, tmp_path / "made", ar_heads=4, nar_heads=3)
    tts = Mars5TTS.from_pretrained(tmp_path / "made", "cpu", profile=RELEASED)
    assert tts.pipeline.models.ar.config == AR and tts.pipeline.profile is RELEASED
    with pytest.raises(CheckpointError, match=r"mars5_ar\.safetensors"):
        Mars5TTS.from_pretrained(tmp_path)


@pytest.mark.slow
def test_from_pretrained_reads_published_files_whose_heads_are_64_wide(tmp_path: Path) -> None:
    ar = AR.model_copy(update={"width": 128, "speaker_heads": 2})
    nar = NAR.model_copy(update={"width": 192, "heads": 3})
    save(ar_content(ar), tmp_path / "mars5_ar.safetensors")
    save(nar_content(nar), tmp_path / "mars5_nar.safetensors")
    for made_from in (
        Mars5TTS.from_pretrained(tmp_path, "cpu"),
        Mars5TTS(tmp_path / "mars5_ar.safetensors", str(tmp_path / "mars5_nar.safetensors"), "cpu"),
    ):
        assert (made_from.pipeline.models.ar.config, made_from.pipeline.models.nar.config) == (ar, nar)


def test_the_hubs_entry_gives_model_and_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(Mars5TTS, "__init__", lambda self, *given: asked.append(given))
    monkeypatch.setattr(Mars5TTS, "from_pretrained", lambda *given: asked.append(given))
    assert mars5_english(ar_path="ar.pt", nar_path="nar.pt", device="cpu")[1] is InferenceConfig
    assert mars5_english()[1] is InferenceConfig
    assert asked == [("ar.pt", "nar.pt", "cpu"), ("CAMB-AI/MARS5-TTS", None)]
    for wrong in ({"ar_path": "ar.pt"}, {"pretrained": False}, {"ckpt_format": "gguf"}):
        with pytest.raises(ConfigError, match="nar_path"):
            mars5_english(**wrong)


def test_trimming_reflects_at_the_edges() -> None:
    samples = np.zeros(9000, np.float32)
    samples[4000:5000] = 0.5
    start, end = audible_span(samples, 27)
    slow = [
        20
        * np.log10(
            max(1e-5, np.sqrt((np.pad(samples.astype(float), 1024, mode="reflect")[at : at + 2048] ** 2).mean()))
        )
        for at in range(0, 9001, 512)
    ]
    loud = [index for index, loudness in enumerate(slow) if loudness > max(slow) - 27]
    assert (start, end) == (512 * loud[0], 512 * (loud[-1] + 1))
    assert audible_span(samples[:1024], 27) == (0, 1024)
    assert audible_span(np.zeros(5000, np.float32), 27) == (0, 5000)
