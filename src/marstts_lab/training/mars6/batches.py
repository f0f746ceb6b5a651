"""Batches of MARS6: items of a batching plan in, padded tensors out.

Upstream: `data.batching`, which chooses the items; `data.shards`, which holds codes and embeddings.  Downstream:
`task` and `orpo`, which train on them.
Shapes: B batch · S text tokens · T patches · P positions · E embedding size of a role.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from marstts.mars6.config import Mars6Config, eos_patch, patchify
from marstts.mars6.prompt import QUALITY_RATES, prompt_string
from marstts.text.tokenizers.bpe import BPE
from marstts_lab.data.batching import TrainingItem
from marstts_lab.data.corpus import Corpus
from marstts_lab.training.bounds import step_seed
from marstts_lab.training.mars6.config import LettersDistillationConfig

PADDING = -100
"""Token of padded patches."""

BatchType = TypeVar("BatchType", bound="TrainingBatch")


@dataclass(frozen=True, eq=False)
class TrainingBatch:
    """Padded rows, as `Mars6.forward` takes them; tensors on one device."""

    text_ids: Tensor
    """(B, S) padded with 0."""

    text_lengths: Tensor
    """(B,)."""

    embeddings: Mapping[str, Tensor]
    """Role (`identity`, `style`) -> (B, E)."""

    patches: Tensor
    """(B, T, P) tokens, padded with -100."""

    patch_lengths: Tensor
    """(B,) end-of-speech patch included where there is one."""

    def to(self: BatchType, device: torch.device) -> BatchType:
        """The same batch on a device."""
        return self.map(lambda tensor: tensor.to(device, non_blocking=True))

    def rows(self: BatchType, chosen: slice) -> BatchType:
        """Some rows of the batch, padded as far as they need it."""
        part = self.map(lambda tensor: tensor[chosen])
        return dataclasses.replace(
            part,
            text_ids=part.text_ids[:, : int(part.text_lengths.max())],
            patches=part.patches[:, : int(part.patch_lengths.max())],
        )

    def map(self: BatchType, change: Callable[[Tensor], Tensor]) -> BatchType:
        """The batch with every tensor changed."""
        changed: dict[str, Any] = {}
        for each in dataclasses.fields(self):
            value = getattr(self, each.name)
            by_role = isinstance(value, Mapping)
            changed[each.name] = {role: change(tensor) for role, tensor in value.items()} if by_role else change(value)
        return dataclasses.replace(self, **changed)

    def model_inputs(self, patches: Tensor | None = None) -> tuple[Tensor, ...]:
        """The arguments of `Mars6.forward`; `patches` replace those of the batch as its input, where given."""
        inputs = self.patches if patches is None else patches
        roles = (self.embeddings["identity"], self.embeddings["style"])
        return (self.text_ids, self.text_lengths, *roles, inputs, self.patch_lengths)


@dataclass(frozen=True, eq=False)
class PretrainBatch(TrainingBatch):
    """Rows of utterances, alone or concatenated with others of their speaker."""

    boundaries: Tensor
    """(B, 2): patch and text token at which the last utterance of a row begins; 0, 0 where there is only one."""

    letters: Mapping[str, Tensor] = field(default_factory=dict)
    """For `letters_distillation`: `ids` (B, S'), `lengths` (B,) of texts in letters, `is_distilled` (B,) bool."""


class Collator:
    """Items of a batching plan -> tensors."""

    def __init__(
        self,
        corpus: Corpus,
        tokenizer: BPE,
        config: Mars6Config,
        full_bandwidth_hz: int,
        distillation: LettersDistillationConfig | None = None,
    ) -> None:
        self.corpus, self.tokenizer, self.config, self.full_bandwidth_hz = corpus, tokenizer, config, full_bandwidth_hz
        self.distillation = distillation
        self.num_patches = corpus.num_patches
        self.end = eos_patch(config)

    def __call__(self, items: Sequence[TrainingItem]) -> PretrainBatch:
        """The batch of these items, on the CPU."""
        texts = [self.text_ids(item) for item in items]
        patches = [self.patches(item) for item in items]
        embeddings = self.corpus.embeddings_of([item.reference for item in items])
        return PretrainBatch(
            text_ids=pad_rows(texts, 0),
            text_lengths=torch.tensor([len(text) for text in texts]),
            embeddings={role: torch.from_numpy(rows) for role, rows in embeddings.items()},
            patches=pad_rows(patches, PADDING),
            patch_lengths=torch.tensor([len(rows) for rows in patches]),
            boundaries=torch.tensor([self.boundary(item) for item in items]),
            letters={} if self.distillation is None else self.letters(items, self.distillation),
        )

    def letters(self, items: Sequence[TrainingItem], distillation: LettersDistillationConfig) -> dict[str, Tensor]:
        """The texts in letters, which the teacher reads, and the rows that it teaches."""
        texts = [self.text_ids(dataclasses.replace(item, texts=item.letters or item.texts)) for item in items]
        speakers = [self.corpus.utterances[item.reference].speaker for item in items]
        is_distilled = [not any(map(speaker.startswith, distillation.not_distilled)) for speaker in speakers]
        lengths = torch.tensor([len(text) for text in texts])
        return {"ids": pad_rows(texts, 0), "lengths": lengths, "is_distilled": torch.tensor(is_distilled)}

    def text_ids(self, item: TrainingItem) -> NDArray[np.int64]:
        """(S,) ids of the encoder's input; the texts before the last one are the transcript."""
        *before, text = item.texts
        string = prompt_string(text, quality=self.quality(item), transcript=" ".join(before) if before else None)
        return np.asarray(self.tokenizer.encode(string), dtype=np.int64)

    def patches(self, item: TrainingItem) -> NDArray[np.int64]:
        """(T, P) tokens of all utterances of a row, then the end-of-speech patch."""
        layout, codebook_size = self.config.patch_layout, self.config.codebook_size
        parts = [patchify(self.corpus.codes_of(part), layout, codebook_size) for part in item.parts]
        return np.concatenate([*parts, self.end]).astype(np.int64)

    def boundary(self, item: TrainingItem) -> tuple[int, int]:
        """Patch and text token at which the last utterance begins; (0, 0) if it is the only one."""
        if len(item.texts) == 1:
            return 0, 0
        before = self.tokenizer.encode(prompt_string(" ".join(item.texts[:-1]), quality=self.quality(item)))
        return int(self.num_patches[list(item.parts[:-1])].sum()), len(before) - 1  # less the end-of-text token

    def quality(self, item: TrainingItem) -> int:
        """The sample rate (Hz) of the quality prefix."""
        rate = min(self.corpus.utterances[part].source_rate for part in item.parts)
        return QUALITY_RATES[-1] if rate >= self.full_bandwidth_hz else max(rate, QUALITY_RATES[0])


def pad_rows(arrays: Sequence[NDArray[np.int64]], value: int) -> Tensor:
    """Arrays (L, ...) of different lengths -> (B, max L, ...)."""
    padded = np.full((len(arrays), max(map(len, arrays)), *arrays[0].shape[1:]), value, dtype=np.int64)
    for row, array in zip(padded, arrays, strict=True):
        row[: len(array)] = array
    return torch.from_numpy(padded)


class Prefetcher:
    """Calls a pure function of a batch's number, one call ahead, on another thread."""

    def __init__(self, make: Callable[[int], PretrainBatch]) -> None:
        self.make = make
        self.executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="batches")
        self.pending: dict[int, Future[PretrainBatch]] = {}

    def __call__(self, number: int, following: int | None = None) -> PretrainBatch:
        """Batch `number`; `following` is the number that will be asked for next, if it is known."""
        batch = self.pending.pop(number).result() if number in self.pending else self.make(number)
        self.pending = {} if following is None else {following: self.executor.submit(self.make, following)}
        return batch


def corrupt_tokens(patches: Tensor, ratio: float, config: Mars6Config, seed: int, number: int) -> Tensor:
    """patches (B, T, P) with a ratio of the codes replaced by random codes of their level; EOS and padding stay.

    Which codes is a function of the seed and of the batch's number.
    """
    if not ratio:
        return patches
    rng = torch.Generator().manual_seed(step_seed(seed, number))
    chosen = torch.rand(patches.shape, generator=rng) < ratio
    levels = torch.tensor(config.position_levels)
    codes = torch.randint(config.codebook_size, patches.shape, generator=rng) + levels * config.codebook_size
    replaced = chosen.to(patches.device) & (patches >= 0) & (patches != config.eos)
    return torch.where(replaced, codes.to(patches.device), patches)
