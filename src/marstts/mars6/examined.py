"""What is recorded of the published MARS6, and an examination of its files against it.

Upstream: `model-2000100.pt` or a safetensors file of the same tensors, `eng-tok-512.model`.  Downstream: `released`
(before a file is used), `marstts doctor`.
Names, sizes and keys are those of the released classes; nobody here has seen the tensors, so whatever is not known for
certain is a doubt, with which a file is still used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marstts.errors import CheckpointError
from marstts.io.reading import printable_name, printable_text, read_text
from marstts.mars6 import released
from marstts.mars6.config import Mars6Config
from marstts.text.tokenizers.minbpe import MAX_FILE_BYTES, parse_minbpe
from marstts.weights.examination import (
    FETCH_AGAIN,
    Finding,
    Kind,
    archive_findings,
    attempt,
    depth,
    digest,
    layer_of,
    published_shapes,
    shape_findings,
    size_findings,
    tensor_findings,
    vocabulary_findings,
)
from marstts.weights.pretrained import fingerprint, read_metadata
from marstts.weights.published_checkpoint import check_file, read_content, sizes_only

SPECIAL_TOKENS = ("<|startoftext|>", "<|endoftext|>")

CONFIG_KEYS = ("dim", "n_layers", "fast_n_layers", "languages")
"""Keys of `cfg` that the release reads; a safetensors file has the first three as metadata."""


STACKS = {"encoder_layers": "encoder", "global_layers": "decoder", "local_layers": "fastencoder"}
"""Stacks of layers by the size that counts them."""


@dataclass(frozen=True)
class Recorded:
    """What is known of the release."""

    sizes: Mapping[str, int]
    """Sizes of the model, by their names in its configuration."""

    text_rows: int | None = 512
    """Entries of the tokenizer; whether the release counts its special tokens among them is not known."""


RECORDED = Recorded(
    {
        "width": 512, "encoder_layers": 8, "global_layers": 8, "local_layers": 4, "codebook_size": 4096,
        "identity_size": 512, "style_size": 1024, "languages": 1,
    }
)  # fmt: skip


def examine(checkpoint: Path, tokenizer: Path, recorded: Recorded = RECORDED) -> list[Finding]:
    """Everything in which the files of a release are broken or differ from what is recorded; empty for a sound one."""
    name = printable_name(checkpoint.name)
    findings = archive_findings(checkpoint)
    vocabulary = attempt(lambda: read_vocabulary(tokenizer), printable_name(tokenizer.name), findings)
    content = (
        None if findings and not checkpoint.is_file() else attempt(lambda: read_entries(checkpoint), name, findings)
    )
    rows = None
    if content is not None:
        stored = content if checkpoint.suffix == ".safetensors" else content.get("model")
        if not isinstance(stored, Mapping):
            entries = printable_text(", ".join(map(str, content)), 80)
            findings.append(Finding(name, "the entries 'model' and 'cfg'", entries, FETCH_AGAIN))
        else:
            tensors = {str(key).replace("module.", ""): tensor for key, tensor in stored.items()}
            findings += examine_tensors(name, tensors, recorded, read_cfg(checkpoint, content))
            table: tuple[int, ...] = tuple(getattr(tensors.get("inp_emb.weight"), "shape", ()))
            rows = table[0] if len(table) == 2 else None
    if vocabulary is not None:
        special, merges = vocabulary
        findings += vocabulary_findings(printable_name(tokenizer.name), special, len(merges), 256, SPECIAL_TOKENS, rows)
    return findings


def read_entries(checkpoint: Path) -> Mapping[str, Any]:
    """The content of a checkpoint; CheckpointError where it is of another kind."""
    check_file(checkpoint, None)
    return read_content(checkpoint)


def read_vocabulary(path: Path) -> tuple[dict[str, int], list[tuple[int, int]]]:
    """Special tokens and merges of a file in minbpe's format; CheckpointError where it is none."""
    try:
        return parse_minbpe(read_text(path, MAX_FILE_BYTES, CheckpointError))
    except (ValueError, IndexError) as error:
        raise CheckpointError(f"a tokenizer in minbpe's format was expected, but {error}") from error


