"""Recipes: read here as their commands read them, and the small ones run whole, so that none falls behind the code."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import wave
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest
import torch

from baseline_packages import PACKAGES, environment_of
from command_lines import parse
from marstts import models
from marstts.io.config import Config, read_config, read_values
from marstts.mars5.ar import CodecLM
from marstts.mars5.nar import ResidualTransformer
from marstts_lab.cli.export import read_provenance
from marstts_lab.data.corpora.synthetic import SyntheticConfig
from marstts_lab.data.corpora.tts_engines import BASE_VOICES
from marstts_lab.preference.mine import MineConfig
from marstts_lab.preference.ranking import RankConfig
from marstts_lab.preference.train import PreferenceConfig
from marstts_lab.training.codec.config import CodecTrainingConfig
from marstts_lab.training.mars5.config import ArTrainConfig, NarTrainConfig
from marstts_lab.training.mars6.config import PretrainConfig
from marstts_lab.training.optim import learning_rate
from marstts_lab.training.run_log import read_log
from marstts_lab.training.speaker.config import EncoderKind, SpeakerTrainingConfig

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parent
RECIPES = TESTS.parent / "recipes"

KINDS: dict[str, type[Config]] = {
    "synthetic": SyntheticConfig,
    "codec": CodecTrainingConfig,
    "identity": SpeakerTrainingConfig,
    "style": SpeakerTrainingConfig,
    "mars6": PretrainConfig,
    "ar": ArTrainConfig,
    "nar": NarTrainConfig,
    "mine": MineConfig,
    "pairs": RankConfig,
    "preference": PreferenceConfig,
    "questions": PreferenceConfig,
    "own": PreferenceConfig,
}
"""The configuration of a recipe's file, by the first word of its name: `codec_adversarial.toml` is a codec's."""


def opened(script: Path) -> ModuleType:
    """The module of a recipe's script."""
    spec = importlib.util.spec_from_file_location(f"{script.stem}_recipe", script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look their names up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", sorted(RECIPES.rglob("*.toml")), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_recipe_is_a_valid_configuration(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if path.stem == "provenance":
        assert read_provenance(path)
    elif path.stem.startswith("policy_gradient"):
        monkeypatch.syspath_prepend(str(path.parent))  # it imports another script
        read_config(opened(path.with_name("policy_gradient.py")).PolicyConfig, path)
    elif path.stem == "settings":
        models.architecture_of("mars5").parse_settings(read_values(path), str(path))
    else:
        read_config(KINDS[path.stem.split("_")[0]], path)


def test_the_middle_scale_changes_one_thing_at_a_time() -> None:
    arms = {path.stem: read_config(PretrainConfig, path) for path in (RECIPES / "libritts").glob("mars6*.toml")}
    base = arms.pop("mars6").model_dump()
    assert (
        base["batching"]["batch_size"] * base["accumulation_batches"] == 96 and base["objective"]["flux"]["beta"] == 0
    )
    for name, arm in arms.items():
        changed = [key for key, value in arm.model_dump().items() if value != base[key]]
        assert changed == {"mars6_seed": ["loop"], "mars6_bytes": ["model"], "mars6_flux": ["objective"]}[name]
    assert arms["mars6_flux"].objective.flux.epsilon <= 0.01


@pytest.mark.parametrize("recipe", ["tiny", "mini"])
def test_the_parts_of_a_recipe_fit_one_another(recipe: str) -> None:
    folder = RECIPES / recipe
    codec = read_config(CodecTrainingConfig, folder / "codec.toml").model
    encoders = {kind: read_config(SpeakerTrainingConfig, folder / f"{kind.value}.toml") for kind in EncoderKind}
    mars6 = read_config(PretrainConfig, folder / "mars6.toml")
    assert mars6.model.codebook_size == codec.codebook_size
    assert mars6.model.patch_layout == tuple(codec.strides[0] // stride for stride in codec.strides)
    assert mars6.model.identity_size == encoders[EncoderKind.IDENTITY].model.size
    assert mars6.model.style_size == encoders[EncoderKind.STYLE].model.size
    assert all(encoder.kind is kind for kind, encoder in encoders.items())
    assert set(mars6.attention_guidance.layers) <= set(range(mars6.model.global_layers))
    assert set(read_config(SyntheticConfig, folder / "synthetic.toml").base_voices) <= BASE_VOICES.keys()


def test_the_parts_of_mars5s_recipe_fit_one_another() -> None:
    codec = read_config(CodecTrainingConfig, RECIPES / "mars5_tiny" / "codec.toml").model
    ar = read_config(ArTrainConfig, RECIPES / "mars5_tiny" / "ar.toml").model
    nar = read_config(NarTrainConfig, RECIPES / "mars5_tiny" / "nar.toml").model
    assert set(codec.strides) == {1} and len(codec.strides) == ar.levels == nar.levels
    assert codec.codebook_size == ar.codebook_size == nar.codebook_size
    assert ar.text_vocab_size == nar.text_vocab_size


def test_mars5s_recipe_has_the_published_sizes_and_fits_encodec() -> None:
    ar = read_config(ArTrainConfig, RECIPES / "mars5" / "ar.toml").model
    nar = read_config(NarTrainConfig, RECIPES / "mars5" / "nar.toml").model
    assert (ar.levels, ar.codebook_size) == (nar.levels, nar.codebook_size) == (8, 1024)
    with torch.device("meta"):
        sizes = [sum(part.numel() for part in model.parameters()) for model in (CodecLM(ar), ResidualTransformer(nar))]
    assert [round(size / 1e6, -1) for size in sizes] == [760, 450]


def test_the_papers_recipe_has_its_sizes_rates_and_batches() -> None:
    paper = read_config(PretrainConfig, RECIPES / "paper" / "mars6.toml")
    assert paper.model == type(paper.model)(), "the defaults are the paper's"
    assert paper.batching.batch_size * paper.accumulation_batches == 96 and paper.loop.steps == 2_000_000
    rates = [learning_rate(step, paper.loop.steps, paper.optimizer) for step in (9_999, 10_000, 1_999_999)]
    assert rates == pytest.approx([5e-4, 5e-4, 2.5e-5], rel=1e-3)
    assert paper.optimizer.betas == (0.9, 0.995) and paper.optimizer.weight_decay == 0.02
    assert paper.batching.cross_reference_probability == 0.0
    smoke = read_config(PretrainConfig, RECIPES / "paper" / "mars6_smoke.toml")
    assert (smoke.model, smoke.optimizer, smoke.objective) == (paper.model, paper.optimizer, paper.objective)
    assert smoke.loop.steps == 200


def test_the_papers_preference_stage_ranks_by_whisper_and_utmos() -> None:
    pairs = read_config(RankConfig, RECIPES / "paper" / "pairs.toml")
    assert (pairs.recognizer, pairs.mos_predictor) == ("faster-whisper", "utmos")
    assert pairs.cer_weight > 0 and pairs.mos_weight > 0 and pairs.scheme.value == "ground_truth_vs_worst"


def test_the_papers_flux_loss_has_another_weight_in_preference_training_than_in_pretraining() -> None:
    pretraining = read_config(PretrainConfig, RECIPES / "paper" / "mars6.toml").objective.flux
    tuning = read_config(PreferenceConfig, RECIPES / "paper" / "preference.toml").orpo.flux
    assert 0 < tuning.beta != pretraining.beta > 0
    assert tuning.epsilon == pretraining.epsilon


def test_the_papers_curated_subset_is_stated_in_its_recipe() -> None:
    """What the cycles are of is written down where a reader looks, and is what the defaults are."""
    stated = read_values(RECIPES / "paper" / "mine.toml")
    assert {"styles", "min_source_rate", "min_seconds", "max_seconds"} <= stated.keys()
    assert read_config(MineConfig, RECIPES / "paper" / "mine.toml").min_source_rate == 24_000


MARSTTS = """#!{python} -IS
import json, os, sys
with open(os.environ["CALLS"], "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
"""
"""Replaces the command, and writes down how it was called."""

TORCHRUN = """#!/bin/sh
while [ $# -gt 0 ]; do
    case "$1" in
    marstts) exec "$@" ;;
    *.py) exec python "$@" ;;
    esac
    shift
done
exit 2
"""

NPROC = """#!/bin/sh
echo "${OMP_NUM_THREADS:-7}"
"""
"""Seven processors, unless the variable that the true command obeys has another number."""

PYTHON = """#!/bin/sh
case "$1" in
*.py) exec {python} -IS -c 'import sys; compile(open(sys.argv[1]).read(), sys.argv[1], "exec")' "$1" ;;
*) exec {python} -IS "$@" ;;
esac
"""
"""Scripts of a recipe have no input here, so they are compiled and not run."""

PLACEHOLDER = re.compile(r'"[A-Z]{4,}["/]')
"""A folder that a script fills in."""


@pytest.mark.parametrize(
    "script",
    [path for path in sorted(RECIPES.rglob("*.sh")) if "marstts " in path.read_text(encoding="utf-8")],
    ids=lambda path: f"{path.parent.name}/{path.name}",
)
def test_a_recipe_calls_commands_that_exist_with_options_they_take(script: Path, tmp_path: Path) -> None:
    replaced = {
        "marstts": MARSTTS.format(python=sys.executable),
        "torchrun": TORCHRUN,
        "nproc": NPROC,
        "python": PYTHON.format(python=sys.executable),
    }
    for name, content in replaced.items():
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(0o755)
    calls = tmp_path / "calls.jsonl"
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "CALLS": str(calls), "BASELINES": ""}
    environment |= {"WHISPER": str(tmp_path), "CAMPLUS": str(tmp_path / "campplus.pt")}
    environment.pop("OMP_NUM_THREADS", None)
    subprocess.run(
        [str(script), str(tmp_path / "out"), str(tmp_path / "data")], check=True, env=environment, capture_output=True
    )
    commands = [json.loads(line) for line in calls.read_text().splitlines()]
    assert len(commands) > 1
    uses_all = "$(nproc)" in script.read_text(encoding="utf-8")
    for command in commands:
        parse(command)
        assert not uses_all or "--workers" not in command or command[command.index("--workers") + 1] == "7"
        configs = [Path(word).read_text(encoding="utf-8") for word in command if word.endswith(".toml")]
        assert not any(PLACEHOLDER.search(config) for config in configs), command


BUDGET_MINUTES = 20
"""Time limit of a script on cores that do other work, too; those of tiny take two minutes of processor time each."""


def environment_of_recipes(output: Path, variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a recipe that writes to `output`: one thread, and this interpreter's `marstts`."""
    for engine in ("flite", "espeak-ng"):
        if shutil.which(engine) is None:
            pytest.skip(f"the Debian package {engine} is not installed")
    command = output.parent / "bin" / "marstts"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m marstts "$@"\n')
    command.chmod(0o755)
    environment = {**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    environment["METRICS"] = "sphinx,resemblyzer"  # need no weights
    return {**environment, **(variables or {})}


def run_recipe(
    script: str, output: Path, variables: Mapping[str, str] | None = None, recipes: Path = RECIPES, *arguments: Path
) -> str:
    """Run a recipe whole; returns its log."""
    environment = environment_of_recipes(output, variables)
    done = subprocess.run(
        [str(recipes / script), str(output), *map(str, arguments)], env=environment, capture_output=True, text=True,
        timeout=BUDGET_MINUTES * 60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stderr


def kill_recipe(script: str, output: Path, moment: Path) -> None:
    """Run a recipe, and kill it with all its processes as soon as the path `moment` exists."""
    process = subprocess.Popen(
        [str(RECIPES / script), str(output)], env=environment_of_recipes(output), start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + BUDGET_MINUTES * 60
    try:
        while not moment.exists():
            assert process.poll() is None and time.monotonic() < deadline, f"{moment} was not written"
            time.sleep(0.05)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.end_to_end
@pytest.mark.timeout(2 * BUDGET_MINUTES * 60)
def test_tiny_runs_whole_from_corpus_to_preference_training(tmp_path: Path) -> None:
    output = tmp_path / "tiny"
    run_recipe("tiny/run.sh", output)
    assert (output / "speech.wav").stat().st_size > 10_000
    losses = [line["loss"] for line in read_log(output / "runs" / "mars6") if line["split"] == "validation"]
    assert losses[-1] < losses[0]
    run_recipe("tiny/preference.sh", output)
    assert (output / "tiny-preference" / "bundle.json").is_file()


@pytest.mark.end_to_end
@pytest.mark.timeout(2 * BUDGET_MINUTES * 60)
def test_mars5_tiny_resumes_after_a_kill_and_runs_whole_from_corpus_to_speech(tmp_path: Path) -> None:
    output = tmp_path / "mars5_tiny"
    kill_recipe("mars5_tiny/run.sh", output, output / "runs" / "ar" / "step-00000050")
    assert not (output / "runs" / "nar").exists()
    assert "resuming at step 50" in run_recipe("mars5_tiny/run.sh", output)
    assert (output / "speech.wav").stat().st_size > 10_000
    for name in ("ar", "nar"):
        losses = [line["loss"] for line in read_log(output / "runs" / name) if line["split"] == "train"]
        assert losses[-1] < losses[0]


@pytest.mark.end_to_end
@pytest.mark.timeout(BUDGET_MINUTES * 60)
def test_the_papers_smoke_test_runs_whole(tmp_path: Path) -> None:
    """All stages; training stops after half a minute unless MARSTTS_LONG_TESTS asks for the hour of all its steps."""
    is_long = "MARSTTS_LONG_TESTS" in os.environ
    run_recipe("paper/smoke.sh", tmp_path / "smoke", {} if is_long else {"MINUTES": "0.5"})
    [checkpoint] = (tmp_path / "smoke" / "mars6").glob("step-????????")
    assert (checkpoint / "state.json").is_file()
    assert not is_long or checkpoint.name == "step-00000200"


@pytest.mark.parametrize("name", PACKAGES)
def test_a_baseline_speaks_through_its_package_and_names_the_sentence_that_fails(name: str, tmp_path: Path) -> None:
    with wave.open(str(tmp_path / "reference.wav"), "wb") as file:
        file.setparams((1, 2, 24_000, 0, "NONE", ""))
        file.writeframes(bytes(2 * 24_000))
    trials = [{"id": text, "text": text, "reference": "reference.wav"} for text in ("fail", "Once more.")]
    (tmp_path / "trials.jsonl").write_text("".join(json.dumps(trial) + "\n" for trial in trials))
    command = [environment_of(tmp_path / "package", PACKAGES[name]), RECIPES / "paper" / "baseline.py", name]
    run = subprocess.run([*command, "trials.jsonl", "takes"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert run.stderr == "fail: RuntimeError: out of memory\n"
    with wave.open(str(tmp_path / "takes" / "Once more..wav")) as file:
        assert (file.getframerate(), file.getnframes()) == (24_000, 2400)
    assert len(list((tmp_path / "takes").iterdir())) == 1


@pytest.mark.parametrize(("recipe", "first"), [("paper", "prepare"), ("libritts", "prepare"), ("mars5", "tokenize")])
def test_a_recipe_ends_before_any_corpus_is_read_where_something_is_missing(
    recipe: str, first: str, tmp_path: Path
) -> None:
    """The command `doctor` itself, on a disk that is too small; the others would leave a trace."""
    trace, command = tmp_path / "trace", tmp_path / "marstts"
    command.write_text(
        f'#!/bin/sh\ncase "$1" in doctor|estimate) ;; *) echo "$1" >> {trace} ;; esac\n'
        f'exec "{sys.executable}" -m marstts "$@"\n'
    )
    command.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "FREE_GB": "1e9", "DEVICE": "cpu"}
    environment |= {"CODEC": "toy:64", "IDENTITY": "toy:24", "STYLE": "toy:40", "METRICS": "sphinx"}
    done = subprocess.run(
        [str(RECIPES / recipe / "run.sh"), str(tmp_path / "work"), str(tmp_path / "data")], env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and "expected 1e+09 GB free" in done.stdout, done.stderr
    assert not trace.exists(), f"{first} ran"
