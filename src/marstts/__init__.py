"""marstts: voice-cloning speech synthesis with MARS6 and MARS5.

    import marstts
    tts = marstts.load()
    speech = tts.speak("Hello.", voice=tts.clone("reference.wav"))
    speech.save("hello.wav")

Importing the package loads nothing; each public name is imported from its module when first used.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from marstts.audio.waveform import Waveform
    from marstts.synthesis.clone.voice_folder import VoiceFolder
    from marstts.synthesis.clone.voices import voices
    from marstts.synthesis.loading import load
    from marstts.synthesis.speech import Speech
    from marstts.synthesis.synthesizer import Synthesizer
    from marstts.voice import Voice

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
"""ONNX Runtime 1.32 and later stores an identifier of the machine and sends events from the moment it is imported."""

__version__ = "0.1.0"

__all__ = ["Speech", "Synthesizer", "Voice", "VoiceFolder", "Waveform", "__version__", "load", "voices"]

_MODULES = {
    "Speech": "marstts.synthesis.speech",
    "Synthesizer": "marstts.synthesis.synthesizer",
    "Voice": "marstts.voice",
    "VoiceFolder": "marstts.synthesis.clone.voice_folder",
    "Waveform": "marstts.audio.waveform",
    "load": "marstts.synthesis.loading",
    "voices": "marstts.synthesis.clone.voices",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'marstts' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
