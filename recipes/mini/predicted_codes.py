"""Codes of recordings as MARS6 predicts them by teacher forcing, for `[predicted_codes]` of the codec's training.

Usage: python recipes/mini/predicted_codes.py MODEL SHARDS OUTPUT [--top-p 0.2] [--seed 0]

MODEL: a packaged model or a bundle.  SHARDS: recordings by its codec and encoders.  OUTPUT: shards of the same
utterances. Needs the extra train; about 10 minutes of a core for 8 hours. Shards that are there are kept.

Level 0 is that of the recording, so that words and timing stay aligned with it. The finer levels are sampled within
each patch, with all patches before it as they were recorded, and with the embeddings of another recording of the
speaker, as in a clone.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from marstts.bundle import TOKENIZER_FILE, find_bundle
from marstts.codec.base import Codes
from marstts.generation.sampling import draw, keep_nucleus
from marstts.mars6.config import unpatchify
from marstts.mars6.model import Mars6
from marstts.models import load_for_training
from marstts.nn.attention import KVCache
from marstts.text.tokenizers.bpe import BPE
from marstts_lab.data.batching import TrainingItem
from marstts_lab.data.corpus import Corpus, load_corpus
from marstts_lab.data.shards import SHARD_PATTERN, read_shard, write_shard
from marstts_lab.training.mars6.batches import Collator, PretrainBatch
from marstts_lab.training.mars6.run_folder import spoken_text

PATCHES_IN_BATCH = 1200
FULL_BANDWIDTH_HZ = 24_000


def batches(corpus: Corpus, ids: Collection[str], rng: np.random.Generator) -> Iterator[list[TrainingItem]]:
    """The utterances of `ids`, the shortest first, each with another recording of its speaker as reference, if any."""
    speakers = list(corpus.utterances.strings("speaker"))
    of_speaker: dict[str, list[int]] = {}
    for index, speaker in enumerate(speakers):
        of_speaker.setdefault(speaker, []).append(index)
    batch: list[TrainingItem] = []
    for index in np.argsort(corpus.num_patches, kind="stable").tolist():
        utterance = corpus.utterances[index]
        if utterance.id not in ids:
            continue
        if batch and (len(batch) + 1) * corpus.num_patches[index] > PATCHES_IN_BATCH:
            yield batch
            batch = []
        others = [other for other in of_speaker[speakers[index]] if other != index] or [index]
        batch.append(TrainingItem((index,), int(rng.choice(others)), (spoken_text(utterance.text),)))
    if batch:
        yield batch


@torch.inference_mode()
def predict(model: Mars6, batch: PretrainBatch, top_p: float, rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """For each row the tokens (T, P) of its patches, end of speech left out."""
    memory, mask = model.encode(*batch.model_inputs()[:4])
    hidden, _, _ = model.global_decoder(model.global_decoder.embed(batch.patches[:, :-1]), memory, mask, ())
    counts = (batch.patch_lengths - 1).tolist()
    vectors = torch.cat([row[:count] for row, count in zip(hidden, counts, strict=True)])
    recorded = torch.cat([row[:count] for row, count in zip(batch.patches, counts, strict=True)])
    config = model.config
    token: Tensor | None = None
    past: tuple[KVCache, ...] = ()
    tokens: list[Tensor] = []
    for position, level in enumerate(config.position_levels):
        logits, past = model.local_decoder.step(vectors, token, past)
        token = recorded[:, position]
        if level:
            codes = logits[:, : config.codebook_size].numpy()
            token = torch.from_numpy(draw(keep_nucleus(codes, top_p), rng.uniform(size=len(codes))))
            token = token + level * config.codebook_size
        tokens.append(token)
    return np.split(torch.stack(tokens, dim=1).numpy(), np.cumsum(counts)[:-1])


def main() -> None:
    """Read the command line, and write the shards."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("model")
    for name in ("shards", "output"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--top-p", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    bundle = find_bundle(options.model)
    model = load_for_training(options.model).eval()
    corpus = load_corpus(options.shards)
    collate = Collator(corpus, BPE.load(bundle / TOKENIZER_FILE), model.config, FULL_BANDWIDTH_HZ)
    options.output.mkdir(parents=True, exist_ok=True)
    for number, path in enumerate(sorted(options.shards.glob(SHARD_PATTERN))):
        if (options.output / path.name).exists():
            continue
        shard, rng = read_shard(path), np.random.default_rng((options.seed, number))
        codes: dict[str, Codes] = {}
        for items in batches(corpus, {one.id for one in shard.info.utterances}, rng):
            rows = predict(model, collate(items), options.top_p, rng)
            for item, tokens in zip(items, rows, strict=True):
                levels = unpatchify(tokens, model.config.patch_layout, model.config.codebook_size)
                codes[corpus.utterances[item.parts[0]].id] = levels
        predicted = [codes[one.id] for one in shard.info.utterances]
        write_shard(options.output / path.name, shard.info, predicted, shard.embeddings)
        print(f"{options.output / path.name}: {len(predicted)} utterances", flush=True)


if __name__ == "__main__":
    main()
