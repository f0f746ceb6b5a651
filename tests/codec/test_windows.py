"""Incremental decoding equals decoding the whole utterance, given the codec's lookahead."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from marstts.codec.base import Codec, Codes, start_decoding
from marstts.codec.mini import MiniCodec
from marstts.codec.toy import ToyCodec

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[1] / "golden" / "mars6"
PATCHES = 31


def mini() -> Codec:
    return MiniCodec(Path(str(files("marstts"))) / "models_data/mini/codec")


def snac(folder: Path, noise: bool) -> Codec:
    """The small SNAC of the recordings, its weights large enough to carry a code as far as they can; or a noisy one."""
    torch = pytest.importorskip("torch")
    package = pytest.importorskip("snac")
    from safetensors.torch import save_file

    from marstts.codec.snac import SnacCodec

    config = json.loads((GOLDEN / "io.json").read_text(encoding="utf-8"))["snac"]["config"] | {"noise": noise}
    torch.manual_seed(0)
    weights = package.SNAC(**config).state_dict()
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, folder / "model.safetensors")
    return SnacCodec(folder)


@pytest.fixture(scope="module", params=["toy", "small toy", "mini", "snac", "noisy snac"])
def codec(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Codec:
    if request.param == "mini":
        return mini()
    if "toy" in request.param:
        return ToyCodec(30, (64, 32, 16), 8_000) if "small" in request.param else ToyCodec()
    return snac(tmp_path_factory.mktemp("snac"), noise="noisy" in request.param)


def random_codes(codec: Codec, patches: int = PATCHES) -> Codes:
    rng = np.random.default_rng(0)
    return tuple(rng.integers(0, codec.spec.codebook_size, patches * count) for count in codec.spec.patch_layout)


def head(codec: Codec, codes: Codes, patches: int) -> Codes:
    return tuple(level[: patches * count] for level, count in zip(codes, codec.spec.patch_layout, strict=True))


@pytest.mark.parametrize("sizes", [(1, 2, 4, 8, 16), (2, 6, 18, 5), (5,) * 6 + (1,), (PATCHES,)])
def test_incremental_decoding_equals_decoding_the_whole(codec: Codec, sizes: tuple[int, ...]):
    """Though each is decoded before anything is known beyond its reach."""
    codes, start, pieces, decoding = random_codes(codec), 0, [], start_decoding(codec)
    for size in sizes:
        known = head(codec, codes, start + size + codec.lookahead_patches)
        pieces.append(decoding.decode_until(known, start + size))
        start += size
    whole = codec.decode(codes).samples
    assert start == PATCHES and [len(piece) for piece in pieces] == [size * codec.spec.patch_samples for size in sizes]
    assert np.abs(whole).max() > 0.01
    np.testing.assert_allclose(np.concatenate(pieces), whole, atol=1e-5 * max(1, np.abs(whole).max()))


def test_a_code_influences_audio_within_the_lookahead_only(codec: Codec):
    codes, middle = random_codes(codec), PATCHES // 2
    changed = tuple(level.copy() for level in codes)
    for level, count in zip(changed, codec.spec.patch_layout, strict=True):
        level[middle * count : (middle + 1) * count] = (level[middle * count] + 7) % codec.spec.codebook_size
    difference = np.abs(codec.decode(codes).samples - codec.decode(changed).samples).reshape(PATCHES, -1).max(axis=1)
    touched = np.flatnonzero(difference > 1e-6 * max(1, difference.max()))
    earliest, latest = middle - touched.min(), touched.max() - middle
    assert difference[middle] > 0 and earliest <= codec.lookahead_patches
    if isinstance(codec, MiniCodec):  # whose pulses count the cycles of all that went before
        assert latest == PATCHES - 1 - middle
    else:
        assert max(earliest, latest) == codec.lookahead_patches
