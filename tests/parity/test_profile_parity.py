"""The published script's loop over chunks, from the profile `released`: what the model is asked, chunk by chunk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from marstts.audio import Waveform
from marstts.codec.base import Codes
from marstts.codec.toy import ToyCodec
from marstts.mars6.config import Mars6Config
from marstts.mars6.prompt import Prompt
from marstts.speaker.toy import ToySpeakerEncoder
from marstts.synthesis.released import DeepClone, ReleasedProfile, limits_of
from marstts.synthesis.synthesizer import Synthesizer
from marstts.text.bpe import BPE

RIGHT = (
    "none_plain", "per_chunk_no_transcript", "per_chunk_with_transcript", "fixed_ref", "fixed_ref_no_transcript",
    "transcript_punctuation_mapped", "one_patch_reference",
)  # fmt: skip
"""The recorded runs that show no defect, and the one whose error is put right here."""


class LoopStepper:
    """Says as many patches as were recorded for every call, then ends."""

    def __init__(self, config: Mars6Config, lengths: Sequence[int]) -> None:
        self.config, self.lengths = config, lengths
        self.prompts: list[Prompt] = []

    def start(self, prompts: Sequence[Prompt]) -> int:
        self.prompts.extend(prompts)
        return 0

    def local_logits(self, state: int, tokens: NDArray[np.int64]) -> tuple[NDArray[np.float32], int]:
        logits = np.full((1, self.config.codebook_size + 1), -100.0, np.float32)
        logits[0, -1 if state >= self.lengths[len(self.prompts) - 1] else 5] = 0.0
        return logits, state

    def append(self, state: int, patches: NDArray[np.int64]) -> int:
        return state + 1

    def select(self, state: int, rows: Sequence[int]) -> int:
        return state


class LoudCodec:
    """The recorded runs' codec: codes that count, and a loud sine."""

    spec = replace(ToyCodec().spec, name="loud")

    def encode(self, waveform: Waveform) -> Codes:
        patches = len(waveform.samples) // 2048
        return tuple(np.arange(patches * count, dtype=np.int64) + count for count in (1, 2, 4))

    def decode(self, codes: Sequence[NDArray[np.int64]]) -> Waveform:
        time = np.arange(2048 * len(codes[0])) / 24_000
        return Waveform((0.3 * np.sin(2 * np.pi * 440 * time)).astype(np.float32), 24_000)


@pytest.mark.parametrize("name", RIGHT)
def test_what_the_model_is_asked(name: str, record: dict[str, Any], tokenizer: BPE) -> None:
    trace = next(trace for trace in record["traces"] if trace["name"] == name)
    config = Mars6Config(text_vocab_size=tokenizer.vocab_size)
    stepper = LoopStepper(config, [call["returned_patches"] for call in trace["calls"]])
    profile = ReleasedProfile(
        Synthesizer(
            name="scripted", tokenizer=tokenizer, codec=LoudCodec(), stepper=stepper,
            identity_encoder=ToySpeakerEncoder("identity", 512), style_encoder=ToySpeakerEncoder("style", 1024),
        )
    )  # fmt: skip
    noise = np.random.default_rng(0).normal(0, 0.1, trace["ref_patches"] * 2048).astype(np.float32)
    voice = profile.clone(Waveform(noise, 24_000), trace["transcript"] or "")
    speech = profile.speak(trace["text"], voice, mode=DeepClone(trace["mode"]))
    assert len(stepper.prompts) == len(trace["calls"])
    for prompt, call, take in zip(stepper.prompts, trace["calls"], speech.takes, strict=True):
        with_error = name == "one_patch_reference"  # its text was told of a prefix that was empty
        assert with_error or prompt.text_ids.tolist() == call["text_ids"]
        assert with_error or limits_of(take.text, len(prompt.text_ids)).max_patches == call["max_len"]
        assert len(prompt.prefix_tokens) == len(call["prefix"] or [])
        assert len(take.text) / 32 == call["lower_bound_dur"]
        assert take.top_p == call["top_p"] and take.attempts == 1
    if trace["mode"] == "fixed-ref":
        assert stepper.prompts[-1].prefix_tokens.tolist() == (trace["calls"][-1]["prefix"] or [])
    assert len(speech.waveform.samples) == trace["final_samples"]
