"""A trial: which sentence a system speaks, in whose voice, and what its take is compared with.

Upstream: `evaluation.testset`, which reads and makes them.  Downstream: `panel`, `take_metrics`, `evaluation`,
`preference`.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from marstts.io.config import Config

MAX_CHARACTERS = 20_000
"""Longest text of a trial."""


class Trial(Config):
    """One sentence to be synthesized in one voice."""

    id: str = Field(pattern=r"^[^/\\\s.][^/\\\s]*$", max_length=200)
    """Names the take's file; no slash, no space."""

    text: str = Field(max_length=MAX_CHARACTERS)
    """Text to synthesize."""

    spoken: str | None = Field(None, max_length=MAX_CHARACTERS)
    """The text as it is read aloud, where the metrics' normalizer would read it differently ("$5", "1984")."""

    speaker: str = Field(max_length=1000)
    style: str = Field(max_length=1000)

    reference: Path
    """Recording the voice is cloned from; same speaker and style, another text."""

    reference_transcript: str = Field(max_length=MAX_CHARACTERS)

    ground_truth: Path | None = None
    """Recording of the text by the speaker; None where there is none."""

    compared_with: Path | None = None
    """Another recording of the speaker in the style, which listeners compare takes with; None: the reference."""

    @property
    def words(self) -> str:
        """Text that the word metrics compare with."""
        return self.spoken or self.text
