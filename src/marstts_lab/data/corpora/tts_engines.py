"""Open speech engines: text in, waveform out, by the name of a base voice.

Upstream: `synthetic`, which plans the utterances.  An engine is a Debian package, called as a program with a text, a
rate and a pitch, or Kokoro (`kokoro`), which has many voices; a `BaseVoice` states its abilities.

Licenses were read in each package's copyright file: *green* voices may be used and published freely, *amber* ones allow
it with an undocumented step that a model card names.
"""

from __future__ import annotations

import logging
import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from marstts import audio
from marstts.audio import Waveform
from marstts.errors import DataError, MarsError
from marstts_lab.data.corpora import kokoro as neural

SECONDS_PER_CALL = 60
"""Time limit for one sentence; an engine that takes longer hangs."""

MAX_READINGS = 4
"""Readings of a text of which two must agree."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class BaseVoice:
    """One voice of one engine."""

    name: str
    speak: Callable[[str, BaseVoice, float, float], Waveform]
    """Function (text, self, rate factor, pitch factor) -> waveform at the engine's rate."""

    program: str
    """The executable it needs."""

    packages: tuple[str, ...]
    """The Debian packages of program and voice."""

    engine_voice: str
    """The engine's name for the voice."""

    female: bool
    tier: str
    license: str

    bandwidth: int
    """The sample rate that matches its bandwidth, in Hz: 16000 for a voice that ends at 8 kHz."""

    has_pitch: bool = True

    mean_f0: float = 0.0
    """Usual F0 of the voice in Hz, since flite takes absolute pitches; 0 for other engines."""

    draw_voice: Callable[[int, int], str] | None = None
    """Function (number of the speaker, seed) -> `engine_voice`, of an engine with many voices: its speakers are not
    made by warping one. It is slow and does not vary, so it is asked once."""


def read_twice(text: str, voice: BaseVoice, rate: float, pitch: float) -> Waveform:
    """The waveform on which two readings of a text agree; DataError where four do not.

    A corpus must be the same on every machine, and an engine that differs once in some hundred calls would change it.
    """
    if voice.draw_voice is not None:
        return voice.speak(text, voice, rate, pitch)
    readings: list[Waveform] = []
    for _ in range(MAX_READINGS):
        found = voice.speak(text, voice, rate, pitch)
        if any(np.array_equal(found.samples, before.samples) for before in readings):
            return found
        readings.append(found)
        if len(readings) > 1:
            log.warning("%s read the same text in %d ways: %s", voice.name, len(readings), text)
    raise DataError(f"{voice.name} read the same text in {MAX_READINGS} ways")


def flite(text: str, voice: BaseVoice, rate: float, pitch: float) -> Waveform:
    """CMU flite; duration and pitch are set exactly, except that clustergen voices without `has_pitch` ignore pitch."""
    options = ["--setf", f"duration_stretch={1 / rate:.3f}"]
    if voice.has_pitch:
        options += ["--setf", f"int_f0_target_mean={voice.mean_f0 * pitch:.1f}"]
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "speech.wav"
        call(["flite", "-voice", voice.engine_voice, *options, "-t", text, "-o", str(output)])
        return audio.read(output)


def pico(text: str, voice: BaseVoice, rate: float, pitch: float) -> Waveform:
    """SVOX Pico; its speed scale is not linear in duration."""
    marked = f'<speed level="{100 * rate**1.3:.0f}"><pitch level="{100 * pitch:.0f}">{text}</pitch></speed>'
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "speech.wav"
        call(["pico2wave", "-l", voice.engine_voice, "-w", str(output), marked])
        return audio.read(output)


