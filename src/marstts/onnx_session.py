"""Opening an ONNX graph for the CPU, with the thread settings that speech wants.

Upstream: graphs written by `onnx_export`.  Downstream: the mini codec, the speaker encoders, the ONNX engine.
"""

from __future__ import annotations

from pathlib import Path

import onnxruntime

from marstts.errors import CheckpointError


def open_session(path: Path, threads: int = 1) -> onnxruntime.InferenceSession:
    """A CPU session over the graph at `path`; CheckpointError if the file is missing or damaged.

    One thread by default: steps are small, and threads that wait for each other cost more than they bring. Threads do
    not spin between calls, so that an idle synthesizer leaves the processor alone.
    """
    if not path.is_file():
        raise CheckpointError(f"{path}: expected an ONNX graph here; the model folder is incomplete")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises its own unrelated classes for every kind of damage
        raise CheckpointError(f"{path}: this ONNX graph cannot be loaded ({str(error).splitlines()[0]})") from error
