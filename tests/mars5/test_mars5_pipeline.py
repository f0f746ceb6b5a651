"""Pipeline from text and speaker to codes: prompts, both clones, both profiles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mars5_small import CODES, LEVELS, codes, models
from marstts.errors import TextError, VoiceError
from marstts.mars5.pipeline import Pipeline
from marstts.mars5.profiles import CORRECTED, RELEASED, Profile
from marstts.mars5.prompt import CloneMode, prompt_string, published_prompt_string
from marstts.mars5.repaint import DiffusionConfig

DIFFUSION = DiffusionConfig(timesteps=4)
SHALLOW, DEEP = CloneMode.SHALLOW, CloneMode.DEEP


@pytest.fixture(scope="module")
def pipeline() -> Pipeline:
    return Pipeline(models(), DIFFUSION)


def rngs(*seeds: int) -> list[np.random.Generator]:
    return [np.random.default_rng(seed) for seed in seeds]


def test_prompts_of_both_clones(pipeline: Pipeline) -> None:
    speaker = pipeline.speaker(codes(6), " She sells. ")
    decode = pipeline.models.vocabulary.text.decode
    shallow, deep = (pipeline.prompt("  The cat. ", speaker, mode) for mode in (SHALLOW, DEEP))
    assert decode(shallow.text_ids.tolist()) == "<|startoftext|>The cat.<|endoftext|>"
    assert decode(deep.text_ids.tolist()) == "<|startoftext|>She sells. The cat.<|endoftext|>"
    assert (len(shallow.speech_ids), shallow.prefix.shape) == (0, (0, LEVELS))
    assert pipeline.models.vocabulary.decode_speech(deep.speech_ids).tolist() == codes(6)[:, 0].tolist()
    assert np.array_equal(deep.prefix, codes(6))
    assert deep.tokens.tolist() == [*deep.text_ids, *deep.speech_ids]


@pytest.mark.parametrize("text", ["a <|endoftext|> b", "<|end<|endoftext|>oftext|>", "<|<|startoftext|>endoftext|>"])
def test_text_cannot_forge_special_tokens(text: str, pipeline: Pipeline) -> None:
    ids = pipeline.models.vocabulary.text.encode(prompt_string(text, text))
    assert len([index for index in ids if index in pipeline.models.vocabulary.text.special_tokens.values()]) == 2
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
    tokens = [np.arange(270, 270 + length) for length in (9, 4, 12)]
    together = pipeline.codes(prompts, tokens, rngs(4, 5, 6))
    for row, prompt in enumerate(prompts):
        [alone] = pipeline.codes([prompt], [tokens[row]], rngs(row + 4))
        assert np.array_equal(together[row], alone)


def test_a_row_without_tokens_in_a_batch_gives_no_codes(pipeline: Pipeline) -> None:
    prompts = [pipeline.prompt("Hi.", pipeline.speaker(codes(6), "She"), DEEP)] * 2
    none = np.zeros(0, dtype=np.int64)
    empty, some = pipeline.codes(prompts, [none, np.array([270, 271])], rngs(1, 2))
    assert empty.shape == (0, LEVELS) and some.shape == (2, LEVELS)
    assert [row.shape for row in pipeline.codes(prompts, [none, none], rngs(1, 2))] == [(0, LEVELS)] * 2


def test_padding_is_never_drawn(pipeline: Pipeline) -> None:
    """The NAR predicts padding everywhere."""
    parts = models()
    for head in parts.nar.heads:
        head.output.bias.data[CODES] = 100.0
    tokens = [np.array([270, 271, 272, 280])]
    for profile in (CORRECTED, RELEASED):
        speaking = replace(
            pipeline, models=parts, profile=replace(profile, effective_config=CORRECTED.effective_config)
        )
        prompts = [speaking.prompt("Hi.", speaking.speaker(codes(6)), SHALLOW)]
        [drawn] = speaking.codes(prompts, tokens, rngs(1))
        assert (drawn < CODES).all()


@pytest.mark.parametrize("profile", [CORRECTED, replace(RELEASED, skipped_tokens=0)], ids=lambda profile: profile.name)
@pytest.mark.parametrize("settings", [{}, {"q0_override_steps": 200}, {"jump_len": 2, "jump_n_sample": 3}], ids=str)
def test_level_0_is_exactly_the_ars(profile: Profile, settings: dict[str, int], pipeline: Pipeline) -> None:
    parts = replace(
        pipeline, diffusion=DIFFUSION.model_copy(update=settings),
        profile=replace(profile, effective_config=CORRECTED.effective_config),
    )  # fmt: skip
    prompt = parts.prompt("Hi.", parts.speaker(codes(6)), SHALLOW)
    [drawn] = parts.codes([prompt], [np.arange(270, 283)], rngs(1))
    assert np.array_equal(drawn[:, 0], np.arange(13)) and not np.array_equal(drawn[:, 1], np.arange(13))


def test_fewer_timesteps_call_the_nar_less_often(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    forward = pipeline.models.nar.forward
    monkeypatch.setattr(
        pipeline.models.nar,
        "forward",
        lambda codes, lengths, timesteps, given: (
            seen.append(int(timesteps[0])),
            forward(codes, lengths, timesteps, given),
        )[1],
    )
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
    lost = len(published.models.vocabulary.decode_speech(prompt.speech_ids[:1]))
    assert published.level0(prompt, tokens).tolist() == whole[lost:]
    assert pipeline.level0(prompt, tokens).tolist() == whole[6:]
    [theirs] = published.codes([prompt], [tokens], rngs(1))
    [ours] = replace(pipeline, diffusion=DiffusionConfig(timesteps=2)).codes([prompt], [tokens], rngs(1))
    assert theirs[:, 0].tolist() == whole[lost:][6:] and ours[:, 0].tolist() == whole[6:]
