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
FORMS = Path(__file__).parents[1] / "text" / "written_forms.tsv"
PROSE = Path(__file__).parents[2] / "docs" / "text.md"
COUNT = int(os.environ.get("MARSTTS_LINES", "60"))
"""Lines that are read, of more than 1,200: the written forms of the tests, and a page of documents."""


def test_texts_are_read_alike_in_cpython_and_in_pyodide(node_modules: Path, tmp_path: Path) -> None:
    forms = FORMS.read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t")[0] for line in forms if line[:1] not in ("#", "")]
    rows += [line for line in PROSE.read_text(encoding="utf-8").splitlines() if line]
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
