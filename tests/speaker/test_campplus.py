"""CAM++: the published tensors, converted by the recipe, against the network written out operation by operation."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from campplus_weights import published
from marstts.audio.spectral import log_mel
from marstts_lab.training.speaker import campplus
from marstts_lab.training.speaker.export import load_frozen

RECIPE = Path(__file__).parents[2] / "recipes" / "mini" / "campplus.py"
BLOCKS = ((2, 1), (1, 2), (2, 2))

pytestmark = pytest.mark.slow


def embed(t: dict[str, Tensor], mels: Tensor) -> Tensor:
    """CAM++ by its published tensors: log-mel (B, M, T) of powers -> (B, 192) of unit length."""

    def norm(x: Tensor, name: str) -> Tensor:
        mean, variance = t[f"{name}.running_mean"], t[f"{name}.running_var"]
        return F.batch_norm(x, mean, variance, t.get(f"{name}.weight"), t.get(f"{name}.bias"))

    def bands(x: Tensor, name: str, stride: int) -> Tensor:
        y = F.relu(norm(F.conv2d(x, t[f"{name}.conv1.weight"], None, (stride, 1), 1), f"{name}.bn1"))
        y = norm(F.conv2d(y, t[f"{name}.conv2.weight"], None, 1, 1), f"{name}.bn2")
        if stride > 1:
            x = norm(F.conv2d(x, t[f"{name}.shortcut.0.weight"], None, (stride, 1)), f"{name}.shortcut.1")
        return F.relu(x + y)

    x = (mels - mels.mean(dim=2, keepdim=True))[:, None]
    x = F.relu(norm(F.conv2d(x, t["head.conv1.weight"], None, 1, 1), "head.bn1"))
    for layer in (1, 2):
        x = bands(bands(x, f"head.layer{layer}.0", 2), f"head.layer{layer}.1", 1)
    x = F.relu(norm(F.conv2d(x, t["head.conv2.weight"], None, (2, 1), 1), "head.bn2")).flatten(1, 2)
    x = F.conv1d(x, t["xvector.tdnn.linear.weight"], stride=2, padding=2)
    x = F.relu(norm(x, "xvector.tdnn.nonlinear.batchnorm"))
    for block, (layers, dilation) in enumerate(BLOCKS, 1):
        for layer in range(1, layers + 1):
            name = f"xvector.block{block}.tdnnd{layer}"
            y = F.conv1d(F.relu(norm(x, f"{name}.nonlinear1.batchnorm")), t[f"{name}.linear1.weight"])
            y = F.relu(norm(y, f"{name}.nonlinear2.batchnorm"))
            local = F.conv1d(y, t[f"{name}.cam_layer.linear_local.weight"], None, 1, dilation, dilation)
            columns = []
            for position in range(y.shape[2]):
                start = position // 100 * 100
                context = y.mean(dim=2) + y[:, :, start : start + 100].mean(dim=2)
                inner = [t[f"{name}.cam_layer.linear1.{part}"] for part in ("weight", "bias")]
                outer = [t[f"{name}.cam_layer.linear2.{part}"] for part in ("weight", "bias")]
                hidden = F.relu(F.linear(context, inner[0][:, :, 0], inner[1]))
                columns.append(torch.sigmoid(F.linear(hidden, outer[0][:, :, 0], outer[1])))
            x = torch.cat([x, local * torch.stack(columns, dim=2)], dim=1)
        x = F.relu(norm(x, f"xvector.transit{block}.nonlinear.batchnorm"))
        x = F.conv1d(x, t[f"xvector.transit{block}.linear.weight"])
    x = F.relu(norm(x, "xvector.out_nonlinear.batchnorm"))
    pooled = torch.cat([x.mean(dim=2), x.std(dim=2)], dim=1)
    projected = F.linear(pooled, t["xvector.dense.linear.weight"][:, :, 0])
    return F.normalize(norm(projected, "xvector.dense.nonlinear.batchnorm"), dim=1)


def test_the_converted_weights_compute_what_the_published_tensors_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    tensors = published(BLOCKS)
    torch.save(tensors, tmp_path / "published.pt")
    monkeypatch.setattr(campplus, "BLOCKS", BLOCKS)
    monkeypatch.setattr(sys, "argv", ["campplus.py", str(tmp_path / "published.pt"), str(tmp_path / "encoder")])
    runpy.run_path(str(RECIPE), run_name="__main__")
    network = load_frozen(tmp_path / "encoder")
    assert (
        "3D-Speaker" in (tmp_path / "encoder" / "NOTICE").read_text() and (tmp_path / "encoder" / "LICENSE").is_file()
    )
    for seconds in (1.1, 2.7):  # positions of less than one segment, and of two
        samples = np.random.default_rng(0).standard_normal(int(16_000 * seconds)).astype(np.float32)
        mels = log_mel(samples, 16_000, fft_size=512, hop=160, num_mels=80)
        expected = embed(tensors, 2 * torch.from_numpy(mels)[None])[0]
        found = network(torch.from_numpy(mels)[None])[0]
        assert float(found @ expected) > 0.9999
