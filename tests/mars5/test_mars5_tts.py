"""The release's own interface of MARS5: the examples of its document, on small weights."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from mars5_published import AR, NAR, ar_content, nar_content, save
from marstts.audio import Waveform
from marstts.cli.main import app
from marstts.codec.base import Codes
from marstts.codec.registry import ToyCodecPart
from marstts.codec.toy import ToyCodec
from marstts.errors import AudioError, CheckpointError, ConfigError, MarsError, VoiceError
from marstts.mars5 import published
from marstts.mars5.checkpoint import load_released
from marstts.mars5.profiles import CORRECTED, RELEASED, Profile
from marstts.mars5.tts import InferenceConfig, Mars5TTS, mars5_english
from marstts.weights import pretrained

pytestmark = pytest.mark.slow

HOPS = (320,) * 8
WIDE_AR = AR.model_copy(update={"width": 128, "speaker_heads": 2})
WIDE_NAR = NAR.model_copy(update={"width": 192, "heads": 3})
"""Heads of a published model are 64 wide."""

QUICK: dict[str, Any] = {"timesteps": 2, "generate_max_len_override": 6}


class NotedCodec(ToyCodec):
    """A codec with EnCodec's rates that notes the recording it was given."""

    def encode(self, waveform: Waveform) -> Codes:
        self.given = waveform
        return super().encode(waveform)

    def decode(self, codes: Any, first: int = 0) -> Waveform:
        self.decoded = len(codes)
        return super().decode(codes, first)


def made(profile: Profile = CORRECTED) -> Mars5TTS:
    models = load_released(ar_content(), nar_content(), ar_heads=4, nar_heads=3)
    return Mars5TTS.from_models(models, "cpu", profile=profile, codec=NotedCodec(1024, HOPS))


@pytest.fixture(scope="module")
def tts() -> Mars5TTS:
    return made()


def reference(seconds: float = 0.4) -> torch.Tensor:
    return 0.3 * torch.sin(torch.arange(int(24_000 * seconds)) / 3.0)


def speak(tts: Mars5TTS, audio: Any, transcript: str | None = None, **settings: Any) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the speech was cut|no speech came")
        return tts.tts("The cat.", audio, transcript, InferenceConfig(**QUICK | settings), seed=3)


@pytest.fixture
def release(tmp_path: Path) -> tuple[Path, Path]:
    """Small files with the names of the hub."""
    ar = save(ar_content(WIDE_AR), tmp_path / "mars5_ar.safetensors")
    return ar, save(nar_content(WIDE_NAR), tmp_path / "mars5_nar.safetensors")


