"""`torch.hub.load("OWNER/marstts", "mars6_turbo")`: the authors' model, ready to speak, marstts installed or not.

The hub only fetches this repository; the packages it needs are those of `pip install 'marstts[released]'`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent / "src"))

if TYPE_CHECKING:
    from marstts.mars5.tts import InferenceConfig, Mars5TTS
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


def mars5_english(*args: Any, **options: Any) -> tuple[Mars5TTS, type[InferenceConfig]]:
    """The published MARS5 behind the interface of its release, and the class of its settings."""
    from marstts.mars5 import tts

    return tts.mars5_english(*args, **options)
