"""Trains mini to read a BPE of 512 entries (MARS6, Sec. V-A) instead of bytes; mini, which reads bytes, is its teacher.

Usage: python recipes/twins/bpe.py CONFIG SHARDS RUN [--base mini] [--threads 1]

CONFIG: mars6_bpe.toml.  SHARDS: recordings by mini's codec and encoders.  RUN: the run folder; an interrupted run
resumes.  BASE: a packaged model or a bundle.  Needs the extra train.

The embedding of a merge begins as the mean of those of its bytes, and learns 25 times as fast as other weights, as new
embeddings need to; bytes keep theirs, for the teacher reads them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from marstts.bundle import find_bundle
from marstts.io.config import read_config
from marstts.mars6.model import Mars6
from marstts.models import load_for_training
from marstts.text.tokenizers.bpe import BPE
from marstts_lab.data.batching import TrainingItem
from marstts_lab.data.corpus import Corpus, load_corpus
from marstts_lab.training.checkpoint import latest
from marstts_lab.training.distributed import lock_run
from marstts_lab.training.loop import run
from marstts_lab.training.mars6.batches import Collator, pad_rows
from marstts_lab.training.mars6.config import LettersDistillationConfig, PretrainConfig
from marstts_lab.training.mars6.run_folder import TOKENIZER_FILE, open_run
from marstts_lab.training.mars6.task import PretrainTask
from marstts_lab.training.provenance import record_training

MERGES_LR_SCALE = 25.0
EMBEDDING = "encoder.text_embedding.weight"


class TwoTexts(Collator):
    """Batches whose texts are a BPE's for the model, and bytes for its teacher."""

    of_bytes: Collator

    def letters(self, items: Sequence[TrainingItem], distillation: LettersDistillationConfig) -> dict[str, Tensor]:
        """The texts in bytes; every row is distilled."""
        texts = [self.of_bytes.text_ids(item) for item in items]
        lengths = torch.tensor([len(text) for text in texts])
        return {"ids": pad_rows(texts, 0), "lengths": lengths, "is_distilled": torch.ones(len(items), dtype=torch.bool)}


class BpeTask(PretrainTask):
    """`PretrainTask` with a teacher that reads bytes, whose ids are the first ones of the BPE."""

    def __init__(self, config: PretrainConfig, corpus: Corpus, tokenizer: BPE, bytes_tokenizer: BPE) -> None:
        self.bytes_tokenizer = bytes_tokenizer
        super().__init__(config, corpus, tokenizer)

    def collator(self, corpus: Corpus) -> Collator:
        """The collator of a split."""
        config = self.config
        found = TwoTexts(corpus, self.tokenizer, config.model, config.full_bandwidth_hz, config.letters_distillation)
        found.of_bytes = Collator(corpus, self.bytes_tokenizer, config.model, config.full_bandwidth_hz)
        return found


def symbols_of(folder: Path) -> dict[str, int]:
    """The ids of a saved tokenizer by its symbols: special tokens, bytes, and merges."""
    values = json.loads((folder / TOKENIZER_FILE).read_text(encoding="utf-8"))
    added = {token["content"]: token["id"] for token in values["added_tokens"]}
    return {**values["model"]["vocab"], **added}


def with_merges(rows: Tensor, bytes_ids: Mapping[str, int], bpe_ids: Mapping[str, int]) -> Tensor:
    """The embeddings (V, D) of a BPE from those of bytes: the same, or of a merge the mean of its bytes."""
    found = torch.zeros(len(bpe_ids), rows.shape[1])
    for symbol, index in bpe_ids.items():
        parts = [symbol] if symbol in bytes_ids else list(symbol)
        found[index] = rows[[bytes_ids[part] for part in parts]].mean(dim=0)
    return found


def init_weights(task: BpeTask, base: str, bytes_ids: Mapping[str, int], bpe_ids: Mapping[str, int]) -> None:
    """The weights of a bundle for the model, its EMA and its teacher."""
    state = load_for_training(base).state_dict()
    state[EMBEDDING] = with_merges(state[EMBEDDING].float(), bytes_ids, bpe_ids)
    for module in task.modules.values():
        module.load_state_dict(state)


def train_merges_faster(model: Mars6, optimizer: torch.optim.Optimizer, num_bytes: int) -> None:
    """Text embeddings get a parameter group of their own; those of bytes and special tokens do not change."""
    weight = model.encoder.text_embedding.weight
    weight.register_hook(lambda gradient: torch.cat([torch.zeros_like(gradient[:num_bytes]), gradient[num_bytes:]]))
    for group in optimizer.param_groups:
        group["params"] = [each for each in group["params"] if each is not weight]
    optimizer.add_param_group({"params": [weight], "weight_decay": 0.0, "lr_scale": MERGES_LR_SCALE})


def main() -> None:
    """Read the command line, and train."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    for name in ("config", "shards", "run"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--base", default="mini")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    settings = read_config(PretrainConfig, options.config)
    bundle = find_bundle(options.base)
    with lock_run(options.run):
        corpus = load_corpus(options.shards)
        tokenizer = open_run(options.run, settings, corpus)
        bytes_ids, bpe_ids = symbols_of(bundle), symbols_of(options.run)
        shared = [symbol for symbol in bpe_ids if symbol in bytes_ids]
        assert all(bpe_ids[symbol] == bytes_ids[symbol] for symbol in shared), "bytes have the same ids in both"
        task = BpeTask(settings, corpus, tokenizer, BPE.load(bundle / TOKENIZER_FILE))
        train_merges_faster(task.model, task.optimizer, len(shared))
        if latest(options.run) is None:
            init_weights(task, options.base, bytes_ids, bpe_ids)
        record_training(options.run, settings, {"shards": corpus.digest}, options.base)
        print(f"{len(corpus)} utterances, {corpus.seconds / 3600:.1f} h; {task.summary}", flush=True)
        run(task, settings.loop, options.run)


if __name__ == "__main__":
    main()
