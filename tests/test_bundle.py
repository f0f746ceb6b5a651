"""Bundles: exported bundles are read back, and errors name corrupt files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from toy_mars6 import export_weights_only, toy_model, toy_tokenizer

from marstts import bundle as bundles
from marstts.bundle import PACKAGED_MODELS, check_revision, find_bundle, load_bundle, packaged_models, read_info
from marstts.codec.registry import ToyCodecPart
from marstts.errors import CheckpointError, ConfigError
from marstts.generation.engine import EngineKind
from marstts.generation.request import SamplingConfig
from marstts.io.part_provenance import PartProvenance, write_part
from marstts.mars6.model import Mars6
from marstts.models import export_bundle, export_like, load_for_training, open_engine, open_model, upgrade_bundle
from marstts.speaker.registry import ToyEncoderPart

ENCODERS = {"identity": ToyEncoderPart(size=5), "style": ToyEncoderPart(size=7)}
TOY = {"codec": ToyCodecPart(codebook_size=64), "encoders": ENCODERS}


def open_speech_model(folder: Path) -> Any:
    """The model of a bundle, after all checks."""
    return open_model(load_bundle(folder), open_engine(folder, EngineKind.TORCH))


@pytest.fixture
def copy(toy_bundle: Path, tmp_path: Path) -> Path:
    """A copy of the bundle that a test may change."""
    return Path(shutil.copytree(toy_bundle, tmp_path / "copy"))


@pytest.fixture
def quick_export(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights only, no graphs: for tests of what happens around them."""

    export_weights_only(monkeypatch)


def edit_info(folder: Path, **changes: object) -> None:
    path = folder / "bundle.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_bundle_comes_back_as_it_was_exported(toy_bundle: Path):
    bundle, model = load_bundle(toy_bundle), open_speech_model(toy_bundle)
    assert (bundle.name, bundle.info.architecture, bundle.sampling) == ("toy", "mars6", SamplingConfig())
    assert bundle.info.settings == {
        "quality_prefix_hz": 24_000, "style_offset": [], "spelling": "as written", "phones": "none", "respellings": {},
    }  # fmt: skip
    assert model.quality_prefix_hz == 24_000
    assert bundle.codec.spec.codebook_size == model.config.codebook_size == 64
    assert {role: encoder.name for role, encoder in bundle.encoders.items()} == {
        "identity": "toy-identity-5",
        "style": "toy-style-7",
    }
    assert model.tokenizer.decode(model.tokenizer.encode("[48000]the cat")) == "[48000]the cat"


def test_a_bundle_can_be_read_by_every_user_of_the_machine(toy_bundle: Path):
    files = [path for path in toy_bundle.rglob("*") if path.is_file()]
    assert len(files) == 8 and all(path.stat().st_mode & 0o444 == 0o444 for path in files)


def test_a_bundle_is_loaded_by_the_name_of_a_packaged_model(copy: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bundles, "PACKAGED_MODELS", copy.parent)
    assert packaged_models() == ["copy"]
    assert find_bundle("copy") == find_bundle("Copy") == copy and load_bundle("copy").name == "toy"
    with pytest.raises(CheckpointError, match=r"parrot: neither a folder nor the name of a model: copy, mars6-turbo"):
        load_bundle("parrot")


def test_the_torch_model_has_the_exported_weights(toy_bundle: Path):
    model, correct = load_for_training(toy_bundle), toy_model().state_dict()
    assert not model.training and model.state_dict().keys() == correct.keys()
    for name, tensor in correct.items():
        assert model.state_dict()[name].dtype == torch.float32
        assert torch.equal(model.state_dict()[name], tensor.half().float()), name


def test_tensors_that_do_not_fit_are_all_named(copy: Path):
    path = copy / "mars6/mars6.safetensors"
    tensors = load_file(path)
    del tensors["global_decoder.start"]
    tensors["surprise"] = torch.zeros(2)
    tensors["local_decoder.input.bias"] = torch.zeros(3)
    save_file(tensors, path)
    complaint = (
        r"global_decoder.start is missing; surprise is not expected; local_decoder.input.bias is \(3,\) .* \(32,\)"
    )
    with pytest.raises(CheckpointError, match=complaint):
        load_for_training(copy)
    path.write_bytes(b"no tensors")
    with pytest.raises(CheckpointError, match=r"mars6.safetensors: expected weights as a safetensors file"):
        load_for_training(copy)


