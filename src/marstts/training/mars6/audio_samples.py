"""Audio samples in TensorBoard: held-out sentences, synthesized with the voices of their references.

Upstream: the validation items of a training and its EMA weights.  Downstream: TensorBoard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from marstts.codec.base import Codec
from marstts.data.batching import TrainingItem
from marstts.generation.loop import generate
from marstts.generation.request import Limits, SamplingConfig
from marstts.mars6.config import unpatchify
from marstts.mars6.engines.torch import TorchEngine
from marstts.mars6.model import Mars6
from marstts.mars6.prompt import Prompt
from marstts.training.mars6.batches import Collator

TOP_P = 0.6


def write_audio_samples(
    model: Mars6, codec: Codec, collate: Collator, items: Sequence[TrainingItem], step: int, writer: Any
) -> None:
    """Synthesize the texts of these items, at most twice as long as their recordings, and write text and audio."""
    if not items:
        return
    config = model.config
    no_prefix = np.zeros((0, config.patch_size), dtype=np.int64)
    embeddings = collate.corpus.embeddings_of([item.reference for item in items])
    prompts = [
        Prompt(collate.text_ids(item), embeddings["identity"][row], embeddings["style"][row], no_prefix)
        for row, item in enumerate(items)
    ]
    takes = generate(
        TorchEngine(model),
        prompts,
        top_p=[TOP_P] * len(items),
        limits=[Limits(1, 2 * int(collate.num_patches[item.parts[0]])) for item in items],
        rngs=[np.random.default_rng(index) for index in range(len(items))],
        sampling=SamplingConfig(),
    )
    for index, (item, take) in enumerate(zip(items, takes, strict=True)):
        writer.add_text(f"sample/{index}", f"{item.texts[0]} ({take.stop.value})", step)
        if len(take.tokens):
            waveform = codec.decode(unpatchify(take.tokens, config.patch_layout, config.codebook_size))
            writer.add_audio(f"sample/{index}", waveform.samples[None], step, waveform.sample_rate)
