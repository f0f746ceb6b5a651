"""Export of a codec: from the run folder of its training to the folder that `codec.mini.MiniCodec` runs.

Upstream: checkpoints of `task`.  Downstream: `marstts train codec --export`, bundles.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import torch
from torch import nn

from marstts.codec.base import SPEAKER_FOLDER
from marstts.codec.mini import CONFIG_FILE, WEIGHTS_FILE, MiniCodecFolder
from marstts.codec.mini_graphs import (
    CodesGraph,
    HiddenGraph,
    PitchGraph,
    RecognizerGraph,
    SourceFilterGraph,
    TimbreGraph,
)
from marstts.codec.mini_model import MiniCodecModel
from marstts.codec.mini_recognizer import NUM_MELS
from marstts.errors import ConfigError
from marstts.io.config import read_config, write_config
from marstts.onnx.export import Graph, export_graphs
from marstts.speaker.mini_model import MiniEncoderModel
from marstts_lab.training.checkpoint import checkpoints, first_readable, read_tensors
from marstts_lab.training.codec.config import CodecTrainingConfig
from marstts_lab.training.speaker.campplus import CamPlusPlus
from marstts_lab.training.speaker.export import export_encoder

INT8_PARTS = ("recognizer.", "encoder.")
"""Parts of a codec with a recognizer whose matrices are stored in int8, to keep the package small.

Codebooks are not among them, and not the timbre encoder, whose embeddings are stored in voices. The decoder is not
either: in int8 it loses words, and its weights are no longer a state that a training could go on from.
"""


def export_codec(
    model: MiniCodecModel, name: str, folder: Path, speaker: MiniEncoderModel | CamPlusPlus | None = None
) -> None:
    """Write config.json, codec.safetensors and the graphs; weights in fp16, or int8 for `INT8_PARTS`.

    `speaker`: the encoder of a codec with `timbre_speaker_size`, written to a sub-folder, matrices in int8.
    ConfigError where it is missing or has embeddings of another length.
    """
    check_speaker(model.config.timbre_speaker_size, speaker)
    model = model.float().cpu().eval()
    config = model.config
    frames = config.hop_lengths[0] // config.hop
    positions = sum(config.strides[0] // stride for stride in config.strides)
    mels = torch.randn(1, 5, frames, config.num_mels)
    codes = torch.zeros(1, 5, positions, dtype=torch.int64)
    hidden = torch.randn(1, 20, config.decoder_width)
    timbre = {"timbre": torch.randn(1, config.timbre_width)} if config.timbre_width else {}
    features = torch.randn(1, 5, config.strides[0], config.feature_width)
    encoded = {"mels": mels} | ({"features": features} if config.feature_width else {})
    graphs = {
        "encoder": Graph(CodesGraph(model), encoded, ["codes"], {name: {1: "patches"} for name in encoded}),
        "decoder": Graph(HiddenGraph(model), {"codes": codes} | timbre, ["hidden"], {"codes": {1: "patches"}}),
        "filters": Graph(
            SourceFilterGraph(model),
            {"hidden": hidden} | timbre,
            ["pulse_gain", "noise_gain", "shift"],
            {"hidden": {1: "latents"}},
        ),
        "pitch": Graph(PitchGraph(model), {"codes": codes} | timbre, ["pitch"], {"codes": {1: "patches"}}),
    }
    if config.timbre_width:
        reference = {"mels": torch.randn(1, config.timbre_mels, 200)}
        if config.timbre_speaker_size:
            reference["speaker"] = torch.randn(1, config.timbre_speaker_size)
        graphs["timbre"] = Graph(TimbreGraph(model), reference, ["timbre"], {"mels": {2: "frames"}})
    if config.recognizer_layers:
        spectra = torch.randn(1, NUM_MELS, 100)
        graphs["recognizer"] = Graph(RecognizerGraph(model), {"mels": spectra}, ["features"], {"mels": {2: "frames"}})
    export_graphs(folder, WEIGHTS_FILE, model, graphs, int8=INT8_PARTS if config.recognizer_layers else ())
    if speaker is not None:
        export_encoder(speaker, folder / SPEAKER_FOLDER, int8=True)
    described = MiniCodecFolder(name=name, timbre_encoder=timbre_encoder_name(model, speaker), model=config)
    write_config(described, folder / CONFIG_FILE)


def copy_notices(speaker: Path, codec: Path) -> None:
    """Copy license and notice of a speaker encoder's folder, if it has them, to an exported codec's."""
    for name in ("LICENSE", "NOTICE"):
        if (speaker / name).is_file():
            shutil.copyfile(speaker / name, codec / SPEAKER_FOLDER / name)


def check_speaker(size: int, speaker: MiniEncoderModel | CamPlusPlus | None) -> None:
    """ConfigError unless a codec with this `timbre_speaker_size` has an encoder of it, or needs none and has none."""
    found = 0 if speaker is None else speaker.config.size
    if size != found:
        raise ConfigError(
            f"the codec's timbre embeddings depend on a speaker embedding of length {size} (model.timbre_speaker_size; "
            f"0 = on none), but its speaker encoder has {found}; name the folder of the encoder in [timbre_speaker]"
        )


def timbre_encoder_name(model: MiniCodecModel, speaker: nn.Module | None = None) -> str:
    """A name that changes with all weights that make timbre embeddings, for codes stay valid with others of them."""
    if model.timbre_encoder is None:
        return ""
    digest = hashlib.sha256()
    for part in (model.timbre_encoder, model.timbre_speaker, model.timbre_f0, speaker):
        for tensor in {} if part is None else part.state_dict().values():
            digest.update(tensor.half().numpy().tobytes())
    return f"timbre-{digest.hexdigest()[:8]}"


def load_codec(run: Path) -> MiniCodecModel:
    """The codec of a run's newest readable checkpoint, or of an exported folder; CheckpointError if it is malformed."""
    candidates = checkpoints(run)
    if not candidates:
        model = MiniCodecModel(read_config(MiniCodecFolder, run / CONFIG_FILE).model)
        model.load_state_dict(read_tensors(run / WEIGHTS_FILE, model.state_dict()))
        return model
    model = MiniCodecModel(read_config(CodecTrainingConfig, run / CONFIG_FILE).model)
    expected = model.state_dict()
    model.load_state_dict(first_readable(candidates, lambda one: read_tensors(one / WEIGHTS_FILE, expected)))
    return model