def test_the_documents_example_speaks(release: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Load, a reference at the model's rate with its transcript, a configuration, `tts`, and `vocode`."""
    monkeypatch.setattr("marstts.mars5.tts.open_codec", lambda *_, **__: ToyCodec(1024, HOPS))
    mars5, config_class = mars5_english(ar_path=release[0], nar_path=release[1], device="cpu")
    wav = reference(0.3)
    assert (mars5.sr, mars5.latent_sr, mars5.default_T, mars5.diffusion_n_classes) == (24_000, 75, 200, 1025)
    cfg = config_class(
        deep_clone=True, rep_penalty_window=100, top_k=100, temperature=0.7, freq_penalty=3,
        generate_max_len_override=4,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ar_codes, output_audio = mars5.tts("The quick brown rat.", wav, "We set sail.", cfg=cfg)
    assert ar_codes.ndim == 1 and ar_codes.dtype == torch.int64 and len(ar_codes) >= 22  # the reference's, too
    assert output_audio.ndim == 1 and output_audio.dtype == torch.float32
    raw = mars5.vocode(ar_codes[:, None])
    assert raw.shape == (1, 320 * len(ar_codes))
    assert mars5.get_speaker_embedding(wav).shape == (1, WIDE_AR.width)


def test_the_settings_have_the_published_names_and_defaults() -> None:
    published_settings = {
        "temperature": 0.7, "top_k": 200, "top_p": 0.2, "typical_p": 1.0, "freq_penalty": 3, "presence_penalty": 0.4,
        "rep_penalty_window": 80, "eos_penalty_decay": 0.5, "eos_penalty_factor": 1, "timesteps": 200,
        "eos_estimated_gen_length_factor": 1.0, "x_0_temp": 0.7, "q0_override_steps": 20, "nar_guidance_w": 3,
        "max_prompt_dur": 12, "generate_max_len_override": -1, "deep_clone": True, "use_kv_cache": True, "trim_db": 27,
        "beam_width": 1, "ref_audio_pad": 0,
    }  # fmt: skip
    config = InferenceConfig()
    assert {name: getattr(config, name) for name in published_settings} == published_settings
    assert config.max_tokens == 2000 and InferenceConfig(generate_max_len_override=50).max_tokens == 50


@pytest.mark.parametrize(
    "changed",
    [
        {"temperature": 9.0}, {"top_k": 1}, {"top_p": 1.0}, {"typical_p": 0.1}, {"freq_penalty": -90},
        {"presence_penalty": -90.0}, {"eos_penalty_factor": -99}, {"eos_penalty_decay": 9},
        {"eos_estimated_gen_length_factor": 0.0}, {"generate_max_len_override": 9}, {"deep_clone": True},
        {"rep_penalty_window": 1},
    ],
    ids=lambda changed: "-".join(changed),
)  # fmt: skip
def test_each_setting_of_the_ar_changes_its_tokens(changed: dict[str, Any], tts: Mars5TTS) -> None:
    # the end is held off, so that settings of the end show where they let it in
    base = {"deep_clone": False, "top_p": 0.9, "eos_penalty_factor": 50, "eos_penalty_decay": 0.5}
    if "eos_penalty_decay" in changed:
        base |= {"eos_penalty_factor": -1}
    if "rep_penalty_window" in changed:
        base |= {"freq_penalty": -90, "generate_max_len_override": 12}  # negative: ids come again
    codes = [speak(tts, reference(), "We.", **settings)[0].tolist() for settings in (base, {**base, **changed})]
    assert codes[0] != codes[1]


@pytest.mark.parametrize(
    "changed", [{"timesteps": 3}, {"x_0_temp": 9.0}, {"nar_guidance_w": 1e6}, {"last_greedy": False}], ids=str
)
def test_each_setting_of_the_nar_changes_the_sound_alone(changed: dict[str, Any], tts: Mars5TTS) -> None:
    base = {"deep_clone": False, "eos_penalty_factor": 50, "trim_db": 90, "timesteps": 1}
    first, second = (speak(tts, reference(), None, **settings) for settings in (base, {**base, **changed}))
    assert torch.equal(first[0], second[0]) and not torch.equal(first[1], second[1])


def test_repaints_jumps_change_the_sound_alone(tts: Mars5TTS) -> None:
    base = {"deep_clone": False, "eos_penalty_factor": 50, "timesteps": 6, "trim_db": 90}
    first, second = (speak(tts, reference(), **base, **more) for more in ({}, {"jump_len": 2, "jump_n_sample": 2}))
    assert torch.equal(first[0], second[0]) and not torch.equal(first[1], second[1])


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"beam_width": 2}, "beam_width"),
        ({"temperature": 0}, "temperature"),
        ({"ref_audio_pad": -1}, "ref_audio_pad"),
        ({"trim_db": float("nan")}, "trim_db"),
    ],
)
def test_impossible_settings_are_refused(wrong: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        InferenceConfig(**wrong)


def test_the_cache_changes_nothing(tts: Mars5TTS) -> None:
    first, second = (speak(tts, reference(), use_kv_cache=cache, deep_clone=False)[0] for cache in (True, False))
    assert torch.equal(first, second)


def test_a_seed_repeats_a_take_and_so_does_pytorchs(tts: Mars5TTS) -> None:
    settings = InferenceConfig(**QUICK, deep_clone=False, top_p=1.0)

    def take(seed: int) -> list[int]:
        torch.manual_seed(seed)
        return tts.tts("The cat.", reference(), None, settings)[0].tolist()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert take(1) == take(1)
        assert len({tuple(take(seed)) for seed in range(6)}) > 1


def test_channels_are_averaged_and_padding_comes_first(tts: Mars5TTS) -> None:
    mono = reference()
    speak(tts, torch.stack((mono * 2, mono * 0)), ref_audio_pad=0.5, deep_clone=False)
    given = tts.codec.given.samples  # type: ignore[attr-defined]
    assert not given[:12_000].any()
    np.testing.assert_allclose(given[12_000:], mono.numpy(), atol=1e-6)


def test_silence_at_the_ends_is_trimmed_as_far_as_asked(tts: Mars5TTS) -> None:
    lengths = [len(speak(tts, reference(), deep_clone=False, trim_db=db, eos_penalty_factor=50)[1]) for db in (1, 90)]
    assert lengths[0] < lengths[1]


def test_references_that_cannot_be_used_are_refused_in_one_sentence(tts: Mars5TTS) -> None:
    for seconds in (0.0, 600.0):
        with pytest.raises(AudioError, match=rf"the reference has {seconds:.1f} s; expected up to 60 s of speech"):
            speak(tts, torch.zeros(int(24_000 * seconds)))
    with pytest.warns(UserWarning, match=r"has 13\.0 s; more than 12 s seldom help"):
        tts.get_speaker_embedding(reference(13.0))
    with pytest.warns(UserWarning, match="more than 0.1 s"):
        tts.speaker(reference(), None, InferenceConfig(max_prompt_dur=0.1))
    with pytest.raises(AudioError, match="not numbers"):
        speak(tts, torch.full((30_000,), torch.nan))
    with pytest.raises(AudioError, match="floating-point"):
        speak(tts, torch.zeros(30_000, dtype=torch.int16))
    with pytest.raises(VoiceError, match="give the transcript"):
        speak(tts, reference())


def test_the_limit_of_tokens_warns(tts: Mars5TTS) -> None:
    settings = InferenceConfig(**QUICK, deep_clone=False, eos_penalty_factor=99, eos_penalty_decay=1)
    with pytest.warns(UserWarning, match="cut after 6 tokens"):
        tts.tts("The cat.", reference(), None, settings, seed=3)


def test_any_number_of_levels_can_be_vocoded(tts: Mars5TTS) -> None:
    for levels in (1, 8):
        assert tts.vocode(torch.zeros(5, levels, dtype=torch.int32)).shape == (1, 1600)
        assert tts.codec.decoded == levels  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"\(frames, levels\)"):
        tts.vocode(torch.zeros(5))


