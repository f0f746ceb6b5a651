"""`marstts doctor`: trained weights that are not where they belong, records, and what a recipe needs."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from typer.testing import CliRunner, Result

from marstts import doctor, models
from marstts.bundle import TOKENIZER_FILE, find_bundle
from marstts.cli.main import app
from marstts.codec.registry import ToyCodecPart
from marstts.doctor import EXTRAS, Parts, examine_model
from marstts.errors import CheckpointError
from marstts.mars5 import published as published5
from marstts.mars6 import published as published6
from marstts.mars6.likelihood import log_likelihoods, make_sequence
from marstts.mars6.model import Mars6
from marstts.speaker.registry import ToyEncoderPart
from marstts.text.tokenizers.bpe import BPE
from marstts.weights.examination import Kind
from marstts.weights.release_record import ReleaseRecord, likelihood_findings, ranges, record_path
from published_fakes import CODES, IDENTITY, RECORDED5, RECORDED6, STYLE, English, Turbo

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is recorded of the releases is that of small widths, and the cache is empty."""
    monkeypatch.setattr(published6, "RECORDED", RECORDED6)
    monkeypatch.setattr(published6, "CODEC", replace(published6.CODEC, codebook_size=CODES))
    monkeypatch.setattr(published6, "ENCODER_SIZES", {"identity": IDENTITY, "style": STYLE})
    monkeypatch.setattr(published5, "RECORDED", RECORDED5)
    monkeypatch.setenv("MARSTTS_CACHE", str(tmp_path / "cache"))


# Trained weights: mini's.


@pytest.fixture(scope="module")
def mini() -> tuple[Mars6, BPE]:
    return models.load_for_training("mini"), BPE.load(find_bundle("mini") / TOKENIZER_FILE)


@pytest.fixture(scope="module")
def mini_record(mini: tuple[Mars6, BPE]) -> ReleaseRecord:
    sequence = make_sequence(*mini)
    values = ranges(log_likelihoods(*mini, sequence))
    return ReleaseRecord(model="mini", tensors={}, sequence=sequence, log_likelihoods=values)


def exchange(tensors: dict[str, Tensor], first: str, second: str) -> None:
    for name in [name for name in tensors if name.startswith(first)]:
        other = second + name[len(first) :]
        tensors[name], tensors[other] = tensors[other], tensors[name]


def turn(tensors: dict[str, Tensor], name: str) -> None:
    tensors[name] = tensors[name].t().contiguous()


def clear(tensors: dict[str, Tensor], name: str) -> None:
    tensors[name] = torch.zeros_like(tensors[name])


FIRST = "global_decoder.layers.0."

MISPLACED: dict[str, Callable[[dict[str, Tensor]], None]] = {
    "two layers of the encoder exchanged": lambda t: exchange(t, "encoder.layers.1.", "encoder.layers.2."),
    "two layers of the global decoder exchanged": lambda t: exchange(t, FIRST, "global_decoder.layers.1."),
    "both layers of the local decoder exchanged": lambda t: exchange(
        t, "local_decoder.layers.0.", "local_decoder.layers.1."
    ),
    "a square matrix between the decoders transposed": lambda t: turn(t, "local_decoder.input.weight"),
    "queries transposed": lambda t: turn(t, "encoder.layers.0.attention.query.weight"),
    "the output of an attention transposed": lambda t: turn(t, "local_decoder.layers.1.attention.output.weight"),
    "queries and output exchanged": lambda t: exchange(t, f"{FIRST}attention.query", f"{FIRST}attention.output"),
    "self-attention and cross-attention exchanged": lambda t: exchange(
        t, f"{FIRST}attention.query", f"{FIRST}cross_attention.query"
    ),
    "norms exchanged": lambda t: exchange(t, f"{FIRST}attention_norm.", f"{FIRST}feed_forward_norm."),
    "gate and value exchanged": lambda t: exchange(
        t, "encoder.slots.style.gate.weight", "encoder.slots.style.value.weight"
    ),
    "a norm's bias of zeros": lambda t: clear(t, "encoder.layers.3.attention_norm.bias"),
    "weights of zeros": lambda t: clear(t, "local_decoder.output.weight"),
    "a matrix twice as large": lambda t: t.update(
        {
            "global_decoder.layers.4.feed_forward.output.weight": t[
                "global_decoder.layers.4.feed_forward.output.weight"
            ]
            * 2
        }
    ),
}


