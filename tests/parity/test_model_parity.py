"""The published model's numbers and tokens, from ours."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from golden_runs import in_first_language, limits_of, of, prompt_of
from numpy.typing import NDArray
from torch import Tensor

from marstts.generation.loop import generate
from marstts.generation.request import Generated, SamplingConfig, StopReason
from marstts.generation.sampling import draw, keep_nucleus
from marstts.mars6.engines.torch import TorchEngine
from marstts.mars6.model import Mars6
from marstts.mars6.released import load_released

Uniforms = NDArray[np.float64]


def close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-5)


@pytest.mark.slow
def test_both_containers_hold_the_same_model(name: str, golden: Path, models: dict[str, Mars6]) -> None:
    path = golden / ("checkpoint.safetensors" if name == "main" else f"{name}.safetensors")
    if not path.is_file():
        pytest.skip("recorded in one container only")
    other = load_released(path).model
    assert other.config == models[name].config
    for key, tensor in models[name].state_dict().items():
        assert torch.equal(tensor, other.state_dict()[key]), key


def test_sizes(name: str, record: dict[str, Any], models: dict[str, Mars6]) -> None:
    config, sizes = models[name].config, record[name]
    assert [config.width, config.encoder_layers, config.global_layers, config.local_layers] == [
        sizes["dim"], sizes["n_layers"], sizes["n_layers"], sizes["fast_n_layers"]
    ]  # fmt: skip
    assert (config.languages, config.codebook_size) == (sizes["n_langs"], sizes["codec_size"])
    assert [config.heads, config.local_heads] == sizes["heads"]
    assert config.text_vocab_size == sizes["n_text_vocab"]


@torch.inference_mode()
def test_memory(name: str, tensors: dict[str, Tensor], models: dict[str, Mars6]) -> None:
    model, io = models[name], of(name, tensors)
    ids, lengths = io["enc.text_ids"], torch.tensor([io["enc.text_ids"].shape[1]])
    memory, mask = model.encode(ids, lengths, io["enc.speaker"], io["enc.clap"], io["enc.language"])
    close(memory, io["enc.memory"])
    assert mask.all()
    null = model.encoder.slots.null_speaker(1)
    close(model.encode(ids, lengths, *null, io["enc.language"])[0], io["enc.memory_uncond"])


@torch.inference_mode()
def test_memory_and_global_outputs_of_a_padded_batch(
    name: str, tensors: dict[str, Tensor], models: dict[str, Mars6]
) -> None:
    model, io = models[name], of(name, tensors)
    memory, mask = model.encode(
        io["batch.text_ids"], io["batch.text_lengths"], io["batch.speaker"], io["batch.clap"], io["batch.language"]
    )
    assert torch.equal(mask, ~io["batch.memory_pad_mask"])
    close(memory[mask], io["batch.memory"][mask])
    outputs = model.global_decoder(model.global_decoder.embed(io["batch.codes"]), memory, mask).x
    for row, length in enumerate(io["batch.code_lengths"].tolist()):
        close(outputs[row, : length + 1], io["batch.out"][row, : length + 1])


@torch.inference_mode()
def test_global_outputs(name: str, tensors: dict[str, Tensor], models: dict[str, Mars6]) -> None:
    decoder, io = models[name].global_decoder, of(name, tensors)
    codes, memory = io["dec.codes"], io["enc.memory"]
    mask = torch.ones(memory.shape[:2], dtype=torch.bool)
    close(decoder.patch_embedding(codes, torch.tensor([0])), io["dec.patch_embedding"])
    close(decoder(decoder.embed(codes[:, :0]), memory, mask)[0], io["dec.out_bos"])
    close(decoder(decoder.embed(codes), memory, mask)[0], io["dec.out"])


@torch.inference_mode()
def test_global_outputs_with_kv_caches(name: str, tensors: dict[str, Tensor], models: dict[str, Mars6]) -> None:
    model, io = models[name], of(name, tensors)
    codes, memory = io["dec.codes"], io["enc.memory"]
    state = model.begin(memory, torch.ones(memory.shape[:2], dtype=torch.bool), codes[:, :0], torch.tensor([0]))
    close(state.vectors, io["dec.out"][:, 0])
    for patch in range(codes.shape[1]):
        state = model.advance(state, codes[:, patch])
        close(state.vectors, io["dec.out"][:, patch + 1])


@torch.inference_mode()
def test_local_logits(name: str, tensors: dict[str, Tensor], models: dict[str, Mars6]) -> None:
    """Ours are of the codes legal at a position; theirs of the whole vocabulary, masked later."""
    model, io = models[name], of(name, tensors)
    config = model.config
    by_level = model.local_decoder(io["loc.global"], io["loc.tokens"])
    ours = torch.cat([pad_to_vocabulary(logits, level, config) for level, logits in enumerate(by_level)], dim=1)
    legal = torch.isfinite(ours)
    given = io["loc.logits"]
    shown = legal[: len(given)]
    close(ours[: len(given)][shown], given[shown])
    ids, values = io["loc.top5_ids"], io["loc.top5_values"]
    known = legal.gather(-1, ids)
    assert known.any()
    close(ours.gather(-1, ids)[known], values[known])
    targets = io["loc.tokens"].unsqueeze(-1)
    known = legal.gather(-1, targets)
    close(ours.gather(-1, targets)[known], io["loc.target_logits"].unsqueeze(-1)[known])


def pad_to_vocabulary(logits: Tensor, level: int, config: Any) -> Tensor:
    """(N, n, C + 1) of one level -> (N, n, V), -inf where ours knows no such id."""
    whole = torch.full((*logits.shape[:2], config.speech_vocab_size), -torch.inf)
    start = level * config.codebook_size
    whole[..., start : start + config.codebook_size] = logits[..., :-1]
    whole[..., -1] = logits[..., -1]
    return whole


@pytest.mark.slow
def test_generated_tokens(
    name: str, run_name: str, record: dict[str, Any], tensors: dict[str, Tensor], models: dict[str, Mars6]
) -> None:
    """By our engine; where numbers are drawn, the published loop tells which of them each token takes."""
    run = next(run for run in record[name]["generation"] if run["name"] == run_name)
    if run["cfg_guidance"] != 1.0:
        pytest.skip("records classifier-free guidance, which is not used here")
    if run["ras_fallbacks"] and run["ras_fallback_from"] == "filtered":
        pytest.skip("records the published defect of redrawing from what was filtered in place")
    uniforms = None
    if run["uniforms"]:
        slowly = speak_slowly(models[name], run, of(name, tensors))
        assert slowly.tokens == run["tokens"]
        assert slowly.redrawn == run["ras_fallbacks"]
        assert slowly.drawn == run["n_draws"]
        uniforms = [slowly.uniforms]
    [generated] = speak(models[name], [run], of(name, tensors), uniforms)
    assert generated.tokens.tolist() == run["tokens"]
    assert generated.stop is {"eos": StopReason.EOS, "max_len": StopReason.MAX_PATCHES}[run["ended_by"]]


def speak(
    model: Mars6, runs: list[dict[str, Any]], io: dict[str, Tensor], uniforms: list[list[Uniforms]] | None = None
) -> list[Generated]:
    """Runs of equal settings of sampling, by our engine; greedy ones need no `uniforms`."""
    first = runs[0]
    return generate(
        TorchEngine(in_first_language(model, io)),
        [prompt_of(run, io) for run in runs],
        top_p=[run["top_p"] for run in runs],
        limits=[limits_of(run) for run in runs],
        rngs=[Replay(numbers) for numbers in uniforms or [[]] * len(runs)],  # type: ignore[misc]
        sampling=SamplingConfig(
            ras_window=first["K"], ras_max_ratio=first["t_r"] if first["ras_enabled"] else 1.0
        ),
    )  # fmt: skip


class Replay:
    """A stand-in for a random generator that hands out the numbers of one patch after another."""

    def __init__(self, uniforms: list[Uniforms]) -> None:
        self.uniforms = iter(uniforms)

    def random(self, shape: tuple[int, int]) -> Uniforms:
        patch = next(self.uniforms, np.full(shape, 0.5))
        assert patch.shape == shape
        return patch


@dataclass
class Spoken:
    """The published loop."""

    tokens: list[list[int]]
    redrawn: list[list[int]]
    """Pairs: the first pick, and the second."""
    drawn: int
    """Number of random numbers."""
    uniforms: list[Uniforms]
    """Random numbers in the order of this package, one (P, 2) per patch."""


@torch.inference_mode()
def speak_slowly(model: Mars6, run: dict[str, Any], io: dict[str, Tensor]) -> Spoken:
    """The published loop written out: every token runs everything again, random numbers are taken as needed."""
    config = model.config
    memory = memory_of(model, io)
    patches = [list(patch) for patch in run["prefix"] or []]
    numbers = iter(run["uniforms"])
    spoken = Spoken([], [], 0, [])

    def pick(logits: NDArray[np.float32], place: tuple[int, int]) -> int:
        spoken.uniforms[-1][place] = next(numbers)
        spoken.drawn += 1
        return int(draw(logits, spoken.uniforms[-1][place][None])[0])

    while len(spoken.tokens) < run["max_len"]:
        tokens: list[int] = []
        spoken.uniforms.append(np.full((config.patch_size, 2), 0.5))
        for position, level in enumerate(config.position_levels):
            logits = whole_pass(model, memory, patches, tokens)
            if (len(spoken.tokens) + 1) / 12 < run["lower_bound_dur"]:
                logits[:, -1] = -np.inf
            code = pick(keep_nucleus(logits, run["top_p"]), (position, 0))
            history = [patch[0] for patch in patches[-run["K"] :]]
            if (
                position == 0
                and run["ras_enabled"]
                and history
                and round(history.count(code) / len(history), 2) > run["t_r"]
            ):
                spoken.redrawn.append([code, pick(logits, (position, 1))])
                code = spoken.redrawn[-1][1]
            if code == config.codebook_size:
                return spoken
            tokens.append(code + level * config.codebook_size)
        patches.append(tokens)
        spoken.tokens.append(tokens)
    return spoken


def memory_of(model: Mars6, io: dict[str, Tensor]) -> Tensor:
    ids = io["enc.text_ids"]
    return model.encode(ids, torch.tensor([ids.shape[1]]), io["enc.speaker"], io["enc.clap"], io["enc.language"])[0]


def whole_pass(model: Mars6, memory: Tensor, patches: list[list[int]], tokens: list[int]) -> NDArray[np.float32]:
    """Logits (1, C + 1) of the token after `tokens` in the patch after `patches`, nothing remembered."""
    config, mask = model.config, torch.ones(memory.shape[:2], dtype=torch.bool)
    before = torch.tensor(patches, dtype=torch.long).reshape(1, -1, config.patch_size)
    vectors = model.global_decoder(model.global_decoder.embed(before), memory, mask).x[:, -1]
    padded = torch.tensor([tokens + [config.eos] * (config.patch_size - len(tokens))])
    by_level = model.local_decoder(vectors, padded)
    return torch.cat(list(by_level), dim=1)[:, len(tokens)].numpy()
