"""`marstts` as it runs where only the light package is installed."""

from __future__ import annotations

WITHOUT_EXTRAS = """
import sys

EXTRAS = (
    "torch transformers snac onnx onnxscript tensorboard pyworld pyloudnorm pocketsphinx jiwer resemblyzer "
    "speechmos librosa requests matplotlib scipy pyarrow ray starlette uvicorn sounddevice av faster_whisper "
    "utmos huggingface_hub fastapi multipart prometheus_client"
).split()

class NotInstalled:
    def find_spec(self, name, path, target=None):
        package = name.partition(".")[0]
        if package in EXTRAS:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)

sys.meta_path.insert(0, NotInstalled())
from marstts.cli.main import app
app()
"""
"""The program in an interpreter that has only the light install."""
