"""Pipeline from text and speaker to codes: prompts, the loop, both clones, both profiles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from mars5_small import CODES, LEVELS, ar, codes, models, nar
from marstts.errors import TextError, VoiceError
from marstts.mars5.generate import Request, StopReason, generate
from marstts.mars5.pipeline import Pipeline
from marstts.mars5.profiles import CORRECTED, RELEASED
from marstts.mars5.prompt import CloneMode, prompt_string, published_prompt_string
from marstts.mars5.sampling import SamplingConfig
from marstts.mars5.steps import DiffusionConfig

SAMPLING = SamplingConfig(top_p=1.0, top_k=0, temperature=1.5, eos_penalty_factor=0.0)
DIFFUSION = DiffusionConfig(timesteps=4)
SHALLOW, DEEP = CloneMode.SHALLOW, CloneMode.DEEP


@pytest.fixture(scope="module")
def pipeline() -> Pipeline:
    parts = models()
    return Pipeline(parts.ar, parts.nar, parts.vocabulary, SAMPLING, DIFFUSION, max_tokens=12)


def rngs(*seeds: int) -> list[np.random.Generator]:
    return [np.random.default_rng(seed) for seed in seeds]


def test_prompts_of_both_clones(pipeline: Pipeline) -> None:
    speaker = pipeline.speaker(codes(6), " She sells. ")
    decode = pipeline.vocabulary.text.decode
    shallow, deep = (pipeline.prompt("  The cat. ", speaker, mode) for mode in (SHALLOW, DEEP))
    assert decode(shallow.text_ids.tolist()) == "<|startoftext|>The cat.<|endoftext|>"
    assert decode(deep.text_ids.tolist()) == "<|startoftext|>She sells. The cat.<|endoftext|>"
    assert (len(shallow.speech_ids), shallow.prefix.shape) == (0, (0, LEVELS))
    assert pipeline.vocabulary.decode_speech(deep.speech_ids).tolist() == codes(6)[:, 0].tolist()
    assert np.array_equal(deep.prefix, codes(6))
    assert deep.tokens.tolist() == [*deep.text_ids, *deep.speech_ids]


@pytest.mark.parametrize("text", ["a <|endoftext|> b", "<|end<|endoftext|>oftext|>", "<|<|startoftext|>endoftext|>"])
def test_text_cannot_forge_special_tokens(text: str, pipeline: Pipeline) -> None:
    ids = pipeline.vocabulary.text.encode(prompt_string(text, text))
    assert len([index for index in ids if index in pipeline.vocabulary.text.special_tokens.values()]) == 2
    assert published_prompt_string(" <|endoftext|>", "Hi. ") == "<|startoftext|>Hi.  <|endoftext|><|endoftext|>"


def test_bad_prompts_are_refused_in_one_sentence(pipeline: Pipeline) -> None:
    speaker = pipeline.speaker(codes(6), None)
    with pytest.raises(TextError, match="empty"):
        pipeline.prompt(" \n", speaker, SHALLOW)
    with pytest.raises(VoiceError, match="give the transcript"):
        pipeline.prompt("Hi.", speaker, DEEP)
    with pytest.raises(VoiceError, match="give the transcript"):
        pipeline.prompt("Hi.", replace(speaker, transcript="  "), DEEP)
    with pytest.raises(TextError, match="a prompt of 52 tokens, but the model attends to 40: speak the text in pieces"):
        pipeline.prompt("x" * 50, speaker, SHALLOW)
    with pytest.raises(TextError, match="give a shorter reference"):
        pipeline.prompt("Hi.", pipeline.speaker(np.full((60, LEVELS), 4), "She sells."), DEEP)


@pytest.mark.parametrize(
    "wrong", [np.full((4, LEVELS), CODES), np.full((4, LEVELS), -1), codes(4)[:, :2], codes(0), codes(4)[0]]
)
def test_references_that_do_not_fit_are_refused(wrong: np.ndarray, pipeline: Pipeline) -> None:
    with pytest.raises(VoiceError, match="encode the recording again"):
        pipeline.speaker(wrong)


def test_utterances_side_by_side_are_those_spoken_alone(pipeline: Pipeline) -> None:
    prompts = [
        pipeline.prompt("The cat sat.", pipeline.speaker(codes(6), "She sells."), DEEP),
        pipeline.prompt("Sea shells on the mat.", pipeline.speaker(codes(9, 4)), SHALLOW),
        pipeline.prompt("Oh!", pipeline.speaker(codes(3, 5), "The mat"), DEEP),
    ]
    together = pipeline.generate(prompts, rngs(1, 2, 3))
    tokens = [generated.tokens for generated in together]
    assert len({len(ids) for ids in tokens}) > 1, "rows end at different times"
    all_codes = pipeline.codes(prompts, tokens, rngs(4, 5, 6))
    for row, prompt in enumerate(prompts):
        [alone] = pipeline.generate([prompt], rngs(row + 1))
        assert alone.tokens.tolist() == tokens[row].tolist() and alone.stop is together[row].stop
        [expected] = pipeline.codes([prompt], [alone.tokens], rngs(row + 4))
        assert np.array_equal(all_codes[row], expected)


def test_the_loop_draws_as_a_loop_without_caches_would(pipeline: Pipeline) -> None:
    prompt = pipeline.prompt("The cat sat.", pipeline.speaker(codes(6), "She sells."), DEEP)
    [generated] = pipeline.generate([prompt], rngs(7))
    rng, tokens = np.random.default_rng(7), prompt.tokens.tolist()
    greedy_end = pipeline.vocabulary.end
    for token in generated.tokens:
        with torch.inference_mode():
            logits = pipeline.ar(torch.tensor([tokens]), prompt.speaker.ar_vector[None])[0, -1].numpy()
        new = tokens[len(prompt.tokens) :]
        for index in set(new) if len(new) > 1 else ():
            logits[index] -= 3 * new.count(index) + 0.4
        weights = np.exp(logits[270:].astype(np.float64) / 1.5)
        chosen = 270 + int(np.argmax(np.cumsum(weights) > rng.random() * weights.sum()))
        assert chosen == token != greedy_end
        tokens.append(chosen)


def test_limits_end_generation(pipeline: Pipeline) -> None:
    speaker = pipeline.speaker(codes(6))
    prompt = pipeline.prompt("Hi.", speaker, SHALLOW)
    requests = [
        Request(prompt.tokens, speaker.ar_vector, limit, None, np.random.default_rng(0)) for limit in (3, 0, -4, 1)
    ]
    generated = generate(pipeline.ar, requests, SAMPLING, first_legal=270, end=999)
    assert [len(row.tokens) for row in generated] == [3, 0, 0, 1]
    assert {row.stop for row in generated} == {StopReason.MAX_TOKENS}
    assert generated[3].tokens[0] == generated[0].tokens[0]
    assert pipeline.request(prompt, requests[0].rng).max_tokens == 12
    published = replace(pipeline, profile=RELEASED)
    assert published.request(prompt, requests[0].rng).max_tokens == 12 - len(prompt.tokens)


def test_the_speaker_encoders_run_once_per_voice(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    speaker = pipeline.speaker(codes(6), "She sells.")
    for model in (pipeline.ar, pipeline.nar):
        monkeypatch.setattr(model, "encode_speaker", lambda *_: pytest.fail("a speaker was encoded again"))
    monkeypatch.setattr(pipeline.nar, "null_speaker", lambda batch: torch.zeros(batch, 18))
    for text in ("The cat.", "The mat."):
        prompt = pipeline.prompt(text, speaker, DEEP)
        [generated] = pipeline.generate([prompt], rngs(1))
        pipeline.codes([prompt], [generated.tokens], rngs(2))


def test_a_row_without_tokens_in_a_batch_gives_no_codes(pipeline: Pipeline) -> None:
    prompts = [pipeline.prompt("Hi.", pipeline.speaker(codes(6), "She"), DEEP)] * 2
    none = np.zeros(0, dtype=np.int64)
    empty, some = pipeline.codes(prompts, [none, np.array([270, 271])], rngs(1, 2))
    assert empty.shape == (0, LEVELS) and some.shape == (2, LEVELS)
    assert [row.shape for row in pipeline.codes(prompts, [none, none], rngs(1, 2))] == [(0, LEVELS)] * 2


def test_our_codes_are_codes_and_the_releases_may_be_padding(pipeline: Pipeline) -> None:
    """The NAR predicts padding everywhere."""
    padding_nar = nar()
    for head in padding_nar.heads:
        head.output.bias.data[CODES] = 100.0
    tokens = [np.array([270, 271, 272, 280])]
    for profile in (CORRECTED, RELEASED):
        parts = replace(
            pipeline, nar=padding_nar, profile=replace(profile, effective_config=CORRECTED.effective_config)
        )
        prompts = [parts.prompt("Hi.", parts.speaker(codes(6)), SHALLOW)]
        [drawn] = parts.codes(prompts, tokens, rngs(1))
        assert (drawn == CODES).any() == profile.padding_is_legal


def test_level_0_is_the_ars_unless_it_may_be_overridden(pipeline: Pipeline) -> None:
    prompt = pipeline.prompt("Hi.", pipeline.speaker(codes(6)), SHALLOW)
    tokens = np.arange(270, 283)
    for steps, same in ((0, True), (200, False)):
        parts = replace(pipeline, diffusion=DIFFUSION.model_copy(update={"q0_override_steps": steps}))
        [drawn] = parts.codes([prompt], [tokens], rngs(1))
        assert np.array_equal(drawn[:, 0], np.arange(13)) is same


def test_fewer_timesteps_call_the_nar_less_often(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    forward = pipeline.nar.forward
    monkeypatch.setattr(pipeline.nar, "forward", lambda *given: (seen.append(int(given[2][0])), forward(*given))[1])
    prompt = pipeline.prompt("Hi.", pipeline.speaker(codes(6)), SHALLOW)
    pipeline.codes([prompt], [np.array([270, 271])], rngs(1))
    assert seen == [199, 133, 66, 0]
    seen.clear()
    jumping = DIFFUSION.model_copy(update={"jump_len": 1, "jump_n_sample": 2})
    replace(pipeline, diffusion=jumping).codes([prompt], [np.array([270, 271])], rngs(1))
    assert seen == [199, 199, 133, 133, 66, 66, 0]  # each step but the last once more


def test_the_released_profile_shows_the_reference_twice_and_loses_a_token(pipeline: Pipeline) -> None:
    published = replace(pipeline, profile=replace(RELEASED, effective_config=CORRECTED.effective_config))
    speaker = pipeline.speaker(codes(6), "She sells.")
    prompt = published.prompt("Hi.", speaker, DEEP)
    tokens = np.array([270, 281, 272, 273, 274])  # one code each
    whole = [*codes(6)[:, 0], 0, 11, 2, 3, 4]
    lost = len(published.vocabulary.decode_speech(prompt.speech_ids[:1]))
    assert published.level0(prompt, tokens).tolist() == whole[lost:]
    assert pipeline.level0(prompt, tokens).tolist() == whole[6:]
    [theirs] = published.codes([prompt], [tokens], rngs(1))
    [ours] = replace(pipeline, diffusion=DiffusionConfig(timesteps=2, q0_override_steps=0)).codes(
        [prompt], [tokens], rngs(1)
    )
    assert theirs[:, 0].tolist() == whole[lost:][6:] and ours[:, 0].tolist() == whole[6:]


def test_a_window_shorter_than_speech_goes_on(pipeline: Pipeline) -> None:
    parts = replace(pipeline, ar=ar(window=20), max_tokens=30, sampling=SAMPLING)
    prompt = parts.prompt("Hi.", parts.speaker(codes(6)), SHALLOW)
    requests = [Request(prompt.tokens, prompt.speaker.ar_vector, 30, None, np.random.default_rng(0))]
    [generated] = generate(parts.ar, requests, SAMPLING, first_legal=270, end=999)
    assert len(generated.tokens) == 30
