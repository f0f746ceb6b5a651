"""Install a wheel in fresh environments, by pip, uvx and uv, and speak a sentence with each.

    python tests/release/speak_from_wheel.py dist

uv links files from its cache: hard links and symbolic links are tried, and other versions of Python that are installed.
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
    check_recording(output)


def check_recording(output: Path) -> None:
    """Check the length of a recording, and remove it."""
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


def find_uv() -> list[str | Path]:
    """The command of uv; empty where it is not installed."""
    if find_spec("uv"):
        return [sys.executable, "-m", "uv"]
    found = shutil.which("uv")
    return [found] if found else []


def with_uv(uv: list[str | Path], wheel: Path, work: Path, python: str, mode: str) -> None:
    """Install by uv, whose cache links the files of a package in this mode, and speak."""
    target = work / f"uv-{mode}-{Path(python).name}"
    cache = {"UV_CACHE_DIR": str(work / "uv-cache"), "UV_LINK_MODE": mode}
    run(*uv, "venv", "--quiet", "--python", python, target, cwd=work, **cache)
    run(*uv, "pip", "install", "--quiet", "--python", bin_of(target) / "python", wheel, cwd=work, **cache)
    [weights] = target.rglob("mars6.safetensors")
    links = weights.stat().st_nlink > 1 if mode == "hardlink" else weights.resolve().parent != weights.parent.resolve()
    assert links, f"uv made no links in mode {mode}, so that reading them is not tested"
    speak(bin_of(target), work)


def with_uvx(uv: list[str | Path], wheel: Path, work: Path) -> None:
    """Speak by `uvx --from WHEEL`, which installs into its cache."""
    output = work / "uvx.wav"
    cache = {"UV_CACHE_DIR": str(work / "uv-cache"), "UV_LINK_MODE": "hardlink"}
    words = ["marstts", "speak", "The ship left the harbor at dawn.", "--output", output]
    run(*uv, "tool", "run", "--quiet", "--python", sys.executable, "--from", wheel, *words, cwd=work, **cache)
    check_recording(output)


def other_pythons() -> list[str]:
    """Commands of the other supported versions of Python that are installed here."""
    found = []
    for minor in range(10, 14):
        name = f"python3.{minor}"
        if minor == sys.version_info.minor or shutil.which(name) is None:
            continue
        if subprocess.run([name, "--version"], capture_output=True).returncode == 0:  # a shim may stand for nothing
            found.append(name)
    return found


def main(folder: Path) -> None:
    """Speak from the only wheel in a folder."""
    [wheel] = (path.resolve() for path in folder.glob("*.whl"))
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        with_pip(wheel, work)
        print(f"{wheel.name}: installed by pip, it speaks")
        if not (uv := find_uv()):
            print("uv is not installed")
            return
        with_uvx(uv, wheel, work)
        print(f"{wheel.name}: by uvx, it speaks")
        for python, mode in [
            (sys.executable, "symlink"),
            *((p, "hardlink") for p in (sys.executable, *other_pythons())),
        ]:
            with_uv(uv, wheel, work, python, mode)
            print(f"{wheel.name}: installed by uv ({mode}, {Path(python).name}), it speaks")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
