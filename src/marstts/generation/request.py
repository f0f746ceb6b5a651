"""A request for one utterance, its state while it is generated, and its result.

Upstream: `synthesis`, which makes requests from sentences.  Downstream: `loop` and `scheduler`.
MARS6 (arXiv:2501.05787), Sec. IV-B.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from marstts.generation.engine import TokenLayout
from marstts.io.config import Config


class SamplingConfig(Config):
    """Parameters of sampling (MARS6, Sec. IV-B)."""

    top_p: float = Field(0.2, ge=0.0, le=1.0)
    """Nucleus of the first attempt at a sentence: 0 = greedy, 1 = the full distribution."""

    ras_window: int = Field(10, gt=0, le=4096)
    """K, how many of the last L0 codes a pick is compared with (Sec. IV-B1)."""

    ras_max_ratio: float = Field(0.09, ge=0.0)
    """t_r: a pick that makes up more of those than this is sampled again from the full distribution; 1 = never."""


@dataclass(frozen=True)
class Limits:
    """Bounds on the new patches of a request."""

    min_patches: int
    """End of speech is forbidden before this many patches are complete."""

    max_patches: int
    """Generation stops when this many patches are complete."""

    def __post_init__(self) -> None:
        assert 0 <= self.min_patches <= self.max_patches, f"{self.min_patches} to {self.max_patches} patches"


class StopReason(str, Enum):
    """Reason why generation of a request stopped."""

    EOS = "end of speech"
    MAX_PATCHES = "patch limit"

    WORDS_DONE = "last word spoken"
    """The caller ended it: the text was finished, and end of speech did not come."""

    FLAWED = "given up"
    """The caller ended it: nothing that could follow would make it acceptable."""


class Prompt(Protocol):
    """Conditioning of an utterance. Only its model reads the rest of it."""

    @property
    def prefix_tokens(self) -> NDArray[np.int64]:
        """(T, P) tokens of the prefix that the utterance continues from, T = 0 without one."""
        ...


@dataclass(frozen=True, eq=False)
class Generated:
    """Tokens generated for one request."""

    tokens: NDArray[np.int64]
    """(T, P) new patches only, T = 0 if speech ended at once; never holds end of speech."""

    stop: StopReason

    attention: tuple[NDArray[np.float32], ...] = ()
    """(S or more,) attention to the text tokens at each step, the one that ended it included; empty where the engine
    has none."""


@dataclass(frozen=True, eq=False)
class Request:
    """One utterance to generate, and all that decides its tokens. Requests are compared by identity."""

    prompt: Prompt
    top_p: float
    limits: Limits

    rng: np.random.Generator
    """Owned by this request: every patch takes the same count of numbers from it."""

    sampling: SamplingConfig
    """The rest of the sampling parameters; `top_p` here replaces the one there."""


@dataclass(frozen=True, eq=False)
class RequestState:
    """Progress of one request; a value."""

    request: Request

    recent: tuple[int, ...]
    """The last L0 codes, prefix included: the window of repetition-aware sampling."""

    patches: tuple[NDArray[np.int64], ...] = ()
    """The new patches, (P,) each."""

    attention: tuple[NDArray[np.float32], ...] = ()
    """(S or more,) of each step so far, see `engine.AttentionEngine`; empty where the engine has none."""

    stop: StopReason | None = None
    """Reason why generation ended, if it has."""

    @classmethod
    def begin(cls, request: Request, layout: TokenLayout) -> RequestState:
        """The state before the first patch, or at the limit already."""
        prefix = request.prompt.prefix_tokens[:, : layout.codes_per_level[0]].flatten().tolist()
        return cls(request, tuple(prefix[-request.sampling.ras_window :])).at_limit()

    @property
    def may_end(self) -> bool:
        """True where end of speech is allowed in the next patch."""
        return len(self.patches) >= self.request.limits.min_patches

    def after(
        self,
        patch: NDArray[np.int64],
        layout: TokenLayout,
        attention: NDArray[np.float32] | None = None,
    ) -> RequestState:
        """The state with one more patch (P,), made with this attention (S or more,), or ended.

        An unfinished patch is dropped.
        """
        attended = self.attention if attention is None else (*self.attention, attention)
        if (patch == layout.eos).any():
            return replace(self, attention=attended, stop=StopReason.EOS)
        recent = (*self.recent, *patch[: layout.codes_per_level[0]].tolist())[-self.request.sampling.ras_window :]
        patches = (*self.patches, patch)
        return RequestState(self.request, recent, patches, attended).at_limit()  # `replace` takes much longer

    def at_limit(self) -> RequestState:
        """The same state, ended if it has all the patches it may have."""
        is_full = len(self.patches) >= self.request.limits.max_patches
        return replace(self, stop=StopReason.MAX_PATCHES) if is_full else self

    def result(self, layout: TokenLayout) -> Generated:
        """The result of an ended request."""
        assert self.stop is not None
        tokens = np.array(self.patches, dtype=np.int64).reshape(-1, layout.patch_size)
        return Generated(tokens, self.stop, self.attention)
