"""Export of a speaker encoder: from the run folder of its training to the folder that `speaker.mini` runs.

Upstream: checkpoints of `task`.  Downstream: `marstts train speaker --export`, bundles.
"""

from __future__ import annotations

from pathlib import Path

import torch

from marstts.io.config import read_config, write_config
from marstts.onnx.export import Graph, export_graphs
from marstts.speaker.mini import CONFIG_FILE, GRAPH_FILE, WEIGHTS_FILE, MiniEncoderConfig
from marstts.speaker.mini_model import MiniEncoderModel
from marstts_lab.training.checkpoint import checkpoints, first_readable, read_tensors
from marstts_lab.training.speaker.campplus import CamPlusPlus
from marstts_lab.training.speaker.config import SpeakerTrainingConfig


def load_frozen(folder: Path) -> MiniEncoderModel | CamPlusPlus:
    """The encoder of a run or of an exported folder, CAM++ too, to judge voices; CheckpointError if malformed."""
    if checkpoints(folder) or read_config(MiniEncoderConfig, folder / CONFIG_FILE).network == "mini":
        return load_encoder(folder).requires_grad_(False)
    model = CamPlusPlus(read_config(MiniEncoderConfig, folder / CONFIG_FILE))
    model.load_state_dict(read_tensors(folder / WEIGHTS_FILE, model.state_dict()))
    return model.eval().requires_grad_(False)


def load_encoder(run: Path) -> MiniEncoderModel:
    """The encoder of a run's newest readable checkpoint, or of an exported folder; CheckpointError if malformed."""
    candidates = checkpoints(run)
    if not candidates:
        model = MiniEncoderModel(read_config(MiniEncoderConfig, run / CONFIG_FILE))
        model.load_state_dict(read_tensors(run / WEIGHTS_FILE, model.state_dict()))
        return model.eval()
    model = MiniEncoderModel(read_config(SpeakerTrainingConfig, run / CONFIG_FILE).model)
    expected = model.state_dict()
    model.load_state_dict(first_readable(candidates, lambda one: read_tensors(one / WEIGHTS_FILE, expected)))
    return model.eval()


def export_encoder(model: MiniEncoderModel | CamPlusPlus, folder: Path, *, int8: bool = False) -> None:
    """Write config.json, encoder.safetensors (fp16, or matrices in int8) and encoder.onnx."""
    model = model.float().cpu().eval()
    with torch.no_grad():
        for buffer in model.buffers():
            buffer.copy_(buffer.half().float())  # as `export_graphs` does with the parameters
    mels = torch.randn(1, model.config.num_mels, 200)
    graph = Graph(model, {"log_mel": mels}, ["embedding"], {"log_mel": {2: "frames"}})
    export_graphs(folder, WEIGHTS_FILE, model, {Path(GRAPH_FILE).stem: graph}, int8=("",) if int8 else ())
    write_config(model.config, folder / CONFIG_FILE)
