"""The recipes of the paper and of mini walked whole on miniatures: no stage refuses what the one before has made.

Two processes train MARS6; the scripts are killed in the middle and run again. `make end-to-end` runs all, and
GitHub the one of `recipes/paper` on every push.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import miniature_corpora
from baseline_packages import PACKAGES, environment_of
from campplus_weights import published
from forked_commands import KILL_BEFORE, ForkedCommands
from marstts.bundle import read_info
from marstts_lab.data.corpus import load_corpus
from marstts_lab.data.mined_takes import read_takes
from marstts_lab.data.pairs import read_pairs
from marstts_lab.training.run_log import read_log
from marstts_listening_test.config import read_listening_test
from small_recipes import copy_mini, copy_tiny
from small_whisper import as_file, small_whisper

BUDGET_SECONDS = 600
"""Time limit of a script on cores that do other work, too."""

pytestmark = [pytest.mark.slow, pytest.mark.end_to_end, pytest.mark.timeout(2 * BUDGET_SECONDS)]

TOYS = {"CODEC": "toy:64", "IDENTITY": "toy:24", "STYLE": "toy:40", "DEVICE": "cpu", "GPUS": "2", "FREE_GB": "0.1"}
"""Toys instead of SNAC, WavLM and CLAP, two processes, and little disk."""

LAST_STAGES = ("codec_adversarial", "codec_likeness")
"""Stages of mini's codec: the last one without CAM++, and that with it."""


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkedCommands]:
    server = ForkedCommands(tmp_path_factory.mktemp("commands"))
    yield server
    server.close()