@pytest.mark.parametrize("name", ["bundle.json", "tokenizer.json", "mars6"])
def test_the_missing_files_of_a_bundle_are_named(copy: Path, name: str):
    (shutil.rmtree if name == "mars6" else Path.unlink)(copy / name)
    with pytest.raises(CheckpointError, match=f"lacks .*{name}"):
        load_bundle(copy)


def test_bundles_of_another_format_are_refused(copy: Path):
    edit_info(copy, format_version=4, a_new_field=1)
    with pytest.raises(CheckpointError, match=r"bundle format '4', but this marstts reads format 3; update marstts"):
        load_bundle(copy)


def as_format_2(folder: Path) -> None:
    """Make the bundle one of the version before: without revision and provenance."""
    values = json.loads((folder / "bundle.json").read_text()) | {"format_version": 2}
    del values["revision"], values["provenance"]
    (folder / "bundle.json").write_text(json.dumps(values))


def test_a_bundle_of_the_format_before_is_refused_with_the_command_that_upgrades_it(copy: Path, tmp_path: Path):
    as_format_2(copy)
    with pytest.raises(CheckpointError, match=r"format '2', .* reads format 3; .* marstts bundle upgrade .*copy"):
        load_bundle(copy)
    revision = read_info(copy.parent / "copy", older=True).revision
    assert revision == ""


def test_a_bundle_of_the_format_before_is_upgraded(toy_bundle: Path, copy: Path, tmp_path: Path):
    as_format_2(copy)
    upgrade_bundle(copy, tmp_path / "new", provenance={"mars6": PartProvenance(note="found in an attic")})
    info = check_revision(tmp_path / "new")
    assert info.revision == read_info(toy_bundle).revision
    assert info.provenance["mars6"].note == "found in an attic"
    with pytest.raises(CheckpointError, match="no part decoder to say the provenance of; it has mars6, codec"):
        upgrade_bundle(copy, tmp_path / "other", provenance={"decoder": PartProvenance()})


def test_a_revision_is_of_the_tensors_and_of_nothing_else(copy: Path, tmp_path: Path):
    before = check_revision(copy)
    assert before.label == f"toy@{before.revision}" and len(before.revision) == 12
    edit_info(copy, name="renamed", settings={"quality_prefix_hz": None})
    upgrade_bundle(copy, tmp_path / "upgraded")
    assert check_revision(tmp_path / "upgraded").revision == before.revision
    path = tmp_path / "upgraded/mars6/mars6.safetensors"
    tensors = load_file(path)
    tensors["global_decoder.start"] = tensors["global_decoder.start"] + 1
    save_file(tensors, path)
    with pytest.raises(CheckpointError, match=rf"says revision {before.revision}, but its weights are of revision"):
        check_revision(tmp_path / "upgraded")
    upgrade_bundle(tmp_path / "upgraded", tmp_path / "upgraded")
    assert check_revision(tmp_path / "upgraded").revision != before.revision


def test_the_revision_of_a_bundle_depends_on_parts_that_are_published_elsewhere(copy: Path):
    before = check_revision(copy).revision
    edit_info(copy, codec={"kind": "toy", "codebook_size": 64, "sample_rate": 16_000})
    with pytest.raises(CheckpointError, match=f"says revision {before}"):
        check_revision(copy)


def test_an_exported_model_and_its_parts_say_how_they_came_about(
    copy: Path, tmp_path: Path, quick_export: None, monkeypatch: pytest.MonkeyPatch
):
    made = PartProvenance(command="marstts train mars6", commit="abc", data={"shards": "f00"}, parent="mini@1")
    export_bundle(tmp_path / "first", toy_model(), toy_tokenizer(), name="toy", provenance=made, **TOY)
    assert read_info(tmp_path / "first").provenance == {"mars6": made}
    export_like(tmp_path / "first", tmp_path / "second", toy_model(), toy_tokenizer(), name="next")
    assert read_info(tmp_path / "second").provenance == {}


def test_a_part_keeps_its_provenance_from_its_folder_and_from_bundle_to_bundle(tmp_path: Path, quick_export: None):
    identity = tmp_path / "identity"
    shutil.copytree(PACKAGED_MODELS / "mini/identity", identity)
    write_part(PartProvenance(command="marstts train speaker", commit="abc"), identity)
    model = Mars6(toy_model().config.model_copy(update={"identity_size": 192}))
    parts = TOY | {"encoders": {"identity": identity, "style": ToyEncoderPart(size=7)}}
    export_bundle(tmp_path / "first", model, toy_tokenizer(), name="toy", **parts)
    export_like(tmp_path / "first", tmp_path / "second", model, toy_tokenizer(), name="next")
    for folder in (tmp_path / "first", tmp_path / "second"):
        assert read_info(folder).provenance["identity"].command == "marstts train speaker"
        assert {path.name for path in (folder / "identity").iterdir()} == {
            path.name for path in (PACKAGED_MODELS / "mini/identity").iterdir()
        }


