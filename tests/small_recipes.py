"""Recipes in tiny sizes: a copy of `recipes/` whose configurations ask for few steps and few hours.

    python tests/small_recipes.py FOLDER
    FOLDER/recipes/mini/run.sh WORK_FOLDER

Every stage then runs with the options of the recipe in a minute or less. What is trained that way says nothing.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]

SIZES = {
    "steps": 4, "validate_every": 2, "checkpoint_every": 2, "log_every": 1, "warmup_steps": 1,
    "end_step": 3, "train_hours": 0.04, "speakers_per_voice": 2, "max_hours": 0.02, "batch_size": 4,
    "pairs_per_batch": 2, "max_references": 4, "sentences": 4, "min_margin": 0.0,
    "chosen_max_cer": 9.0, "pretraining_steps": 1, "segment_patches": 12,
}  # fmt: skip
"""Values that replace those of the recipes, wherever a recipe has one of that name."""

SENTENCES = 8
"""Sentences of a test set, in place of those that a recipe asks for."""

SYNTHETIC = ("synthetic.toml", "synthetic_kokoro.toml")
"""Configurations of mini's synthetic corpora."""

CORPUS = {"validation_utterances": 16, "test_utterances_per_speaker": 28}
"""Values of corpora that mini's recipe leaves at their defaults, which ask for hundreds."""

VALUE = re.compile(r"^(\w+) = [0-9._e-]+$", re.MULTILINE)


TINY = (
    ("compile = true", "compile = false"), ('precision = "bf16"', 'precision = "fp32"'),
    ("accumulation_batches = 8", "accumulation_batches = 2"), ("validate_every = 2", "validate_every = 4"),
    ("width = 512", "width = 32"), ("heads = 8", "heads = 2"), ("encoder_layers = 8", "encoder_layers = 1"),
    ("global_layers = 8", "global_layers = 6"), ("local_layers = 4", "local_layers = 1"),
    ("codebook_size = 4096", "codebook_size = 64"), ("identity_size = 512", "identity_size = 24"),
    ("style_size = 1024", "style_size = 40"), ("text_vocab_size = 512", "text_vocab_size = 280"),
    ("--vocab-size 512", "--vocab-size 280"), ("size=512", "size=280"), ("--workers 2", "--workers 1"),
    ('"faster-whisper"', '"sphinx"'), ('"utmos"', '"dnsmos"'), ("../mini/text/modern.tsv.gz", "texts.txt"),
    ("cer_weight = 1", "cer_weight = 0"), ("rejected_min_cer = 0.05", ""),
)  # fmt: skip
"""What makes a recipe of the paper's size run on a processor in seconds, with metrics that need no download."""

VOICES = ["espeak-klatt4", "espeak-f2"]

MINI = (
    ("encoder_blocks = [2, 8]", "encoder_blocks = [1, 1]\ndecoder_blocks = [1, 1]\npitch_dilations = [1]"),
    ("recognizer_layers = 4", "recognizer_layers = 2\nrecognizer_width = 64"), ("steps = 4", "steps = 2"),
    ("validate_every = 2", "validate_every = 1"),
)  # fmt: skip
"""What makes mini's recipe shorter: blocks of the codec, the recognizer of `small_whisper`, and steps."""

TEXTS = ("Where did the gray cat go?", "Nine boats were in the harbor.", "It was late, and we were tired.")


def copy_tiny(folder: Path) -> Path:
    """`copy_small`, and the recipe of the paper with a tiny model."""
    recipes = copy_small(folder)
    for path in (recipes / "paper").iterdir():
        content = path.read_text(encoding="utf-8")
        for old, new in TINY:
            content = content.replace(old, new)
        path.write_text(content, encoding="utf-8")
    (recipes / "paper" / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    return recipes


def copy_mini(folder: Path) -> Path:
    """`copy_small`, and mini's recipe with a small codec and the voices of espeak-ng, which many have."""
    recipes = copy_small(folder)
    for path in (recipes / "mini").glob("*.toml"):
        content = path.read_text(encoding="utf-8")
        for old, new in MINI:
            content = content.replace(old, new)
        path.write_text(content, encoding="utf-8")
    wide = recipes / "mini" / "codec_predicted_wide.toml"
    wide.write_text(wide.read_text(encoding="utf-8").replace("steps = 2", "steps = 3"), encoding="utf-8")  # goes on
    for name in SYNTHETIC:
        path = recipes / "mini" / name
        voices = f"base_voices = {json.dumps(VOICES)}"
        config = re.sub(r"(?s)base_voices = \[.*?\]", voices, path.read_text(encoding="utf-8"))
        path.write_text(re.sub(r"(held_out_per_voice) = \d+", r"\1 = 1", config), encoding="utf-8")
    return recipes


def copy_small(folder: Path) -> Path:
    """Copy the recipes into `folder` with small sizes, next to a link to the package; returns the copy."""
    recipes = folder / "recipes"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(REPOSITORY / "recipes", recipes)
    (folder / "src").symlink_to(REPOSITORY / "src")
    for path in recipes.rglob("*.toml"):
        lines = re.sub(r"(?m) +#.*$", "", path.read_text(encoding="utf-8"))
        path.write_text(VALUE.sub(smaller, lines).replace('"faster-whisper=tiny.en"', '"sphinx"'), encoding="utf-8")
    for path in recipes.rglob("*.sh"):
        script = re.sub(r"--sentences [0-9]+", f"--sentences {SENTENCES}", path.read_text(encoding="utf-8"))
        path.write_text(script, encoding="utf-8")
    with (recipes / "mini" / "preference.toml").open("a", encoding="utf-8") as file:
        file.write('recognizer = "sphinx"\n')  # needs no weights
    for name in SYNTHETIC:
        with (recipes / "mini" / name).open("a", encoding="utf-8") as file:
            file.writelines(f"{name} = {value}\n" for name, value in CORPUS.items())
    return recipes


def smaller(line: re.Match[str]) -> str:
    """A line of a configuration with its small value; unchanged where there is none."""
    name = line[1]
    return f"{name} = {SIZES[name]}" if name in SIZES else line[0]


if __name__ == "__main__":
    print(copy_small(Path(sys.argv[1])))
