"""Stand-ins for the packages of the paper's baselines, in environments of their own."""

from __future__ import annotations

import sys
from pathlib import Path

WRITE = """
import struct, wave
def write(path, text, reference):
    assert reference.endswith((".wav", ".flac")), reference
    if text == "fail":
        raise RuntimeError("out of memory")
    print("a package that prints to standard output")
    with wave.open(path, "wb") as file:
        file.setnchannels(1), file.setsampwidth(2), file.setframerate(24000)
        file.writeframes(struct.pack("<h", 1000) * 240 * len(text))
"""
PACKAGES = {
    "xttsv2": {
        "TTS/__init__.py": "",
        "TTS/api.py": WRITE + """
class TTS:
    def __init__(self, name):
        assert name == "tts_models/multilingual/multi-dataset/xtts_v2"
    def tts_to_file(self, text, speaker_wav, language, file_path, *, temperature, top_k, **others):
        assert (language, temperature, top_k) == ("en", 0.75, 50)
        write(file_path, text, speaker_wav)
""",
    },
    "styletts2": {
        "styletts2/__init__.py": "",
        "styletts2/tts.py": WRITE + """
class StyleTTS2:
    def inference(self, text, target_voice_path, output_wav_file, *, alpha, beta, diffusion_steps, embedding_scale):
        assert (alpha, beta) == (0.3, 0.7)
        write(output_wav_file, text, target_voice_path)
""",
    },
    "metavoice": {
        "fam/__init__.py": "",
        "fam/llm/__init__.py": "",
        "fam/llm/fast_inference.py": WRITE + """
import os, tempfile
class TTS:
    def synthesise(self, text, spk_ref_path, *, top_p, guidance_scale, temperature):
        assert guidance_scale == 3.0
        with wave.open(spk_ref_path) as file:
            assert file.getnframes() >= 30 * file.getframerate(), "references below 30 s are refused"
        path = os.path.join(tempfile.mkdtemp(), "made.wav")
        write(path, text, spk_ref_path)
        return path
""",
    },
}  # fmt: skip


def environment_of(folder: Path, files: dict[str, str]) -> str:
    """A Python that finds the files as packages."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    return str(python)
