"""What is recorded of the published MARS5, and an examination of its files against it.

Upstream: the files of AR and NAR, `.pt` or safetensors.  Downstream: `published` (before a file is used),
`marstts doctor`.
Names and sizes are those of the released classes; nobody here has seen the tensors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marstts.io.reading import printable_name
from marstts.mars5 import released
from marstts.mars5.ar import CodecLM
from marstts.mars5.config import CodecLMConfig, ResidualTransformerConfig
from marstts.mars5.nar import ResidualTransformer
from marstts.mars5.text import END_OF_SPEECH, END_OF_TEXT, START_OF_TEXT
from marstts.text.tokenizers.minbpe import parse_minbpe
from marstts.weights.examination import (
    FETCH_AGAIN,
    Finding,
    Kind,
    archive_findings,
    attempt,
    depth,
    digest,
    published_shapes,
    shape_findings,
    size_findings,
    tensor_findings,
    vocabulary_findings,
)
from marstts.weights.pretrained import read_metadata
from marstts.weights.published_checkpoint import check_file, inferring_sizes, read_content, sizes_only

FORMATS = ("float16",)

AR_STACKS = {"layers": "ar", "speaker_layers": "spk_encoder"}
NAR_STACKS = {"encoder_layers": "tfm.encoder", "decoder_layers": "tfm.decoder", "speaker_layers": "spk_encoder"}
"""Stacks of layers by the size that counts them."""

AR_ONLY, NAR_ONLY = "ar.output.weight", "text_embed.weight"
"""A tensor that only one of the two models has."""


@dataclass(frozen=True)
class Recorded:
    """What is known of the release: sizes of both models, by their names in its configuration."""

    ar: Mapping[str, int]
    nar: Mapping[str, int]
    ar_heads: int | None = None
    nar_heads: int | None = None
    """Heads of the speaker encoder, and of the NAR; None = width / 64."""


RECORDED = Recorded(
    {
        "width": 1536, "layers": 26, "heads": 24, "feed_forward_width": 3584, "speaker_layers": 2,
        "speaker_feed_forward_width": 4608, "levels": 8, "codebook_size": 1024,
    },
    {
        "width": 1024, "encoder_layers": 8, "decoder_layers": 16, "speaker_layers": 3, "feed_forward_width": 3072,
        "timestep_width": 1024, "levels": 8, "codebook_size": 1024,
    },
)  # fmt: skip


@dataclass(frozen=True)
class Examined:
    """What was found in a file, and what the other one is compared with."""

    findings: list[Finding]
    texts: Mapping[str, str]
    """Tokenizers by their names in the file."""

    config: CodecLMConfig | ResidualTransformerConfig | None
    shapes: Mapping[str, tuple[int, ...]]


def examine(ar: Path, nar: Path, recorded: Recorded = RECORDED) -> list[Finding]:
    """Everything in which the files of a release are broken or differ from what is recorded; empty for sound ones."""
    ar_name, nar_name = printable_name(ar.name), printable_name(nar.name)
    if ar_name == nar_name:
        ar_name, nar_name = f"AR {ar_name}", f"NAR {nar_name}"
    first = examine_file(ar, ar_name, recorded, is_ar=True)
    second = examine_file(nar, nar_name, recorded, is_ar=False)
    findings = first.findings + second.findings
    if first.texts or first.shapes:
        findings += tokenizer_findings(ar_name, first)
    text_ids, rows = count_ids(first.texts.get(released.TEXT_TOKENIZER), 256), second.shapes.get(NAR_ONLY, (0,))[0]
    if text_ids and rows and rows != text_ids + 1:
        expected = f"{text_ids + 1} rows, one more than the text tokenizer has ids"
        findings.append(Finding(f"{nar_name}: {NAR_ONLY}", expected, str(rows), FETCH_AGAIN, Kind.DIFFERENCE))
    for name, text in first.texts.items():
        other = second.texts.get(name)
        if other is None and second.shapes:
            remedy = "the AR's is used; compare with the release"
            findings.append(Finding(f"{nar_name}: {name}", "the tokenizer that the AR has", "none", remedy, Kind.DOUBT))
        elif other is not None and other != text:
            remedy = "fetch both files from one release"
            findings.append(Finding(f"{nar_name}: {name}", "the tokenizer that the AR has", "another one", remedy))
    return findings


def examine_file(path: Path, name: str, recorded: Recorded, *, is_ar: bool) -> Examined:
    """Container, tensors and sizes of one of the two files."""
    findings = archive_findings(path)
    content = attempt(lambda: read_entries(path), name, findings) if path.is_file() else None
    if content is None:
        return Examined(findings, {}, None, {})
    stored, vocab = content.get("model"), content.get("vocab")
    texts = (
        {str(key): text for key, text in vocab.items() if isinstance(text, str)} if isinstance(vocab, Mapping) else {}
    )
    if not isinstance(stored, Mapping):
        findings.append(Finding(name, "the entries 'model' and 'vocab'", str(sorted(map(str, content))), FETCH_AGAIN))
        return Examined(findings, texts, None, {})
    tensors = {str(key): tensor for key, tensor in stored.items()}
    shapes = {key: tuple(tensor.shape) for key, tensor in tensors.items() if hasattr(tensor, "shape")}
    mine, other = (AR_ONLY, NAR_ONLY) if is_ar else (NAR_ONLY, AR_ONLY)
    if other in shapes and mine not in shapes:
        kinds = ("the AR's tensors", "the NAR's") if is_ar else ("the NAR's tensors", "the AR's")
        findings.append(Finding(name, *kinds, "exchange the two files: the AR first, the NAR by --nar"))
        return Examined(findings, texts, None, {})
    findings += tensor_findings(name, tensors, FORMATS)
    real = {key: tensor for key, tensor in tensors.items() if key in shapes}
    infer = ar_sizes(recorded, texts) if is_ar else nar_sizes(recorded)
    config = attempt(lambda: infer_sizes(name, real, infer), name, findings)
    if config is None:
        return Examined(findings, texts, None, shapes)
    stacks = AR_STACKS if is_ar else NAR_STACKS
    config = config.model_copy(update={size: depth(real, stack) for size, stack in stacks.items()})
    model: Any = CodecLM if is_ar else ResidualTransformer
    ours = {key: tuple(tensor.shape) for key, tensor in sizes_only(model, config).state_dict().items()}
    names: Iterable[Any] = released.ar_names(config) if is_ar else released.nar_names(config)
    findings += shape_findings(name, shapes, published_shapes(ours, names, released.ROWS))
    findings += size_findings(name, config.model_dump(), recorded.ar if is_ar else recorded.nar)
    return Examined(findings, texts, config, shapes)


def read_entries(path: Path) -> Mapping[str, Any]:
    """The entries of a file: "model", and "vocab" with the tokenizers."""
    check_file(path, None)
    content = read_content(path)
    return content if path.suffix == ".pt" else {"model": content, "vocab": read_metadata(path)}


def infer_sizes(source: str, tensors: Mapping[str, Any], infer: Callable[[Mapping[str, Any]], Any]) -> Any:
    """Sizes that `infer` returns for the tensors; CheckpointError where they are no such model's."""
    with inferring_sizes(source, "MARS5"):
        return infer(tensors)