def read_cfg(checkpoint: Path, content: Mapping[str, Any]) -> Any:
    """The configuration that a checkpoint brings."""
    return read_metadata(checkpoint) if checkpoint.suffix == ".safetensors" else content.get("cfg")


def examine_tensors(source: str, tensors: Mapping[str, Any], recorded: Recorded, cfg: Any) -> list[Finding]:
    """Names, shapes, sizes and numbers of the tensors, and whether the configuration agrees with them."""
    from marstts.mars6.model import Mars6  # needs PyTorch

    findings = tensor_findings(source, tensors, ("float16", "float32", "bfloat16"))
    real = {name: tensor for name, tensor in tensors.items() if hasattr(tensor, "shape")}
    config = attempt(lambda: infer_config(real, source), source, failed := list[Finding]())
    if config is None:  # more layers than heads allow, perhaps: compare with those of the release
        kept = {name: one for name, one in real.items() if is_recorded(name, recorded)}
        config = attempt(lambda: infer_config(kept, source), source, findings)
    if config is None:
        return findings or failed
    ours = {name: tuple(tensor.shape) for name, tensor in sizes_only(Mars6, config).state_dict().items()}
    expected = published_shapes(ours, released.names(config), released.ROWS)
    shapes = {name: tuple(tensor.shape) for name, tensor in real.items()}
    findings += shape_findings(source, shapes, expected)
    findings += size_findings(source, config.model_dump(), recorded.sizes)
    if config.encoder_layers != config.global_layers:
        found = f"{config.encoder_layers} and {config.global_layers}"
        findings.append(Finding(source, "as many layers of the encoder as of the decoder", found, FETCH_AGAIN))
    if recorded.text_rows not in (None, config.text_vocab_size):
        findings.append(
            Finding(f"{source}: inp_emb.weight", f"about {recorded.text_rows} rows", str(config.text_vocab_size),
                    "compare with the release", Kind.DOUBT)
        )  # fmt: skip
    return findings + cfg_findings(source, cfg, config)


def infer_config(tensors: Mapping[str, Any], source: str) -> Mars6Config:
    """The sizes of the model, whose stacks have as many layers as their last one says; CheckpointError otherwise."""
    depths = {size: depth(tensors, stack) for size, stack in STACKS.items()}
    return released.infer_config(tensors, Path(source)).model_copy(update=depths)


def is_recorded(name: str, recorded: Recorded) -> bool:
    """Whether a tensor is in no layer, or in one that the release has."""
    layers = {f"{stack}.layers.{n}" for size, stack in STACKS.items() for n in range(recorded.sizes.get(size, 0))}
    return layer_of(name) in {"", *layers}


def cfg_findings(source: str, cfg: Any, config: Mars6Config) -> list[Finding]:
    """Keys that the configuration lacks, and values that the tensors contradict."""
    if not isinstance(cfg, Mapping) or not cfg:
        kind = printable_text(type(cfg).__name__)
        found = "none" if cfg is None or type(cfg) is dict else f"an object of the class {kind}"
        return [Finding(f"{source}: cfg", "a configuration", found, "the sizes are read from the tensors", Kind.DOUBT)]
    found_sizes = {
        "dim": config.width, "n_layers": config.encoder_layers, "fast_n_layers": config.local_layers,
        "languages": config.languages,
    }  # fmt: skip
    findings = []
    for key in CONFIG_KEYS:
        value = cfg.get(key)
        if key == "languages" and isinstance(value, (list, tuple)):
            value = len(value)
        if value is None:
            if key != "languages" or not all(isinstance(other, str) for other in cfg.values()):
                remedy = "the sizes are read from the tensors"
                findings.append(Finding(f"{source}: cfg", f"the key {key}", "none", remedy, Kind.DOUBT))
        elif str(value) != str(found_sizes[key]):
            findings.append(
                Finding(f"{source}: cfg: {key}", f"{found_sizes[key]}, as the tensors have", str(value), FETCH_AGAIN)
            )
    return findings


def digests(checkpoint: Path, tokenizer: Path) -> dict[str, str]:
    """The digest of each tensor by its published name, and of the tokenizer."""
    found = {name: digest(tensor) for name, tensor in released.read_released(checkpoint).items()}
    return found | {"tokenizer": fingerprint(tokenizer)}
