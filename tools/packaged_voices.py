"""Clone the voices of the package again, from the references that they keep: for new weights of mini.

    python tools/packaged_voices.py

Without it a voice of earlier weights is cloned whenever it is opened, which takes a quarter of a second.
"""

from __future__ import annotations

import marstts
from marstts.synthesis.clone.packaged import PACKAGED_VOICES, VOICE_SUFFIX, packaged_names
from marstts.synthesis.clone.voices import adapt_voice
from marstts.voice import Voice


def main() -> None:
    """Write the voice files that have changed."""
    mini = marstts.load("mini")
    for name in packaged_names():
        path = PACKAGED_VOICES / f"{name}{VOICE_SUFFIX}"
        before = Voice.load(path)
        after = adapt_voice(mini.session, before)
        if after is before:
            print(f"{name}: fits")
            continue
        Voice(**{**vars(after), "source_sha256": before.source_sha256, "reference": before.reference}).save(path)
        print(f"{name}: cloned again")


if __name__ == "__main__":
    main()
