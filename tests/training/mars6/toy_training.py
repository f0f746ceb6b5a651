"""A MARS6 training that takes seconds: a corpus of synthetic codes, and a model of a few thousand parameters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from marstts.codec.toy import ToyCodec
from marstts_lab.data.corpus import Corpus
from marstts_lab.data.manifest import Utterance
from marstts_lab.data.shards import EncoderInfo, ShardInfo, shard_path, write_shard
from marstts_lab.data.utterance_table import UtteranceTable
from marstts_lab.training.mars6.batches import Collator
from marstts_lab.training.mars6.config import PretrainConfig
from marstts_lab.training.mars6.run_folder import train_tokenizer
from marstts_lab.training.mars6.task import PretrainTask

CODEC = ToyCodec(codebook_size=16, hop_lengths=(256, 128, 64), sample_rate=8000)
WORDS = ("one", "two", "three", "four")
VOCAB = 266
ENCODERS = {"identity": EncoderInfo("toy-identity", 3), "style": EncoderInfo("toy-style", 5)}
CONFIG = {
    "model": {
        "text_vocab_size": VOCAB,
        "codebook_size": 16,
        "width": 32,
        "encoder_layers": 1,
        "global_layers": 2,
        "local_layers": 1,
        "heads": 2,
        "local_heads": 4,
        "identity_size": 3,
        "style_size": 5,
    },
    "loop": {"steps": 6, "log_every": 2, "validate_every": 3, "checkpoint_minutes": 60.0},
    "batching": {"patches_per_batch": 60, "max_patches": 40},
    "optimizer": {"learning_rate": 3e-3, "warmup_steps": 2},
    "attention_guidance": {"layers": [1], "heads": 1},
    "validation_patches": 60,
}


def config(**changes: object) -> PretrainConfig:
    """CONFIG with changes, table by table."""
    merged = {name: dict(value) if isinstance(value, dict) else value for name, value in CONFIG.items()}
    for name, value in changes.items():
        merged[name] = {**merged.get(name, {}), **value} if isinstance(value, dict) else value
    return PretrainConfig.model_validate(merged)


def make_corpus(count: int = 48) -> Corpus:
    """Every word lasts two patches with a code that only this word has, so that a model can be trained on it."""
    rng = np.random.default_rng(0)
    words = [rng.integers(0, len(WORDS), rng.integers(2, 6)) for _ in range(count)]
    lengths = np.array([2 * len(w) for w in words])
    coarse = np.concatenate([np.repeat(w, 2) for w in words]).astype(np.uint16)
    return Corpus(
        codec=CODEC.spec,
        encoders=ENCODERS,
        utterances=UtteranceTable(
            Utterance(
                id=f"u{i}",
                audio="-",
                text=" ".join(WORDS[j] for j in w).capitalize() + ".",
                speaker=f"s{i % 3}",
                style="regular",
                seconds=1.0,
                source_rate=(8000, 16000, 24000)[i % 3],
                split="validation" if i % 6 == 0 else "train",
                license="CC0",
            )
            for i, w in enumerate(words)
        ),
        codes=(coarse, np.repeat(coarse + 4, 2), np.repeat(coarse + 8, 4)),
        offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
        embeddings={
            "identity": rng.normal(size=(count, 3)).astype(np.float16),
            "style": rng.normal(size=(count, 5)).astype(np.float16),
        },
    )


CORPUS = make_corpus()
TOKENIZER = train_tokenizer(CORPUS, VOCAB)


def task(settings: PretrainConfig | None = None, **options) -> PretrainTask:
    """A training on CORPUS."""
    return PretrainTask(settings or config(), CORPUS, TOKENIZER, **options)


def weights(trained: PretrainTask) -> dict[str, torch.Tensor]:
    """All weights of a training by name."""
    return {f"{k}.{n}": v.clone() for k, m in trained.modules.items() for n, v in m.state_dict().items()}


def collator() -> Collator:
    """A collator of CORPUS."""
    return Collator(CORPUS, TOKENIZER, config().model, full_bandwidth_hz=24_000)


def write_shards(folder: Path) -> list[Path]:
    """CORPUS as two shards."""
    info = ShardInfo(codec=CODEC.spec, encoders=ENCODERS, fingerprint="-", utterances=CORPUS.utterances)
    folder.mkdir()
    for index, rows in enumerate((range(24), range(24, 48))):
        part = CORPUS.select(list(rows))
        codes = [part.codes_of(i) for i in range(len(part))]
        values = {"codec": info.codec, "encoders": info.encoders, "fingerprint": "-", "utterances": part.utterances}
        write_shard(shard_path(folder, index), ShardInfo(**values), codes, part.embeddings_of(range(len(part))))
    return sorted(folder.glob("shard-*"))