def ar_sizes(recorded: Recorded, texts: Mapping[str, str]) -> Callable[[Mapping[str, Any]], CodecLMConfig]:
    """How the AR's sizes are read off its tensors."""
    text_ids = count_ids(texts.get(released.TEXT_TOKENIZER), 256) or 1
    return lambda tensors: released.infer_ar(tensors, text_ids, recorded.ar_heads)


def nar_sizes(recorded: Recorded) -> Callable[[Mapping[str, Any]], ResidualTransformerConfig]:
    """How the NAR's sizes are read off its tensors."""
    return lambda tensors: released.infer_nar(tensors, recorded.nar_heads)


def count_ids(text: str | None, base: int) -> int:
    """Ids of a tokenizer in minbpe's format; 0 where it is none."""
    try:
        special, merges = parse_minbpe(text or "")
    except (ValueError, IndexError):
        return 0
    return max(base + len(merges), *(index + 1 for index in special.values()), 0)


def tokenizer_findings(source: str, ar: Examined) -> list[Finding]:
    """What is wrong with the two tokenizers of the AR's file, whose ids together are the rows of its table."""
    findings: list[Finding] = []
    codes = ar.shapes.get("ref_chunked_emb.embs.0.weight", (1025,))[0] - 1
    counts = []
    for name, base, needed in (
        (released.TEXT_TOKENIZER, 256, (START_OF_TEXT, END_OF_TEXT)),
        (released.SPEECH_TOKENIZER, codes, (END_OF_SPEECH,)),
    ):
        what, text = f"{source}: {name}", ar.texts.get(name)
        if text is None:
            findings.append(Finding(what, "a tokenizer", "none", FETCH_AGAIN))
            continue
        try:
            special, merges = parse_minbpe(text)
        except (ValueError, IndexError) as error:
            findings.append(Finding(what, "a tokenizer in minbpe's format", str(error), FETCH_AGAIN))
            continue
        findings += vocabulary_findings(what, special, len(merges), base, needed, None)
        counts.append(len({*range(base + len(merges)), *special.values()}))
    rows = ar.shapes.get("embed.weight", (0,))[0]
    if len(counts) == 2 and rows and sum(counts) != rows:
        found = f"{counts[0]} of text and {counts[1]} of speech"
        findings.append(Finding(f"{source}: tokenizers", f"{rows} ids, the rows of embed.weight", found, FETCH_AGAIN))
    return findings


def digests(ar: Path, nar: Path) -> dict[str, str]:
    """The digest of each tensor by its published name, and of the tokenizers."""
    found: dict[str, str] = {}
    for model, path in (("AR", ar), ("NAR", nar)):
        container = released.read_container(path)
        found |= {f"{model}: {name}": digest(tensor) for name, tensor in container.tensors.items()}
        for name, text in (
            (released.TEXT_TOKENIZER, container.text_tokenizer),
            (released.SPEECH_TOKENIZER, container.speech_tokenizer),
        ):
            if text is not None:
                found[f"{model}: {name}"] = hashlib.sha256(text.encode()).hexdigest()
    return found