def likelihood_lines(model: Mars6, tokenizer: BPE, record: ReleaseRecord, tensors: dict[str, Tensor]) -> list[str]:
    kept = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    try:
        model.load_state_dict(tensors)
        values = log_likelihoods(model, tokenizer, record.sequence)
    finally:
        model.load_state_dict(kept)
    return [str(finding) for finding in likelihood_findings("mini", values, record)]


@pytest.mark.parametrize("name", MISPLACED)
def test_trained_weights_that_are_misplaced_are_found_by_their_likelihood(
    name: str, mini: tuple[Mars6, BPE], mini_record: ReleaseRecord
) -> None:
    tensors = {key: tensor.clone() for key, tensor in mini[0].state_dict().items()}
    MISPLACED[name](tensors)
    lines = likelihood_lines(*mini, mini_record, tensors)
    assert lines and "log-likelihood, level" in lines[0] and "fetch the files again" in lines[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.half, torch.bfloat16], ids=str)
def test_sound_weights_in_any_precision_have_the_recorded_likelihood(
    dtype: torch.dtype, mini: tuple[Mars6, BPE], mini_record: ReleaseRecord
) -> None:
    tensors = {key: tensor.to(dtype).float() for key, tensor in mini[0].state_dict().items()}
    assert likelihood_lines(*mini, mini_record, tensors) == []


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["doctor", *map(str, arguments)])


def test_a_bundle_is_compared_with_its_record_by_the_command(tmp_path: Path, toy_bundle: Path) -> None:
    bundle = shutil.copytree(toy_bundle, tmp_path / "toy")
    first = run(bundle, "--no-speech")
    assert first.exit_code == 0, first.output
    assert "not compared, for none is recorded (--record)" in first.stdout
    assert run(bundle, "--record", "--no-speech").exit_code == 0 and record_path("toy").is_file()
    again = run(bundle, "--no-speech")
    assert again.exit_code == 0 and "compared with the record" in again.stdout, again.output
    path = bundle / "mars6" / "mars6.safetensors"
    tensors = load_file(path)
    turn(tensors, "local_decoder.input.weight")
    save_file(tensors, path)
    damaged = run(bundle, "--no-speech")
    assert damaged.exit_code == 2 and damaged.stderr.splitlines()[-1].startswith("marstts: toy: ")
    assert "toy: local_decoder.input.weight: expected the numbers that were recorded, found others" in damaged.stdout


# Releases: random weights in the releases' names, shapes and depths.

PARTS = Parts(
    ToyCodecPart(codebook_size=CODES), {"identity": ToyEncoderPart(size=IDENTITY), "style": ToyEncoderPart(size=STYLE)}
)


def silent(turbo: Turbo) -> Turbo:
    """The end of speech is far more probable than all else, so that speech is short."""
    turbo.tensors["fast_pos_emb.weight"][0, 0] = turbo.tensors["out_proj.weight"][-1, 0] = 20
    return turbo


def test_a_release_is_not_compared_before_it_is_recorded_and_then_is(tmp_path: Path) -> None:
    files = Turbo().write(tmp_path)
    first = examine_model("mars6-turbo", files, speaks=False)
    assert first.findings == [] and any("not compared" in note for note in first.notes)
    examine_model("mars6-turbo", files, record=True, speaks=False)
    again = examine_model("mars6-turbo", files, speaks=False)
    assert again.findings == [] and not any("not compared" in note for note in again.notes)
    changed = Turbo()
    weight = "slow2fast_proj.weight"
    changed.tensors[weight] = changed.tensors[weight].t().contiguous()
    found = examine_model("mars6-turbo", changed.write(tmp_path), speaks=False).findings
    [line] = map(str, found)
    assert "slow2fast_proj.weight: expected the numbers that were recorded, found others; fetch the file" in line


