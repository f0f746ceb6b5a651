"""MARS6: an encoder, a global decoder over patches, and a local decoder inside them.

Upstream: `config`, batches of text ids, speaker embeddings and patches.  Downstream: `objective` (training),
`engines.torch` and the ONNX export (speaking), `bundled` (weights).
MARS6 (arXiv:2501.05787), Sec. III.
Shapes: B batch · S text tokens · T patches · P positions · N scored patches · D width · C codes per level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from marstts.mars6.config import Mars6Config
from marstts.mars6.decoders import GlobalDecoder, LocalDecoder
from marstts.mars6.encoder import TextEncoder
from marstts.nn.attention import KVCache, length_mask


@dataclass(frozen=True)
class Mars6Output:
    """Output of the model for a teacher-forced batch."""

    logits: tuple[Tensor, ...]
    """Per level (N, layout[l], C + 1), last column end of speech; N scored patches in order of rows, then time."""

    scored: Tensor
    """(B, T) True for the N patches that were scored."""

    cross_attention: tuple[Tensor, ...]
    """(B, H, T, slots + S) of each requested layer."""

    hidden_states: tuple[Tensor, ...]
    """(B, T, D) after each layer of the global decoder, padding included."""


@dataclass(frozen=True)
class GlobalState:
    """State of the global decoder in B utterances; a value, replaced by every step."""

    vectors: Tensor
    """(B, D): input of the local decoder for the next patch."""

    num_patches: Tensor
    """(B,) patches appended so far, prefix included."""

    seen: tuple[KVCache, ...]
    """Per layer, keys and values of the start vector and the patches."""

    seen_mask: Tensor
    """(B, seen) True where a row's cache holds something; rows with shorter prefixes have gaps."""

    memory: tuple[KVCache, ...]
    """Per layer, keys and values of the memory."""

    memory_mask: Tensor
    """(B, slots + S) True = attend."""

    attention: Tensor | None = None
    """(B, slots + S): mean attention of the aligned heads for the next patch; None without such heads."""

    def select(self, rows: Tensor) -> GlobalState:
        """Return only the rows (N,), in that order."""
        return GlobalState(
            vectors=self.vectors[rows],
            num_patches=self.num_patches[rows],
            seen=tuple(cache.select(rows) for cache in self.seen),
            seen_mask=self.seen_mask[rows],
            memory=tuple(cache.select(rows) for cache in self.memory),
            memory_mask=self.memory_mask[rows],
            attention=None if self.attention is None else self.attention[rows],
        )


def join_states(states: Sequence[GlobalState]) -> GlobalState:
    """The rows of all states, at least one, in one state.

    The entries of each row are moved to the front of its cache; otherwise the gaps between them would grow.
    """
    seen_masks = [front_first(state.seen_mask) for state in states]
    length = max(mask.shape[1] for mask, _ in seen_masks)
    memory_length = max(state.memory_mask.shape[1] for state in states)
    seen = [
        [cache.gathered(order) for cache in state.seen] for state, (_, order) in zip(states, seen_masks, strict=True)
    ]
    return GlobalState(
        vectors=torch.cat([state.vectors for state in states]),
        num_patches=torch.cat([state.num_patches for state in states]),
        seen=tuple(KVCache.joined(caches, length) for caches in zip(*seen, strict=True)),
        seen_mask=torch.cat([F.pad(mask, (0, length - mask.shape[1])) for mask, _ in seen_masks]),
        memory=tuple(KVCache.joined(caches, memory_length) for caches in zip(*(s.memory for s in states), strict=True)),
        memory_mask=torch.cat([F.pad(s.memory_mask, (0, memory_length - s.memory_mask.shape[1])) for s in states]),
        attention=joined_attention([state.attention for state in states], memory_length),
    )


def joined_attention(parts: Sequence[Tensor | None], places: int) -> Tensor | None:
    """The rows (B, any) of all parts, padded to `places`; None where a part is."""
    known = [F.pad(part, (0, places - part.shape[1])) for part in parts if part is not None]
    return torch.cat(known) if len(known) == len(parts) else None


def front_first(mask: Tensor) -> tuple[Tensor, Tensor]:
    """mask (B, S) -> the same with all True in front, as narrow as that allows (B, N), and where from (B, N)."""
    order = torch.argsort(mask.int(), dim=1, descending=True, stable=True)[:, : int(mask.sum(dim=1).max())]
    return mask.gather(1, order), order