def test_the_packaged_model_is_of_the_revision_that_it_says_and_has_provenance_of_every_part():
    info = check_revision(find_bundle("mini"))
    assert set(info.provenance) == {"mars6", "codec", "identity", "style"}
    assert all(record.note or record.data for record in info.provenance.values())


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"codec": {"kind": "gramophone"}}, r"codec.*'mini', 'snac', 'encodec', 'toy'"),
        (
            {"encoders": {"identity": {"kind": "toy", "size": 5}, "style": {"kind": "toy", "size": 9}}},
            r"style_size is 7, but the encoder toy-style-9 has 9",
        ),
        ({"architecture": "mars7"}, r"lacks the folder mars7"),
        ({"color": "red"}, r"color"),
    ],
)
def test_invalid_descriptions_are_refused(copy: Path, changes: dict[str, object], complaint: str):
    edit_info(copy, **changes)
    with pytest.raises(Exception, match=complaint) as caught:
        open_speech_model(copy)
    assert type(caught.value).__name__ in ("CheckpointError", "ConfigError")


def test_published_encoders_are_opened_by_their_source(copy: Path, monkeypatch: pytest.MonkeyPatch):
    asked = []

    class Published:
        name, size = "published", 5

        def __init__(self, source: str, *, sha256: str | None, device: str) -> None:
            asked.append((source, sha256))

    monkeypatch.setattr("marstts.speaker.wavlm.WavLmEncoder", Published)
    edit_info(copy, encoders={"identity": {"kind": "wavlm", "sha256": "00ff"}, "style": {"kind": "toy", "size": 7}})
    assert load_bundle(copy).encoders["identity"].name == "published"
    assert asked == [("microsoft/wavlm-base-plus-sv", "00ff")]


def export(folder: Path, **changes: object) -> None:
    export_bundle(folder, toy_model(), toy_tokenizer(), **({"name": "new", **TOY} | changes))  # type: ignore[arg-type]


def test_an_older_bundle_is_replaced(copy: Path, quick_export: None):
    export(copy, sampling=SamplingConfig(top_p=0.7))
    bundle = load_bundle(copy)
    assert (bundle.name, bundle.sampling.top_p) == ("new", 0.7)
    assert not (copy / "mars6/global.onnx").exists()
    assert [path.name for path in copy.parent.iterdir()] == ["copy"]


def test_a_failed_export_leaves_everything_as_it_was(copy: Path, quick_export: None):
    before = contents(copy)
    with pytest.raises(CheckpointError, match=r"style_size is 7"):
        export(copy, encoders={**ENCODERS, "style": ToyEncoderPart(size=8)})
    with pytest.raises(CheckpointError, match=r"nowhere"):
        export(copy, codec=copy / "nowhere")
    with pytest.raises(CheckpointError, match=r"text_vocab_size is 270, but the tokenizer has 268"):
        export_bundle(copy, toy_model(), toy_tokenizer(268), name="new", **TOY)  # type: ignore[arg-type]
    assert contents(copy) == before and [path.name for path in copy.parent.iterdir()] == ["copy"]


@pytest.mark.parametrize("name", ["", "x" * 201])
def test_a_name_that_no_model_can_have_is_refused_in_a_sentence(tmp_path: Path, name: str):
    with pytest.raises(ConfigError, match=f"a model's name has 1 to 200 characters, but this one has {len(name)}"):
        export(tmp_path / "new", name=name)


def test_folders_of_exported_parts_are_copied_without_their_subfolders(
    toy_bundle: Path, tmp_path: Path, quick_export: None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("marstts.codec.registry.MiniCodec", lambda folder: load_bundle(toy_bundle).codec)
    part = tmp_path / "part"
    (part / "step-00000001").mkdir(parents=True)
    (part / "step-00000001/state.json").write_text("{}")
    (part / "config.json").write_text("{}")
    export(tmp_path / "new", codec=part)
    assert [path.name for path in (tmp_path / "new/codec").iterdir()] == ["config.json"]
    assert json.loads((tmp_path / "new/bundle.json").read_text())["codec"] == {"kind": "mini"}
