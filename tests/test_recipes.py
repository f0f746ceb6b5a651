"""Recipes are read here as their commands read them, so that none falls behind the code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from command_lines import parse
from marstts.config import Config, read_config
from marstts.data.corpora.engines import BASE_VOICES
from marstts.data.corpora.studio import StudioConfig, read_sentences
from marstts.training.codec import CodecTrainingConfig
from marstts.training.pretrain import PretrainConfig
from marstts.training.speaker import Kind, SpeakerTrainingConfig

RECIPES = Path(__file__).parents[1] / "recipes"

KINDS: dict[str, type[Config]] = {
    "studio": StudioConfig,
    "codec": CodecTrainingConfig,
    "identity": SpeakerTrainingConfig,
    "style": SpeakerTrainingConfig,
    "mars6": PretrainConfig,
}
"""What a recipe's file configures, by the first word of its name: `codec_adversarial.toml` is a codec's."""


@pytest.mark.parametrize("path", sorted(RECIPES.rglob("*.toml")), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_recipe_is_a_valid_configuration(path: Path) -> None:
    read_config(KINDS[path.stem.split("_")[0]], path)


@pytest.mark.parametrize("recipe", ["tiny", "mini"])
def test_the_parts_of_a_recipe_fit_one_another(recipe: str) -> None:
    folder = RECIPES / recipe
    codec = read_config(CodecTrainingConfig, folder / "codec.toml").model
    encoders = {kind: read_config(SpeakerTrainingConfig, folder / f"{kind.value}.toml") for kind in Kind}
    mars6 = read_config(PretrainConfig, folder / "mars6.toml")
    assert mars6.model.codebook_size == codec.codebook_size
    assert mars6.model.patch_layout == tuple(codec.strides[0] // stride for stride in codec.strides)
    assert mars6.model.identity_size == encoders[Kind.IDENTITY].model.size
    assert mars6.model.style_size == encoders[Kind.STYLE].model.size
    assert all(encoder.kind is kind for kind, encoder in encoders.items())
    assert set(mars6.alignment.layers) <= set(range(mars6.model.global_layers))
    assert set(read_config(StudioConfig, folder / "studio.toml").bases) <= BASE_VOICES.keys()


def test_the_modern_sentences_feed_every_split_and_none_twice() -> None:
    config = read_config(StudioConfig, RECIPES / "mini" / "studio.toml")
    files = [(RECIPES / "mini" / "text" / "modern.tsv.gz", 1.0)]
    splits = {split: {text for text, _ in found} for split, found in read_sentences(files, config).items()}
    assert len(splits["train"]) > 10_000 and min(len(texts) for texts in splits.values()) > 500
    assert not splits["train"] & (splits["validation"] | splits["test"])


MARSTTS = """#!{python}
import json, os, sys
with open(os.environ["CALLS"], "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
"""
"""Stands in for the command and writes down how it was called."""

TORCHRUN = """#!/bin/sh
while [ "$1" != marstts ]; do shift; done
exec "$@"
"""


@pytest.mark.parametrize("script", sorted(RECIPES.rglob("*.sh")), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_recipe_calls_commands_that_exist_with_options_they_take(script: Path, tmp_path: Path) -> None:
    for name, content in (("marstts", MARSTTS.format(python=sys.executable)), ("torchrun", TORCHRUN)):
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(0o755)
    calls = tmp_path / "calls.jsonl"
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "CALLS": str(calls)}
    subprocess.run([str(script), str(tmp_path / "out")], check=True, env=environment, capture_output=True)
    commands = [json.loads(line) for line in calls.read_text().splitlines()]
    assert len(commands) > 1
    for command in commands:
        parse(command)
        assert all(Path(word).is_file() for word in command if word.endswith(".toml"))