def rhvoice(text: str, voice: BaseVoice, rate: float, pitch: float) -> Waveform:
    """RHVoice at 24 kHz; rate and pitch in percent."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "speech.wav"
        options = ["-p", voice.engine_voice, "-R", "24000", "-q", "max"]
        options += ["-r", f"{100 * rate:.0f}", "-t", f"{100 * pitch:.0f}", "-o", str(output)]
        call(["RHVoice-test", *options], text + "\n")
        return audio.read(output)


def espeak(text: str, voice: BaseVoice, rate: float, pitch: float) -> Waveform:
    """espeak-ng formant voices; its pitch scale is about an octave per 60 units around 50."""
    scale = min(99, max(0, 50 + 60 * math.log2(pitch)))
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "speech.wav"
        options = ["-v", voice.engine_voice, "-s", f"{160 * rate:.0f}", "-p", f"{scale:.0f}", "-w", str(output)]
        call(["espeak-ng", *options, "--", text])
        return audio.read(output)


def kokoro(text: str, voice: BaseVoice, rate: float, pitch: float) -> Waveform:
    """Kokoro-82M at 24 kHz; it has no pitch control."""
    return neural.speak(text, voice.engine_voice, rate)


def call(command: list[str], text: str | None = None) -> None:
    """Run an engine; DataError with the end of its messages if it fails, hangs or is not installed."""
    try:
        with tempfile.TemporaryDirectory() as home:
            subprocess.run(
                command, input=text, capture_output=True, check=True, encoding="utf-8", errors="replace",
                timeout=SECONDS_PER_CALL, env=engine_environment(home),
            )  # fmt: skip
    except subprocess.CalledProcessError as error:
        raise DataError(
            f"{command[0]} failed with exit code {error.returncode}: {error.stderr.strip()[-200:]}"
        ) from error
    except OSError as error:
        raise DataError(f"{command[0]} cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise DataError(f"{command[0]} did not finish one sentence within {SECONDS_PER_CALL} s") from error


def engine_environment(home: str) -> dict[str, str]:
    """The environment of an engine: of the user's, only where programs and libraries are; all else is fixed.

    Two engines would otherwise say a text in several ways. espeak-ng 1.51 looks for a PulseAudio server even when it
    writes to a file. Where its home has no folder for one yet, the PulseAudio library makes one with a random name,
    probably by `rand()`, whose next numbers are the breath of the voice. So the first call of a new home differed.
    pico2wave reads memory that it never wrote; it is zero unless a variable such as MALLOC_PERTURB_ fills it.
    """
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    return {
        **kept,
        "HOME": home,
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TMPDIR": home,
        "PULSE_RUNTIME_PATH": home,
        "PULSE_SERVER": f"unix:{home}/none",
    }


CMU = "CMU, BSD-like: use, modify, sublicense, sell; keep the notice"

BASE_VOICES = {
    voice.name: voice
    for voice in (
        BaseVoice(name="flite-kal16", speak=flite, program="flite", packages=("flite",), engine_voice="kal16",
                  female=False, tier="green", license=CMU, bandwidth=16000, mean_f0=94.0),
        BaseVoice(name="flite-awb", speak=flite, program="flite", packages=("flite",), engine_voice="awb", female=False,
                  tier="green", license=CMU, bandwidth=16000, mean_f0=132.0),
        BaseVoice(name="flite-rms", speak=flite, program="flite", packages=("flite",), engine_voice="rms", female=False,
                  tier="green", license=CMU, bandwidth=16000, has_pitch=False),
        BaseVoice(name="flite-slt", speak=flite, program="flite", packages=("flite",), engine_voice="slt", female=True,
                  tier="green", license=CMU, bandwidth=16000, mean_f0=172.0),
        BaseVoice(name="rhvoice-bdl", speak=rhvoice, program="RHVoice-test", packages=("rhvoice", "rhvoice-english"),
                  engine_voice="bdl", female=False, tier="amber", license="LGPL-2.1+, recordings CMU ARCTIC",
                  bandwidth=24000),
        BaseVoice(name="rhvoice-alan", speak=rhvoice, program="RHVoice-test", packages=("rhvoice", "rhvoice-english"),
                  engine_voice="alan", female=False, tier="amber", license="LGPL-2.1+, recordings CMU ARCTIC",
                  bandwidth=16000),
        BaseVoice(name="pico-us", speak=pico, program="pico2wave", packages=("libttspico-utils",), engine_voice="en-US",
                  female=True, tier="amber", license="Apache-2.0, sources of the voice data not included",
                  bandwidth=16000),
        BaseVoice(name="pico-gb", speak=pico, program="pico2wave", packages=("libttspico-utils",), engine_voice="en-GB",
                  female=True, tier="amber", license="Apache-2.0, sources of the voice data not included",
                  bandwidth=16000),
        BaseVoice(name="espeak-klatt4", speak=espeak, program="espeak-ng", packages=("espeak-ng",),
                  engine_voice="en-us+klatt4", female=False, tier="green", license="engine GPL-3+, output free",
                  bandwidth=22050),
        BaseVoice(name="espeak-f2", speak=espeak, program="espeak-ng", packages=("espeak-ng",), engine_voice="en-us+f2",
                  female=True, tier="green", license="engine GPL-3+, output free", bandwidth=22050),
        BaseVoice(name="kokoro", speak=kokoro, program="", packages=(), engine_voice=neural.VOICES[0], female=True,
                  tier="green", license="Apache-2.0", bandwidth=24000, has_pitch=False, draw_voice=neural.draw_voice),
    )
}  # fmt: skip
"""The base voices by name. Non-commercial voices (MBROLA; RHVoice evgeniy-eng, lyubov) are excluded."""


NOT_IN_MAIN = {"rhvoice": "non-free", "rhvoice-english": "non-free", "libttspico-utils": "non-free"}
"""Sections of Debian (12 and 13) other than main that contain a package."""


def check_installed(names: Sequence[str]) -> None:
    """DataError naming all unknown voices, or all Debian packages that are missing; every voice speaks a test word."""
    unknown = sorted(set(names) - BASE_VOICES.keys())
    if unknown:
        raise DataError(f"unknown base voices {', '.join(unknown)}; known are {', '.join(sorted(BASE_VOICES))}")
    if any(BASE_VOICES[name].draw_voice is not None for name in names):
        neural.check_files()
    missing = sorted({package for name in dict.fromkeys(names) for package in missing_packages(BASE_VOICES[name])})
    if missing:
        sections = sorted({NOT_IN_MAIN[package] for package in missing if package in NOT_IN_MAIN})
        source = f" (the package sources must include {' and '.join(sections)})" if sections else ""
        raise DataError(
            f"the chosen base voices need Debian packages that are not installed: apt-get install {' '.join(missing)}"
            f"{source}"
        )


def missing_packages(voice: BaseVoice) -> tuple[str, ...]:
    """The packages of a voice if its program or the voice is missing: the voice cannot speak a word."""
    if not voice.program:
        return ()
    if shutil.which(voice.program) is None:
        return voice.packages
    try:
        waveform = voice.speak("Yes.", voice, 1.0, 1.0)
    except MarsError:
        return voice.packages
    return () if len(waveform.samples) else voice.packages
