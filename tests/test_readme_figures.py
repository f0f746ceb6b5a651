"""Figures that README quotes are those of the results that it links."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def results(name: str) -> dict:
    return json.loads((ROOT / "docs" / "results" / name).read_text(encoding="utf-8"))


def cells_of_mini() -> list[str]:
    [row] = [line for line in README.splitlines() if line.startswith("| [mini](")]
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_words_and_sound_of_mini_are_those_of_the_evaluation() -> None:
    [mini] = [row for row in results("speech.json")["systems"] if row["system"] == "mini (shallow)"]
    scores = {name: score["value"] for name, score in mini["scores"].items()}
    assert f"{scores['wer']:.3f}" in cells_of_mini() and f"{scores['distillmos']:.2f}" in cells_of_mini()
    assert f"{mini['takes']} takes of mini" in README


def test_speed_of_mini_is_that_of_the_benchmark() -> None:
    rows = [row for row in results("speed.json")["rows"] if row["model"] == "mini" and row["weights"] == "float32"]
    slowest = max(row["rtf"] for row in rows if row["measure"] == "speech" and row["seconds"] >= 5)
    assert f"{slowest:.2f}" in cells_of_mini()
    [latency] = re.findall(r"first audible sample within (\d+) ms", README)
    assert int(latency) in {round(1000 * value) for row in rows for value in row.values() if isinstance(value, float)}