@dataclass(frozen=True)
class Walk:
    """A recipe's scripts with toys."""

    recipe: Path
    commands: ForkedCommands

    def run(self, script: str, *arguments: Path, code: int = 0, **variables: str) -> str:
        """Run a script to its end; its messages."""
        done = subprocess.run(
            [str(self.recipe / script), *map(str, arguments)], env=self.commands.environment({**TOYS, **variables}),
            capture_output=True, text=True, timeout=BUDGET_SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout[-2000:] + done.stderr[-4000:]
        return done.stdout + done.stderr

    def kill(self, script: str, *arguments: Path, before: Path, **variables: str) -> None:
        """Run a script until its commands are killed, just before one of them renames something to a path."""
        self.run(script, *arguments, code=137, **variables, **{KILL_BEFORE: str(before)})
        assert not before.exists()


def test_the_papers_recipe_runs_whole_after_a_kill_from_four_corpora_to_a_tuned_model(
    tmp_path: Path, commands: ForkedCommands
) -> None:
    pytest.importorskip("pyarrow")
    walk = Walk(copy_tiny(tmp_path / "small") / "paper", commands)
    work, corpora = tmp_path / "work", tmp_path / "corpora"
    miniature_corpora.paper(corpora)

    walk.kill("run.sh", work, corpora, before=work / "mars6" / "step-00000004")
    assert "resuming at step 2" in walk.run("run.sh", work, corpora)
    assert (work / "bundle" / "bundle.json").is_file()
    assert max(line["step"] for line in read_log(work / "mars6")) == 4

    walk.run("preference.sh", work, SPEAKERS="1", SENTENCES="2")
    takes = [take for path in (work / "preference" / "mined").glob("takes-*.jsonl") for take in read_takes(path)]
    corpora_used = {take.plan.reference.partition(".")[0] for take in takes}
    assert len(corpora_used) > 1 and "libriheavy" not in corpora_used, "recordings of full bandwidth lend their voices"
    assert read_pairs(work / "preference" / "pairs.jsonl")
    assert (work / "bundle-preference" / "bundle.json").is_file()


def test_minis_recipe_runs_whole_from_engines_and_people_to_a_model_and_its_scores(
    tmp_path: Path, commands: ForkedCommands
) -> None:
    pytest.importorskip("pocketsphinx")
    if shutil.which("espeak-ng") is None:
        pytest.skip("the Debian package espeak-ng is not installed")
    walk = Walk(copy_mini(tmp_path / "small") / "mini", commands)
    work, people, whisper = tmp_path / "work", tmp_path / "people", tmp_path / "whisper"
    miniature_corpora.people(people)
    miniature_corpora.synthetic_test_set(work / "synthetic")  # or all engines of its voices would be needed
    whisper.mkdir()
    (whisper / "model.bin").write_bytes(as_file(small_whisper(positions=1500)))
    torch.save(published(), tmp_path / "campplus.pt")
    python = commands.bin / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    variables = {
        "WHISPER": str(whisper), "CAMPLUS": str(tmp_path / "campplus.pt"), "METRICS": "sphinx", "LIMIT": "2",
        "PHONE_STEPS": "2",
    }  # fmt: skip

    walk.kill("run.sh", work, people, before=work / "codec_words" / "step-00000002", **variables)
    assert "codec: resuming at step 2" in walk.run("run.sh", work, people, **variables)
    stages = [load_file(work / stage / "step-00000002" / "codec.safetensors") for stage in LAST_STAGES]
    trained = {name.partition(".")[0] for name in stages[0] if not torch.equal(*(stage[name] for stage in stages))}
    assert trained == {"decoder", "timbre_encoder"}
    predicted = load_file(work / "codec_predicted" / "step-00000003" / "codec.safetensors")
    before = {name: value.half().float() for name, value in stages[1].items()}  # as exported
    trained = {
        name
        for name in predicted
        if name.startswith(("decoder.", "timbre_")) and not predicted[name].equal(before[name])
    }
    assert trained and not any(name.startswith(("decoder.pitch.", "timbre_")) for name in trained)
    digests = {load_corpus(work / name).digest for name in ("predicted", "predicted_wide", "people_shards")}
    assert len(digests) == 3
    codec = read_info(work / "mini").provenance["codec"]
    assert "codec_predicted_wide" in codec.command and "phone_recognizer.py" in codec.note
    assert (work / "mini" / "codec" / "phones.onnx").is_file()
    assert (work / "evaluation" / "results.md").is_file()


def test_the_papers_evaluation_walks_whole_from_ears_to_table_figure_and_listening_test(
    tmp_path: Path, toy_bundle: Path, commands: ForkedCommands
) -> None:
    pytest.importorskip("pocketsphinx")
    walk = Walk(copy_tiny(tmp_path / "small") / "paper", commands)
    work, ears = tmp_path / "work", tmp_path / "ears"
    ears.mkdir()
    miniature_corpora.whole_ears(ears)
    work.mkdir()
    variables = {
        "METRICS": "sphinx",
        "WORKERS": "1",
        "LIMIT": "2",
        "MODEL": str(toy_bundle),
        "ENVS": str(tmp_path / "envs"),
    }
    assert "xttsv2/bin/python" in walk.run("evaluate.sh", work, ears, code=2, **variables)
    package = environment_of(tmp_path / "package", PACKAGES["xttsv2"])
    (tmp_path / "envs" / "xttsv2" / "bin").mkdir(parents=True)
    (tmp_path / "envs" / "xttsv2" / "bin" / "python").symlink_to(package)
    untuned = shutil.copytree(toy_bundle, tmp_path / "untuned")
    described = json.loads((untuned / "bundle.json").read_text())
    (untuned / "bundle.json").write_text(json.dumps(described | {"name": "untuned"}))
    variables |= {"BASELINES": "xttsv2", "UNTUNED": str(untuned)}
    walk.kill("evaluate.sh", work, ears, before=work / "evaluation" / "model" / "results.md", **variables)
    walk.run("evaluate.sh", work, ears, **variables)
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
        "with-additions (shallow)",
        "with-additions (deep)",
        "with-additions@no-ras",
        "with-additions@no-quality-prefix",
        "untuned-with-additions (shallow)",
    )
    assert [name for name in rows if name not in table] == []
    assert (work / "evaluation" / "report" / "wer_by_style.png").is_file()
    test = read_listening_test(work / "evaluation" / "listening" / "test.toml")
    assert {"xttsv2", "ground-truth"} <= test.systems.keys()
