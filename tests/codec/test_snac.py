"""SNAC through the `snac` package: recorded results, geometry, and weights that are refused."""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch

from marstts.audio import Waveform
from marstts.codec.snac import SnacCodec
from marstts.errors import AudioError, CheckpointError, MissingExtraError
from marstts.weights import pretrained
from marstts.weights.pretrained import find_file

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[1] / "golden" / "mars6"
CONFIG = json.loads((GOLDEN / "io.json").read_text(encoding="utf-8"))["snac"]["config"]


@pytest.fixture(scope="module")
def recorded():
    return safetensors.numpy.load_file(GOLDEN / "snac.safetensors")


def write_model(folder, recorded, weights="model.safetensors", **changes):
    """Write the recorded model as a folder like those on the hub."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | changes))
    tensors = {
        key.removeprefix("weights."): torch.from_numpy(value.copy())
        for key, value in recorded.items()
        if key.startswith("weights.")
    }
    if weights.endswith(".safetensors"):
        safetensors.torch.save_file(tensors, folder / weights)
    else:
        torch.save(tensors, folder / weights)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory, recorded):
    return write_model(tmp_path_factory.mktemp("snac"), recorded)


def test_encoding_and_decoding_match_recorded_results(folder, recorded):
    codec = SnacCodec(folder)
    codes = codec.encode(Waveform(recorded["wav"][0, 0], 24_000))
    for level, ours in enumerate(codes):
        assert ours.dtype == np.int64
        np.testing.assert_array_equal(ours, recorded[f"codes.{level}"][0])
    decoded = codec.decode(codes)
    assert decoded.sample_rate == 24_000 and decoded.samples.dtype == np.float32
    np.testing.assert_allclose(decoded.samples, recorded["decoded"][0, 0], atol=1e-5)


def test_the_geometry_comes_from_the_configuration(folder):
    spec = SnacCodec(folder).spec
    assert spec.hop_lengths == (32, 16, 8) and spec.patch_layout == (1, 2, 4)
    assert spec.codebook_size == 32 and spec.sample_rate == 24_000


def test_other_rates_are_resampled_and_padded_to_whole_patches(folder):
    codes = SnacCodec(folder).encode(Waveform(np.zeros(101, np.float32), 48_000))
    assert [len(level) for level in codes] == [2, 4, 8]  # 51 samples at 24 kHz


def test_a_batch_of_any_lengths_gives_the_codes_of_each_alone(folder):
    codec = SnacCodec(folder)
    rng = np.random.default_rng(0)
    waveforms = [Waveform(rng.uniform(-1, 1, count).astype(np.float32), 24_000) for count in (640, 333, 630, 321, 96)]
    for waveform, together in zip(waveforms, codec.encode_batch(waveforms), strict=True):
        for ours, alone in zip(together, codec.encode(waveform), strict=True):
            np.testing.assert_array_equal(ours, alone)
    with pytest.raises(AudioError, match="no samples"):
        codec.encode_batch([waveforms[0], Waveform(np.zeros(0, np.float32), 24_000)])


def test_safetensors_and_pytorch_files_hold_the_same_codec(tmp_path, folder, recorded):
    pickled = SnacCodec(write_model(tmp_path / "pickled", recorded, "pytorch_model.bin"))
    waveform = Waveform(recorded["wav"][0, 0], 24_000)
    for ours, theirs in zip(pickled.encode(waveform), SnacCodec(folder).encode(waveform), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_the_decoders_noise_is_deterministic_and_leaves_the_callers_generator_alone(tmp_path, recorded):
    torch.manual_seed(0)
    codes = tuple(recorded[f"codes.{level}"][0] for level in range(3))
    noisy = tmp_path / "noisy"
    noisy.mkdir()
    (noisy / "config.json").write_text(json.dumps(CONFIG | {"noise": True}))
    snac = pytest.importorskip("snac")
    model = snac.SNAC(**CONFIG | {"noise": True})
    torch.save(model.state_dict(), noisy / "pytorch_model.bin")
    before = torch.get_rng_state()
    first, second = SnacCodec(noisy).decode(codes), SnacCodec(noisy).decode(codes)
    assert torch.equal(before, torch.get_rng_state())
    np.testing.assert_array_equal(first.samples, second.samples)
    other = SnacCodec(noisy, seed=1).decode(codes)
    assert not np.array_equal(first.samples, other.samples)


def test_a_file_of_any_name_is_found_with_the_configuration_next_to_it(tmp_path, folder, recorded):
    codec = SnacCodec(write_model(tmp_path / "named", recorded, "snac-v2.safetensors") / "snac-v2.safetensors")
    assert codec.spec.hop_lengths == SnacCodec(folder).spec.hop_lengths


def test_a_checksum_refuses_other_weights(folder):
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert digest.startswith(SnacCodec(folder, sha256=digest.upper()).spec.name.removeprefix("snac-"))
    with pytest.raises(CheckpointError, match="expected weights with SHA-256 00"):
        SnacCodec(folder, sha256="00" * 32)


def test_incomplete_folders_are_refused_by_the_missing_file(tmp_path, recorded):
    with pytest.raises(CheckpointError, match=r"expected config\.json"):
        SnacCodec(tmp_path)
    (write_model(tmp_path / "no-weights", recorded) / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"expected model\.safetensors or pytorch_model\.bin"):
        SnacCodec(tmp_path / "no-weights")
    with pytest.raises(CheckpointError, match="neither a path"):
        SnacCodec(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("changes", "error", "sentence"),
    [
        ({"codebook_size": 33}, CheckpointError, "belong to another model"),
        ({"attn_window_size": 32}, CheckpointError, "attn_window_size"),
        ({"surprise": 1}, CheckpointError, "surprise"),
    ],
)
def test_configurations_that_do_not_fit_are_refused(tmp_path, recorded, changes, error, sentence):
    with pytest.raises(error, match=sentence):
        SnacCodec(write_model(tmp_path / "model", recorded, **changes))


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_corrupt_weights_are_refused(tmp_path, recorded, name):
    path = write_model(tmp_path / "model", recorded, name) / name
    for content in (path.read_bytes()[:1_000], b"", b"not weights at all"):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match="expected weights"):
            SnacCodec(path.parent)


class CodeOnLoad:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_code_inside_pickled_weights_is_refused_not_run(tmp_path, recorded):
    folder = write_model(tmp_path / "model", recorded, "pytorch_model.bin")
    torch.save({"weight": CodeOnLoad(tmp_path / "sprung")}, folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="expected weights"):
        SnacCodec(folder)
    assert not (tmp_path / "sprung").exists()


def test_a_failed_download_is_one_attempt_and_one_sentence(monkeypatch):
    import huggingface_hub

    attempts = []

    def refuse(model, name, local_files_only=False, etag_timeout=None):
        attempts.append((name, local_files_only))
        raise ConnectionError("no route to the hub\nwith more lines")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", refuse)
    monkeypatch.setattr(pretrained, "connection_problem", lambda address: None)
    monkeypatch.setattr(pretrained, "answer_problem", lambda hub, model: None)
    with pytest.raises(
        CheckpointError, match=r"hubertsiuzdak/snac_24khz: the download of config\.json failed"
    ) as caught:
        SnacCodec()
    assert "no route to the hub" in str(caught.value) and "\n" not in str(caught.value)
    assert attempts == [("config.json", True), ("config.json", False)]
    with pytest.raises(CheckpointError, match="no route"):
        find_file("owner/model", ["a.safetensors", "b.bin"])
    assert attempts[-1] == (
        "a.safetensors",
        False,
    )  # one attempt: the second name is not tried after a broken connection


def test_cached_files_of_the_hub_need_no_network(monkeypatch, folder):
    import huggingface_hub

    def cached(model, name, local_files_only=False, etag_timeout=None):
        assert local_files_only
        return str(folder / name)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", cached)
    monkeypatch.setattr(pretrained, "connection_problem", lambda address: pytest.fail("used the network"))
    assert SnacCodec("someone/snac").spec == SnacCodec(folder).spec


def test_without_the_package_the_extra_is_named(monkeypatch, folder):
    monkeypatch.setitem(sys.modules, "snac", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'marstts\[released\]'"):
        SnacCodec(folder)


def test_encoding_no_samples_is_refused_and_no_codes_decode_to_no_samples(folder):
    codec = SnacCodec(folder)
    with pytest.raises(AudioError, match="no samples"):
        codec.encode(Waveform(np.zeros(0, np.float32), 24_000))
    assert len(codec.decode((np.zeros(0, np.int64),) * 3).samples) == 0
