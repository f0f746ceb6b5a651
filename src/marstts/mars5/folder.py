"""The folder of a MARS5: names of its files, its tokenizers, and whether its parts fit together.

Upstream: `checkpoint`, which writes it.  Downstream: `checkpoint` (PyTorch) and `engines.onnx` (graphs), which open it.

    config.json              sizes of both models
    ar.safetensors           the AR, in half precision where that loses nothing
    nar.safetensors          the NAR, likewise
    text_tokenizer.json      of the library `tokenizers`
    speech_tokenizer.json    merges over codes, special tokens
    *.onnx                   graphs of both models, once the bundle was upgraded
"""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from marstts.errors import CheckpointError
from marstts.mars5.config import CodecLMConfig, Mars5Config, ResidualTransformerConfig
from marstts.mars5.text import JointVocabulary, SpeechBPE
from marstts.text.tokenizers.bpe import BPE

CONFIG_FILE = "config.json"
AR_FILE, NAR_FILE = "ar.safetensors", "nar.safetensors"
TEXT_FILE, SPEECH_FILE = "text_tokenizer.json", "speech_tokenizer.json"


def read_tokenizers(folder: Path) -> JointVocabulary:
    """Both tokenizers of a folder; CheckpointError where one is missing or malformed."""
    return JointVocabulary(BPE.load(folder / TEXT_FILE), SpeechBPE.load(folder / SPEECH_FILE))


def check_fit(
    ar: CodecLMConfig, nar: ResidualTransformerConfig, vocabulary: JointVocabulary, source: str
) -> Mars5Config:
    """The sizes of both models; raises CheckpointError where models and tokenizers are not made for each other."""
    if ar.vocab_size != vocabulary.size:
        raise CheckpointError(
            f"{source}: the AR has {ar.vocab_size} tokens, but its tokenizers have {vocabulary.text.vocab_size} and "
            f"{vocabulary.speech.vocab_size}: they belong to another model"
        )
    if ar.codebook_size != vocabulary.speech.codebook_size:
        raise CheckpointError(
            f"{source}: the AR has {ar.codebook_size} codes, but its speech tokenizer "
            f"{vocabulary.speech.codebook_size}: they belong to different codecs"
        )
    try:
        return Mars5Config(ar=ar, nar=nar)
    except ValidationError as error:
        reason = "; ".join(complaint["msg"] for complaint in error.errors())
        raise CheckpointError(f"{source}: AR and NAR do not fit together: {reason}") from error
