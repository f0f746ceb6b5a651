"""Run folders of MARS5's trainings, and the model that two of them make together.

Upstream: `tasks`, a tokenized corpus.  Downstream: `mars5.checkpoint.write_models`, `marstts export`.

    config.json              the resolved training configuration
    speech_rate.json         speech tokens per second and per character of the corpus
    text_tokenizer.json      of the library `tokenizers`
    speech_tokenizer.json    merges over codes, special tokens
    step-N/, log.jsonl, …    of `training.loop`
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from pydantic import ConfigDict, Field

from marstts.errors import CheckpointError, ConfigError
from marstts.io.config import Config, read_config, write_config
from marstts.mars5.ar import CodecLM
from marstts.mars5.checkpoint import (
    CONFIG_FILE,
    SPEECH_FILE,
    TEXT_FILE,
    Models,
    check_fit,
    read_model,
)
from marstts.mars5.config import CodecLMConfig, ResidualTransformerConfig
from marstts.mars5.nar import ResidualTransformer
from marstts.mars5.text import JointVocabulary, SpeechBPE
from marstts.text.tokenizers.bpe import BPE
from marstts_lab.data.corpus import Corpus
from marstts_lab.training import distributed
from marstts_lab.training.checkpoint import check_same_model
from marstts_lab.training.loop import best, run
from marstts_lab.training.mars5.batches import train_vocabulary
from marstts_lab.training.mars5.config import ArTrainConfig, NarTrainConfig
from marstts_lab.training.mars5.tasks import EMA, ArTask, Mars5Task, NarTask

Model = TypeVar("Model", CodecLM, ResidualTransformer)

RATE_FILE = "speech_rate.json"

RATE_UTTERANCES = 500
"""Utterances that the speech rate is measured on, spread over the training split."""


class SpeechRate(Config):
    """Number of speech tokens that a text becomes, on average; it depends on codec, tokenizers and speakers."""

    codec: str
    """Name of the codec."""

    per_second: float = Field(gt=0)
    per_character: float = Field(gt=0)


class TrainedAr(Config):
    """The part of an AR run's `config.json` that describes its model."""

    model_config = ConfigDict(extra="ignore")

    model: CodecLMConfig


class TrainedNar(Config):
    """The part of a NAR run's `config.json` that describes its model."""

    model_config = ConfigDict(extra="ignore")

    model: ResidualTransformerConfig


def train(
    config: ArTrainConfig | NarTrainConfig,
    corpus: Corpus,
    vocabulary: JointVocabulary,
    folder: Path,
) -> int:
    """Train the configured model, or resume; returns the step reached.

    Raises ConfigError or DataError where corpus, tokenizers and model do not fit, CheckpointError where the folder
    holds a training of another configuration.
    """
    task: Mars5Task
    if isinstance(config, ArTrainConfig):
        task = ArTask(config, corpus, vocabulary)
    else:
        task = NarTask(config, corpus, vocabulary)
    check_same_model(folder / CONFIG_FILE, config.model)
    if distributed.rank() == 0:
        folder.mkdir(parents=True, exist_ok=True)
        write_config(config, folder / CONFIG_FILE)
        vocabulary.text.save(folder / TEXT_FILE)
        vocabulary.speech.save(folder / SPEECH_FILE)
        write_config(measure_rate(corpus, vocabulary), folder / RATE_FILE)
    return run(task, config.loop, folder)


def read_vocabulary(folder: Path) -> JointVocabulary:
    """Both tokenizers of a run."""
    return JointVocabulary(BPE.load(folder / TEXT_FILE), SpeechBPE.load(folder / SPEECH_FILE))


def open_vocabulary(
    config: ArTrainConfig | NarTrainConfig, corpus: Corpus, folder: Path, base: Path | None = None
) -> JointVocabulary:
    """Both tokenizers for a training: the run's own where it has them, else those of the run `base`, else new ones.

    New ones have the AR's vocabulary sizes.  Raises ConfigError for a NAR without tokenizers: it needs those of its AR.
    """
    if (folder / SPEECH_FILE).exists():
        return read_vocabulary(folder)
    if base is not None:
        return read_vocabulary(base)
    if isinstance(config, ArTrainConfig):
        return train_vocabulary(corpus, config.model.text_vocab_size, config.model.speech_vocab_size)
    raise ConfigError(f"{folder}: the NAR uses the tokenizers of its AR; train the AR first, and name its run")


def measure_rate(corpus: Corpus, vocabulary: JointVocabulary) -> SpeechRate:
    """Speech tokens per second and per character, over at most RATE_UTTERANCES of the training split."""
    train = corpus.split("train")
    rows = range(0, len(train), max(1, len(train) // RATE_UTTERANCES))
    levels = [train.codes_of(row)[0] for row in rows]
    tokens = sum(len(vocabulary.encode_speech(level)) for level in levels)
    characters = sum(len(train.utterances[row].text) for row in rows)
    seconds = sum(map(len, levels)) / corpus.codec.patch_rate
    return SpeechRate(codec=corpus.codec.name, per_second=tokens / seconds, per_character=tokens / characters)


def read_rate(folder: Path) -> SpeechRate:
    """The speech rate of a run; raises CheckpointError where the folder is none of MARS5's runs."""
    if not (folder / RATE_FILE).is_file():
        raise CheckpointError(f"{folder}: lacks {RATE_FILE}; expected a run of `marstts train mars5-ar`")
    return read_config(SpeechRate, folder / RATE_FILE, CheckpointError)


def trained_models(ar_run: Path, nar_run: Path) -> Models:
    """The MARS5 of two runs: the averaged weights of their best checkpoints, else of their newest.

    Raises CheckpointError where a run has no checkpoint yet, or the two do not fit together.
    """
    vocabulary = read_vocabulary(ar_run)
    ar_sizes = read_config(TrainedAr, ar_run / CONFIG_FILE).model
    nar_sizes = read_config(TrainedNar, nar_run / CONFIG_FILE).model
    check_fit(ar_sizes, nar_sizes, vocabulary, f"{ar_run} and {nar_run}")
    if read_vocabulary(nar_run).speech != vocabulary.speech:
        raise CheckpointError(f"{ar_run} and {nar_run}: trained with different speech tokenizers; train one again")
    ar = averaged(CodecLM, ar_sizes, ar_run)
    return Models(ar, averaged(ResidualTransformer, nar_sizes, nar_run), vocabulary)


def averaged(kind: type[Model], sizes: Any, folder: Path) -> Model:
    """The model of a run with its averaged weights."""
    checkpoint = best(folder)
    if checkpoint is None:
        raise CheckpointError(f"{folder}: no checkpoint in this folder yet; train it first")
    return read_model(kind, sizes, checkpoint / f"{EMA}.safetensors")
