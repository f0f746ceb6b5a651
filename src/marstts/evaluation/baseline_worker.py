"""Worker inside a baseline's own environment: requests as JSON lines on standard input, answers as JSON lines.

Upstream: `baselines`, which starts this file as a script with that environment's Python.  Downstream: the baseline's
public package. Nothing of marstts is imported; it need not be installed there. A request is {"text", "reference",
"output"}, an answer {"error": null or a sentence}.

MARS6 (arXiv:2501.05787), Sec. V-A, takes the best available checkpoints, and the best inference settings of each paper,
but does not list them. `SETTINGS` has what the authors' releases use for voices that were not trained on.
"""

from __future__ import annotations

import json
import os
import shutil
import sys

SETTINGS = {
    "xttsv2": {"temperature": 0.75, "length_penalty": 1.0, "repetition_penalty": 5.0, "top_k": 50, "top_p": 0.85},
    "styletts2": {"alpha": 0.3, "beta": 0.7, "diffusion_steps": 10, "embedding_scale": 1},
    "metavoice": {"top_p": 0.95, "guidance_scale": 3.0, "temperature": 1.0},
}
"""Inference settings: XTTSv2's config.json; StyleTTS 2's notebook of LibriTTS, with its more diverse number of steps;
the defaults of MetaVoice's `fast_inference`."""

MIN_REFERENCE_SECONDS = {"metavoice": 30.0}
"""References that a package refuses if they are shorter."""


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


def serve(name, requests, answers):
    """Answer requests until standard input ends."""
    try:
        speak = BASELINES[name]()
    except Exception as error:  # any exception of the package is reported to the person who installed it
        print(json.dumps({"error": describe(error)}), file=answers, flush=True)
        return
    print(json.dumps({"error": None}), file=answers, flush=True)
    for line in requests:
        try:
            speak(**json.loads(line))
            problem = None
        except Exception as error:  # one failed sentence must not end the run
            problem = describe(error)
        print(json.dumps({"error": problem}), file=answers, flush=True)


def describe(error):
    """An exception in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # packages print to standard output, which carries the answers
    serve(sys.argv[1], sys.stdin, answers)
