"""`torch.hub.load("OWNER/marstts", "mars6_turbo")`: published models, ready to speak, marstts installed or not.

The hub only fetches this repository; the packages it needs are those of `pip install 'marstts[released]'`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent / "src"))

if TYPE_CHECKING:
    from marstts.synthesis.synthesizer import Synthesizer

dependencies = [
    "numpy", "onnxruntime", "soundfile", "soxr", "safetensors", "tokenizers", "pydantic", "typer", "rich", "num2words",
    "filelock", "google.protobuf", "defusedxml", "torch", "snac", "transformers", "huggingface_hub", "onnx", "onnxscript",
]  # fmt: skip


def mars6_turbo(
    pretrained: bool = True,
    progress: bool = True,
    device: Any = None,
    dtype: Any = None,
    ckpt_format: str = "pt",
    checkpoint_url: str | None = None,
    tokenizer_url: str | None = None,
) -> Synthesizer:
    """The published MARS6: downloaded and converted the first time, then from the cache.

    The arguments are the release's, of which `device` chooses the engine; the result is a synthesizer, which speaks
    whole texts, in place of the release's model and tokenizer. `progress` and `dtype` have no effect: the engine of a
    device has its own precision. Raises ConfigError where other weights are asked for.
    """
    import marstts
    from marstts.errors import ConfigError

    if not pretrained or ckpt_format not in ("pt", "safetensors") or checkpoint_url or tokenizer_url:
        raise ConfigError(
            "only the published weights are fetched; convert others by `marstts convert`, then marstts.load(FOLDER)"
        )
    engine = "auto" if device is None else "cuda" if str(device).startswith("cuda") else "onnx"
    return marstts.load("mars6-turbo", engine=engine)


def mini() -> Synthesizer:
    """The small model that comes with marstts."""
    import marstts

    return marstts.load("mini")
