"""`torch.hub.load("OWNER/marstts", "mars6_turbo")`: the published models behind the interfaces of their releases.

The hub only fetches this repository; the packages it needs are those of `pip install 'marstts[released]'`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

sys.path.insert(0, str(Path(__file__).parent / "src"))

if TYPE_CHECKING:
    from marstts.mars5.tts import InferenceConfig, Mars5TTS
    from marstts.mars6.turbo import Mars6Turbo, TurboTokenizer
    from marstts.synthesis.synthesizer import Synthesizer

dependencies = [
    "numpy", "onnxruntime", "soundfile", "soxr", "safetensors", "tokenizers", "pydantic", "typer", "rich", "num2words",
    "filelock", "google.protobuf", "defusedxml", "torch", "snac", "transformers", "huggingface_hub", "onnx",
    "onnxscript",
]  # fmt: skip


def mars6_turbo(
    pretrained: bool = True,
    progress: bool = True,
    device: Any = None,
    dtype: torch.dtype = torch.half,
    ckpt_format: str = "pt",
    checkpoint_url: str | None = None,
    tokenizer_url: str | None = None,
) -> tuple[Mars6Turbo, TurboTokenizer]:
    """The published MARS6 and its text tokenizer, see `marstts.mars6.turbo.mars6_turbo`."""
    from marstts.mars6 import turbo

    return turbo.mars6_turbo(pretrained, progress, device, dtype, ckpt_format, checkpoint_url, tokenizer_url)


def mars5_english(
    pretrained: bool = True,
    progress: bool = True,
    device: Any = None,
    ckpt_format: str = "safetensors",
    ar_path: Path | str | None = None,
    nar_path: Path | str | None = None,
) -> tuple[Mars5TTS, type[InferenceConfig]]:
    """The published MARS5 and the class of its settings, see `marstts.mars5.tts.mars5_english`."""
    from marstts.mars5 import tts

    return tts.mars5_english(pretrained, progress, device, ckpt_format, ar_path, nar_path)


def mini() -> Synthesizer:
    """The small model that comes with marstts."""
    import marstts

    return marstts.load("mini")
