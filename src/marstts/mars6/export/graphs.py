"""MARS6 as ONNX graphs, so that speaking needs no PyTorch.

Upstream: `model.Mars6`, trained.  Downstream: `engines.onnx`, which runs what `export_mars6` writes.
The graphs are written by `encoder_graph` and `decoder_graphs`.
"""

from __future__ import annotations

from pathlib import Path

from marstts.io.config import write_config
from marstts.io.precision import WeightFormat
from marstts.mars6.config import CONFIG_FILE, WEIGHTS_FILE
from marstts.mars6.export.encoder_graph import write_graphs
from marstts.mars6.model import Mars6
from marstts.onnx.export import export_graphs


def export_mars6(model: Mars6, folder: Path, storage: WeightFormat = WeightFormat.FLOAT16) -> None:
    """Write the folder that `engines.onnx.OnnxEngine` runs: config.json, mars6.safetensors, and the graphs.

    The model ends up on the CPU with parameters rounded as the graphs have them.
    """
    model = model.float().cpu().eval()
    export_graphs(folder, WEIGHTS_FILE, model, {}, storage)
    write_config(model.config, folder / CONFIG_FILE)
    write_graphs(model.config, folder, WEIGHTS_FILE)