def test_a_mars5_is_recorded_and_compared(tmp_path: Path) -> None:
    files = English().write(tmp_path)
    examine_model("mars5-english", files, record=True, speaks=False)
    assert examine_model("mars5-english", files, speaks=False).findings == []
    changed = English()
    changed.nar["timestep_encoder_emb.2.weight"] = changed.nar["timestep_encoder_emb.2.weight"].t().contiguous()
    changed.ar_vocab["texttok.model"] = changed.nar_vocab["texttok.model"] = changed.ar_vocab["texttok.model"].replace(
        "104 101", "104 105"
    )
    found = [*map(str, examine_model("mars5-english", changed.write(tmp_path), speaks=False).findings)]
    for name in ("NAR: timestep_encoder_emb.2.weight", "AR: texttok.model"):
        assert any(f"{name}: expected the numbers that were recorded" in line for line in found), found


def test_three_sentences_are_spoken_where_codec_and_encoders_are_at_hand(
    tmp_path: Path, reference_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "SENTENCES", ("I.", "A-B.", "Nine."))
    monkeypatch.setattr(published6, "find_alignment", lambda model, tokenizer: None)
    files = silent(Turbo()).write(tmp_path)
    done = examine_model("mars6-turbo", files, PARTS, reference=reference_file, record=True)
    assert done.of(Kind.DEFECT) == [] and any(note.startswith("sentences: ") for note in done.notes), done.notes
    record = json.loads(record_path("mars6-turbo").read_text())
    assert len(record["seconds"]) == 3
    record["seconds"][1] *= 4
    record_path("mars6-turbo").write_text(json.dumps(record))
    found = examine_model("mars6-turbo", files, PARTS, reference=reference_file).findings
    assert [finding.what for finding in found] == ["mars6-turbo: sentence 2"]
    nowhere = replace(PARTS, codec=ToyCodecPart(codebook_size=CODES * 2))
    assert any("sentences: not spoken" in note for note in examine_model("mars6-turbo", files, nowhere).notes)


def test_a_broken_release_is_named_by_the_command_and_nothing_is_recorded(tmp_path: Path) -> None:
    turbo = Turbo()
    turbo.tensors["out_proj.weight"][3, 3] = torch.nan
    checkpoint, tokenizer = turbo.write(tmp_path)
    result = run("mars6-turbo", "--file", checkpoint, "--file", tokenizer, "--record", "--no-speech")
    assert result.exit_code == 2 and "defect: model-2000100.pt: out_proj.weight: expected finite" in result.stdout
    assert "functional check: not made" in result.stdout and not record_path("mars6-turbo").exists()


def test_a_published_name_is_refused_where_its_files_differ_and_convert_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published6, "find_alignment", lambda model, tokenizer: None)
    turbo = Turbo(cfg=None)
    turbo.tensors["encoder.layers.2.linear1.weight"] = turbo.tensors["encoder.layers.1.linear1.weight"].clone()
    files = turbo.write(tmp_path)
    monkeypatch.setattr(published6, "fetch", lambda: files)
    with pytest.raises(CheckpointError, match=r"linear1\.weight: expected numbers of its own.*marstts doctor"):
        models.published_bundle("mars6-turbo", onnx=False)
    arguments = ["convert", files[0], "--tokenizer", files[1], "--output", tmp_path / "made", "--codec", f"toy:{CODES}"]
    parts = ["--identity", f"toy:{IDENTITY}", "--style", f"toy:{STYLE}"]
    result = CliRunner().invoke(app, [*map(str, arguments), *parts])
    assert result.exit_code == 0, result.output
    assert "warning: model-2000100.pt: encoder.layers.2.linear1.weight: expected numbers of its own" in result.stderr
    assert "warning: model-2000100.pt: cfg: expected a configuration" in result.stderr
    narrow = CliRunner().invoke(app, [*map(str, arguments), "--identity", "toy:256", *parts[2:]])
    assert narrow.exit_code == 2 and "identity_size is 24, but the encoder toy" in narrow.stderr
    wrong = CliRunner().invoke(app, [*map(str, arguments[:-1]), "toy:64", *parts])
    assert wrong.exit_code == 2 and "codebook_size is 32, but the codec" in wrong.stderr


