"""The examination of releases whose files, tensors and sizes have the published names and shapes; weights are random.

Names and shapes are written out in the tests, from the description of the released code, not taken from the package.
"""

from __future__ import annotations

import itertools
import math
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mars5_published import Shapes, ar_shapes, attention, nar_shapes, weights_and_biases
from marstts.codec.registry import ToyCodecPart
from marstts.evaluation.published_weights import RECORDED, Release, examine
from marstts.speaker.registry import EncoderPart, ToyEncoderPart

pytestmark = pytest.mark.slow  # converts models


def mars6_shapes() -> Shapes:
    """313 tensors."""
    width, ids, part = 512, 3 * 4096 + 1, 146  # part: of the seventh of an embedded patch
    shapes: Shapes = {
        "inp_emb.weight": (512, width), "encoder_pos_emb.alpha": (1,), "lang_embed.weight": (1, width),
        "lang_cross_embed.weight": (1, width), "spk_emb_mask.weight": (1, 512), "clap_emb_mask.weight": (1, 1024),
        "bos_embed.weight": (1, width), "dec_proj.emb.weight": (ids, part), "dec_proj.pos_emb.alpha": (1,),
        "dec_proj.out_lin.weight": (width, 7 * part), "fast_inp_emb.weight": (ids, width),
        "fast_pos_emb.weight": (7, width), "out_proj.weight": (ids, width),
        **weights_and_biases("spk_emb_joiner", width, 2 * width), **weights_and_biases("slow2fast_proj", width, width),
    }  # fmt: skip
    for name, size in (("spk_emb_proj", 512), ("clap_emb_proj", 1024)):
        shapes |= weights_and_biases(f"{name}.0", width // 2, size)
        shapes |= {f"{name}.1.{gate}.weight": (width, width // 2) for gate in "VW"}
    for stack, layers in (("encoder", 8), ("decoder", 8), ("fastencoder", 4)):
        for layer in (f"{stack}.layers.{index}" for index in range(layers)):
            attentions = ("self_attn", "multihead_attn") if stack == "decoder" else ("self_attn",)
            for name in attentions:
                shapes |= attention(f"{layer}.{name}", width)
            for number in range(1, len(attentions) + 2):
                shapes |= weights_and_biases(f"{layer}.norm{number}", width)
            shapes |= weights_and_biases(f"{layer}.linear1", 2 * width, width)
            shapes |= weights_and_biases(f"{layer}.linear2", width, 2 * width)
    return shapes


def randomly(shapes: Shapes) -> dict[str, Tensor]:
    """Random numbers of half precision in these shapes: different places of one block, which is quickly made."""
    block = torch.empty(2**20).normal_(0, 0.02, generator=torch.Generator().manual_seed(0)).half()
    tensors = {}
    for index, (name, shape) in enumerate(shapes.items()):
        size = math.prod(shape)
        turned = block.roll(1009 * index)
        tensors[name] = turned.repeat(-(-size // len(block)))[:size].reshape(shape).clone()
    return tensors


def minbpe(ids: int, units: range, first: int, special: str) -> str:
    """A tokenizer of `ids` ids in minbpe's format: pairs of `units` from the id `first` on, then special tokens."""
    names = special.split()
    pairs = itertools.product(units, units)
    lines = ["minbpe v1", "unused", str(len(names))]
    lines += [f"{name} {ids - len(names) + index}" for index, name in enumerate(names)]
    lines += [f"{one} {other}" for one, other in itertools.islice(pairs, ids - len(names) - first)]
    return "\n".join(lines) + "\n"


TEXT_TOKENS = "<|startoftext|> <|endoftext|>"

ENCODERS: dict[str, Path | EncoderPart] = {"identity": ToyEncoderPart(size=512), "style": ToyEncoderPart(size=1024)}


@pytest.fixture(scope="module")
def tensors() -> dict[str, Tensor]:
    """The tensors of `mars6-turbo`; the end of speech is far more probable than all else."""
    made = {f"module.{name}": tensor for name, tensor in randomly(mars6_shapes()).items()}
    made["module.fast_pos_emb.weight"][0, 0] = made["module.out_proj.weight"][-1, 0] = 100
    return made


@pytest.fixture
def mars6(tmp_path: Path) -> Release:
    """`mars6-turbo` without its checkpoint."""
    files = {"checkpoint": tmp_path / "model-2000100.pt", "tokenizer": tmp_path / "eng-tok-512.model"}
    files["tokenizer"].write_text(minbpe(512, range(97, 123), 256, TEXT_TOKENS))
    return Release("mars6-turbo", files, ToyCodecPart(), ENCODERS)


def save(tensors: dict[str, Tensor], release: Release, cfg: Any = None) -> None:
    """Write the checkpoint."""
    sizes = {"dim": 512, "n_layers": 8, "fast_n_layers": 4, "languages": ["en-us"]}
    torch.save({"model": tensors, "cfg": cfg or sizes}, release.files["checkpoint"])


def differences(release: Release, work: Path) -> dict[str, str]:
    """What differs from the recorded facts of the published model, without speech."""
    found = examine(release, work, recorded=replace(RECORDED[release.model], profiles={}))
    return {check.subject: check.found for check in found.differences}


@pytest.fixture(autouse=True)
def unaligned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Word times, which take seconds to find, are no part of an examination."""
    monkeypatch.setattr("marstts.mars6.released.find_alignment", lambda model, tokenizer: None)


def test_the_tables_have_the_published_numbers_of_tensors_and_parameters() -> None:
    tables = mars6_shapes(), ar_shapes(), nar_shapes()
    assert [len(table) for table in tables] == [313, 273, 487]
    sizes = [sum(map(math.prod, table.values())) for table in tables]
    assert sizes[0] == 67_344_532
    assert (sizes[1] - 2 * 8000 * 1536) / 1e6 == pytest.approx(737.8, abs=0.05)
    assert (sizes[2] - 2200 * 1024) / 1e6 == pytest.approx(450.2, abs=0.05)


def without(part: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if part not in name}


def test_tensors_that_are_missing_unexpected_or_of_another_shape_are_found(
    tensors: dict[str, Tensor], mars6: Release, tmp_path: Path
) -> None:
    planted = without("decoder.layers.7.norm3.bias", tensors)
    save(planted | {"module.norm.bias": torch.zeros(512), "module.fast_pos_emb.weight": torch.zeros(8, 512)}, mars6)
    found = differences(mars6, tmp_path)
    for words in (
        "decoder.layers.7.norm3.bias is missing", "norm.bias is not expected", "(8, 512) instead of (7, 512)",
    ):  # fmt: skip
        assert words in found["model: reading"]
    assert found.keys() == {"model: reading"}


def test_a_weight_that_is_no_number_is_found(tensors: dict[str, Tensor], mars6: Release, tmp_path: Path) -> None:
    output = tensors["module.out_proj.weight"].clone()
    output[12_000, 511] = torch.nan
    save(tensors | {"module.out_proj.weight": output}, mars6)
    found = differences(mars6, tmp_path)
    assert found.keys() == {"model: reading"} and "not finite" in found["model: reading"]


def test_a_file_that_was_cut_is_found(tensors: dict[str, Tensor], mars6: Release, tmp_path: Path) -> None:
    save(tensors, mars6)
    with mars6.files["checkpoint"].open("r+b") as file:
        file.truncate(100_000_000)
    found = differences(mars6, tmp_path)
    assert found.keys() == {"checkpoint: reading", "model: reading"} and "corrupt" in found["checkpoint: reading"]


def test_differences_with_which_the_model_is_read_are_all_found(
    tensors: dict[str, Tensor], mars6: Release, tmp_path: Path
) -> None:
    """Nine at once: three stacks with fewer layers, another class, more rows of text, two special tokens, two parts."""
    planted = tensors
    for layer in ("module.encoder.layers.7.", "module.decoder.layers.7.", "module.fastencoder.layers.3."):
        planted = without(layer, planted)
    rows = planted["module.inp_emb.weight"]
    save(planted | {"module.inp_emb.weight": torch.cat((rows, rows[:7]))}, mars6, Namespace(dim=512))
    tokenizer = mars6.files["tokenizer"]
    text = tokenizer.read_text().replace("<|startoftext|> 510", "<|startoftext|> 256")
    tokenizer.write_text(text.replace("<|endoftext|>", "<|end|>"))
    parts = {**ENCODERS, "style": ToyEncoderPart(size=512)}
    release = replace(mars6, codec=ToyCodecPart(hop_lengths=(1024, 512, 256)), encoders=parts)
    assert differences(release, tmp_path) == {
        "model: encoder_layers": "7",
        "model: global_layers": "7",
        "model: local_layers": "3",
        "checkpoint: classes other than tensors and plain data": "argparse.Namespace",
        "tokenizer: entries": "511",
        "tokenizer: missing special tokens": "<|endoftext|>",
        "tokenizer: special tokens with the id of a byte or merge": "<|startoftext|>",
        "codec: hop_lengths": "(1024, 512, 256)",
        "style encoder: length": "512",
    }


def test_a_release_of_mars6_as_recorded_has_no_difference(
    tensors: dict[str, Tensor], mars6: Release, tmp_path: Path
) -> None:
    save(tensors, mars6)
    assert differences(mars6, tmp_path) == {}
