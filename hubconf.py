"""`torch.hub.load("OWNER/marstts", "mars6_turbo")`: the authors' model, ready to speak, marstts installed or not.

The hub only fetches this repository; the packages it needs are those of `pip install 'marstts[released]'`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent / "src"))

if TYPE_CHECKING:
    from marstts.synthesis.synthesizer import Synthesizer

dependencies = ["torch", "numpy", "onnxruntime", "soundfile", "soxr", "safetensors", "tokenizers", "pydantic"]


def mars6_turbo() -> Synthesizer:
    """The published MARS6: downloaded and converted the first time, then from the cache."""
    import marstts

    return marstts.load("mars6-turbo")


def mini() -> Synthesizer:
    """The small model that comes with marstts."""
    import marstts

    return marstts.load("mini")
