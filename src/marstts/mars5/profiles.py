"""Two profiles: the behavior of the published pipeline, and the corrected one.

Upstream: nothing.  Downstream: `pipeline`, `bundled`.
Each field of a `Profile` is one deviation of the release from its documentation, its paper or the obvious intention.
`CORRECTED` corrects them, `RELEASED` keeps them, so that recorded runs are reproduced token for token.
docs/models/mars5-deviations.md lists them with their reasons.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from marstts.mars5.prompt import prompt_string, published_prompt_string
from marstts.mars5.repaint import PAPER, PUBLISHED, DiffusionConfig, ReverseRules


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Behavior of a pipeline where the release deviates."""

    name: str

    spell: Callable[[str, str | None], str] = prompt_string
    """Text and transcript to the string the models read."""

    legal_text_ids: int = 0
    """Number of the last text ids that may be sampled as speech."""

    skipped_tokens: int = 0
    """Number of the first speech tokens that are lost."""

    reference_copies: int = 1
    """Copies of the reference before the new speech in the NAR's input: its codes, and then level 0 of them again."""

    level0_is_inpainted: bool = False
    """Whether level 0 is noised in the last steps, and restored in the end; else it is fixed."""

    reverse: ReverseRules = PAPER

    effective_config: Callable[[DiffusionConfig], DiffusionConfig] = lambda config: config
    """The settings of the diffusion that count, of those that were given."""


def ignore_settings(config: DiffusionConfig) -> DiffusionConfig:
    """All steps, no jumps, and a last step that samples, whatever the configuration."""
    return config.model_copy(update={"timesteps": 200, "jump_len": 1, "jump_n_sample": 1, "last_greedy": False})


CORRECTED = Profile(name="corrected")

RELEASED = Profile(
    name="released",
    spell=published_prompt_string,
    legal_text_ids=1,
    skipped_tokens=1,
    reference_copies=2,
    level0_is_inpainted=True,
    reverse=PUBLISHED,
    effective_config=ignore_settings,
)

PROFILES = {profile.name: profile for profile in (CORRECTED, RELEASED)}
