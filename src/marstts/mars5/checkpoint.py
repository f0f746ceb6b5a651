"""A MARS5 on disk: two safetensors files, two tokenizers and their configuration, in one folder.

Upstream: published checkpoints (`load_released`), training (`write_models`).  Downstream: `bundled`, `pipeline`.
The files are `text`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from marstts.errors import CheckpointError
from marstts.io.config import read_config, write_config
from marstts.io.files import atomic_folder
from marstts.mars5.ar import CodecLM
from marstts.mars5.config import Mars5Config
from marstts.mars5.nar import ResidualTransformer
from marstts.mars5.released import (
    SPEECH_TOKENIZER,
    TEXT_TOKENIZER,
    Container,
    count_codes,
    infer_sizes,
    load_ar,
    load_nar,
    read_container,
)
from marstts.mars5.text import (
    AR_FILE,
    CONFIG_FILE,
    NAR_FILE,
    SPEECH_FILE,
    TEXT_FILE,
    JointVocabulary,
    check_fit,
    read_speech_tokenizer,
    read_text_tokenizer,
    read_tokenizers,
)
from marstts.weights.pretrained import read_tensors
from marstts.weights.published_checkpoint import sizes_only

Model = TypeVar("Model", CodecLM, ResidualTransformer)

Source = Path | str | Mapping[str, Any]
"""A published file, or the content of one."""


@dataclass(frozen=True, eq=False)
class Models:
    """The parts of a MARS5; models in float32 and evaluation mode."""

    ar: CodecLM
    nar: ResidualTransformer
    vocabulary: JointVocabulary

    @property
    def config(self) -> Mars5Config:
        """The sizes of both models."""
        return Mars5Config(ar=self.ar.config, nar=self.nar.config)


def load_released(
    ar_source: Source,
    nar_source: Source,
    *,
    ar_heads: int | None = None,
    nar_heads: int | None = None,
    digests: Sequence[str | None] = (None, None),
) -> Models:
    """The published models; the tokenizers are those of the AR's file.  `digests`: refuse files of another SHA-256.

    Head counts (of the AR's speaker encoder, and of the NAR): None = width / 64, as published.
    Raises CheckpointError where a file is corrupt, unsafe or of another kind, or where the two do not fit together.
    """
    ar_container = read_container(ar_source, digests[0])
    vocabulary = read_vocabulary(ar_container)
    ar = load_ar(ar_container, vocabulary.text.vocab_size, ar_heads)
    nar_container = read_container(nar_source, digests[1])
    nar = load_nar(nar_container, nar_heads)
    check_fit(ar.config, nar.config, vocabulary, f"{ar_container.source} and {nar_container.source}")
    return Models(ar, nar, vocabulary)


def read_vocabulary(container: Container) -> JointVocabulary:
    """Both tokenizers of a container; raises CheckpointError where one is missing or malformed."""
    text, speech, source = container.text_tokenizer, container.speech_tokenizer, container.source
    if text is None or speech is None:
        missing = TEXT_TOKENIZER if text is None else SPEECH_TOKENIZER
        raise CheckpointError(f"{source}: expected both tokenizers with the AR's weights, but {missing} is missing")
    return JointVocabulary(
        read_text_tokenizer(text, f"{source}, {TEXT_TOKENIZER}"),
        read_speech_tokenizer(speech, f"{source}, {SPEECH_TOKENIZER}", infer_sizes(container, count_codes)),
    )


def write_models(models: Models, folder: Path) -> None:
    """Write a MARS5, whole or not at all; raises CheckpointError where the folder exists."""
    if folder.exists():
        raise CheckpointError(f"{folder}: exists already; name a folder that does not")
    with atomic_folder(folder, replace=lambda old: False, kind=CheckpointError) as temporary:
        write_config(models.config, temporary / CONFIG_FILE)
        save_file(compact(models.ar), temporary / AR_FILE)
        save_file(compact(models.nar), temporary / NAR_FILE)
        models.vocabulary.text.save(temporary / TEXT_FILE)
        models.vocabulary.speech.save(temporary / SPEECH_FILE)


def compact(model: nn.Module) -> dict[str, Tensor]:
    """The tensors of a model, in half precision where every number survives it."""
    return {name: halve(tensor.detach().cpu().contiguous()) for name, tensor in model.state_dict().items()}


def halve(tensor: Tensor) -> Tensor:
    """The tensor in float16 if that is exact, else as it is."""
    half = tensor.half()
    return half if torch.equal(half.to(tensor.dtype), tensor) else tensor


def load_models(folder: Path | str) -> Models:
    """Read what `write_models` wrote; raises CheckpointError or ConfigError where something is missing or malformed."""
    folder = Path(folder)
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: no such model folder")
    config = read_config(Mars5Config, folder / CONFIG_FILE)
    vocabulary = read_tokenizers(folder)
    check_fit(config.ar, config.nar, vocabulary, str(folder))
    return Models(
        read_model(CodecLM, config.ar, folder / AR_FILE),
        read_model(ResidualTransformer, config.nar, folder / NAR_FILE),
        vocabulary,
    )


def read_model(kind: type[Model], config: Any, path: Path) -> Model:
    """A model of this kind and these sizes with the tensors of a file."""
    if not path.is_file():
        raise CheckpointError(f"{path}: expected this file in the model's folder; the model is incomplete")
    tensors = {name: tensor.float() for name, tensor in read_tensors(path).items()}
    model = sizes_only(kind, config)
    try:
        model.load_state_dict(tensors, assign=True)
    except RuntimeError as error:
        first_complaints = " ".join(str(error).split())[:300]
        raise CheckpointError(f"{path}: these weights belong to another model: {first_complaints}") from error
    return model.eval()
