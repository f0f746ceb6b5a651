"""The prompt: a text and a reference as the numbers both models start from.

Upstream: text as typed (punctuation and capitals control prosody), codes of a recording.  Downstream: `engine`
(joint ids), `pipeline` (the NAR's conditioning).
A *shallow* clone has the reference's codes, which become the speaker vectors.  A *deep* clone has its transcript as
well: the transcript comes before the text, and the AR continues from the reference's level-0 codes.
Shapes: S text ids · N speech ids · R reference frames · L levels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from marstts.errors import TextError, VoiceError
from marstts.mars5.text import END_OF_TEXT, START_OF_TEXT, JointVocabulary


class CloneMode(str, Enum):
    """Parts of the reference that a prompt uses."""

    SHALLOW = "shallow"
    """The speaker vectors."""

    DEEP = "deep"
    """The speaker vectors, and speech to continue from; needs the transcript."""


@dataclass(frozen=True, eq=False)
class Speaker:
    """All that MARS5 uses of a voice; the same for every text."""

    ar_vector: NDArray[np.float32]
    """(D,) of the AR's speaker encoder."""

    nar_vector: NDArray[np.float32]
    """(D,) of the NAR's."""

    codes: NDArray[np.int64]
    """(R, L) of the reference."""

    transcript: str | None = None
    """The words spoken in it, if they are known."""


@dataclass(frozen=True, eq=False)
class Mars5Prompt:
    """The prompt of one utterance."""

    text_ids: NDArray[np.int64]
    """(S,), the transcript's included in a deep clone."""

    speech_ids: NDArray[np.int64]
    """(N,) joint ids of the reference's level 0; none in a shallow clone."""

    prefix: NDArray[np.int64]
    """(R, L) codes that the speech continues from; R = 0 in a shallow clone."""

    speaker: Speaker

    num_characters: int
    """Length of the text to be spoken, which determines the expected number of tokens."""

    @property
    def tokens(self) -> NDArray[np.int64]:
        """(S + N,) joint ids that the AR continues from."""
        return np.concatenate((self.text_ids, self.speech_ids))


@dataclass(frozen=True, eq=False)
class SpeechPrompt:
    """A prompt in the form of `generation`'s requests."""

    given: Mars5Prompt

    prefix_tokens: NDArray[np.int64]
    """(N, 1) numbers of the prefix's tokens, as the engine counts them."""


def prompt_string(text: str, transcript: str | None = None) -> str:
    """The models' input: the transcript, if there is one, and the text; both stripped.

    Special tokens written out in them lose their brackets: only the prompt itself may use them.
    """
    words = text.strip() if transcript is None else f"{transcript.strip()} {text.strip()}"
    return f"{START_OF_TEXT}{without_special_tokens(words)}{END_OF_TEXT}"


def published_prompt_string(text: str, transcript: str | None = None) -> str:
    """`prompt_string` without stripping the transcript; special tokens in text and transcript stay special."""
    words = text.strip() if transcript is None else f"{transcript} {text.strip()}"
    return f"{START_OF_TEXT}{words}{END_OF_TEXT}"


def without_special_tokens(text: str) -> str:
    """`text` in which nothing will be taken for a special token."""
    for token in (START_OF_TEXT, END_OF_TEXT):
        while token in text:  # again, because taking one away may join the halves of another
            text = text.replace(token, token.strip("<|>"))
    return text


def check_text(text: str) -> None:
    """Raise TextError for a text without words."""
    if not text.strip():
        raise TextError("there is nothing to say: the text is empty")


def check_codes(codes: NDArray[np.int64], levels: int, codebook_size: int) -> None:
    """Raise VoiceError unless the codes are (R, L), R at least 1, and each is one of the codebook's."""
    if codes.ndim != 2 or codes.shape[1] != levels or len(codes) == 0:
        raise VoiceError(
            f"the reference has codes of shape {codes.shape}, but this model needs frames of {levels} levels: "
            "encode the recording again with the model's codec"
        )
    if codes.min() < 0 or codes.max() >= codebook_size:
        raise VoiceError(
            f"the reference has codes from {codes.min()} to {codes.max()}, but this model has 0 to "
            f"{codebook_size - 1}: encode the recording again with the model's codec"
        )


def build_prompt(
    text: str,
    speaker: Speaker,
    mode: CloneMode,
    vocabulary: JointVocabulary,
    *,
    spell: Callable[[str, str | None], str] = prompt_string,
) -> Mars5Prompt:
    """`text` to be spoken by `speaker`; `spell` makes the string the models read of text and transcript.

    Raises TextError where there is no text, VoiceError where a deep clone has no transcript.
    """
    check_text(text)
    transcript, codes = None, speaker.codes[:0]
    if mode is CloneMode.DEEP:
        if speaker.transcript is None or not speaker.transcript.strip():
            raise VoiceError("a deep clone needs the words of its reference: give the transcript, or clone shallowly")
        transcript, codes = speaker.transcript, speaker.codes
    return Mars5Prompt(
        text_ids=np.array(vocabulary.text.encode(spell(text, transcript)), dtype=np.int64),
        speech_ids=vocabulary.encode_speech(codes[:, 0]),
        prefix=codes,
        speaker=speaker,
        num_characters=len(text),
    )
