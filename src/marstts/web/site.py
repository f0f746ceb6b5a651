"""The static folder: page, graphs, voices, ONNX Runtime Web, Pyodide and the package's text reader.

Upstream: `marstts web`.  Downstream: any web host; `static/`, whose modules run in the browser.

    index.html, page.css, *.js      the page
    service-worker.js               keeps all files, so that a second visit downloads nothing
    site.json                       sizes and defaults of the model, voices, parts with their sizes
    model-REVISION-DIGEST/          graphs with their weights
    runtime-DIGEST/                 ONNX Runtime Web, Pyodide, and reader.zip: the modules of `PYTHON_FILES`
    _headers                        headers for hosts that read this file (Netlify, Cloudflare Pages)
    licenses.txt
"""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import distribution
from importlib.resources import files
from pathlib import Path
from typing import Any

import marstts
from marstts.bundle import TOKENIZER_FILE, find_bundle, read_info
from marstts.codec.base import SPEAKER_FOLDER, TIMBRE
from marstts.codec.mini import MAX_LOG_GAIN, MAX_TIMBRE_SECONDS, MIN_PITCH_PATCHES, MiniCodec
from marstts.errors import ConfigError
from marstts.generation.engine import EngineKind
from marstts.io.files import atomic_folder
from marstts.io.reading import printable_name, read_text
from marstts.speaker.base import MAX_REFERENCE_SECONDS, REFERENCE_LOUDNESS
from marstts.speaker.mini import CHUNK_SECONDS, MIN_SECONDS, MiniSpeakerEncoder
from marstts.synthesis.backoff import BackoffConfig
from marstts.synthesis.clone import MIN_REFERENCE_LOUDNESS, MIN_REFERENCE_SECONDS
from marstts.synthesis.clone.packaged import voice_table
from marstts.synthesis.clone.voices import voices
from marstts.synthesis.loading import open_synthesizer
from marstts.synthesis.synthesizer import Synthesizer
from marstts.text.lexicon import Lexicon
from marstts.web.graphs import self_contained
from marstts.web.packages import COPIED, pinned
from marstts.web.reader import Reader

MARK = "site.json"
"""A folder with this file and `service-worker.js` is a site, which another one may replace."""

MAX_TOKENIZER_BYTES = 64 * 2**20

STATIC = files("marstts.web") / "static"

SHARED_WITH_SERVER = ("dom.js", "wav.js", "captions.js", "recorder.js", "recorder-worklet.js", "page.css")
"""Files that are those of the page of `marstts serve`."""

PYTHON_FILES = (
    "__init__.py", "errors.py", "io/__init__.py", "io/reading.py", "text/**/*", "mars6/__init__.py",
    "mars6/prompt_text.py", "mars6/spelling.py", "synthesis/__init__.py", "synthesis/prepared_text.py",
    "synthesis/words/__init__.py", "synthesis/words/written_forms.py", "web/__init__.py", "web/reader.py",
)  # fmt: skip
"""Files of the package that the tab's Python gets."""

LEFT_OUT = ("text/books/", "text/tokenizers/bpe.py", "text/tokenizers/minbpe.py", "text/pronunciation/mixing.py")
"""What those patterns find and the tab does not need."""

PYTHON_PACKAGES = ("num2words", "defusedxml")
"""Packages in plain Python that reading needs, copied from the environment."""

SPEAKING, CLONING = "speaking", "cloning"

WARM_UP = "This voice is synthetic."
"""Begun while the page loads, and never played: `static/warm-up.js`."""

GRAPHS = {
    SPEAKING: {
        "encoder": "mars6/encoder.onnx",
        "global": "mars6/global.onnx",
        "patch": "mars6/patch.onnx",
        "decoder": "codec/decoder.onnx",
        "filters": "codec/filters.onnx",
        "pitch": "codec/pitch.onnx",
    },
    CLONING: {
        "identity": "identity/encoder.onnx",
        "style": "style/encoder.onnx",
        "speaker": f"codec/{SPEAKER_FOLDER}/encoder.onnx",
        "timbre": "codec/timbre.onnx",
    },
}
"""Graphs by name in the tab, and their places in the bundle."""

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; connect-src 'self'; "
    "worker-src 'self'; img-src 'self' data:; media-src 'self' blob:; base-uri 'none'; form-action 'none'"
)
"""What a browser may load for the page: nothing of other hosts."""

HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Referrer-Policy": "no-referrer",
}
"""Headers of every file: with those in the middle a browser lets the page use threads."""


def write_site(output: Path, model: str, packages: Path) -> dict[str, int]:
    """Write the site for a model to a folder -> bytes of each kind of file.

    `packages` is a folder node_modules that `packages.find_packages` accepts. Raises ConfigError for a model of
    another kind than mini, FileError where the folder holds something else.
    """
    bundle = find_bundle(model)
    synthesizer = open_for_tab(bundle)
    with atomic_folder(output, replace=is_site) as folder:
        page = [*write_page(folder)]
        runtime = write_runtime(folder, packages)
        graphs = write_graphs(folder, bundle, synthesizer)
        description = describe(bundle, synthesizer) | {"parts": parts_of(folder, runtime, graphs)}
        (folder / MARK).write_text(json.dumps(description), encoding="utf-8")
        (folder / "licenses.txt").write_text(licenses(packages, bundle), encoding="utf-8")
        lines = "".join(f"  {name}: {value}\n" for name, value in HEADERS.items())
        (folder / "_headers").write_text(f"/*\n{lines}", encoding="utf-8")
        write_service_worker(folder, [*page, MARK, "licenses.txt"], runtime, [path for path, _ in graphs.values()])
        sizes = {
            "page": sum((folder / name).stat().st_size for name in [*page, MARK]),
            "runtime": sum((folder / name).stat().st_size for name in runtime),
            "model": sum((folder / path).stat().st_size for path, _ in graphs.values()),
        }
    return sizes


def is_site(folder: Path) -> bool:
    """Return True where a folder was written by this module."""
    return all((folder / name).is_file() for name in (MARK, "service-worker.js"))


def open_for_tab(bundle: Path) -> Synthesizer:
    """The synthesizer of a bundle; ConfigError unless the tab can run all of its parts."""
    info = read_info(bundle)
    kinds = {info.codec.kind, *(encoder.kind for encoder in info.encoders.values())}
    if info.architecture != "mars6" or kinds != {"mini"} or set(info.encoders) != {"identity", "style"}:
        raise ConfigError(
            f"{printable_name(bundle)}: expected a MARS6 with the codec and the speaker encoders of mini; the page "
            "runs no other parts"
        )
    synthesizer = open_synthesizer(bundle, EngineKind.ONNX)
    codec = synthesizer.session.codec
    if not isinstance(codec, MiniCodec) or not codec.timbre_width or not codec.config.timbre_speaker_size:
        raise ConfigError(f"{printable_name(bundle)}: expected a codec with timbre embeddings, as mini has")
    return synthesizer


def write_page(folder: Path) -> Iterator[str]:
    """Copy the page's files; yields their names."""
    server = files("marstts.server") / "static"
    for name in SHARED_WITH_SERVER:
        (folder / name).write_bytes((server / name).read_bytes())
        yield name
    for file in STATIC.iterdir():
        if file.name.endswith((".js", ".css", ".html")) and file.name != "service-worker.js":
            (folder / file.name).write_bytes(file.read_bytes())
            yield file.name


def write_runtime(folder: Path, packages: Path) -> list[str]:
    """Copy the files of the npm packages, and pack the reader; returns their names."""
    staged = folder / "runtime"
    staged.mkdir()
    for package, names in COPIED.items():
        for source, name in names.items():
            shutil.copyfile(packages / package / source, staged / name)
    pack_reader(staged / "reader.zip")
    digest = digest_of(staged.iterdir())
    target = staged.rename(folder / f"runtime-{digest}")
    return [f"{target.name}/{path.name}" for path in sorted(target.iterdir())]


