"""Install a wheel in fresh environments, by pip and by uv with hard links, and speak a sentence with each.

    python tests/release/speak_from_wheel.py dist

Needs the network for the dependencies. uv is skipped where it is not installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
import wave
from importlib.util import find_spec
from pathlib import Path

CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV", "MARSTTS"))}


def run(*command: str | Path, cwd: Path, **environment: str) -> None:
    """Run a command; an error of it ends the check."""
    subprocess.run([str(word) for word in command], check=True, cwd=cwd, env={**CLEAN, **environment})


def speak(bin_folder: Path, work: Path) -> None:
    """Speak with the installed command, away from the sources, and check the recording."""
    output = work / "hello.wav"
    run(bin_folder / "marstts", "speak", "The ship left the harbor at dawn.", "--output", output, cwd=work)
    with wave.open(str(output)) as file:
        seconds = file.getnframes() / file.getframerate()
    assert 1.0 < seconds < 6.0, f"expected about two seconds of speech, got {seconds:.1f}"
    output.unlink()


def bin_of(environment: Path) -> Path:
    """The folder of an environment's commands."""
    return environment / ("Scripts" if os.name == "nt" else "bin")


def with_pip(wheel: Path, work: Path) -> None:
    """Install by pip and speak."""
    venv.create(work / "pip", with_pip=True)
    run(bin_of(work / "pip") / "python", "-m", "pip", "install", "--quiet", wheel, cwd=work)
    speak(bin_of(work / "pip"), work)


def with_uv(wheel: Path, work: Path) -> bool:
    """Install by uv, whose cache hard-links the weights, and speak; False where there is no uv."""
    uv: list[str | Path]
    if find_spec("uv"):
        uv = [sys.executable, "-m", "uv"]
    elif found := shutil.which("uv"):
        uv = [found]
    else:
        return False
    target = work / "uv"
    cache = {"UV_CACHE_DIR": str(work / "uv-cache"), "UV_LINK_MODE": "hardlink"}
    run(*uv, "venv", "--quiet", "--python", sys.executable, target, cwd=work, **cache)
    python = bin_of(target) / "python"
    run(*uv, "pip", "install", "--quiet", "--python", python, wheel, cwd=work, **cache)
    [weights] = target.rglob("mars6.safetensors")
    assert weights.stat().st_nlink > 1, "uv made no hard links, so that reading them is not tested"
    speak(bin_of(target), work)
    return True


def main(folder: Path) -> None:
    """Speak from the only wheel in a folder."""
    [wheel] = (path.resolve() for path in folder.glob("*.whl"))
    with tempfile.TemporaryDirectory() as name:
        with_pip(wheel, Path(name))
        print(f"{wheel.name}: installed by pip, it speaks")
        print(f"{wheel.name}: installed by uv, it speaks" if with_uv(wheel, Path(name)) else "uv is not installed")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
