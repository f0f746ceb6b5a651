"""Preference training of a MARS6 by what is heard: ends of questions (`questions.toml`), own takes (`own_takes.toml`).

What comes before a compared end stays as it was, by the divergence from the initial model there.

Usage: python recipes/mini/questions.py PARENT OUTPUT --pairs FILE[:TIMES] [...] [--config questions.toml]

PARENT: a bundle of letters, which gets marks of intonation, or one that has them.  OUTPUT: a run folder for `marstts
export OUTPUT --template PARENT --phones contours`, or with the `--phones` of a PARENT that reads phones.
The last weights are kept: which questions rise is judged by F0, which no validation of `marstts preference train`
measures.  Running it again resumes.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from marstts import models
from marstts.bundle import load_bundle
from marstts.io.config import read_config
from marstts.text.phones import PHONE_TOKENS
from marstts.text.pronunciation.words import PhoneUse
from marstts_lab.data.held_out_people import refuse_test_people
from marstts_lab.data.pairs import check_pairs, read_pairs
from marstts_lab.preference.train import PreferenceConfig
from marstts_lab.training.distributed import init_distributed, is_main
from marstts_lab.training.loop import run
from marstts_lab.training.mars6.orpo import OrpoTask, files_hash, open_orpo_run
from marstts_lab.training.mars6.phone_embeddings import with_phone_embeddings
from marstts_lab.training.provenance import record_training


def main() -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("parent")
    parser.add_argument("output", type=Path)
    parser.add_argument("--pairs", nargs="+", required=True)
    parser.add_argument("--config", type=Path, default=Path(__file__).with_name("questions.toml"))
    found = parser.parse_args()
    config = read_config(PreferenceConfig, found.config)
    files = [(Path(path), int(times or 1)) for path, _, times in (one.partition(":") for one in found.pairs)]
    pairs = [pair for path, times in files for pair in read_pairs(path) for _ in range(times)]
    refuse_test_people(((pair.line.speaker, (pair.id,)) for pair in pairs), ", ".join(found.pairs))
    bundle = load_bundle(found.parent)
    check_pairs(pairs, bundle.codec.spec, {role: encoder.name for role, encoder in bundle.encoders.items()})
    base = models.load_for_training(found.parent)
    speech: Any = models.open_in_memory(base, bundle)
    tokenizer = speech.tokenizer
    if not tokenizer.special_tokens.keys() >= set(PHONE_TOKENS):
        tokenizer = tokenizer.with_special_tokens(PHONE_TOKENS)
        base = with_phone_embeddings(base, tokenizer)
    phones = speech.phones if speech.phones.has_phones else PhoneUse.CONTOURS
    speech = replace(speech, config=base.config, tokenizer=tokenizer, phones=phones)
    init_distributed()
    task = OrpoTask(config.orpo, pairs, base, speech.prompt, speech.tokenizer)
    if is_main():
        digest = {"pairs": files_hash(*(path for path, _ in files))}
        open_orpo_run(found.output, config.orpo, base.config, tokenizer, digest)
        record_training(found.output, config, digest, found.parent)
    run(task, config.orpo.loop, found.output)


if __name__ == "__main__":
    main()
