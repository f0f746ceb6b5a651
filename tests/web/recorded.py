"""What the Python engine computes, written down for Node: steps, audio, paths, words, loudness, embeddings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from marstts import audio
from marstts.audio import Waveform
from marstts.audio.limiter import limit_peaks
from marstts.bundle import PACKAGED_MODELS
from marstts.codec.base import noise_of
from marstts.generation.engine import EngineKind, SamplingInputs
from marstts.generation.loop import sample_positions
from marstts.generation.sampling import NO_ID
from marstts.synthesis.backoff import BackoffConfig
from marstts.synthesis.clone import prepare
from marstts.synthesis.loading import open_synthesizer
from marstts.synthesis.stream_edges import StreamingTrimmer
from marstts.synthesis.synthesizer import Synthesizer
from marstts.synthesis.words.attention_path import SentencePlaces, search_path
from marstts.synthesis.words.audible_steps import FRAMES_PER_STEP, audible_steps
from marstts.synthesis.words.flaws import find_flaws
from marstts.synthesis.words.word_times import timed_spans, words_of
from marstts.web.graphs import self_contained
from marstts.web.site import GRAPHS, describe, encoder_description

SENTENCE = "Hello there, nobody answered the door at the old house."
NUM_STEPS, MIN_STEPS = 48, 30
RECORDING = Path(__file__).parents[1] / "audio" / "sense-0930.flac"


def write_recorded(folder: Path) -> None:
    """Write the graphs, `site.json` without parts, and `recorded.json`."""
    bundle = PACKAGED_MODELS / "mini"
    for graphs in GRAPHS.values():
        for name, place in graphs.items():
            (folder / f"{name}.onnx").write_bytes(self_contained(bundle / place))
    (folder / "local.onnx").write_bytes(self_contained(bundle / "mars6" / "local.onnx"))
    tts = open_synthesizer(bundle, EngineKind.TORCH)  # whose activations are not rounded
    site = describe(bundle, tts)
    (folder / "site.json").write_text(json.dumps(site))
    recorded = {"steps": record_steps(tts)}
    recorded["audio"] = record_audio(tts, recorded["steps"])
    recorded["words"] = record_words(tts, recorded)
    recorded["sounds"] = record_sounds(tts)
    recorded["backoff"] = record_backoff()
    (folder / "recorded.json").write_text(json.dumps(recorded))


def record_steps(tts: Synthesizer) -> dict[str, Any]:
    """Logits, vectors, attention and tokens of the first patches of a sentence, with the numbers they were drawn by."""
    engine, voice, rng = tts.session.engine, tts.open_voice("ada").without_prefix(), np.random.default_rng(1)
    prompt = tts.session.model.prompt(SENTENCE, voice)
    state, layout = engine.start([prompt]), engine.layout
    recent = np.full((1, tts.session.sampling.ras_window), NO_ID)
    steps = []
    for number in range(NUM_STEPS):
        uniforms = rng.random((1, layout.patch_size, 2))
        inputs = SamplingInputs(
            uniforms,
            np.array([0.9 if number % 3 else 0.2]),
            np.array([number >= MIN_STEPS]),
            recent,
            np.array([tts.session.sampling.ras_max_ratio]),
        )
        patch, after = sample_positions(engine, state, inputs)
        logits = [engine.next_logits(state, np.zeros((1, 0), np.int64))[0][0].tolist()]
        partial = state
        for position in range(layout.patch_size):
            found, partial = engine.next_logits(partial, patch[:, :position])
            if position:
                logits.append(found[0].tolist())
            if patch[0, position] == layout.eos:
                break
        steps.append(
            {
                "logits": logits,
                "attention": engine.text_attention(state)[0].tolist(),  # type: ignore[attr-defined]
                "uniforms": uniforms.ravel().tolist(),
                "topP": float(inputs.top_p[0]),
                "mayEnd": bool(inputs.may_end[0]),
                "recent": recent[0].tolist(),
                "tokens": patch[0].tolist(),
            }
        )
        if (patch == layout.eos).any():
            break
        recent = np.concatenate([recent[:, 1:], patch[:, :1]], axis=1)
        state = engine.append(after, patch)
    return {
        "sentence": SENTENCE,
        "ids": prompt.text_ids.tolist(),
        "spans": prompt.text_spans.tolist(),
        "identity": prompt.identity.tolist(),
        "style": prompt.style.tolist(),
        "plainStyle": voice.embeddings["style"].tolist(),
        "timbre": voice.embeddings["timbre"].tolist(),
        "steps": steps,
    }


def record_audio(tts: Synthesizer, recorded: dict[str, Any]) -> dict[str, Any]:
    """The audio of those patches, and the noise it was made of."""
    eos = tts.session.engine.layout.eos
    tokens = np.array([step["tokens"] for step in recorded["steps"] if eos not in step["tokens"]])
    codes = tts.session.model.codes(tokens)
    waveform = tts.session.decode(codes, tts.open_voice("ada"))
    size = tts.session.codec.spec.patch_samples
    trimmer = StreamingTrimmer(waveform.sample_rate)
    loud = Waveform(waveform.samples * np.float32(9.0), waveform.sample_rate)
    return {
        "codes": (tokens % tts.session.engine.layout.codebook_size).tolist(),
        "samples": waveform.samples.tolist(),
        "noise": [noise_of((0,), patch, size).tolist() for patch in range(len(tokens))],
        "trimmed": np.concatenate([trimmer.push(waveform.samples), trimmer.finish()]).tolist(),
        "loudness": audio.loudness_lufs(waveform),
        "span": list(audio.audible_span(waveform)),
        "limited": limit_peaks(loud).samples.tolist(),
    }


def record_words(tts: Synthesizer, recorded: dict[str, Any]) -> dict[str, Any]:
    """The path through the sentence, the words on it and its flaws."""
    spec = tts.session.codec.spec
    steps = [np.array(step["attention"], np.float32) for step in recorded["steps"]["steps"]]
    waveform = Waveform(np.array(recorded["audio"]["samples"], np.float32), spec.sample_rate)
    audible = audible_steps(waveform, spec.patch_rate)[: len(steps)]
    frames = np.concatenate([audible, np.zeros((len(steps) - len(audible), FRAMES_PER_STEP), np.float32)])
    places = SentencePlaces.of(SENTENCE, np.array(recorded["steps"]["spans"]))
    search, deaf = search_path(places, steps, frames), search_path(places, steps)
    tokens = np.array([step["tokens"] for step in recorded["steps"]["steps"]])
    spans = timed_spans(search)
    seconds = len(waveform.samples) / spec.sample_rate
    return {
        "audible": audible.ravel().tolist(),
        "path": search.path.tolist(),
        "latest": list(deaf.latest),
        "spans": [[span.first_character, span.last_character, span.start, span.end, span.confidence] for span in spans],
        "words": [
            [word.written, word.start, word.end, word.confidence]
            for word in words_of(SENTENCE, (), spans, step_seconds=1 / spec.patch_rate, audible=(0.1, seconds))
        ],
        "flaws": [
            [flaw.kind.value, flaw.word] for flaw in find_flaws(search, SENTENCE, 1.0, tokens=tokens, has_ended=True)
        ],
        "cut": [[place.kind.value, place.start, place.end, place.num_letters] for place in places.places],
    }


def record_sounds(tts: Synthesizer) -> dict[str, Any]:
    """A recording, prepared for cloning, and its embeddings."""
    rate = tts.session.codec.spec.sample_rate
    recording = audio.resample(audio.read(RECORDING), rate)
    prepared = prepare(recording, rate, "the recording")
    speaker_rate = encoder_description(tts.session.codec._speaker_encoder())["sampleRate"]  # type: ignore[attr-defined]
    return {
        "recording": recording.samples.tolist(),
        "prepared": prepared.samples.tolist(),
        "atSpeakerRate": audio.resample(prepared, speaker_rate).samples.tolist(),
        "embeddings": {role: encoder.embed(prepared).tolist() for role, encoder in tts.session.encoders.items()},
    }


def record_backoff() -> dict[str, Any]:
    """Limits and the schedule of top-p."""
    backoff = BackoffConfig()
    lengths = [1, 10, 55, 160]
    limits = [backoff.limits("x" * length, 11.71875) for length in lengths]
    return {
        "schedule": backoff.top_p_schedule(0.2),
        "limits": [[length, one.min_patches, one.max_patches] for length, one in zip(lengths, limits, strict=True)],
    }
