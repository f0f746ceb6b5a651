"""`marstts preference` by its command line: every option takes effect, and errors are one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from marstts.cli.main import app
from marstts_lab.data.pairs import read_pairs

RUN = CliRunner()


def invoke(*words: object) -> tuple[int, str]:
    """Exit code and output of a command."""
    result = RUN.invoke(app, ["preference", *map(str, words)])
    return result.exit_code, result.output


@pytest.mark.slow
def test_a_model_is_mined_and_its_takes_become_pairs(
    toy_bundle: Path, corpus: Path, texts: Path, tmp_path, quick_metrics
):
    config = tmp_path / "mine.toml"
    config.write_text("max_references = 4\nsamples_per_text = 2\ntop_p = 0.9\nmax_seconds = 3\n")
    words = ["mine", toy_bundle, "--references", corpus, "--texts", texts, "--output", tmp_path / "mined"]
    code, output = invoke(*words, "--config", config, "--workers", 1)
    assert code == 0 and "8 takes, 8 of them generated now" in output
    code, output = invoke(*words, "--config", config)
    assert code == 0 and "8 takes, 0 of them generated now" in output
    code, output = invoke(*words)
    assert code == 2 and "was started with another configuration" in output

    config = tmp_path / "pairs.toml"
    config.write_text('mos_predictor = "dnsmos"\nrejected_fraction = 0.5\n')
    pairs = tmp_path / "pairs.jsonl"
    code, output = invoke("pairs", tmp_path / "mined", "--output", pairs, "--config", config, "--workers", 1)
    assert code == 0 and f"{len(read_pairs(pairs))} pairs of 8 takes; mean cer" in output
    assert "mean mos" in output and "examples in pairs-report" in output


@pytest.mark.slow
def test_unknown_keys_and_missing_files_are_one_sentence(toy_bundle: Path, corpus: Path, tmp_path: Path):
    config = tmp_path / "mine.toml"
    config.write_text("references = 4\n")
    words = ["mine", toy_bundle, "--references", corpus, "--texts", tmp_path / "none.txt", "--output", tmp_path / "out"]
    code, output = invoke(*words, "--config", config)
    assert code == 2 and "references: Extra inputs" in output
    code, output = invoke(*words)
    assert code == 2 and "none.txt: no such file" in output
    code, output = invoke("pairs", tmp_path, "--output", tmp_path / "pairs.jsonl")
    assert code == 2 and "expected a folder that `marstts preference mine` wrote" in output
