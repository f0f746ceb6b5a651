"""`marstts speak --profile released`: from options to the rules of the authors' script.

Upstream: `cli.speak`.  Downstream: `synthesis.released`.
"""

from __future__ import annotations

from enum import Enum

from marstts.errors import ConfigError
from marstts.synthesis.released import DeepClone, ReleasedProfile
from marstts.synthesis.synthesizer import Synthesizer


class Profile(str, Enum):
    """Whose rules of text, limits and references."""

    OWN = "own"
    """Ours."""

    RELEASED = "released"
    """Those of the authors' script, for comparisons."""


def check_profile(profile: Profile, deep_clone: DeepClone | None, top_p: float | None) -> None:
    """Raise ConfigError where an option belongs to the other profile."""
    if profile is Profile.OWN and deep_clone is not None:
        raise ConfigError("--deep-clone belongs to --profile released; our own rules continue from the reference")
    if profile is Profile.RELEASED and top_p is not None:
        raise ConfigError("--top-p belongs to our own rules; the authors' script always begins at 0.2")


def released_profile(synthesizer: Synthesizer, deep_clone: DeepClone | None) -> ReleasedProfile:
    """The synthesizer under the script's rules; its own mode is per-chunk."""
    return ReleasedProfile(synthesizer) if deep_clone is None else ReleasedProfile(synthesizer, deep_clone)
