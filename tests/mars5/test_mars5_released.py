"""Published MARS5 checkpoints that are accepted and refused, and the folder they are converted to."""

from __future__ import annotations

import hashlib
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from mars5_published import AR, NAR, TEXT_IDS, Shapes, ar_content, ar_shapes, nar_content, nar_shapes, save
from marstts.errors import CheckpointError, ConfigError
from marstts.mars5.checkpoint import load_models, load_released, write_models
from marstts.mars5.config import CodecLMConfig, ResidualTransformerConfig
from marstts.mars5.released import Container, load_ar, load_nar, read_container

pytestmark = pytest.mark.slow

HEADS = {"ar_heads": 4, "nar_heads": 3}


def files(folder: Path, suffix: str = ".pt") -> tuple[Path, Path]:
    return save(ar_content(), folder / f"ar{suffix}"), save(nar_content(), folder / f"nar{suffix}")


def refusal(ar: Any, nar: Any = None) -> str:
    with pytest.raises(CheckpointError) as caught:
        load_released(ar, nar_content() if nar is None else nar, **HEADS)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def changed(content: dict[str, Any], **tensors: Any) -> dict[str, Any]:
    return content | {"model": content["model"] | tensors}


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_sizes_and_tokenizers_come_from_the_file(suffix: str, tmp_path: Path) -> None:
    models = load_released(*files(tmp_path, suffix), **HEADS)
    assert (models.ar.config, models.nar.config) == (AR, NAR)
    assert models.vocabulary.text.encode("he t") == [256, 257]
    assert models.vocabulary.speech.encode([3, 955, 275]) == [1025]
    assert models.ar.embedding.weight.dtype is torch.float32 and not models.ar.training


def test_both_containers_and_their_content_give_the_same_models(tmp_path: Path) -> None:
    reference = load_released(ar_content(), nar_content(), **HEADS)
    for suffix in (".pt", ".safetensors"):
        models = load_released(*files(tmp_path, suffix), **HEADS)
        for ours, theirs in ((models.ar, reference.ar), (models.nar, reference.nar)):
            for name, tensor in ours.state_dict().items():
                assert torch.equal(tensor, theirs.state_dict()[name]), name


def test_head_counts_are_the_widths_over_64_unless_given(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"sizes are impossible: speaker_heads"):
        load_released(ar_content(), nar_content())


def test_the_hash_is_checked(tmp_path: Path) -> None:
    path, _ = files(tmp_path)
    read_container(path, hashlib.sha256(path.read_bytes()).hexdigest())
    with pytest.raises(CheckpointError, match="SHA-256"):
        read_container(path, "0" * 64)


def test_missing_unexpected_and_misshapen_tensors_are_named() -> None:
    content = changed(ar_content(), extra=torch.zeros(2))
    del content["model"]["ar.layers.1.ffn_norm.weight"]
    message = refusal(content)
    assert "ar.layers.1.ffn_norm.weight is missing" in message and "extra is not expected" in message
    wrong = changed(nar_content(), **{"tfm.decoder.norm.bias": torch.zeros(5)})
    assert "tfm.decoder.norm.bias is (5,) instead of (24,)" in refusal(ar_content(), wrong)


@pytest.mark.parametrize("name", ["embed.weight", "ref_chunked_emb.embs.0.weight", "ar.layers.0.attention.wq.weight"])
def test_tensors_that_determine_sizes_are_required(name: str) -> None:
    content = ar_content()
    del content["model"][name]
    assert f"lacks {name}" in refusal(content)
    assert "not matrices" in refusal(changed(ar_content(), **{"embed.weight": torch.zeros(5)}))


def test_numbers_must_be_finite_and_real() -> None:
    assert "not finite" in refusal(changed(ar_content(), **{"ar.norm.weight": torch.full((16,), torch.nan)}))
    assert "real numbers" in refusal(changed(ar_content(), **{"ar.norm.weight": torch.zeros(16, dtype=torch.long)}))
    assert "real numbers" in refusal(changed(ar_content(), **{"ar.norm.weight": [1.0]}))


@pytest.mark.parametrize("missing", ["texttok.model", "speechtok.model"])
def test_both_tokenizers_are_needed(missing: str) -> None:
    content = ar_content()
    del content["vocab"][missing]
    assert f"{missing} is missing" in refusal(content)
    assert f"expected {missing} to be the text" in refusal(ar_content() | {"vocab": {missing: b"bytes"}})


def test_a_vocabulary_without_an_end_of_speech_is_refused() -> None:
    content = ar_content()
    content["vocab"]["speechtok.model"] = "minbpe v1\nunused\n0\n3 955\n1024 275\n4 4\n"
    assert "the checkpoint, speechtok.model: expected a speech tokenizer" in refusal(content)
    assert "it has no <|endofspeech|>" in refusal(content)


