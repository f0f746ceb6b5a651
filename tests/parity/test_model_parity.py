"""The published model's numbers and tokens, from ours."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from marstts.engine.guided import GuidedEngine
from marstts.engine.torch import TorchEngine
from marstts.mars6.generate import Generated, Limits, SamplingConfig, StopReason, generate
from marstts.mars6.model import Mars6
from marstts.mars6.prompt import Prompt
from marstts.mars6.released import load_released

pytestmark = pytest.mark.parametrize("name", ["main", "wide"])

RECORDED_RUNS = (
    "greedy", "greedy_min_duration", "greedy_prefix", "greedy_max_len_3", "greedy_single_patch", "greedy_cfg",
    "sampled_no_ras", "sampled_ras_full", "sampled_ras_prefix_full", "greedy_ras_full",
)  # fmt: skip
"""All but `sampled_ras_filtered`, which records the published defect of redrawing from what was filtered in place."""


def of(name: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of one model, by their names without its prefix."""
    prefix = "" if name == "main" else f"{name}."
    return {key.removeprefix(prefix): tensor for key, tensor in tensors.items() if key.startswith(prefix)}


def close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-5)


def test_both_containers_hold_the_same_model(name: str, golden: Path, models: dict[str, Mars6]) -> None:
    if name == "wide":
        pytest.skip("published in one container only")
    other = load_released(golden / "checkpoint.safetensors").model
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
    nobody = model.encoder.slots.unknown_speaker(1)
    close(model.encode(ids, lengths, *nobody, io["enc.language"])[0], io["enc.memory_uncond"])


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
    outputs, _ = model.global_decoder(model.global_decoder.embed(io["batch.codes"]), memory, mask)
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


@pytest.mark.parametrize("run_name", RECORDED_RUNS)
def test_generated_tokens(
    name: str, run_name: str, record: dict[str, Any], tensors: dict[str, Tensor], models: dict[str, Mars6]
) -> None:
    run = next(run for run in record[name]["generation"] if run["name"] == run_name)
    [generated] = speak(models[name], [run], of(name, tensors))
    assert generated.tokens.tolist() == run["tokens"]
    assert generated.stop is {"eos": StopReason.EOS, "max_len": StopReason.MAX_PATCHES}[run["ended_by"]]


def test_generated_tokens_side_by_side(
    name: str, record: dict[str, Any], tensors: dict[str, Tensor], models: dict[str, Mars6]
) -> None:
    """Rows with and without prefix, of different lengths and limits, in one batch."""
    runs = [run for run in record[name]["generation"] if run["name"].startswith("greedy") and not run["ras_enabled"]]
    runs = [run for run in runs if run["cfg_guidance"] == 1.0]
    for run, generated in zip(runs, speak(models[name], runs, of(name, tensors)), strict=True):
        assert generated.tokens.tolist() == run["tokens"], run["name"]


def speak(model: Mars6, runs: list[dict[str, Any]], io: dict[str, Tensor]) -> list[Generated]:
    """Runs of equal settings of sampling and guidance, by our engine."""
    first = runs[0]
    return generate(
        engine_of(model, io, first["cfg_guidance"]),
        [
            Prompt(
                io["enc.text_ids"][0].numpy(), io["enc.speaker"][0].numpy(), io["enc.clap"][0].numpy(),
                np.array(run["prefix"] or [], dtype=np.int64).reshape(-1, 7),
            )
            for run in runs
        ],
        top_p=[run["top_p"] for run in runs],
        limits=[Limits(min(least_patches(run), run["max_len"]), run["max_len"]) for run in runs],
        rngs=[Replay(run, model.config.eos) for run in runs],  # type: ignore[misc]
        sampling=SamplingConfig(
            ras_window=first["K"], ras_max_ratio=first["t_r"] if first["ras_enabled"] else 1.0
        ),
    )  # fmt: skip


def engine_of(model: Mars6, io: dict[str, Tensor], guidance: float) -> Any:
    """Engines always speak the first language, as published; so the recorded one is put in its place."""
    model, language = copy.deepcopy(model), int(io["enc.language"])
    for table in (model.encoder.slots.language, model.encoder.slots.memory_language):
        table.weight.data[0] = table.weight.data[language]
    engine = TorchEngine(model)
    if guidance == 1.0:
        return engine
    slots = model.encoder.slots
    return GuidedEngine(engine, slots.unknown_identity.data.numpy(), slots.unknown_style.data.numpy(), guidance)


def least_patches(run: dict[str, Any]) -> int:
    """New patches that are complete when end of speech first becomes legal."""
    following = 1
    while following / 12 < run["lower_bound_dur"]:
        following += 1
    return following - 1


class Replay:
    """A stand-in for a random generator that hands out the recorded numbers in the places of ours.

    Published draws took numbers as they needed them; ours come in pairs for every position, the second for a redraw.
    """

    def __init__(self, run: dict[str, Any], eos: int) -> None:
        self.patches = iter(arrange(run, eos))

    def random(self, shape: tuple[int, int]) -> NDArray[np.float64]:
        patch = next(self.patches)
        assert patch.shape == shape
        return patch


def arrange(run: dict[str, Any], eos: int) -> list[NDArray[np.float64]]:
    """The uniforms of every patch, (7, 2), from what the run is known to have drawn."""
    unfinished = [] if run["eos_slot"] is None else [[-1] * run["eos_slot"] + [eos]]
    patches = [*run["tokens"], *unfinished]
    if run["uniforms"] is None:
        return [np.full((7, 2), 0.5) for _ in patches]
    heard = [patch[0] for patch in run["prefix"] or []]
    redrawn = list(run["ras_fallbacks"])
    numbers = iter(run["uniforms"])
    arranged = []
    for patch in patches:
        uniforms = np.full((7, 2), 0.5)
        for slot in range(len(patch)):
            uniforms[slot, 0] = next(numbers)
            if slot == 0 and redrawn and is_redrawn(redrawn[0], patch[0], heard, run):
                uniforms[slot, 1] = next(numbers)
                redrawn.pop(0)
        heard.append(patch[0])
        arranged.append(uniforms)
    assert not redrawn and not list(numbers), "every recorded number has its place"
    return arranged


def is_redrawn(pair: list[int], token: int, heard: list[int], run: dict[str, Any]) -> bool:
    """Whether a fallback (candidate, redrawn) explains this token; the first of an unfinished patch is not known."""
    recent = heard[-run["K"] :]
    crowded = bool(recent) and round(recent.count(pair[0]) / len(recent), 2) > run["t_r"]
    return run["ras_enabled"] and crowded and token in (pair[1], -1)
