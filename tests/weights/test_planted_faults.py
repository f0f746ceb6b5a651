"""Faults planted in releases of true names and depths: each is named in a line, and the sound releases have none."""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from mars5_published import ar_shapes, nar_shapes
from marstts.doctor import examine_model
from marstts.weights.examination import Kind
from published_fakes import English, Turbo, mars6_shapes, randomly

pytestmark = pytest.mark.slow

Fault = tuple[Callable[[Turbo], object], Kind, str]


def rename(turbo: Turbo, old: str, new: str) -> None:
    turbo.tensors = {name.replace(old, new): tensor for name, tensor in turbo.tensors.items()}


def drop(turbo: Turbo, *parts: str) -> None:
    turbo.tensors = {name: one for name, one in turbo.tensors.items() if not any(part in name for part in parts)}


def scale(turbo: Turbo, name: str, factor: float) -> None:
    turbo.tensors[name] = (turbo.tensors[name].float() * factor).half()


def put(turbo: Turbo, name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    turbo.tensors[name] = change(turbo.tensors[name].clone())


def at(index: int, value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def change(tensor: torch.Tensor) -> torch.Tensor:
        tensor.view(-1)[index] = value
        return tensor

    return change


def copy_layer(turbo: Turbo, source: str, target: str) -> None:
    turbo.tensors |= {
        name.replace(source, target): one.clone() for name, one in turbo.tensors.items() if name.startswith(source)
    }


def cut(size: float) -> Callable[[Path, Path], None]:
    def change(first: Path, second: Path) -> None:
        whole = first.read_bytes()
        first.write_bytes(whole[: int(len(whole) * size)] if size < 1 else whole[: -int(size)])

    return change


def flip(first: Path, second: Path) -> None:
    content = bytearray(first.read_bytes())
    place = content.find(Turbo().tensors["out_proj.weight"].numpy().tobytes()[:64])
    content[place + 1000] ^= 1
    first.write_bytes(content)


def exchange(first: Path, second: Path) -> None:
    kept = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(kept)


def as_text(first: Path, second: Path) -> None:
    second.write_text("{}")


def scale_all(turbo: Turbo, part: str, factor: float) -> None:
    for name in [name for name in turbo.tensors if name.startswith(part)]:
        scale(turbo, name, factor)


def set_of(name: str, value: object) -> Callable[[Turbo], object]:
    return lambda turbo: setattr(turbo, name, value)


TURBO: dict[str, Fault] = {
    "a renamed tensor": (
        lambda t: rename(t, "slow2fast_proj.weight", "slow_to_fast.weight"), Kind.DEFECT,
        "slow2fast_proj.weight: expected a tensor of shape (16, 16), found none (but slow_to_fast.weight",
    ),
    "a transposed matrix": (
        lambda t: put(t, "decoder.layers.3.linear1.weight", lambda one: one.t().contiguous()), Kind.DEFECT,
        "decoder.layers.3.linear1.weight: expected shape (32, 16), found (16, 32) (it is transposed)",
    ),
    "a tensor that is missing": (
        lambda t: drop(t, "encoder.layers.2.norm1.bias"), Kind.DEFECT,
        "layers.2.norm1.bias: expected a tensor of shape",
    ),
    "a tensor more": (
        lambda t: t.tensors.update({"encoder.norm.weight": torch.ones(16).half()}), Kind.DEFECT,
        "encoder.norm.weight: expected no such tensor",
    ),
    "a layer in the middle missing": (
        lambda t: drop(t, "fastencoder.layers.1."), Kind.DEFECT,
        "fastencoder.layers.1: expected 12 tensors, found none",
    ),
    "a layer more": (
        lambda t: (copy_layer(t, "encoder.layers.7.", "encoder.layers.8."), scale_all(t, "encoder.layers.8.", 1.5)),
        Kind.DEFECT,
        "encoder.layers.8: expected no such layer, found 12 tensors",
    ),
    "the last layer of one stack missing": (
        lambda t: drop(t, "decoder.layers.7."), Kind.DEFECT,
        "as many layers of the encoder as of the decoder, found 8 and 7",
    ),
    "the last layer of all stacks missing, without a configuration": (
        lambda t: (drop(t, "encoder.layers.7.", "decoder.layers.7.", "fastencoder.layers.3."), set_of("cfg", None)(t)),
        Kind.DIFFERENCE, "local_layers: expected 4, found 3",
    ),
    "the same, with a configuration": (
        lambda t: drop(t, "encoder.layers.7.", "decoder.layers.7.", "fastencoder.layers.3."), Kind.DEFECT,
        "cfg: n_layers: expected 7, as the tensors have, found 8",
    ),
    "a missing tensor that has a size": (
        lambda t: drop(t, "spk_emb_proj.0.weight"), Kind.DEFECT, "it lacks spk_emb_proj.0.weight",
    ),
    "other widths": (
        lambda t: setattr(t, "tensors", {n: torch.cat((o, o[:12])) if n == "inp_emb.weight" else o
                                         for n, o in t.tensors.items()}), Kind.DEFECT, "expected 524 entries",
    ),
    "NaN": (
        lambda t: put(t, "out_proj.weight", at(5, math.nan)), Kind.DEFECT,
        "out_proj.weight: expected finite numbers, found 1 of 1552 that are not",
    ),
    "infinity in a bias": (
        lambda t: put(t, "encoder.layers.4.linear2.bias", at(0, math.inf)), Kind.DEFECT,
        "encoder.layers.4.linear2.bias: expected finite numbers",
    ),
    "integers": (
        lambda t: put(t, "fast_inp_emb.weight", lambda one: one.to(torch.int8)), Kind.DEFECT,
        "fast_inp_emb.weight: expected real numbers, found int8",
    ),
    "one tensor in another format": (
        lambda t: put(t, "spk_emb_joiner.weight", torch.Tensor.float),
        Kind.DIFFERENCE, "spk_emb_joiner.weight: expected float16, found float32",
    ),
    "double precision": (
        lambda t: setattr(t, "tensors", {name: one.double() for name, one in t.tensors.items()}), Kind.DIFFERENCE,
        "expected float16 or float32 or bfloat16, found float64",
    ),
    "a matrix of zeros": (
        lambda t: put(t, "clap_emb_proj.1.W.weight", torch.zeros_like), Kind.DEFECT,
        "clap_emb_proj.1.W.weight: expected trained numbers, found 0 everywhere",
    ),
    "all zeros": (
        lambda t: setattr(t, "tensors", {name: torch.zeros_like(one) for name, one in t.tensors.items()}), Kind.DEFECT,
        "inp_emb.weight: expected trained numbers, found 0 everywhere",
    ),
    "a norm as it was initialized": (
        lambda t: put(t, "decoder.layers.5.norm2.weight", torch.ones_like), Kind.DEFECT,
        "decoder.layers.5.norm2.weight: expected trained numbers, found 1 everywhere",
    ),
    "a bias of zeros": (
        lambda t: put(t, "slow2fast_proj.bias", torch.zeros_like), Kind.DEFECT,
        "slow2fast_proj.bias: expected trained numbers, found 0 everywhere",
    ),
    "positions without a scale": (
        lambda t: put(t, "encoder_pos_emb.alpha", torch.zeros_like), Kind.DEFECT, "encoder_pos_emb.alpha: expected",
    ),
    "a layer's matrix times 3000": (
        lambda t: scale(t, "encoder.layers.6.self_attn.in_proj_weight", 3000), Kind.DEFECT,
        "encoder.layers.6.self_attn.in_proj_weight: expected numbers of about 0.02, as in 19 like it",
    ),
    "a layer's matrix over 1000": (
        lambda t: scale(t, "encoder.layers.0.linear1.weight", 0.001), Kind.DEFECT,
        "encoder.layers.0.linear1.weight: expected numbers of about",
    ),
    "a single matrix times 3000": (
        lambda t: scale(t, "slow2fast_proj.weight", 3000), Kind.DEFECT, "slow2fast_proj.weight: expected numbers of",
    ),
    "a norm times 1000": (
        lambda t: scale(t, "decoder.layers.1.norm3.weight", 1000), Kind.DEFECT,
        "decoder.layers.1.norm3.weight: expected",
    ),
    "a layer copied over another": (
        lambda t: copy_layer(t, "encoder.layers.1.", "encoder.layers.2."), Kind.DIFFERENCE,
        "layers.2.norm1.bias: expected numbers of its own, found those of encoder.layers.1.norm1.bias",
    ),
    "rows of zeros": (
        lambda t: put(t, "out_proj.weight", lambda one: torch.cat((one[:10], one[10:50] * 0, one[50:]))), Kind.DOUBT,
        "out_proj.weight: expected trained numbers in each row, found 40 of 97 rows of zeros, the first of them row 10",
    ),
    "a file cut in half": (set_of("after", cut(0.5)), Kind.DEFECT, "cut short: its end is missing"),
    "a file cut by 100 bytes": (set_of("after", cut(100)), Kind.DEFECT, "cut short: its end is missing"),
    "one flipped bit": (set_of("after", flip), Kind.DEFECT, "expected its stored checksum, found Bad CRC-32"),
    "exchanged files": (
        set_of("after", exchange), Kind.DEFECT,
        "model-2000100.pt: expected a whole PyTorch checkpoint",
    ),
    "a configuration of another width": (
        lambda t: t.cfg.update(dim=768), Kind.DEFECT, "cfg: dim: expected 16, as the tensors have, found 768",
    ),
    "a configuration of more languages": (
        lambda t: t.cfg.update(languages=["en-us", "fr", "de"]), Kind.DEFECT, "cfg: languages: expected 1",
    ),
    "a configuration without a key": (
        lambda t: t.cfg.pop("fast_n_layers"), Kind.DOUBT, "cfg: expected the key fast_n_layers, found none",
    ),
    "no configuration": (set_of("cfg", None), Kind.DOUBT, "cfg: expected a configuration, found none"),
    "a configuration of a class": (
        set_of("cfg", Namespace(dim=16)), Kind.DOUBT,
        "found an object of the class",
    ),
    "no merges": (set_of("merges", 0), Kind.DEFECT, "254 ids that stand for nothing, the first of them 256"),
    "a merge short": (set_of("merges", 253), Kind.DEFECT, "1 ids that stand for nothing, the first of them 509"),
    "a vocabulary that is too small": (
        lambda t: (set_of("merges", 100)(t), set_of("special", {"<|startoftext|>": 356, "<|endoftext|>": 357})(t)),
        Kind.DEFECT, "expected 512 entries, one for each row of the model, found 358",
    ),
    "a special token missing": (
        lambda t: (t.special.pop("<|startoftext|>"), t.special.update({"<|start|>": 510})), Kind.DEFECT,
        "expected the special token <|startoftext|>, found none",
    ),
    "exchanged special tokens": (
        set_of("special", {"<|startoftext|>": 511, "<|endoftext|>": 510}), Kind.DOUBT, "they may be exchanged",
    ),
    "a special token in place of a merge": (
        lambda t: t.special.update({"<|startoftext|>": 300}), Kind.DOUBT,
        "<|startoftext|>: expected an id of 510 or more, found id 300, which is that of a merge",
    ),
    "another file for the tokenizer": (set_of("after", as_text), Kind.DEFECT, "eng-tok-512.model: expected a readable"),
}  # fmt: skip


@pytest.mark.parametrize("name", TURBO)
def test_each_fault_of_a_mars6_is_named(name: str, tmp_path: Path) -> None:
    plant, kind, words = TURBO[name]
    turbo = Turbo()
    plant(turbo)
    found = turbo.examined(tmp_path)
    assert [finding for finding in found if words in str(finding) and finding.kind is kind], [*map(str, found)]


@pytest.mark.parametrize("is_new", [False, True])
def test_a_sound_mars6_has_no_fault(is_new: bool, tmp_path: Path) -> None:
    """With norms and biases as PyTorch initializes them, too."""
    turbo = Turbo()
    if is_new:
        for name, tensor in turbo.tensors.items():
            if "norm" in name or name.endswith(("in_proj_bias", "out_proj.bias")):
                turbo.tensors[name] = torch.ones_like(tensor) * (name.endswith("weight"))
    assert [*map(str, turbo.examined(tmp_path))] == []


English5 = tuple[Callable[[English], object], Kind, str]

ENGLISH: dict[str, English5] = {
    "exchanged files": (
        lambda e: setattr(e, "after", exchange), Kind.DEFECT,
        "mars5_ar.safetensors: expected the AR's tensors, found the NAR's; exchange the two files",
    ),
    "another tokenizer in the NAR": (
        lambda e: e.nar_vocab.update({"texttok.model": e.ar_vocab["texttok.model"].replace("104 101", "104 105")}),
        Kind.DEFECT, "mars5_nar.safetensors: texttok.model: expected the tokenizer that the AR has, found another one",
    ),
    "no tokenizer in the NAR": (lambda e: e.nar_vocab.clear(), Kind.DOUBT, "texttok.model: expected the tokenizer"),
    "no tokenizer in the AR": (
        lambda e: e.ar_vocab.pop("speechtok.model"), Kind.DEFECT, "speechtok.model: expected a tokenizer, found none",
    ),
    "a speech merge short": (
        lambda e: e.ar_vocab.update({"speechtok.model": e.ar_vocab["speechtok.model"].replace("1024 275\n", "")}),
        Kind.DEFECT, "speechtok.model: expected 1027 entries, found 1 ids that stand for nothing",
    ),
    "no end of speech": (
        lambda e: e.ar_vocab.update({"speechtok.model": e.ar_vocab["speechtok.model"].replace("endof", "end_of_")}),
        Kind.DEFECT, "expected the special token <|endofspeech|>, found none",
    ),
    "a text merge more": (
        lambda e: e.ar_vocab.update({"texttok.model": e.ar_vocab["texttok.model"].replace("258", "260").replace(
            "259", "261") + "101 32\n32 32\n"}), Kind.DEFECT,
        "expected 1287 ids, the rows of embed.weight, found 262 of text and 1027 of speech",
    ),
    "rows of text that are not the tokenizer's": (
        lambda e: e.nar.update({"text_embed.weight": e.nar["text_embed.weight"][:-1].clone()}), Kind.DIFFERENCE,
        "text_embed.weight: expected 261 rows, one more than the text tokenizer has ids, found 260",
    ),
    "a layer fewer in the AR": (
        lambda e: [e.ar.pop(name) for name in [*e.ar] if "ar.layers.25." in name], Kind.DIFFERENCE,
        "mars5_ar.safetensors: layers: expected 26, found 25",
    ),
    "a layer in the middle of the NAR missing": (
        lambda e: [e.nar.pop(name) for name in [*e.nar] if "tfm.decoder.layers.9." in name], Kind.DEFECT,
        "tfm.decoder.layers.9: expected 18 tensors, found none",
    ),
    "a renamed head": (
        lambda e: e.nar.update({"residual_head.3.1.bias": e.nar.pop("residual_decoder.3.1.bias")}), Kind.DEFECT,
        "residual_decoder.3.1.bias: expected a tensor of shape (1025,), found none (but residual_head.3.1.bias",
    ),
    "a transposed output of the attention": (
        lambda e: e.ar.update({"ar.layers.4.attention.wo.weight": e.ar["ar.layers.4.attention.wo.weight"].t().clone()}),
        Kind.DEFECT, "ar.layers.4.attention.wo.weight: expected shape (16, 64), found (64, 16) (it is transposed)",
    ),
    "single precision": (
        lambda e: setattr(e, "ar", {name: one.float() for name, one in e.ar.items()}), Kind.DIFFERENCE,
        "mars5_ar.safetensors: expected float16, found float32",
    ),
    "NaN in the NAR": (
        lambda e: e.nar["timestep_encoder_emb.2.weight"].view(-1)[3].fill_(math.nan), Kind.DEFECT,
        "timestep_encoder_emb.2.weight: expected finite numbers",
    ),
    "a gate times 3000": (
        lambda e: e.ar["ar.layers.7.feed_forward.w1.weight"].mul_(3000),
        Kind.DEFECT, "ar.layers.7.feed_forward.w1.weight: expected numbers of about 0.02",
    ),
    "codes of another level": (
        lambda e: e.nar.update({"residual_encoder.embs.5.weight": e.nar["residual_encoder.embs.4.weight"].clone()}),
        Kind.DIFFERENCE, "residual_encoder.embs.5.weight: expected numbers of its own",
    ),
    "a safetensors file cut short": (
        lambda e: setattr(e, "after", cut(100)), Kind.DEFECT, "mars5_ar.safetensors: expected",
    ),
    "a header that was cut": (lambda e: setattr(e, "after", cut(0.001)), Kind.DEFECT, "too few for its header"),
    "a cut archive": (
        lambda e: (setattr(e, "after", cut(0.7)), setattr(e, "suffix", ".pt")), Kind.DEFECT,
        "cut short: its end is missing",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ENGLISH)
def test_each_fault_of_a_mars5_is_named(name: str, tmp_path: Path) -> None:
    plant, kind, words = ENGLISH[name]
    english = English()
    plant(english)
    found = english.examined(tmp_path)
    assert [finding for finding in found if words in str(finding) and finding.kind is kind], [*map(str, found)]


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_a_sound_mars5_has_no_fault(suffix: str, tmp_path: Path) -> None:
    assert [*map(str, English(suffix=suffix).examined(tmp_path))] == []


def test_the_fakes_have_the_published_numbers_of_tensors_and_parameters() -> None:
    tables = mars6_shapes(), ar_shapes(), nar_shapes()
    assert [len(table) for table in tables] == [313, 273, 487] == [
        len(Turbo().tensors), len(English().ar), len(English().nar)
    ]  # fmt: skip
    sizes = [sum(map(math.prod, table.values())) for table in tables]
    assert sizes[0] == 67_344_532
    assert (sizes[1] - 2 * 8000 * 1536) / 1e6 == pytest.approx(737.8, abs=0.05)
    assert (sizes[2] - 2200 * 1024) / 1e6 == pytest.approx(450.2, abs=0.05)


def test_numbers_that_would_cost_much_are_only_named(tmp_path: Path) -> None:
    """A layer and a special token of enormous numbers: neither is built nor counted up to."""
    turbo = Turbo()
    turbo.special["<|endoftext|>"] = 10**15
    turbo.tensors["encoder.layers.99999999.norm1.bias"] = turbo.tensors["encoder.layers.0.norm1.bias"] * 2
    found = [*map(str, turbo.examined(tmp_path))]
    assert any("expected ids up to" in line and "1000000000000000" in line for line in found)
    assert any("encoder.layers.99999999: expected no such layer, found 1 tensors" in line for line in found)


def test_nothing_in_a_file_is_run(tmp_path: Path) -> None:
    class Harmful:
        def __reduce__(self) -> object:
            return Path.touch, (tmp_path / "witness",)

    turbo = Turbo(cfg=Harmful())
    turbo.tensors["out_proj.weight"] = Harmful()  # type: ignore[assignment]
    assert any("out_proj.weight: expected a tensor" in str(finding) for finding in turbo.examined(tmp_path))
    assert not (tmp_path / "witness").exists()


@pytest.mark.end_to_end
def test_a_mars6_of_the_published_sizes_is_examined_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """67 million random numbers in the released shapes: sound, recorded, and then with an exchanged layer."""
    monkeypatch.setenv("MARSTTS_CACHE", str(tmp_path / "cache"))
    turbo = Turbo(tensors=randomly(mars6_shapes()))
    turbo.cfg["dim"] = 512
    files = turbo.write(tmp_path)
    assert examine_model("mars6-turbo", files, record=True, speaks=False).findings == []
    layers = ("decoder.layers.2.", "decoder.layers.3.")
    for old, new in ((layers[0], "kept."), (layers[1], layers[0]), ("kept.", layers[1])):
        rename(turbo, old, new)
    found = [*map(str, examine_model("mars6-turbo", turbo.write(tmp_path), speaks=False).findings)]
    assert any("decoder.layers.2.linear1.bias: expected the numbers that were recorded" in line for line in found)
