"""The published tokenizers, penalties, filters and trimming, from ours."""

from __future__ import annotations

import numpy as np
import pytest
from mars5_golden import Golden, open_golden
from numpy.typing import NDArray

from marstts.mars5.sampling import TokenSampling, filter_logits, penalize_early_end, penalize_repetition
from marstts.mars5.text import read_speech_tokenizer, read_text_tokenizer


@pytest.fixture
def golden5(request: pytest.FixtureRequest) -> Golden:
    return open_golden(request.config)


def test_text_tokenizer(golden5: Golden) -> None:
    facts, tokenizer = golden5.record["texttok"], golden5.models.vocabulary.text
    assert (tokenizer.vocab_size, tokenizer.special_tokens) == (facts["vocab_size"], facts["special_tokens"])
    for case in facts["encode"]:
        assert tokenizer.encode(case["text"]) == case["all"], case["text"]
        assert tokenizer.encode_plain(case["text"]) == case["none"], case["text"]
        assert tokenizer.decode(case["all"]) == case["decoded"], case["text"]


def test_speech_tokenizer(golden5: Golden) -> None:
    facts, tokenizer = golden5.record["speechtok"], golden5.models.vocabulary.speech
    assert (tokenizer.vocab_size, tokenizer.special) == (facts["vocab_size"], facts["special_tokens"])
    assert len(tokenizer.merges) == facts["n_merges"]
    for case in facts["cases"]:
        if "<" not in case["text"]:  # special tokens are no codes
            assert tokenizer.encode([int(code) for code in case["text"].split()]) == case["ids"], case["text"]
        assert tokenizer.spell_out(case["ids"]) == case["decoded_int"]


def test_tokenizer_files_hold_what_the_containers_hold(golden5: Golden) -> None:
    text, speech = (golden5.folder / name for name in ("texttok.model", "speechtok.model"))
    assert read_speech_tokenizer(speech.read_text("utf-8"), "file") == golden5.models.vocabulary.speech
    sample = golden5.record["texttok"]["encode"][5]
    assert read_text_tokenizer(text.read_text("utf-8"), "file").encode(sample["text"]) == sample["all"]


def test_penalties_and_filters(golden5: Golden) -> None:
    previous = golden5.tensors["samplers.previous"].tolist()
    assert golden5.record["samplers"]
    for index, case in enumerate(golden5.record["samplers"]):
        settings = dict(case["args"])
        logits = golden5.tensors[settings.pop("input", "samplers.logits")].numpy()
        ours, recorded = apply(case["fn"], settings, logits, previous), golden5.tensors[f"samplers.out.{index}"].numpy()
        finite = np.isfinite(recorded)
        assert np.array_equal(np.isfinite(ours), finite), case
        np.testing.assert_allclose(ours[finite], recorded[finite], atol=1e-5)


def apply(
    function: str, settings: dict[str, float], logits: NDArray[np.float32], previous: list[list[int]]
) -> NDArray[np.float32]:
    neutral = {"temperature": 1.0, "top_k": 0, "top_p": 1.0}
    if function == "freq_rep_penalty":
        return penalize_repetition(
            logits, previous, frequency=settings["alpha_frequency"], presence=settings["alpha_presence"],
            window=int(settings["penalty_window"]),
        )  # fmt: skip
    if function == "early_eos_penalty":
        return np.stack(
            [
                penalize_early_end(
                    row, int(settings["n_generated"]), int(settings["estimated_gen_length"]),
                    end=int(settings["eos_index"]), decay=settings["decay"], factor=settings["factor"],
                )
                for row in logits
            ]
        )  # fmt: skip
    if function == "top_k_top_p_filtering":
        return filter_logits(logits, TokenSampling.model_validate(neutral | settings))
    assert function == "apply_typical_p"
    return filter_logits(logits, TokenSampling.model_validate(neutral | {"typical_p": settings["mass"]}))
