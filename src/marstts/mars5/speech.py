"""MARS5 as a `SpeechModel`: text and voice to a prompt, generated tokens to the codes of all levels.

Upstream: a model's folder (`checkpoint`).  Downstream: synthesis.
Codes are final only when the whole utterance is there: the NAR draws all frames together.
A voice's one embedding, of the role "speaker", is what both models' speaker encoders make of the reference, side by
side; a deep voice's prefix holds the reference's codes and words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from marstts.audio import Waveform
from marstts.codec.base import Codec, Codes
from marstts.errors import VoiceError
from marstts.generation.request import SamplingConfig
from marstts.mars5.config import Mars5Config
from marstts.mars5.engine import TokenEngine
from marstts.mars5.pipeline import Pipeline
from marstts.mars5.prompt import CloneMode, Speaker, SpeechPrompt, check_codes
from marstts.text.lexicon import without_marks
from marstts.text.tokenizers.bpe import BPE
from marstts.voice import Voice

ROLE = "speaker"

TOKENS_PER_SECOND = 16.0
"""Rate of the published speech tokenizer, from its documentation: 80 tokens are 5 s."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Mars5Speech:
    """A `SpeechModel` whose codes come with the last token."""

    pipeline: Pipeline
    engine: TokenEngine
    sampling: SamplingConfig = field(default_factory=lambda: SamplingConfig(top_p=0.2, ras_max_ratio=1.0))

    patch_rate: float | None = TOKENS_PER_SECOND
    """Tokens of a second of speech, roughly."""

    architecture: str = "mars5"
    is_incremental: bool = False

    reads_typed_text: bool = True
    """Punctuation and capitals control prosody, as in the release."""

    reads_contours: bool = False

    @property
    def config(self) -> Mars5Config:
        """The sizes of both models."""
        return self.pipeline.models.config

    @property
    def tokenizer(self) -> BPE:
        """The text tokenizer."""
        return self.pipeline.models.vocabulary.text

    @property
    def embedding_sizes(self) -> Mapping[str, int]:
        """Length of the speaker embedding: both models' widths."""
        return {ROLE: self.config.ar.width + self.config.nar.width}

    def prompt(self, text: str, voice: Voice) -> SpeechPrompt:
        """Build the prompt of `text` spoken by `voice`: deep where the voice has a prefix.

        Raises TextError where the text is empty or too long, VoiceError where the voice was made for another model.
        """
        mode = CloneMode.SHALLOW if voice.prefix is None else CloneMode.DEEP
        given = self.pipeline.prompt(without_marks(text), self.speaker(voice), mode)
        return SpeechPrompt(given, self.engine.numbers.of(given.speech_ids)[:, None])

    def speaker(self, voice: Voice) -> Speaker:
        """The speaker embeddings of a voice for both models; raises VoiceError where it was made for another model."""
        embedding, [size] = voice.embeddings.get(ROLE), self.embedding_sizes.values()
        if embedding is None or embedding.shape != (size,):
            came = "none" if embedding is None else f"one of shape {embedding.shape}"
            raise VoiceError(
                f"voice {voice.name!r} should have a {ROLE} embedding of shape ({size},), but has {came}: clone the "
                "recording again with this model"
            )
        sizes = self.config.ar
        codes, transcript = np.zeros((0, sizes.levels), dtype=np.int64), None
        if voice.prefix is not None:
            codes, transcript = frames(voice), voice.prefix.transcript
            check_codes(codes, sizes.levels, sizes.codebook_size)
        return Speaker(embedding[: sizes.width], embedding[sizes.width :], codes, transcript)

    def text_spans(self, prompt: SpeechPrompt) -> None:
        """None: the attention of MARS5 is over text and speech together, and follows neither."""

    def codes(self, tokens: NDArray[np.int64], rng: np.random.Generator, prompt: SpeechPrompt) -> Codes:
        """All levels (T,) of tokens (N, 1) generated for `prompt`; `rng` is the diffusion's."""
        ids = self.engine.numbers.joint_ids[tokens[:, 0]]
        [drawn] = self.pipeline.codes([prompt.given], [ids], [rng])
        return tuple(np.ascontiguousarray(level) for level in drawn.T)


def frames(voice: Voice) -> NDArray[np.int64]:
    """(T, L) codes of a deep voice's prefix; VoiceError where its levels have different rates."""
    assert voice.prefix is not None
    if len({len(level) for level in voice.prefix.codes}) > 1:
        raise VoiceError(
            f"the prefix of voice {voice.name!r} has levels of different rates, which this model's codec has not: "
            "clone the recording again with this model"
        )
    return np.stack(voice.prefix.codes, axis=1)


class Mars5SpeakerEncoder:
    """A `SpeakerEncoder`: a recording through the codec, then through both models' speaker encoders."""

    def __init__(self, pipeline: Pipeline, codec: Codec, name: str) -> None:
        """`name` identifies the models' weights."""
        self.name, self._pipeline, self._codec = name, pipeline, codec
        self.size = pipeline.models.ar.config.width + pipeline.models.nar.config.width

    def embed(self, waveform: Waveform) -> NDArray[np.float32]:
        """The embedding (E,); the waveform may have any sample rate."""
        speaker = self._pipeline.speaker(np.stack(self._codec.encode(waveform), axis=1))
        return np.concatenate((speaker.ar_vector, speaker.nar_vector))
