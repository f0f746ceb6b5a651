"""MARS5 behind the protocols of `generation`: the engine in the loop, voices, codes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from mars5_small import CODES, LEVELS, codes, models
from marstts.audio import Waveform
from marstts.codec.toy import ToyCodec
from marstts.errors import CheckpointError, ConfigError, TextError, VoiceError
from marstts.generation.engine import EngineKind, PatchSampler
from marstts.generation.loop import generate, sample_positions, sampling_inputs
from marstts.generation.request import Limits, Request, RequestState, SamplingConfig, StopReason
from marstts.io.precision import WeightFormat
from marstts.mars5 import bundled
from marstts.mars5.engine import TokenEngine, TokenNumbers
from marstts.mars5.pipeline import Pipeline
from marstts.mars5.prompt import SpeechPrompt
from marstts.mars5.repaint import DiffusionConfig
from marstts.mars5.sampling import TokenSampling
from marstts.mars5.speech import Mars5SpeakerEncoder, Mars5Speech
from marstts.mars5.text import END_OF_SPEECH, JointVocabulary, SpeechBPE
from marstts.voice import Prefix, Voice

CODEC = ToyCodec(codebook_size=CODES, hop_lengths=(400,) * LEVELS)
SAMPLING = TokenSampling(top_k=0, temperature=1.5, eos_penalty_factor=0.0)


@pytest.fixture(scope="module")
def speech() -> Mars5Speech:
    parts = models()
    pipeline = Pipeline(parts, DiffusionConfig(timesteps=3))
    return Mars5Speech(pipeline=pipeline, engine=TokenEngine(parts, "small", SAMPLING))


def voice(speech: Mars5Speech, prefix: Prefix | None = None, role: str = "speaker", size: int = 30) -> Voice:
    speaker = speech.pipeline.speaker(codes(6))
    embedding = np.concatenate((speaker.ar_vector, speaker.nar_vector))
    return Voice(
        name="ann", embeddings={role: embedding[:size]}, prefix=prefix, codec=CODEC.spec.name, encoders={role: "e"},
        source_sha256="", consent="",
    )  # fmt: skip


PREFIX = Prefix(" She sells. ", tuple(np.ascontiguousarray(level) for level in codes(6).T))


def run(speech: Mars5Speech, prompts: list, seeds: list[int], most: int = 9, least: int = 0) -> list:
    return generate(
        speech.engine, prompts, top_p=[1.0] * len(prompts), limits=[Limits(least, most)] * len(prompts),
        rngs=[np.random.default_rng(seed) for seed in seeds], sampling=speech.sampling,
    )  # fmt: skip


def test_a_voice_becomes_the_speaker_it_was_made_from(speech: Mars5Speech) -> None:
    speaker, expected = speech.speaker(voice(speech, PREFIX)), speech.pipeline.speaker(codes(6))
    np.testing.assert_array_equal(speaker.ar_vector, expected.ar_vector)
    np.testing.assert_array_equal(speaker.nar_vector, expected.nar_vector)
    assert np.array_equal(speaker.codes, codes(6))
    assert speech.embedding_sizes == {"speaker": 30}
    assert speech.speaker(voice(speech)).codes.shape == (0, LEVELS)


def test_deep_prompts_count_their_prefix_as_the_engine_does(speech: Mars5Speech) -> None:
    prompt = speech.prompt("The cat.", voice(speech, PREFIX))
    ids = speech.engine.numbers.joint_ids[prompt.prefix_tokens[:, 0]]
    assert speech.pipeline.models.vocabulary.decode_speech(ids).tolist() == codes(6)[:, 0].tolist()
    assert speech.prompt("The cat.", voice(speech)).prefix_tokens.shape == (0, 1)


def test_voices_of_other_models_and_bad_texts_are_refused(speech: Mars5Speech) -> None:
    for wrong in (voice(speech, role="identity"), voice(speech, size=29)):
        with pytest.raises(VoiceError, match=r"should have a speaker embedding of shape \(30,\)"):
            speech.prompt("Hi.", wrong)
    patches = Prefix("She", (np.array([1]), np.array([1, 2]), np.array([1, 2, 3, 4])))
    with pytest.raises(VoiceError, match="different rates"):
        speech.prompt("Hi.", voice(speech, patches))
    with pytest.raises(VoiceError, match="encode the recording again"):
        speech.prompt("Hi.", voice(speech, Prefix("She", (np.array([CODES]),) * LEVELS)))
    with pytest.raises(TextError, match="empty"):
        speech.prompt(" ", voice(speech))


def test_requests_side_by_side_are_those_made_alone(speech: Mars5Speech) -> None:
    prompts = [speech.prompt("The cat.", voice(speech, PREFIX)), speech.prompt("She sells sea shells.", voice(speech))]
    prompts.append(speech.prompt("Oh", voice(speech, PREFIX)))
    together = run(speech, prompts, [1, 2, 4])
    assert len({len(generated.tokens) for generated in together}) > 1
    for prompt, seed, generated in zip(prompts, [1, 2, 4], together, strict=True):
        [alone] = run(speech, [prompt], [seed])
        assert alone.tokens.tolist() == generated.tokens.tolist()
        assert alone.tokens.shape[1] == 1


def test_the_loop_draws_as_a_loop_without_caches_would(speech: Mars5Speech) -> None:
    prompt = speech.prompt("The cat.", voice(speech, PREFIX))
    [generated] = run(speech, [prompt], [7])
    numbers, vocabulary = speech.engine.numbers, speech.pipeline.models.vocabulary
    rng, tokens = np.random.default_rng(7), prompt.given.tokens.tolist()
    for token in numbers.joint_ids[generated.tokens[:, 0]]:
        logits = whole_logits(speech, tokens, prompt)
        new = tokens[len(prompt.given.tokens) :]
        for index in set(new) if len(new) > 1 else ():
            logits[index] -= 3 * new.count(index) + 0.4
        weights = np.exp(logits[270:].astype(np.float64) / 1.5)
        chosen = 270 + int(np.argmax(np.cumsum(weights) > rng.random((1, 2))[0, 0] * weights.sum()))
        assert chosen == token != vocabulary.end
        tokens.append(chosen)


@torch.inference_mode()
def whole_logits(speech: Mars5Speech, ids: list[int], prompt: SpeechPrompt) -> np.ndarray:
    """Logits (V,) after a whole sequence, computed at once."""
    speaker = torch.from_numpy(prompt.given.speaker.ar_vector)
    return speech.engine.ar(torch.tensor([ids]), speaker[None])[0, -1].numpy()


def test_limits_hold(speech: Mars5Speech) -> None:
    prompt = speech.prompt("The cat.", voice(speech))
    for seed in range(5):
        [generated] = run(speech, [prompt], [seed], most=7, least=7)
        assert len(generated.tokens) == 7 and generated.stop is StopReason.MAX_PATCHES


def test_logits_of_the_protocol_put_the_end_last(speech: Mars5Speech) -> None:
    """The loop samples from the logits without penalties."""
    engine, prompt = speech.engine, speech.prompt("The cat.", voice(speech))
    state = engine.start([prompt])
    logits, _ = engine.next_logits(state, np.zeros((1, 0), np.int64))
    assert logits.shape == (1, engine.layout.codebook_size + 1)
    assert logits[0, -1] == state.decoder.logits[0, speech.pipeline.models.vocabulary.end]
    rows = [
        RequestState.begin(Request(prompt, 0.0, Limits(0, 3), np.random.default_rng(0), speech.sampling), engine.layout)
    ]
    patches, _ = sample_positions(engine, state, sampling_inputs(rows, engine.layout))
    assert patches.tolist() == [[int(logits[0].argmax())]]
    assert isinstance(engine, PatchSampler)


def test_the_end_of_speech_may_have_any_id() -> None:
    text = models().vocabulary.text
    vocabulary = JointVocabulary(text, SpeechBPE(((0, 1),), {END_OF_SPEECH: 4, "<|other|>": 5}, codebook_size=3))
    numbers = TokenNumbers(vocabulary)
    assert numbers.joint_ids.tolist() == [270, 271, 272, 273, 275, 274]
    assert numbers.of(np.array([275, 274, 270])).tolist() == [4, 5, 0]
    assert (numbers.layout.patch_size, numbers.layout.eos) == (1, 5)
    released = TokenNumbers(vocabulary, legal_text_ids=1)
    assert released.joint_ids.tolist() == [269, 270, 271, 272, 273, 275, 274] and released.first_legal == 269


def test_tokens_become_codes_of_all_levels(speech: Mars5Speech) -> None:
    prompt = speech.prompt("The cat.", voice(speech, PREFIX))
    [generated] = run(speech, [prompt], [1])
    first, second = (speech.codes(generated.tokens, np.random.default_rng(3), prompt) for _ in range(2))
    assert len(first) == LEVELS and len({len(level) for level in first}) == 1
    assert all(np.array_equal(*levels) for levels in zip(first, second, strict=True))
    assert [len(level) for level in speech.codes(generated.tokens[:0], np.random.default_rng(3), prompt)] == [
        0
    ] * LEVELS
    assert not speech.is_incremental


def test_the_speaker_encoder_goes_through_the_codec(speech: Mars5Speech) -> None:
    encoder = Mars5SpeakerEncoder(speech.pipeline, CODEC, "mars5-abc")
    waveform = Waveform(np.sin(np.arange(8000) / 9).astype(np.float32), 24_000)
    embedding = encoder.embed(waveform)
    expected = speech.pipeline.speaker(np.stack(CODEC.encode(waveform), axis=1))
    assert embedding.shape == (encoder.size,) and embedding.dtype == np.float32
    np.testing.assert_array_equal(embedding[:12], expected.ar_vector)
    np.testing.assert_array_equal(embedding[12:], expected.nar_vector)


@pytest.mark.slow
def test_a_folder_becomes_a_speech_model(tmp_path: Path) -> None:
    """Uses the functions that every architecture of a bundle has."""
    bundled.write_model(models(), tmp_path / "mars5")
    engine = bundled.open_engine(tmp_path / "mars5", EngineKind.TORCH)
    values = {
        "sampling": {"temperature": 1.5},
        "diffusion": {"timesteps": 3, "nar_guidance_w": 2.5},
        "profile": "released",
    }
    settings = bundled.parse_settings(values, "bundle.json")
    sampling = SamplingConfig(top_p=1.0)
    model = bundled.speech_model(engine, tmp_path, settings, sampling)
    profile = model.pipeline.profile
    assert (model.pipeline.diffusion.nar_guidance_w, profile.name) == (2.5, "released")
    assert profile.reference_copies == 2
    assert (model.engine.sampling.temperature, model.sampling, model.patch_rate) == (1.5, sampling, 16.0)
    bundled.check_fit("folder", model.config, model.tokenizer, CODEC.spec, {})
    [(role, encoder)] = bundled.model_encoders(model, CODEC).items()
    waveform = Waveform(np.sin(np.arange(8000) / 9).astype(np.float32), 24_000)
    ann = Voice(
        name="ann", embeddings={role: encoder.embed(waveform)}, prefix=None, codec=CODEC.spec.name,
        encoders={role: encoder.name}, source_sha256="", consent="",
    )  # fmt: skip
    prompt = model.prompt("The cat.", ann)
    [generated] = run(model, [prompt], [1])
    assert len(model.codes(generated.tokens, np.random.default_rng(0), prompt)) == LEVELS


def test_bundles_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    parts = models()
    bundled.write_model(parts, tmp_path / "mars5", WeightFormat.FLOAT32)
    other = ToyCodec(codebook_size=CODES + 1, hop_lengths=(800, 400, 400)).spec
    with pytest.raises(CheckpointError, match=r"codebook_size is 13, but .* has 14; codes per frame is \(1, 1, 1\)"):
        bundled.check_fit("folder", parts.config, parts.vocabulary.text, other, {})
    with pytest.raises(CheckpointError, match="has no graphs, since PyTorch runs it; use 'auto'"):
        bundled.open_engine(tmp_path / "mars5", EngineKind.ONNX)
    assert not bundled.has_graphs(tmp_path / "mars5")
    with pytest.raises(ConfigError, match="nothing is to be upgraded"):
        bundled.rewrite_model(tmp_path / "mars5", tmp_path / "other", None, tmp_path)
