"""Speed of a MARS5 of mini5's shape with random weights, text to audio without PyTorch, by steps and weights.

Usage: python tools/mars5_speed.py [--seconds 4] [--steps 200,50,24,12,6] [--rounds 3] [--cache DIR] [--output F]

Sizes are those of recipes/mini5; the codec is its shape with random codebooks over the packaged model's codec. As many
tokens are generated as `--seconds` of speech need. The least real-time factor of all rounds counts, since other work on
the machine only makes a run slower. Making the bundles needs the extra train.
"""

from __future__ import annotations

import argparse
import json
import time
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from marstts import models
from marstts.benchmark.machine import gather_metadata
from marstts.benchmark.texts import SENTENCES
from marstts.codec.frame_codec import FRAMES, PACKAGED_CODEC, VECTOR_PARTS, frame_vectors
from marstts.codec.mini import MiniCodec
from marstts.generation.loop import generate
from marstts.generation.request import Limits, SamplingConfig
from marstts.io.precision import WeightFormat
from marstts.mars5.ar import CodecLM
from marstts.mars5.checkpoint import Models
from marstts.mars5.config import CodecLMConfig, ResidualTransformerConfig
from marstts.mars5.nar import ResidualTransformer
from marstts.mars5.text import END_OF_SPEECH, END_OF_TEXT, START_OF_TEXT, JointVocabulary, SpeechBPE
from marstts.synthesis.loading import load
from marstts.synthesis.synthesizer import Synthesizer
from marstts.text.tokenizers.bpe import BPE
from marstts.training.codec.frame_codec import frame_codebooks, packaged_tables, write_frame_codec
from marstts.training.codec.frame_content import fit_content
from marstts.training.codec.phone_loss import PHONES
from marstts.voice import Voice

RECIPE = Path(__file__).parents[1] / "recipes" / "mini5"


def random_bundles(cache: Path) -> dict[str, Path]:
    """Bundles of mini5's shape with random weights, by the format of their weights; kept from run to run."""
    folders = {"fp32": cache / "mini5-random", "int8": cache / "mini5-random-int8"}
    if all(models.has_graphs(folder) for folder in folders.values() if folder.is_dir()) and folders["int8"].is_dir():
        return folders
    ar, nar = (tomllib.loads((RECIPE / f"{name}.toml").read_text())["model"] for name in ("ar", "nar"))
    rng = np.random.default_rng(0)
    tables, codec = packaged_tables(PACKAGED_CODEC), cache / "codec"
    vectors = frame_vectors(rng.integers(0, 1024, (500, VECTOR_PARTS)), tables)
    content = fit_content([(vectors, rng.integers(0, len(PHONES), (len(vectors), 2)))], 128, 256, seed=0, steps=1)
    write_frame_codec(
        codec, frame_codebooks(tables, content), name="mini5-random", base=MiniCodec(PACKAGED_CODEC).spec.name
    )
    text = BPE.train(list(SENTENCES), ar["text_vocab_size"], [START_OF_TEXT, END_OF_TEXT])
    speech = SpeechBPE((), {END_OF_SPEECH: ar["codebook_size"]}, ar["codebook_size"])
    made = Models(
        CodecLM(CodecLMConfig(**ar)).eval(),
        ResidualTransformer(ResidualTransformerConfig(**nar)).eval(),
        JointVocabulary(text, speech),
    )
    plain = cache / "plain"
    rate = codec_rate()
    models.export_bundle(
        plain, made, text, codec=codec, encoders={}, name="mini5-random", architecture="mars5",
        settings={"tokens_per_second": rate}, sampling=SamplingConfig(top_p=0.9),
    )  # fmt: skip
    models.upgrade_bundle(plain, folders["fp32"])
    models.upgrade_bundle(plain, folders["int8"], WeightFormat.INT8)
    return folders


def codec_rate() -> float:
    """Frames per second."""
    return MiniCodec(PACKAGED_CODEC).spec.patch_rate * FRAMES


def measure(synthesizer: Synthesizer, voice: Voice, text: str, frames: int, seed: int) -> dict[str, float]:
    """Seconds of compute for one text: tokens, diffusion, decoding."""
    model, rng = synthesizer.model, np.random.default_rng(seed)
    begin = time.perf_counter()
    prompt = model.prompt(text, voice)
    [generated] = generate(
        synthesizer.engine, [prompt], top_p=[0.9], limits=[Limits(frames, frames)], rngs=[rng], sampling=model.sampling
    )
    tokens = time.perf_counter()
    codes = model.codes(generated.tokens, rng, prompt)
    diffusion = time.perf_counter()
    samples = synthesizer.codec.decode(codes).samples
    end = time.perf_counter()
    seconds = len(samples) / synthesizer.codec.spec.sample_rate
    return {
        "seconds": seconds,
        "tokens": tokens - begin,
        "diffusion": diffusion - tokens,
        "decoding": end - diffusion,
        "rtf": (end - begin) / seconds,
    }


def with_steps(synthesizer: Synthesizer, steps: int) -> Synthesizer:
    """The same synthesizer with this number of diffusion steps."""
    pipeline: Any = synthesizer.model
    diffusion = pipeline.pipeline.diffusion.model_copy(update={"timesteps": steps})
    return replace(synthesizer, model=replace(pipeline, pipeline=replace(pipeline.pipeline, diffusion=diffusion)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--steps", default="200,50,24,12,6")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cache", type=Path, default=Path("runs/mars5-speed"))
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    rows = []
    for weights, folder in random_bundles(options.cache).items():
        base = load(folder, "onnx")
        speaker = np.random.default_rng(1).normal(size=sum(base.model.embedding_sizes.values())).astype(np.float32)
        voice = Voice(
            name="random", embeddings={"speaker": speaker}, prefix=None, codec=base.codec.spec.name,
            encoders={"speaker": "random"}, source_sha256="", consent="",
        )  # fmt: skip
        frames = round(options.seconds * codec_rate())
        for steps in map(int, options.steps.split(",")):
            synthesizer = with_steps(base, steps)
            runs = [measure(synthesizer, voice, SENTENCES[0], frames, seed) for seed in range(options.rounds)]
            best = min(runs, key=lambda run: run["rtf"])
            rows.append({"weights": weights, "steps": steps, **{name: round(value, 4) for name, value in best.items()}})
            print(rows[-1], flush=True)
    if options.output:
        result = {"metadata": gather_metadata("python tools/mars5_speed.py"), "rows": rows}
        options.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