def test_from_pretrained_reads_published_files_and_bundles(release: tuple[Path, Path], tmp_path: Path) -> None:
    tts = Mars5TTS.from_pretrained(tmp_path, "cpu")
    assert tts.pipeline.models.ar.config == WIDE_AR and tts.pipeline.profile is RELEASED
    published.convert(*release, tmp_path / "bundle", codec=ToyCodecPart(codebook_size=1024, hop_lengths=HOPS))
    tts = Mars5TTS.from_pretrained(tmp_path / "bundle", "cpu")
    assert tts.pipeline.models.nar.config == WIDE_NAR and tts.codec.spec.hop_lengths == HOPS
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match=r"mars5_ar\.safetensors"):
        Mars5TTS.from_pretrained(tmp_path / "empty")


def test_a_bundle_of_another_model_is_refused(toy_bundle: Path) -> None:
    with pytest.raises(ConfigError, match="expected a MARS5, but this is a mars6"):
        Mars5TTS.from_pretrained(toy_bundle)


def test_the_entry_fetches_in_the_format_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(name: str) -> Any:
        def refuse(*given: Any, **options: Any) -> Any:
            raise MarsError(f"{name} {given} {options}")

        return refuse

    monkeypatch.setattr("marstts.mars5.tts.find_released", answer("hub"))
    monkeypatch.setattr("marstts.mars5.tts.download_pickles", answer("GitHub"))
    with pytest.raises(MarsError, match=r"hub \('CAMB-AI/MARS5-TTS',\) {'progress': True}"):
        mars5_english()
    with pytest.raises(MarsError, match=r"GitHub \(False,\)"):
        mars5_english(progress=False, ckpt_format="pt")
    for wrong in ({"ar_path": "ar.pt"}, {"pretrained": False}, {"ckpt_format": "gguf"}):
        with pytest.raises(ConfigError, match="nar_path"):
            mars5_english(**wrong)  # type: ignore[arg-type]


def test_without_a_network_the_remedy_that_is_named_works(
    release: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine without a network: `marstts speak --model mars5-english` names a command; it is run here."""
    monkeypatch.setenv("MARSTTS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(pretrained, "connection_problem", lambda address: OSError("no network"))
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["speak", "Hello.", "--model", "mars5-english", "--output", "a.wav"])
    assert result.exit_code == 2 and "no network" in result.stderr, result.output
    [command] = re.findall("run `marstts (convert [^`]*)`", result.stderr)
    assert CliRunner().invoke(app, command.split()).exit_code == 0
    [model] = re.findall(r"speak with --model (\S+)", result.stderr)
    assert Mars5TTS.from_pretrained(model, "cpu", codec=ToyCodec(1024, HOPS)).pipeline.models.ar.config == WIDE_AR
