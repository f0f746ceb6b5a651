"""Runs inside a rival's own environment: requests as JSON lines on standard input, answers as JSON lines.

Upstream: `rivals`, which starts it as a script with that environment's Python.  Downstream: the rival's public package.
It imports nothing of marstts, which need not be installed there. Everything is left at the defaults the packages
publish, as they were when MARS6 (arXiv:2501.05787) compared itself with them; a request is {"text", "reference",
"output"}, an answer {"problem": null or a sentence}.
"""

from __future__ import annotations

import json
import os
import shutil
import sys


def open_xttsv2():
    """XTTSv2 by Coqui's package `TTS` (or its successor `coqui-tts`); English."""
    from TTS.api import TTS

    model = TTS("tts_models/multilingual/multi-dataset/xtts_v2")

    def speak(text, reference, output):
        model.tts_to_file(text=text, speaker_wav=reference, language="en", file_path=output)

    return speak


def open_styletts2():
    """StyleTTS 2, trained on LibriTTS, by the package `styletts2`."""
    from styletts2 import tts

    model = tts.StyleTTS2()

    def speak(text, reference, output):
        model.inference(text, target_voice_path=reference, output_wav_file=output)

    return speak


def open_metavoice():
    """MetaVoice-1B by its repository `metavoice-src`, installed in the environment."""
    from fam.llm.fast_inference import TTS

    model = TTS()

    def speak(text, reference, output):
        shutil.copyfile(model.synthesise(text=text, spk_ref_path=reference), output)

    return speak


RIVALS = {"xttsv2": open_xttsv2, "styletts2": open_styletts2, "metavoice": open_metavoice}


def serve(name, requests, answers):
    """Answer one request after another until there are no more."""
    try:
        speak = RIVALS[name]()
    except Exception as error:  # whatever the package raises is for the person who installed it
        print(json.dumps({"problem": describe(error)}), file=answers, flush=True)
        return
    print(json.dumps({"problem": None}), file=answers, flush=True)
    for line in requests:
        try:
            speak(**json.loads(line))
            problem = None
        except Exception as error:  # one sentence less must not end the run
            problem = describe(error)
        print(json.dumps({"problem": problem}), file=answers, flush=True)


def describe(error):
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # packages print what they like on standard output, which is ours alone
    serve(sys.argv[1], sys.stdin, answers)