class Mars6(nn.Module):
    """The model: text and speaker embeddings in, logits of speech tokens out."""

    def __init__(self, config: Mars6Config) -> None:
        super().__init__()
        self.config = config
        self.encoder = TextEncoder(config)
        self.global_decoder = GlobalDecoder(config)
        self.local_decoder = LocalDecoder(config)

    @property
    def num_slots(self) -> int:
        """Places of the memory before the first text token."""
        return self.encoder.slots.count

    def align(self, heads: tuple[tuple[int, int], ...]) -> None:
        """Name the (layer, head) pairs of the global decoder that follow the text; weights stay as they are."""
        self.config = self.config.model_copy(update={"aligned_heads": heads})
        self.global_decoder.aligned_heads = heads

    def encode(
        self, text_ids: Tensor, text_lengths: Tensor, identity: Tensor, style: Tensor, language: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """text_ids (B, S), text_lengths (B,), identity (B, E1), style (B, E2), language (B,) or None for language 0
        -> memory (B, slots + S, D), memory_mask (B, slots + S) True = attend.
        """
        return self.encoder(text_ids, text_lengths, identity, style, language)

    def forward(
        self,
        text_ids: Tensor,
        text_lengths: Tensor,
        identity: Tensor,
        style: Tensor,
        patches: Tensor,
        patch_lengths: Tensor,
        *,
        language: Tensor | None = None,
        scored: Tensor | None = None,
        attention_layers: tuple[int, ...] = (),
    ) -> Mars6Output:
        """Score patches (B, T, P), padded with -100; patch_lengths (B,) count the final end-of-speech patch.

        The shift happens in here, and only here: the logits of a token depend on earlier tokens only. `scored` (B, T)
        limits the local decoder to some of the patches (default: all that are not padding). The cross-attention of
        `attention_layers` of the global decoder, counted from 0, is returned, too.
        """
        memory, memory_mask = self.encode(text_ids, text_lengths, identity, style, language)
        x = self.global_decoder.embed(patches[:, :-1])  # (B, T, D), position t sees only patches < t
        x, cross_attention, hidden_states = self.global_decoder(x, memory, memory_mask, attention_layers)
        scored = scored_patches(patch_lengths, patches.shape[1], scored)
        logits = self.local_decoder(x[scored], patches[scored])
        return Mars6Output(logits, scored, cross_attention, hidden_states)

    def begin(self, memory: Tensor, memory_mask: Tensor, prefix: Tensor, prefix_lengths: Tensor) -> GlobalState:
        """Run the prefixes (B, T, P), padded with -100, of prefix_lengths (B,) patches, possibly none."""
        projected = self.global_decoder.project_kv(memory)
        x, seen, attention = self.global_decoder.prefill(self.global_decoder.embed(prefix), projected, memory_mask)
        rows = torch.arange(len(x), device=x.device)
        seen_mask = length_mask(prefix_lengths + 1, x.shape[1])
        last = None if attention is None else attention[rows, prefix_lengths]
        return GlobalState(x[rows, prefix_lengths], prefix_lengths, seen, seen_mask, projected, memory_mask, last)

    def advance(self, state: GlobalState, patches: Tensor) -> GlobalState:
        """Append one whole patch per row, patches (B, P)."""
        x = self.global_decoder.patch_embedding(patches.unsqueeze(1), state.num_patches)
        seen_mask = torch.cat((state.seen_mask, torch.ones_like(state.seen_mask[:, :1])), dim=1)
        x, seen, attention = self.global_decoder.step(x, state.seen, seen_mask, state.memory, state.memory_mask)
        last = None if attention is None else attention.squeeze(1)
        return GlobalState(x.squeeze(1), state.num_patches + 1, seen, seen_mask, state.memory, state.memory_mask, last)


def scored_patches(patch_lengths: Tensor, num_patches: int, selected: Tensor | None = None) -> Tensor:
    """patch_lengths (B,), selected (B, T) or None for all -> (B, T), True for selected patches that are not padding."""
    mask = length_mask(patch_lengths, num_patches)
    return mask if selected is None else mask & selected
