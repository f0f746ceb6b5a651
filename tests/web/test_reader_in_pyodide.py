"""Texts are divided, read and made prompts of alike in CPython and in Pyodide."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from marstts.bundle import PACKAGED_MODELS
from marstts.web.reader import Reader
from marstts.web.site import pack_reader

pytestmark = pytest.mark.slow
LINES = Path(__file__).parents[1] / "text" / "written_forms.tsv"
COUNT = int(os.environ.get("MARSTTS_LINES", "60"))
"""Lines that are read, of the 981 that there are, which take half a minute."""


def test_texts_are_read_alike_in_cpython_and_in_pyodide(node_modules: Path, tmp_path: Path) -> None:
    rows = [line.split("\t")[0] for line in LINES.read_text(encoding="utf-8").splitlines() if line[:1] not in ("#", "")]
    texts = rows[:: max(1, len(rows) // COUNT)][:COUNT]
    given = {
        "tokenizer": (PACKAGED_MODELS / "mini" / "tokenizer.json").read_text(encoding="utf-8"),
        "settings": {"spelling": "simple", "phones": "known"},
        "requests": [{"sentences": text} for text in texts],
    }
    (tmp_path / "given.json").write_text(json.dumps(given))
    pack_reader(tmp_path / "reader.zip")
    command = ["node", Path(__file__).with_name("read.mjs"), node_modules / "pyodide", tmp_path / "reader.zip"]
    ran = subprocess.run([*command, tmp_path / "given.json"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-3000:]
    reader = Reader(given["tokenizer"], given["settings"])  # type: ignore[arg-type]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert len(texts) == min(COUNT, len(rows)) and sum("sentences" in answer for answer in found) > 0.9 * len(texts)
    for text, answer in zip(texts, found, strict=True):
        assert answer == json.loads(reader.answer(json.dumps({"sentences": text}))), text
