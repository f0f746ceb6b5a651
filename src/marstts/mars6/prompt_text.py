"""The string that the encoder reads: quality prefix, transcript, text, and where in it each token's characters lie.

Upstream: sentences in the model's spelling (`spelling`).  Downstream: `prompt`; `web.reader`, which has no NumPy.
MARS6 (arXiv:2501.05787), Sec. IV-B2 (quality prefix) and V-A.  Deviations: no space after the quality prefix, and
marks for the text's start and end, as in the published checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence

from marstts.errors import ConfigError

START, END = "<|startoftext|>", "<|endoftext|>"

QUALITY_RATES = (8000, 16000, 22050, 24000, 44100, 48000)
"""Sample rates of recordings that the quality prefix distinguishes, in Hz."""

SPECIAL_TOKENS = (START, END, *(f"[{rate}]" for rate in QUALITY_RATES))
"""Strings that are one token each, in the order of their ids."""


def quality_prefix(rate: int | None) -> str:
    """The prefix token of recordings with this sample rate: "[48000]"; rates between two count as the lower.

    `rate` is the original sample rate, whatever the file was resampled to since. None gives no prefix, as in the
    ablation of the paper's Table I.
    """
    if rate is None:
        return ""
    known = [quality for quality in QUALITY_RATES if quality <= rate]
    if not known:
        raise ConfigError(f"a quality of {rate} Hz was asked for; the model's lowest is {QUALITY_RATES[0]} Hz")
    return f"[{known[-1]}]"


def prompt_string(text: str, *, quality: int | None, transcript: str | None = None) -> str:
    """The string the encoder reads: the transcript of the prefix, if there is one, and then the text.

    Special tokens written out in text or transcript lose their brackets: only the prompt itself may use them.
    """
    words = text if transcript is None else f"{transcript} {text}"
    return f"{START}{quality_prefix(quality)}{without_special_tokens(words)}{END}"


def sentence_spans(prompt: str, text: str, offsets: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """(S, 2): first character and last + 1 in `text` of each token of a prompt string, which ends with it.

    offsets: places of the tokens in the prompt string. -1 for tokens that are not of the text.
    """
    end = len(prompt) - len(END)
    start = end - len(text)
    if prompt[start:end] != text:  # a special token was written out in the text, so places are unknown
        return [(-1, -1)] * len(offsets)
    return [
        (max(first - start, 0), max(last - start, 0)) if last > start and first < end else (-1, -1)
        for first, last in offsets
    ]


def without_special_tokens(text: str) -> str:
    """`text` in which nothing will be taken for a special token."""
    for token in SPECIAL_TOKENS:
        while token in text:  # again, because taking one away may join the halves of another
            text = text.replace(token, token.strip("<|>[]"))
    return text
