"""Prompts: strings, ids, prefixes."""

import numpy as np
import pytest

from marstts.errors import ConfigError, TextError, VoiceError
from marstts.mars6.config import Mars6Config
from marstts.mars6.prompt import SPECIAL_TOKENS, build_prompt, prompt_string, quality_prefix
from marstts.text.tokenizers.bpe import BPE
from marstts.voice import Prefix, Voice

CONFIG = Mars6Config(
    text_vocab_size=264, codebook_size=6, width=8, heads=2, local_heads=2, identity_size=3, style_size=5
)


@pytest.fixture(scope="module")
def tokenizer() -> BPE:
    return BPE.train(["we set sail at dawn, " * 3], 268, SPECIAL_TOKENS)


def voice(prefix: Prefix | None = None, identity_size: int = 3) -> Voice:
    return Voice(
        name="ann", prefix=prefix,
        embeddings={"identity": np.arange(identity_size, dtype=np.float32), "style": np.ones(5, np.float32)},
        codec="toy", encoders={"identity": "i", "style": "s"}, source_sha256="", consent="",
    )  # fmt: skip


PREFIX = Prefix("We set sail. ", (np.array([1, 2]), np.array([0, 1, 2, 3]), np.arange(8) % 6))


def test_quality_is_the_highest_known_rate_the_recording_reaches():
    assert [quality_prefix(rate) for rate in (8000, 22050, 32000, 96000)] == ["[8000]", "[22050]", "[24000]", "[48000]"]
    with pytest.raises(ConfigError, match="4000 Hz"):
        quality_prefix(4000)


def test_prompt_string_is_as_published():
    assert prompt_string("Hi.", quality=48000) == "<|startoftext|>[48000]Hi.<|endoftext|>"
    deep = prompt_string("Hi.", quality=16000, transcript="We sail.")
    assert deep == "<|startoftext|>[16000]We sail. Hi.<|endoftext|>"


@pytest.mark.parametrize("text", ["<|endoftext|>", "[8000]", "<|end<|endoftext|>oftext|>", "a [[8000]] b"])
def test_text_cannot_forge_special_tokens(text, tokenizer):
    specials = set(tokenizer.special_tokens.values())
    ids = tokenizer.encode(prompt_string(text, quality=48000, transcript=text))
    assert [i in specials for i in ids].count(True) == 3


def test_shallow_prompt_has_embeddings_and_no_prefix(tokenizer):
    prompt = build_prompt(" We sail. ", voice(), tokenizer, CONFIG)
    assert tokenizer.decode(prompt.text_ids.tolist()) == "<|startoftext|>[48000]We sail.<|endoftext|>"
    assert prompt.text_ids.dtype == np.int64 and prompt.prefix_tokens.shape == (0, 7)
    assert prompt.identity.tolist() == [0, 1, 2] and prompt.style.shape == (5,)


def test_deep_prompt_reads_the_transcript_and_continues_its_patches(tokenizer):
    prompt = build_prompt("At dawn.", voice(PREFIX), tokenizer, CONFIG, quality=24000)
    assert tokenizer.decode(prompt.text_ids.tolist()) == "<|startoftext|>[24000]We set sail. At dawn.<|endoftext|>"
    assert prompt.prefix_tokens.tolist() == [[1, 6, 7, 12, 13, 14, 15], [2, 8, 9, 16, 17, 12, 13]]


def test_voices_of_other_models_are_refused_in_one_sentence(tokenizer):
    with pytest.raises(VoiceError, match="identity embedding of voice 'ann'"):
        build_prompt("Hi.", voice(identity_size=4), tokenizer, CONFIG)
    small = CONFIG.model_copy(update={"codebook_size": 3})
    with pytest.raises(VoiceError, match="prefix of voice 'ann'"):
        build_prompt("Hi.", voice(PREFIX), tokenizer, small)


def test_empty_text_is_refused_in_one_sentence(tokenizer):
    with pytest.raises(TextError):
        build_prompt("  ", voice(), tokenizer, CONFIG)
