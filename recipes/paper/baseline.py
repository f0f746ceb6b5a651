"""Takes of a baseline of the paper by its public package, in an environment that has it.

    envs/xttsv2/bin/python recipes/paper/baseline.py xttsv2 EVALUATION/trials.jsonl OUTPUT_FOLDER

The baselines are xttsv2, styletts2 and metavoice. The test set is in the output folder of `marstts evaluate`, which
then scores the takes: `--system OUTPUT_FOLDER`. An interrupted run resumes. Nothing of marstts is imported.

MARS6 (arXiv:2501.05787), Sec. V-A, takes the best available checkpoints, and the best inference settings of each paper,
but does not list them. `SETTINGS` has what the authors' releases use for voices that were not trained on.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import wave
from pathlib import Path

SETTINGS = {
    "xttsv2": {"temperature": 0.75, "length_penalty": 1.0, "repetition_penalty": 5.0, "top_k": 50, "top_p": 0.85},
    "styletts2": {"alpha": 0.3, "beta": 0.7, "diffusion_steps": 10, "embedding_scale": 1},
    "metavoice": {"top_p": 0.95, "guidance_scale": 3.0, "temperature": 1.0},
}
"""Inference settings: XTTSv2's config.json; StyleTTS 2's notebook of LibriTTS, with its more diverse number of steps;
the defaults of MetaVoice's `fast_inference`."""

MIN_REFERENCE_SECONDS = {"metavoice": 30}
"""References that a package refuses if they are shorter; they are repeated."""


def open_xttsv2():
    """XTTSv2 by Coqui's package `TTS` (or its successor `coqui-tts`); English."""
    from TTS.api import TTS

    model = TTS("tts_models/multilingual/multi-dataset/xtts_v2")

    def speak(text, reference, output):
        model.tts_to_file(text=text, speaker_wav=reference, language="en", file_path=output, **SETTINGS["xttsv2"])

    return speak


def open_styletts2():
    """StyleTTS 2, trained on LibriTTS, by the package `styletts2`."""
    from styletts2 import tts

    model = tts.StyleTTS2()

    def speak(text, reference, output):
        model.inference(text, target_voice_path=reference, output_wav_file=output, **SETTINGS["styletts2"])

    return speak


def open_metavoice():
    """MetaVoice-1B by its repository `metavoice-src`, installed in the environment."""
    from fam.llm.fast_inference import TTS

    model = TTS()

    def speak(text, reference, output):
        shutil.copyfile(model.synthesise(text=text, spk_ref_path=reference, **SETTINGS["metavoice"]), output)

    return speak


BASELINES = {"xttsv2": open_xttsv2, "styletts2": open_styletts2, "metavoice": open_metavoice}


def main(name, testset, output):
    """Speak all trials that have no take yet; a sentence that fails is named, and has none."""
    speak = BASELINES[name]()
    output.mkdir(parents=True, exist_ok=True)
    trials = [json.loads(line) for line in testset.read_text(encoding="utf-8").splitlines()]
    with tempfile.TemporaryDirectory() as folder:
        for trial in trials:
            take, partial = output / f"{trial['id']}.wav", Path(folder, "take.wav")
            if take.exists():
                continue
            reference = long_enough(
                testset.parent / trial["reference"], MIN_REFERENCE_SECONDS.get(name, 0), Path(folder)
            )
            try:
                speak(trial["text"], str(reference.resolve()), str(partial))
            except Exception as error:  # one failed sentence must not end the run
                print(f"{trial['id']}: {type(error).__name__}: {error}", file=sys.stderr)
            else:
                shutil.move(partial, take)


def long_enough(reference, seconds, folder):
    """The reference, or a file in `folder` in which it is repeated to this length."""
    with wave.open(str(reference)) as file:
        settings, frames = file.getparams(), file.readframes(file.getnframes())
    if settings.nframes >= seconds * settings.framerate:
        return reference
    repeated = folder / "reference.wav"
    with wave.open(str(repeated), "wb") as file:
        file.setparams(settings)
        file.writeframes(frames * -(-seconds * settings.framerate // settings.nframes))
    return repeated


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
