"""The published tokenizer, sampling decisions and layout of tokens, from ours."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from marstts.generation.sampling import NO_ID, keep_nucleus, keep_top_k, repetition_ratio
from marstts.mars6.config import Mars6Config, eos_patch, patchify, unpatchify
from marstts.text.tokenizers.bpe import BPE


def test_tokenizer_sizes(record: dict[str, Any], tokenizer: BPE) -> None:
    facts = record["tokenizer"]
    assert tokenizer.vocab_size == facts["vocab_size"]
    assert tokenizer.special_tokens == facts["special_tokens"]


def test_ids_with_special_tokens(record: dict[str, Any], tokenizer: BPE) -> None:
    for case in record["tokenizer"]["encode"]:
        assert tokenizer.encode(case["text"]) == case["all"], case["text"]


def test_ids_with_special_tokens_as_plain_text(record: dict[str, Any], tokenizer: BPE) -> None:
    for case in record["tokenizer"]["encode"]:
        assert tokenizer.encode_plain(case["text"]) == case["none"], case["text"]
        if case["none_raise"] != "error":
            assert case["none_raise"] == case["none"]


def test_ids_with_some_special_tokens(record: dict[str, Any], tokenizer: BPE) -> None:
    for case in record["tokenizer"]["encode"]:
        allowed = case["set"]["allowed"]
        parts = re.split("(" + "|".join(map(re.escape, allowed)) + ")", case["text"]) if allowed else [case["text"]]
        ids = [
            index
            for part in parts
            for index in (tokenizer.encode(part) if part in allowed else tokenizer.encode_plain(part))
        ]
        assert ids == case["set"]["ids"], case["text"]


def test_decoding(record: dict[str, Any], tokenizer: BPE) -> None:
    for case in record["tokenizer"]["encode"]:
        assert tokenizer.decode(case["all"]) == case["decoded"]
    for case in record["tokenizer"]["decode"]:
        assert tokenizer.decode(case["ids"]) == case["text"]
    for index in record["tokenizer"]["decode_error"]:
        with pytest.raises(AssertionError):
            tokenizer.decode([index])


def test_filters(record: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    logits, settings = tensors["filter.logits"].numpy(), record["filter"]
    for index, top_p in enumerate(settings["top_p"]):
        assert np.array_equal(keep_nucleus(logits, top_p), tensors[f"filter.top_p.{index}"].numpy())
    for index, k in enumerate(settings["top_k"]):
        assert np.array_equal(keep_top_k(logits, k), tensors[f"filter.top_k.{index}"].numpy())
    for index, (k, top_p) in enumerate(settings["top_k_then_top_p"]):
        kept = keep_nucleus(keep_top_k(logits, k), top_p)
        assert np.array_equal(kept, tensors[f"filter.top_k_top_p.{index}"].numpy())
    for index, (top_p, least) in enumerate(settings["min_tokens"]):  # keeps one more than documented; never used
        kept = np.maximum(keep_nucleus(logits, top_p), keep_top_k(logits, least + 1))
        assert np.array_equal(kept, tensors[f"filter.min_tokens.{index}"].numpy())


def test_decisions_of_repetition_aware_sampling(record: dict[str, Any]) -> None:
    for case in record["ras"]:
        history = (case["history"] or [])[-case["K"] :]
        recent = np.array([[NO_ID] * (case["K"] - len(history)) + history])
        [ratio] = repetition_ratio(recent, np.array([case["candidate"]]))
        assert bool(ratio > case["t_r"]) == bool(case["resample"])
        if case["ratio"] is not None:
            assert ratio == pytest.approx(case["ratio"])


def test_layout_of_speech_tokens(record: dict[str, Any]) -> None:
    ends = [case["tokens"][-1] for case in record["speech_tokens"] if case["add_special"]]
    config = Mars6Config(codebook_size=np.max(ends) // 3)
    for case in record["speech_tokens"]:
        tokens = np.array(case["tokens"], dtype=np.int64).reshape(-1, config.patch_size)
        if case["codes"] is not None:
            codes = tuple(np.array(level, dtype=np.int64) for level in case["codes"])
            patches = patchify(codes, config.patch_layout, config.codebook_size)
            ours = np.concatenate([patches, eos_patch(config)]) if case["add_special"] else patches
            assert np.array_equal(ours, tokens)
        spoken = tokens[~(tokens == config.eos).any(axis=1)]
        back = unpatchify(spoken, config.patch_layout, config.codebook_size)
        assert [level.tolist() for level in back] == case["detokenized"]
