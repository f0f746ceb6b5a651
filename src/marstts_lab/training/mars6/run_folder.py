"""The run folder of MARS6: its configuration, its tokenizer, its initial weights and its final weights.

Upstream: shards, a base run or bundle.  Downstream: `task`, `marstts export`, fine-tuning, preference training.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from torch import nn

from marstts.bundle import find_bundle
from marstts.errors import CheckpointError, ConfigError, DataError
from marstts.io.config import read_config, write_config
from marstts.mars6.model import Mars6
from marstts.mars6.prompt import SPECIAL_TOKENS
from marstts.models import load_for_training
from marstts.text.normalize import normalize
from marstts.text.phones import PAIR_TOKENS, PHONE_TOKENS
from marstts.text.tokenizers.bpe import BPE
from marstts_lab.data.corpus import Corpus
from marstts_lab.training.checkpoint import check_same_model, first_readable, latest, load_weights, preferred
from marstts_lab.training.mars6.config import PretrainConfig, TrainedConfig
from marstts_lab.training.mars6.phone_embeddings import with_phone_embeddings

CONFIG_FILE, TOKENIZER_FILE = "config.json", "tokenizer.json"

MODEL, EMA, TEACHER = "model", "ema", "teacher"
"""Names of the sets of weights in a checkpoint; the last one with guidance distillation only."""

FREE = ("dropout", "aligned_heads")
"""Fields of the model that a resumed run may change."""

TOKENIZER_TEXTS = 200_000
"""Number of texts that a tokenizer is trained on, spread over the corpus; more change it little and take long."""


class HasWeights(Protocol):
    """The part of a task that `init_from` sets."""

    modules: dict[str, nn.Module]
    tokenizer: BPE


def open_run(folder: Path, config: PretrainConfig, corpus: Corpus, base: str | Path | None = None) -> BPE:
    """Write the resolved configuration to a run folder, and give it a tokenizer, which is returned.

    The tokenizer is the run's if it has one already, else that of `base` (a run or bundle), else a new one.
    ConfigError where guidance is to be distilled and there are no weights to distill it from; CheckpointError where
    the folder has checkpoints of another model.
    """
    if config.guidance_distillation_scale > 1 and base is None and latest(folder) is None:
        raise ConfigError(
            "guidance_distillation_scale distills the guidance of trained weights; give a run: --init-from RUN"
        )
    check_same_model(folder / CONFIG_FILE, config.model, FREE)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / TOKENIZER_FILE
    if not path.exists():
        if base is None:
            tokenizer = train_tokenizer(corpus, config.model.text_vocab_size)
        else:
            source = Path(base) if latest(Path(base)) else find_bundle(str(base))
            tokenizer = BPE.load(source / TOKENIZER_FILE)
        if config.batching.phones is not None:
            has_graphones = config.batching.phones.graphone_probability > 0
            tokenizer = tokenizer.with_special_tokens([*PHONE_TOKENS, *(PAIR_TOKENS if has_graphones else ())])
        tokenizer.save(path)
    write_config(config, folder / CONFIG_FILE)
    return BPE.load(path)


def train_tokenizer(corpus: Corpus, vocab_size: int) -> BPE:
    """A BPE of the training split's texts, at most TOKENIZER_TEXTS of them, with the prompt's special tokens."""
    train = corpus.split("train").utterances
    step = max(1, len(train) // TOKENIZER_TEXTS)
    return BPE.train([spoken_text(text) for text in train[::step].strings("text")], vocab_size, SPECIAL_TOKENS)


def spoken_text(text: str) -> str:
    """A text as in synthesis: numbers as words, plain punctuation. DataError where nothing in it can be spoken."""
    spoken = normalize(text).strip()
    if not spoken:
        raise DataError(f"the corpus has a text in which nothing can be spoken: {text[:60]!r}; tokenize it again")
    return spoken


def init_from(task: HasWeights, base: str | Path) -> None:
    """Set the weights to the EMA of another run, or to a bundle's (by folder or by a packaged model's name).

    They get embeddings of phones, and of letters with phones, where the task's tokenizer has them and they do not.

    CheckpointError if the weights do not fit the configuration.
    """
    source = trained_model(Path(base)) if latest(Path(base)) else load_for_training(str(base))
    missing = task.tokenizer.vocab_size - source.config.text_vocab_size
    if missing in (len(PHONE_TOKENS), len(PAIR_TOKENS), len(PHONE_TOKENS) + len(PAIR_TOKENS)):
        source = with_phone_embeddings(source, task.tokenizer)
    for module in task.modules.values():
        try:
            module.load_state_dict(source.state_dict())
        except RuntimeError as error:
            raise CheckpointError(f"{base}: its weights do not fit the configuration: {error}") from error


def trained_model(folder: Path, checkpoint: str = "") -> Mars6:
    """The model of a run folder with the EMA weights of its best or newest readable checkpoint, in evaluation mode.

    `checkpoint` names another one. CheckpointError if there is no checkpoint, or none can be read.
    """
    candidates = [folder / checkpoint] if checkpoint else preferred(folder)
    if not candidates:
        raise CheckpointError(f"{folder}: no checkpoint here; expected a folder written by `marstts train mars6`")
    model = Mars6(read_config(TrainedConfig, folder / CONFIG_FILE).model)
    first_readable(candidates, lambda checkpoint: load_weights(model, checkpoint / f"{EMA}.safetensors"))
    return model.eval()