def test_a_published_name_is_compared_with_its_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published6, "find_alignment", lambda model, tokenizer: None)
    files = Turbo().write(tmp_path)
    monkeypatch.setattr(published6, "fetch", lambda: files)
    examine_model("mars6-turbo", files, record=True, speaks=False)
    models.published_bundle("mars6-turbo", onnx=False)
    shutil.rmtree(tmp_path / "cache" / "mars6-turbo")
    changed = Turbo()
    changed.tensors["slow2fast_proj.weight"] = changed.tensors["slow2fast_proj.weight"].t().contiguous()
    changed.write(tmp_path)
    with pytest.raises(CheckpointError, match=r"slow2fast_proj\.weight: expected the numbers that were recorded"):
        models.published_bundle("mars6-turbo", onnx=False)


# Machines.


def test_the_extras_have_the_packages_that_the_package_declares() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    imported = {"utmos-pytorch": "utmos_pytorch", "faster-whisper": "faster_whisper"}
    for extra, packages in EXTRAS.items():
        names = {name.partition(">")[0].partition("<")[0] for name in declared[extra]} - {"setuptools"}
        assert {imported.get(name, name) for name in names} == set(packages), extra


def test_everything_that_a_recipe_lacks_is_named_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "has_gpu", lambda: False)
    monkeypatch.setitem(EXTRAS, "data", ("torch", "no_such_package"))
    (tmp_path / "codec").mkdir()
    result = run(
        "--codec", tmp_path / "codec", "--identity", "toy:8", "--extra", "train", "--extra", "data", "--device", "cuda",
        "--folder", tmp_path / "not" / "yet", "--free-gb", "1e9",
    )  # fmt: skip
    assert result.exit_code == 2 and "4 of the things that are needed are missing" in result.stderr
    for words in (
        "packages of data: expected to be there, found this needs the package 'no_such_package'",
        "device cuda: expected a GPU that PyTorch finds, found none; run on a machine with a GPU, or with DEVICE=cpu",
        "expected 1e+09 GB free, found", "choose a folder on a larger disk",
    ):  # fmt: skip
        assert words in result.stdout, result.stdout
    assert f"codec {tmp_path / 'codec'}: expected to be there" in result.stdout


def test_a_machine_that_has_everything_passes(tmp_path: Path) -> None:
    options = ["--codec", "toy:64", "--style", "toy:8", "--extra", "train", "--device", "cpu", "--metrics", "sphinx"]
    result = run(*options, "--folder", tmp_path, "--free-gb", "0.001")
    assert result.exit_code == 0 and result.stdout == "", result.output
    missing = run("--metrics", "nonsense")
    assert missing.exit_code == 2 and "there is no metric 'nonsense'" in missing.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "there is nothing to examine"),
        (("--free-gb", "3"), "of the disk of a --folder"),
        (("--extra", "all"), "--extra all: expected some of torch, train"),
        (("mini", "--file", "a.pt"), "--file is given twice for mars6-turbo or mars5-english, not 1 times for mini"),
        (("nothing-of-this-name",), "neither a folder nor the name of a model"),
    ],
)
def test_impossible_requests_are_refused_in_one_sentence(arguments: tuple[str, ...], complaint: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2 and complaint in result.stderr
    assert result.stderr.splitlines()[-1].startswith("marstts: ")


def test_lines_are_printable(tmp_path: Path) -> None:
    turbo = Turbo()
    turbo.tensors["bad\x1b[31mname"] = torch.ones(3).half()
    [line] = [str(finding) for finding in turbo.examined(tmp_path) if "name" in finding.what]
    assert "\x1b" not in line
