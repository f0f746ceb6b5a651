"""Files that are accepted and refused as the published checkpoint."""

from __future__ import annotations

import hashlib
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from marstts.errors import CheckpointError
from marstts.mars6.released import load_released

GOLDEN = Path(__file__).parents[1] / "golden" / "mars6" / "checkpoint.safetensors"


@pytest.fixture
def tensors() -> dict[str, Any]:
    return dict(load_file(GOLDEN))


def refusal(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        load_released(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def saved(tensors: dict[str, Any], path: Path) -> Path:
    save_file(tensors, path)
    return path


def test_the_hash_is_shown_and_checked() -> None:
    sha256 = hashlib.sha256(GOLDEN.read_bytes()).hexdigest()
    assert load_released(GOLDEN, sha256).sha256 == sha256
    with pytest.raises(CheckpointError, match="SHA-256"):
        load_released(GOLDEN, "0" * 64)


def test_the_module_prefix_of_names_is_removed(tensors: dict[str, Any], tmp_path: Path) -> None:
    nested = {name.replace("encoder.", "encoder.module.", 1): tensor for name, tensor in tensors.items()}
    model = load_released(saved(nested, tmp_path / "nested.safetensors")).model
    assert torch.equal(model.encoder.text_embedding.weight, tensors["inp_emb.weight"].float())


def test_missing_and_unexpected_tensors_are_named(tensors: dict[str, Any], tmp_path: Path) -> None:
    del tensors["decoder.layers.1.norm3.bias"]
    tensors["extra.weight"] = torch.zeros(2)
    message = refusal(saved(tensors, tmp_path / "other.safetensors"))
    assert "decoder.layers.1.norm3.bias is missing" in message
    assert "extra.weight is not expected" in message


def test_a_wrong_shape_is_named(tensors: dict[str, Any], tmp_path: Path) -> None:
    tensors["fast_pos_emb.weight"] = torch.zeros(6, 16)
    assert "fast_pos_emb.weight is (6, 16) instead of (7, 16)" in refusal(saved(tensors, tmp_path / "a.safetensors"))


def test_a_vocabulary_other_than_three_codebooks_and_eos_is_refused(tensors: dict[str, Any], tmp_path: Path) -> None:
    tensors["out_proj.weight"] = torch.zeros(12288, 16)
    assert "out_proj.weight" in refusal(saved(tensors, tmp_path / "a.safetensors"))


@pytest.mark.parametrize("name", ["inp_emb.weight", "spk_emb_proj.0.weight", "lang_embed.weight"])
def test_a_missing_tensor_that_determines_sizes_is_named(name: str, tensors: dict[str, Any], tmp_path: Path) -> None:
    del tensors[name]
    assert name in refusal(saved(tensors, tmp_path / "a.safetensors"))


def test_a_flat_table_is_refused(tensors: dict[str, Any], tmp_path: Path) -> None:
    tensors["inp_emb.weight"] = torch.zeros(5)
    assert "not matrices" in refusal(saved(tensors, tmp_path / "a.safetensors"))


def test_a_model_without_layers_is_refused(tensors: dict[str, Any], tmp_path: Path) -> None:
    few = {name: tensor for name, tensor in tensors.items() if not name.startswith("fastencoder")}
    assert "local_layers" in refusal(saved(few, tmp_path / "a.safetensors"))


def test_weights_that_are_not_numbers_are_refused(tensors: dict[str, Any], tmp_path: Path) -> None:
    tensors["out_proj.weight"][3, 3] = torch.nan
    assert "not finite" in refusal(saved(tensors, tmp_path / "a.safetensors"))


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_a_truncated_file_is_refused(suffix: str, tmp_path: Path) -> None:
    whole = GOLDEN.with_suffix(suffix).read_bytes()
    for length in (0, 100, len(whole) // 2, len(whole) - 1):
        path = tmp_path / f"cut{suffix}"
        path.write_bytes(whole[:length])
        refusal(path)


def test_a_pickle_that_would_run_code_is_refused_without_running_it(tmp_path: Path) -> None:
    witness = tmp_path / "witness"

    class Harmful:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (witness,)

    path = tmp_path / "harmful.pt"
    torch.save({"model": {"inp_emb.weight": Harmful()}, "cfg": {}}, path)
    refusal(path)
    path.write_bytes(pickle.dumps(Harmful()))
    refusal(path)
    assert not witness.exists()


def test_a_zip_bomb_is_refused_unopened(tmp_path: Path) -> None:
    path = tmp_path / "bomb.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb/data.pkl", bytes(2**24))
    assert "unfolds to 16777216 bytes" in refusal(path)


def test_tensors_that_claim_more_than_the_file_holds_are_refused(tensors: dict[str, Any], tmp_path: Path) -> None:
    tensors["inp_emb.weight"] = torch.zeros(1).expand(10**12, 16)
    path = tmp_path / "expanded.pt"
    torch.save({"model": tensors, "cfg": {}}, path)
    assert "more numbers than the file has" in refusal(path)


def test_names_that_become_equal_are_refused(tensors: dict[str, Any], tmp_path: Path) -> None:
    tensors["module.inp_emb.weight"] = tensors["inp_emb.weight"].clone()
    assert "with and without" in refusal(saved(tensors, tmp_path / "a.safetensors"))


def test_files_of_other_kinds_and_missing_files_are_refused(tmp_path: Path) -> None:
    assert "expected a published checkpoint" in refusal(tmp_path / "model.bin")
    assert "no such" in refusal(tmp_path / "model.pt")
