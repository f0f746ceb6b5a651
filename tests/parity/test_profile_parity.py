"""The published script's loop over chunks, from the profile `released`: what the model is asked, chunk by chunk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from turbo_rules import TurboCompat, limits_of
from turbo_text import map_punctuation

from marstts.audio import Waveform
from marstts.codec.base import Codes
from marstts.codec.toy import ToyCodec
from marstts.errors import TextError
from marstts.mars6.config import Mars6Config
from marstts.mars6.prompt import Prompt
from marstts.mars6.speech import Mars6Speech
from marstts.speaker.toy import ToySpeakerEncoder
from marstts.synthesis.speech import Continuation
from marstts.synthesis.synthesizer import Synthesizer
from marstts.text.tokenizers.bpe import BPE

AMPLITUDES = {"loud": 0.3, "quiet": 0.0005, "zero": 0.0}

FIRST_TOP_P = 0.2


class LoopStepper:
    """ScriptedTake as many patches as were recorded for every call, then ends."""

    def __init__(self, config: Mars6Config, lengths: Sequence[int]) -> None:
        self.config, self.layout, self.lengths = config, config.layout, lengths
        self.prompts: list[Prompt] = []

    def start(self, prompts: Sequence[Prompt]) -> int:
        self.prompts.extend(prompts)
        return 0

    def next_logits(self, state: int, tokens: NDArray[np.int64]) -> tuple[NDArray[np.float32], int]:
        logits = np.full((1, self.config.codebook_size + 1), -100.0, np.float32)
        logits[0, -1 if state >= self.lengths[len(self.prompts) - 1] else 5] = 0.0
        return logits, state

    def append(self, state: int, patches: NDArray[np.int64]) -> int:
        return state + 1

    def select(self, state: int, rows: Sequence[int]) -> int:
        return state


class SineCodec:
    """The recorded runs' codec: codes that count, and a sine as loud as was recorded for the call before."""

    spec = replace(ToyCodec().spec, name="sine")

    def __init__(self, engine: LoopStepper, calls: Sequence[dict[str, Any]]) -> None:
        self.engine, self.calls = engine, calls

    def encode(self, waveform: Waveform) -> Codes:
        patches = len(waveform.samples) // 2048
        return tuple(np.arange(patches * count, dtype=np.int64) + count for count in (1, 2, 4))

    def decode(self, codes: Sequence[NDArray[np.int64]]) -> Waveform:
        amplitude = AMPLITUDES[self.calls[len(self.engine.prompts) - 1]["audio"]]
        time = np.arange(2048 * len(codes[0])) / 24_000
        return Waveform((amplitude * np.sin(2 * np.pi * 440 * time)).astype(np.float32), 24_000)


def skip_defects(trace: dict[str, Any]) -> None:
    """Skip where the published loop fails, or meets what cannot happen or is done otherwise here."""
    if trace["error"]:
        pytest.skip(f"the published code stops with {trace['error']}")
    if any(call["audio"] == "zero" for call in trace["calls"]):
        pytest.skip("the published code accepts digital silence")
    if any(call["returned_patches"] / 12 < call["lower_bound_dur"] for call in trace["calls"]):
        pytest.skip("here a take is never too short: end of speech is held back one patch longer")


def by_chunk(calls: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The calls made for each chunk, the last one accepted."""
    groups: list[list[dict[str, Any]]] = []
    for call in calls:
        if not groups or groups[-1][-1]["audio"] == "loud":
            groups.append([])
        groups[-1].append(call)
    return groups


MODES = {"none": Continuation.NONE, "fixed-ref": Continuation.FIXED_REFERENCE, "per-chunk": Continuation.PER_CHUNK}


def mode_of(trace: dict[str, Any]) -> Continuation:
    """The published code goes over to per-chunk where it does not use the transcript; ours must be asked to."""
    length = len(map_punctuation((trace["transcript"] or "").strip()))
    return Continuation.PER_CHUNK if 0 < length < 4 or length > 300 else MODES[trace["mode"]]


@pytest.mark.slow
def test_what_the_model_is_asked(trace_name: str, record: dict[str, Any], tokenizer: BPE) -> None:
    trace = next(trace for trace in record["traces"] if trace["name"] == trace_name)
    skip_defects(trace)
    config = Mars6Config(text_vocab_size=tokenizer.vocab_size)
    engine = LoopStepper(config, [call["returned_patches"] for call in trace["calls"]])
    profile = TurboCompat(
        Synthesizer(
            name="scripted", model=Mars6Speech(config=config, tokenizer=tokenizer, engine=engine),
            codec=SineCodec(engine, trace["calls"]),
            encoders={"identity": ToySpeakerEncoder("identity", 512), "style": ToySpeakerEncoder("style", 1024)},
        ),
        mode_of(trace),
    )  # fmt: skip
    noise = np.random.default_rng(0).normal(0, 0.1, trace["ref_patches"] * 2048).astype(np.float32)
    voice = profile.clone(Waveform(noise, 24_000), trace["transcript"] or "")
    if not trace["calls"]:  # published: 16000 zeros
        with pytest.raises(TextError, match="nothing to say"):
            profile.speak(trace["text"], voice)
        return
    speech = profile.speak(trace["text"], voice)
    check_prompts(engine.prompts, trace)
    for take, calls in zip(speech.takes, by_chunk(trace["calls"]), strict=True):
        assert len(take.text) / 32 == calls[-1]["lower_bound_dur"]
        schedule = [min(1.0, round(FIRST_TOP_P + 0.2 * attempt, 2)) for attempt in range(len(calls))]
        assert (take.attempts, take.top_p, take.warning) == (len(calls), schedule[-1], None)
        if calls[0]["top_p"] == FIRST_TOP_P:  # else an earlier chunk's raised value leaked into this one
            assert schedule == [call["top_p"] for call in calls]
    assert len(speech.waveform.samples) == trace["final_samples"]


def check_prompts(prompts: Sequence[Prompt], trace: dict[str, Any]) -> None:
    """The same words, limits and prefixes in every call."""
    with_error = trace["ref_patches"] == 1 and trace["transcript"]  # its report of an empty prefix
    for prompt, call in zip(prompts, trace["calls"], strict=True):
        assert with_error or prompt.text_ids.tolist() == call["text_ids"]
        limits = limits_of(" " * round(32 * call["lower_bound_dur"]), len(prompt.text_ids))
        assert with_error or limits.max_patches == call["max_len"]
        assert len(prompt.prefix_tokens) == len(call["prefix"] or [])
        if trace["mode"] == "fixed-ref":
            assert prompt.prefix_tokens.tolist() == (call["prefix"] or [])
