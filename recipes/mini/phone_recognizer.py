"""Trains the phone recognizer by which takes of a model are checked, on recordings and on them through the codec.

Usage: python recipes/mini/phone_recognizer.py CODEC WORK MANIFEST [MANIFEST ...] [--steps 3000] [--seed 0]

CODEC: an exported codec with a recognizer, into whose folder phones.onnx and phones.safetensors are written.  WORK:
gets the features, which are the long part; what is there is not computed again.  MANIFEST: an English corpus with
texts.  Needs the extra train; 0.3 s of a core for a recording, and 0.2 s for a step.

Words are expected as the pronunciation table has them, else as the letter-to-sound model reads them; one of several
pronunciations is taken as it comes, for alternatives are accepted where takes are checked.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from marstts import audio
from marstts.audio import Waveform
from marstts.codec import mini_recognizer
from marstts.codec.mini import MiniCodec
from marstts.errors import DataError, MarsError
from marstts.io.part_provenance import PartProvenance, command_line, commit, read_part, write_part
from marstts.synthesis.words.pronunciation import spoken_phones
from marstts.text.normalize import normalize
from marstts.text.phones import LABELS
from marstts_lab.data.manifest import Utterance, read_for_training
from marstts_lab.training.codec.phone_recognizer import (
    Example,
    PhoneRecognizer,
    export_phone_recognizer,
    phone_error_rate,
    train,
)
from marstts_lab.training.mars6.orpo import files_hash

LONGEST_SECONDS = 16.0
LABEL = {phone: number for number, phone in enumerate(LABELS, start=1)}
REPORTED_EVERY = 250
VALIDATED = 300
"""Recordings of the splits other than train."""


class Reader:
    """Features of recordings, kept in a folder."""

    def __init__(self, codec: MiniCodec, folder: Path) -> None:
        self.codec, self.folder = codec, folder
        self.voices: dict[str, MiniCodec] = {}

    def read(self, manifest: Path, utterance: Utterance) -> tuple[NDArray[np.float16], ...]:
        """(T, C) of a recording, and of what the codec makes of it in the timbre of the speaker."""
        key = hashlib.sha256(f"{manifest.resolve()}\n{utterance.id}".encode()).hexdigest()[:16]
        path = self.folder / f"{key}.npz"
        if not path.is_file():
            waveform = audio.read(manifest.parent / utterance.audio)
            if utterance.speaker not in self.voices:
                self.voices[utterance.speaker] = self.codec.with_timbre(self.codec.timbre_embedding(waveform))
            decoded = self.voices[utterance.speaker].decode(self.codec.encode(waveform))
            written = path.with_suffix(".tmp.npz")
            np.savez(written, recorded=self.features(waveform), decoded=self.features(decoded))
            written.replace(path)
        with np.load(path) as found:
            return found["recorded"], found["decoded"]

    def features(self, waveform: Waveform) -> NDArray[np.float16]:
        """(T, C)."""
        samples = mini_recognizer.resample(waveform.samples, waveform.sample_rate)
        return mini_recognizer.read_features(samples, self.codec._run_recognizer).astype(np.float16)


def expected(text: str) -> tuple[int, ...]:
    """Labels of a text; none where a word has no phones."""
    words = list(spoken_phones(normalize(text)))
    if not all(word.phones for word in words):
        return ()
    return tuple(LABEL[phone.rstrip("012")] for word in words for phone in word.phones)


def utterances(manifests: list[Path]) -> Iterator[tuple[Path, Utterance]]:
    """Those of all corpora that have a text and are short."""
    for manifest in manifests:
        for utterance in read_for_training(manifest):
            if utterance.text.strip() and utterance.seconds <= LONGEST_SECONDS:
                yield manifest, utterance


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("codec", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("manifests", type=Path, nargs="+")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    folder = options.work / "features"
    folder.mkdir(parents=True, exist_ok=True)
    reader = Reader(MiniCodec(options.codec), folder)
    examples: list[Example] = []
    held_out: list[Example] = []
    for manifest, utterance in utterances(options.manifests):
        try:
            one = Example(reader.read(manifest, utterance), expected(utterance.text))
        except MarsError as error:
            print(f"{utterance.id}: left out, {error}")
            continue
        if 0 < len(one.labels) < len(one.versions[0]):
            (examples if utterance.split == "train" else held_out).append(one)
    if not (examples and held_out):
        raise DataError("expected recordings of the split train and of another one")
    rng = np.random.default_rng(options.seed)
    held_out = [held_out[index] for index in rng.permutation(len(held_out))[:VALIDATED]]
    torch.manual_seed(options.seed)
    model = PhoneRecognizer(reader.codec.config.feature_width)
    print(f"{len(examples)} recordings", flush=True)
    losses = []
    for step, loss in train(model, examples, options.steps, rng):
        losses.append(loss)
        if step % REPORTED_EVERY == 0 or step == options.steps:
            wrong = phone_error_rate(model.eval(), held_out)
            model.train()
            print(f"step {step}: {np.mean(losses):.3f} nats a phone, held out {wrong:.3f} of phones wrong", flush=True)
            losses = []
    export_phone_recognizer(model, options.codec)
    record = read_part(options.codec) or PartProvenance(command=command_line(), date=date.today().isoformat())
    added = f"Phone recognizer: {command_line()}, commit {commit()}, data {files_hash(*options.manifests)}"
    write_part(replace_note(record, added), options.codec)


def replace_note(record: PartProvenance, added: str) -> PartProvenance:
    """The record of the codec with a sentence more."""
    return record.model_copy(update={"note": f"{record.note}. {added}".removeprefix(". ")})


if __name__ == "__main__":
    main()