def write_graphs(folder: Path, bundle: Path, synthesizer: Synthesizer) -> dict[str, tuple[str, str]]:
    """Write the graphs: by name, the file and the kind of part that it is of."""
    staged = folder / "model"
    staged.mkdir()
    for graphs in GRAPHS.values():
        for name, place in graphs.items():
            (staged / f"{name}.onnx").write_bytes(self_contained(bundle / place))
    target = staged.rename(folder / f"model-{synthesizer.session.revision}-{digest_of(staged.iterdir())}")
    return {name: (f"{target.name}/{name}.onnx", part) for part, graphs in GRAPHS.items() for name in graphs}


def pack_reader(path: Path) -> None:
    """Write a ZIP file of the modules that read texts; equal modules make equal files."""
    root = Path(str(files("marstts")))
    found = {
        f"marstts/{name}": file.read_bytes()
        for pattern in PYTHON_FILES
        for file in root.glob(pattern)
        if file.is_file()
        and "__pycache__" not in file.parts
        and not (name := file.relative_to(root).as_posix()).startswith(LEFT_OUT)
    }
    for package in PYTHON_PACKAGES:
        for file in distribution(package).files or ():
            if file.suffix == ".py" and file.parts[0] == package:
                found[file.as_posix()] = Path(str(file.locate())).read_bytes()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for name in sorted(found):
            packed.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), found[name], zipfile.ZIP_DEFLATED)


def describe(bundle: Path, synthesizer: Synthesizer) -> dict[str, Any]:
    """What the page's modules need to know of the model: sizes, defaults, voices."""
    codec, config = synthesizer.session.codec, vars(synthesizer.session.model)["config"]
    assert isinstance(codec, MiniCodec)
    speaker = MiniSpeakerEncoder(bundle / "codec" / SPEAKER_FOLDER)
    info = read_info(bundle)
    tokenizer = read_text(bundle / TOKENIZER_FILE, MAX_TOKENIZER_BYTES)
    return {
        "version": marstts.__version__,
        "model": {
            "label": synthesizer.session.label,
            "codebookSize": config.codebook_size,
            "patchLayout": list(config.patch_layout),
            "width": config.width,
            "heads": config.heads,
            "layers": config.global_layers,
            "localHeads": config.local_heads,
            "hasWordTimes": bool(config.aligned_heads),
            "styleOffset": info.settings.get("style_offset", []),
        },
        "reader": {"tokenizer": tokenizer, "settings": info.settings},
        "warmUp": Reader(tokenizer, info.settings).sentences(WARM_UP, Lexicon())["sentences"][0],
        "sampling": camel(info.sampling.model_dump()),
        "backoff": camel(BackoffConfig().model_dump()),
        "codec": codec_description(codec),
        "encoders": {
            role: encoder_description(encoder)
            for role, encoder in (*synthesizer.session.encoders.items(), ("speaker", speaker))
            if isinstance(encoder, MiniSpeakerEncoder)
        },
        "cloning": {
            "minSeconds": MIN_REFERENCE_SECONDS,
            "maxSeconds": MAX_REFERENCE_SECONDS,
            "timbreSeconds": MAX_TIMBRE_SECONDS,
            "chunkSeconds": CHUNK_SECONDS,
            "shortSeconds": MIN_SECONDS,
            "loudness": REFERENCE_LOUDNESS,
            "minLoudness": MIN_REFERENCE_LOUDNESS,
        },
        "voices": list(describe_voices(synthesizer)),
    }


def codec_description(codec: MiniCodec) -> dict[str, Any]:
    """Sizes of the codec, and how far its parts reach."""
    config = codec.config
    return {
        "sampleRate": config.sample_rate,
        "fftSize": config.fft_size,
        "hop": config.hop,
        "padding": config.padding,
        "overlap": config.overlap,
        "numMels": config.num_mels,
        "latentsPerPatch": config.strides[0],
        "patchSamples": codec.spec.patch_samples,
        "patchRate": codec.spec.patch_rate,
        "lookaheadPatches": codec.lookahead_patches,
        "hiddenReach": config.hidden_reach,
        "filtersReach": config.filters_reach,
        "pitchReach": list(config.pitch_reach),
        "minPitchPatches": MIN_PITCH_PATCHES,
        "decoderWidth": config.decoder_width,
        "timbreWidth": config.timbre_width,
        "timbreMels": config.timbre_mels,
        "maxLogGain": MAX_LOG_GAIN,
    }