def test_tokenizers_of_another_model_are_refused() -> None:
    content = ar_content()
    content["vocab"]["speechtok.model"] += "5 5\n"
    content["vocab"]["speechtok.model"] = content["vocab"]["speechtok.model"].replace("1026", "1027")
    assert "has 1287 tokens, but its tokenizers have 260 and 1028" in refusal(content)


def test_models_of_different_text_vocabularies_are_refused() -> None:
    small = changed(nar_content(), **{"text_embed.weight": torch.zeros(200, 24)})
    assert "AR and NAR do not fit together" in refusal(ar_content(), small)


def test_a_pickle_that_would_run_code_is_refused_without_running_it(tmp_path: Path) -> None:
    witness, path = tmp_path / "witness", tmp_path / "harmful.pt"

    class Harmful:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (witness,)

    torch.save(changed(ar_content(), extra=Harmful()), path)
    refusal(path)
    path.write_bytes(pickle.dumps(Harmful()))
    refusal(path)
    assert not witness.exists()


def test_files_that_unfold_are_refused_unopened(tmp_path: Path) -> None:
    path = tmp_path / "bomb.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb/data.pkl", bytes(2**24))
    assert "unfolds to 16777216 bytes" in refusal(path)
    path = save(changed(ar_content(), **{"embed.weight": torch.zeros(1).expand(10**12, 16)}), tmp_path / "large.pt")
    assert "more numbers than the file has" in refusal(path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    assert "no such" in refusal(tmp_path / "ar.pt")
    assert "expected a published checkpoint" in refusal(tmp_path / "ar.bin")
    assert "expected the entries 'model' and 'vocab'" in refusal({"weights": {}})
    torch.save([1, 2], tmp_path / "list.pt")
    assert "expected" in refusal(tmp_path / "list.pt")


def test_conversion_is_done_once_and_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "mars5"
    models = load_released(*files(tmp_path), **HEADS)
    write_models(models, folder)
    again = load_models(folder)
    assert again.config == models.config
    assert again.vocabulary.speech == models.vocabulary.speech
    text = "the <|endoftext|> mat"
    assert again.vocabulary.text.encode(text) == models.vocabulary.text.encode(text)
    for ours, theirs in ((again.ar, models.ar), (again.nar, models.nar)):
        for name, tensor in ours.state_dict().items():
            assert torch.equal(tensor, theirs.state_dict()[name]), name
    numbers = sum(parameter.numel() for model in (models.ar, models.nar) for parameter in model.parameters())
    written = sum((folder / name).stat().st_size for name in ("ar.safetensors", "nar.safetensors"))
    assert written < 2.3 * numbers  # two bytes each
    with pytest.raises(CheckpointError, match="exists already"):
        write_models(models, folder)
    assert sorted(path.name for path in folder.parent.iterdir()) == ["mars5"]


def test_full_precision_is_kept_where_half_would_lose(tmp_path: Path) -> None:
    models = load_released(ar_content(), nar_content(), **HEADS)
    models.ar.embedding.weight.data += 1e-5
    write_models(models, tmp_path / "mars5")
    assert torch.equal(load_models(tmp_path / "mars5").ar.embedding.weight, models.ar.embedding.weight)


def test_incomplete_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such model folder"):
        load_models(tmp_path / "none")
    folder = tmp_path / "mars5"
    write_models(load_released(*files(tmp_path), **HEADS), folder)
    (folder / "ar.safetensors").rename(folder / "kept")
    with pytest.raises(CheckpointError, match="the model is incomplete"):
        load_models(folder)
    (folder / "nar.safetensors").rename(folder / "ar.safetensors")
    with pytest.raises(CheckpointError, match="belong to another model"):
        load_models(folder)
    config = json.loads((folder / "config.json").read_text())
    config["ar"]["depth"] = 3
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=r"ar\.depth"):
        load_models(folder)


def test_models_are_read_from_the_published_names_and_shapes() -> None:
    """Of tensors without numbers, which take no memory."""

    def container(shapes: Shapes) -> Container:
        return Container("release", {name: torch.empty(one, device="meta") for name, one in shapes.items()}, None, None)

    ar, nar = load_ar(container(ar_shapes()), TEXT_IDS), load_nar(container(nar_shapes()))
    vocabularies = {name: getattr(ar.config, name) for name in ("text_vocab_size", "speech_vocab_size")}
    assert ar.config == CodecLMConfig(**vocabularies)
    assert nar.config == ResidualTransformerConfig(text_vocab_size=nar.config.text_vocab_size)
