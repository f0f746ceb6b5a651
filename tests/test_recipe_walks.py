"""The recipes of the paper's size walked whole on miniatures: each stage follows the one before, without a refusal."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest

import miniature_corpora
from baseline_packages import PACKAGES, environment_of
from marstts.data.mined_takes import read_takes
from marstts.data.pairs import read_pairs
from marstts.listening_test.config import read_listening_test
from marstts.training.run_log import read_log
from small_recipes import copy_tiny

BUDGET_SECONDS = 1200
"""Time limit of a recipe on cores that do other work, too; each takes a minute of processor time."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(2 * BUDGET_SECONDS),
    pytest.mark.skipif("MARSTTS_TEST_WALKS" not in os.environ, reason="minutes each; set MARSTTS_TEST_WALKS=1"),
]

TOYS = {"CODEC": "toy:4096", "IDENTITY": "toy:512", "STYLE": "toy:1024", "DEVICE": "cpu", "GPUS": "2"}
"""Toys in the sizes of SNAC, WavLM and CLAP, and two processes."""

COMMANDS = {"marstts": "-m marstts", "torchrun": "-m torch.distributed.run"}


def environment(folder: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """One thread, and this interpreter's commands."""
    (folder / "bin").mkdir(exist_ok=True)
    for name, module in COMMANDS.items():
        command = folder / "bin" / name
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
        command.chmod(0o755)
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", **TOYS, **variables}


def run(script: Path, *arguments: Path, **variables: str) -> str:
    """Run a recipe to its end; its messages."""
    done = subprocess.run(
        [str(script), *map(str, arguments)], env=environment(script.parents[2], variables), capture_output=True,
        text=True, timeout=BUDGET_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout + done.stderr


def refused(script: Path, *arguments: Path, **variables: str) -> str:
    """The messages of a recipe that ends with exit code 2."""
    done = subprocess.run(
        [str(script), *map(str, arguments)], env=environment(script.parents[2], variables), capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    return done.stderr


def kill(script: Path, *arguments: Path, moment: Path, **variables: str) -> None:
    """Run a recipe, and kill it with all its processes as soon as `moment` exists."""
    process = subprocess.Popen(
        [str(script), *map(str, arguments)], env=environment(script.parents[2], variables), start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + BUDGET_SECONDS
    try:
        while not moment.exists():
            assert process.poll() is None and time.monotonic() < deadline, f"{moment} was not written"
            time.sleep(0.02)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_the_papers_recipe_runs_whole_after_a_kill_from_five_corpora_to_a_tuned_model(tmp_path: Path) -> None:
    pytest.importorskip("lhotse")
    pytest.importorskip("pyarrow")
    recipe = copy_tiny(tmp_path / "small") / "paper"
    work, corpora = tmp_path / "work", tmp_path / "corpora"
    miniature_corpora.paper(corpora)

    kill(recipe / "run.sh", work, corpora, moment=work / "mars6" / "step-00000002")
    run(recipe / "run.sh", work, corpora)
    assert (work / "bundle" / "bundle.json").is_file()
    assert max(line["step"] for line in read_log(work / "mars6")) == 4

    run(recipe / "preference.sh", work, SPEAKERS="1", SENTENCES="2")
    takes = [take for path in (work / "preference" / "mined").glob("takes-*.jsonl") for take in read_takes(path)]
    corpora_used = {take.plan.reference.partition(".")[0] for take in takes}
    assert len(corpora_used) > 1 and "libriheavy" not in corpora_used, "recordings of full bandwidth lend their voices"
    assert read_pairs(work / "preference" / "pairs.jsonl")
    assert (work / "bundle-preference" / "bundle.json").is_file()


def test_the_middle_scale_walks_whole_from_libritts_to_one_table(tmp_path: Path) -> None:
    pytest.importorskip("lhotse")
    recipe, work, corpus = copy_tiny(tmp_path / "small") / "libritts", tmp_path / "work", tmp_path / "libritts"
    corpus.mkdir()
    miniature_corpora.libritts_with_a_test_part(corpus)
    variables = {"ARMS": "mars6 mars6_bytes", "SPEAKERS": "1", "SENTENCES": "3", "METRICS": "sphinx", "WORKERS": "1"}
    kill(recipe / "run.sh", work, corpus, moment=work / "runs" / "mars6" / "step-00000002", **variables)
    run(recipe / "run.sh", work, corpus, **variables)
    table = (work / "report" / "report.md").read_text()
    assert all(name in table for name in ("mars6 (shallow)", "mars6_bytes (shallow)", "orpo (shallow)", "ground-truth"))


def test_the_papers_evaluation_walks_whole_from_ears_to_table_figure_and_listening_test(
    tmp_path: Path, toy_bundle: Path
) -> None:
    pytest.importorskip("pocketsphinx")
    recipe, work, ears = copy_tiny(tmp_path / "small") / "paper", tmp_path / "work", tmp_path / "ears"
    ears.mkdir()
    miniature_corpora.whole_ears(ears)
    work.mkdir()
    variables = {"METRICS": "sphinx", "LIMIT": "2", "MODEL": str(toy_bundle), "ENVS": str(tmp_path / "envs")}
    assert "xttsv2/bin/python" in refused(recipe / "evaluate.sh", work, ears, **variables)
    package = environment_of(tmp_path / "package", PACKAGES["xttsv2"])
    (tmp_path / "envs" / "xttsv2" / "bin").mkdir(parents=True)
    (tmp_path / "envs" / "xttsv2" / "bin" / "python").symlink_to(package)
    untuned = shutil.copytree(toy_bundle, tmp_path / "untuned")
    described = json.loads((untuned / "bundle.json").read_text())
    (untuned / "bundle.json").write_text(json.dumps(described | {"name": "untuned"}))
    for _ in range(2):
        run(recipe / "evaluate.sh", work, ears, BASELINES="xttsv2", UNTUNED=str(untuned), **variables)
    table = (work / "evaluation" / "report" / "report.md").read_text()
    rows = (
        "xttsv2",
        "ground-truth",
        "codec-resynthesis",
        "(shallow)",
        "(deep)",
        "no-ras",
        "no-quality-prefix",
        "untuned (shallow)",
    )
    assert [name for name in rows if name not in table] == []
    assert (work / "evaluation" / "report" / "wer_by_style.png").is_file()
    test = read_listening_test(work / "evaluation" / "listening" / "test.toml")
    assert {"xttsv2", "ground-truth"} <= test.systems.keys()
