"""The layout of a patch."""

import numpy as np
import pytest

from marstts.errors import DataError
from marstts.mars6.config import Mars6Config, eos_patch, patchify, unpatchify

LAYOUT, SIZE = (1, 2, 4), 10


def some_codes(patches: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    return tuple(rng.integers(0, SIZE, patches * count) for count in LAYOUT)


def test_patchify_orders_codes_coarse_to_fine():
    codes = (np.array([1, 2]), np.array([3, 4, 5, 6]), np.array([0, 1, 2, 3, 4, 5, 6, 7]))
    assert patchify(codes, LAYOUT, SIZE).tolist() == [[1, 13, 14, 20, 21, 22, 23], [2, 15, 16, 24, 25, 26, 27]]


@pytest.mark.parametrize("patches", [0, 1, 5])
def test_unpatchify_undoes_patchify(patches):
    codes = some_codes(patches)
    back = unpatchify(patchify(codes, LAYOUT, SIZE), LAYOUT, SIZE)
    assert all(np.array_equal(a, b) for a, b in zip(codes, back, strict=True))


def test_patchify_leaves_its_codes_untouched():
    codes = some_codes(3)
    copies = tuple(level.copy() for level in codes)
    patchify(codes, LAYOUT, SIZE)
    assert all(np.array_equal(a, b) for a, b in zip(codes, copies, strict=True))


def test_eos_patch_is_end_of_speech_at_every_position():
    config = Mars6Config(codebook_size=SIZE)
    assert eos_patch(config).tolist() == [[30] * 7]


def test_codes_of_another_layout_are_refused_in_one_sentence():
    codes = some_codes(3)
    with pytest.raises(DataError, match="3 levels, got 2"):
        patchify(codes[:2], LAYOUT, SIZE)
    with pytest.raises(DataError, match="level 1 has 5 codes"):
        patchify((codes[0], codes[1][:-1], codes[2]), LAYOUT, SIZE)
    with pytest.raises(DataError, match="codebook holds 0 to 9"):
        patchify((codes[0] + 10, *codes[1:]), LAYOUT, SIZE)
    with pytest.raises(DataError, match="patches of 7"):
        unpatchify(np.zeros((2, 6), dtype=np.int64), LAYOUT, SIZE)
    with pytest.raises(DataError, match="level 0 has codes from"):
        unpatchify(eos_patch(Mars6Config(codebook_size=SIZE)), LAYOUT, SIZE)