def encoder_description(encoder: MiniSpeakerEncoder) -> dict[str, Any]:
    """What a speaker encoder reads."""
    config = encoder.config
    return {
        "size": config.size,
        "sampleRate": config.sample_rate,
        "fftSize": config.fft_size,
        "hop": config.hop,
        "numMels": config.num_mels,
    }


def describe_voices(synthesizer: Synthesizer) -> Iterator[dict[str, Any]]:
    """The packaged voices, the default one first; always without a prefix."""
    entries = {entry.name: entry for entry in voice_table().voices}
    for name in voices():
        voice, entry = synthesizer.open_voice(name), entries[name]
        yield {
            "name": name,
            "description": entry.description,
            "license": entry.license,
            "source": entry.source,
            "embeddings": {
                role: [round(float(value), 6) for value in voice.embeddings[role]]
                for role in ("identity", "style", TIMBRE)
            },
        }


def camel(values: dict[str, Any]) -> dict[str, Any]:
    """The same values under the names that JavaScript gives them."""
    return {name.split("_")[0] + "".join(map(str.title, name.split("_")[1:])): each for name, each in values.items()}


def parts_of(folder: Path, runtime: list[str], graphs: dict[str, tuple[str, str]]) -> list[dict[str, Any]]:
    """The parts that a visit loads, as the page names them, with their files and sizes."""
    named = {
        "reader": [name for name in runtime if "ort" not in Path(name).name.split(".")[0].split("-")],
        "runtime": [name for name in runtime if "ort" in Path(name).name.split(".")[0].split("-")],
        SPEAKING: [path for path, part in graphs.values() if part == SPEAKING],
        CLONING: [path for path, part in graphs.values() if part == CLONING],
    }
    titles = {
        "reader": "Text reader (Python)",
        "runtime": "ONNX Runtime",
        SPEAKING: "Speech model",
        CLONING: "Voice cloning",
    }
    return [
        {
            "id": part,
            "title": titles[part],
            "files": [{"path": name, "bytes": (folder / name).stat().st_size} for name in names],
        }
        for part, names in named.items()
    ]


def write_service_worker(folder: Path, page: list[str], runtime: list[str], graphs: list[str]) -> None:
    """Write the service worker with the names of its caches, each of which changes only with its files."""
    source = (STATIC / "service-worker.js").read_text(encoding="utf-8")
    caches = {
        f"marstts-page-{digest_of(folder / name for name in page)}": ["", *page],
        f"marstts-{Path(runtime[0]).parent.name}": runtime,
        f"marstts-{Path(graphs[0]).parent.name}": graphs,
    }
    filled = source.replace("/* CACHES */ {}", json.dumps(caches)).replace("/* HEADERS */ {}", json.dumps(HEADERS))
    assert filled.count("/* ") == source.count("/* ") - 2, "both places are filled"
    (folder / "service-worker.js").write_text(filled, encoding="utf-8")


def digest_of(paths: Iterable[Path]) -> str:
    """12 hexadecimal digits that change with the names or contents of files."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]


def licenses(packages: Path, bundle: Path) -> str:
    """Names and licenses of what the folder holds of others."""
    lines = [f"marstts {marstts.__version__}: Apache-2.0", ""]
    for name, version in pinned().items():
        described = json.loads((packages / name / "package.json").read_text(encoding="utf-8"))
        lines.append(f"{name} {version} (npm): {described.get('license', 'see its page')}")
    for name in PYTHON_PACKAGES:
        metadata = distribution(name).metadata
        stated = [metadata[key] for key in ("License-Expression", "License") if key in metadata]
        license_name = stated[0] if stated else "see its page"
        lines.append(f"{name} {distribution(name).version} (PyPI): {license_name.splitlines()[0]}")
    lines += ["", "Voices:"]
    lines += [f"{entry.name}: {entry.source}; {entry.license}" for entry in voice_table().voices]
    for place in sorted(bundle.rglob("NOTICE")):
        lines += ["", place.read_text(encoding="utf-8").strip()]
    return "\n".join(lines) + "\n"
