"""An examination of published weights: what is wrong with a file, by tensor, and where it differs from a release.

Upstream: files of checkpoints, tensors that were read from them.  Downstream: `mars6.examined`, `mars5.examined`, which
know the names and sizes of their releases.
Each `Finding` is one line: what was expected, what was found, what to do. Nothing here raises for a faulty file, and
nothing here unpickles one.
"""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from marstts.errors import CheckpointError, MarsError
from marstts.io.reading import printable_name, printable_text

if TYPE_CHECKING:
    from torch import Tensor

MAX_NAMED = 8
"""Findings of one kind that are listed; the rest are counted."""

FAMILY_RATIO = {True: 30.0, False: 100.0}
"""Factor between the root mean square of a matrix (True) or vector and that of its likes that is wrong."""

MAX_ROOT, MIN_ROOT, MAX_GAIN = 20.0, 1e-4, 150.0
"""Bounds for a matrix: its root mean square, and that times the square root of its columns."""

MAX_VECTOR, MAX_SCALAR = 200.0, 1000.0
"""Bounds of the root mean square of a vector, and of a single number."""

MAX_HEADER_BYTES = 16 * 2**20

MAX_ID, MAX_DEPTH = 2**20, 256
"""Largest id of a tokenizer, and most layers of a stack, that are counted up to."""

FETCH_AGAIN = "fetch the file again"

AS_RELEASE_REMEDY = ". `marstts doctor` lists all of it; `marstts convert --name NAME` uses files that only differ"
"""What to do where the files of a published model are refused."""


class Kind(str, Enum):
    """What follows from a finding."""

    DEFECT = "defect"
    """The file is broken, or contradicts itself: it is not used."""

    DIFFERENCE = "difference"
    """It differs from what is recorded of the release: it is not used under the release's name."""

    DOUBT = "doubt"
    """It is unusual, and may be right: it is used, and the line is shown."""


@dataclass(frozen=True)
class Finding:
    """One line of an examination."""

    what: str
    """File, tensor, or number."""

    expected: str
    found: str
    remedy: str
    kind: Kind = Kind.DEFECT

    def __str__(self) -> str:
        line = f"{self.what}: expected {self.expected}, found {self.found}; {self.remedy}"
        return printable_text(line, 600)


def refuse(findings: Sequence[Finding], *, as_release: bool, remedy: str = "") -> None:
    """CheckpointError that lists the findings with which a file is not used, if there are any.

    `as_release`: the file is to be used under the release's name, so differences count; `remedy` ends the message.
    """
    kinds = (Kind.DEFECT, Kind.DIFFERENCE) if as_release else (Kind.DEFECT,)
    bad = [finding for finding in findings if finding.kind in kinds]
    if bad:
        rest = f"; and {len(bad) - MAX_NAMED} more" if len(bad) > MAX_NAMED else ""
        raise CheckpointError(f"{'; '.join(map(str, bad[:MAX_NAMED]))}{rest}{remedy}")


def attempt(action: Callable[[], Any], what: str, findings: list[Finding], remedy: str = FETCH_AGAIN) -> Any:
    """The result of reading a part, or None and a finding where it is refused."""
    try:
        return action()
    except MarsError as error:
        findings.append(Finding(what, "a readable file", str(error).removeprefix(f"{what}: "), remedy))
        return None


# Files: are they whole?


def archive_findings(path: Path) -> list[Finding]:
    """What is wrong with the container of a checkpoint: cut short, other checksums, unreadable."""
    name = printable_name(path.name)
    if not path.is_file():
        return [Finding(name, "a file", "none", "check the path")]
    if path.suffix == ".safetensors":
        return safetensors_findings(path, name)
    try:
        return zip_findings(path, name)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, EOFError) as error:
        with path.open("rb") as file:
            start = file.read(4)
        if start == b"PK\x03\x04":
            found = f"an archive of {path.stat().st_size} bytes that was cut short: its end is missing"
        else:
            found = f"{path.stat().st_size} bytes that are none ({error})"
        return [Finding(name, "a whole PyTorch checkpoint", found, FETCH_AGAIN)]


def zip_findings(path: Path, name: str) -> list[Finding]:
    """Entries of an archive whose checksum differs from the one that was stored with them."""
    findings = []
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        unfolded = sum(entry.file_size for entry in entries)
        if unfolded > path.stat().st_size or any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            return [Finding(name, "entries that are not compressed", f"{unfolded} bytes unfolded", FETCH_AGAIN)]
        for entry in entries:
            try:
                with archive.open(entry) as file:
                    while file.read(2**20):
                        pass
            except (zipfile.BadZipFile, EOFError, OSError) as error:
                findings.append(Finding(f"{name}: {entry.filename}", "its stored checksum", str(error), FETCH_AGAIN))
    return limited(findings, name)


def safetensors_findings(path: Path, name: str) -> list[Finding]:
    """Whether a file has all bytes that its header lists."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = file.read(length) if length <= min(MAX_HEADER_BYTES, size) else b""
    if len(header) < length or size < 8:
        return [Finding(name, "a safetensors file", f"{size} bytes, too few for its header", FETCH_AGAIN)]
    try:
        ends = [entry["data_offsets"][1] for key, entry in json.loads(header).items() if key != "__metadata__"]
        whole = 8 + length + max(ends, default=0)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        return [Finding(name, "the header of a safetensors file", "something else", FETCH_AGAIN)]
    if size != whole:
        what = "cut short" if size < whole else "longer than its header says"
        return [Finding(name, f"{whole} bytes", f"{size}: it is {what}", FETCH_AGAIN)]
    return []


# Tensors, by name.


def shape_findings(
    source: str, shapes: Mapping[str, tuple[int, ...]], expected: Mapping[str, tuple[int, ...]]
) -> list[Finding]:
    """Tensors that are missing, not expected, or of another shape; a whole layer that is missing is one line."""
    missing, extra = sorted(expected.keys() - shapes.keys()), sorted(shapes.keys() - expected.keys())
    findings = []
    layers = {layer_of(name) for name in missing} - {layer_of(name) for name in shapes} - {""}
    for layer in sorted(layers):
        count = sum(layer_of(name) == layer for name in missing)
        findings.append(Finding(f"{source}: {layer}", f"{count} tensors", "none", FETCH_AGAIN))
    for name in missing:
        if layer_of(name) not in layers:
            alike = [other for other in extra if shapes[other] == expected[name]]
            also = f" (but {alike[0]}, which is not expected, has its shape)" if len(alike) == 1 else ""
            found = f"none{also}"
            findings.append(Finding(f"{source}: {name}", f"a tensor of shape {expected[name]}", found, FETCH_AGAIN))
    surplus = {layer_of(name) for name in extra} - {layer_of(name) for name in expected} - {""}
    for layer in sorted(surplus):
        count = sum(layer_of(name) == layer for name in extra)
        findings.append(Finding(f"{source}: {layer}", "no such layer", f"{count} tensors", FETCH_AGAIN))
    for name in extra:
        if layer_of(name) not in surplus:
            findings.append(Finding(f"{source}: {name}", "no such tensor", f"one of shape {shapes[name]}", FETCH_AGAIN))
    for name in sorted(expected.keys() & shapes.keys()):
        if shapes[name] != expected[name]:
            turned = " (it is transposed)" if shapes[name] == expected[name][::-1] else ""
            findings.append(
                Finding(f"{source}: {name}", f"shape {expected[name]}", f"{shapes[name]}{turned}", FETCH_AGAIN)
            )
    return limited(findings, source)


def depth(names: Iterable[str], stack: str) -> int:
    """Number of the last layer of a stack, and one; layers beyond MAX_DEPTH do not count."""
    found = (re.match(rf"{re.escape(stack)}\.layers\.(\d{{1,6}})\.", name) for name in names)
    numbers = (int(match[1]) + 1 for match in found if match)
    return max((number for number in numbers if number <= MAX_DEPTH), default=0)


def layer_of(name: str) -> str:
    """The layer that a tensor belongs to: "decoder.layers.3"; empty outside of layers."""
    match = re.match(r"(.*?layers\.\d+)\.", name)
    return match[1] if match else ""


def published_shapes(
    ours: Mapping[str, tuple[int, ...]], names: Iterable[tuple[str, tuple[str, ...]]], rows: Iterable[str]
) -> dict[str, tuple[int, ...]]:
    """Shapes by published names, from those of our tensors that their rows make up; `rows` are matrices of one row."""
    shapes = {}
    for name, parts in names:
        shapes[name] = (sum(ours[part][0] for part in parts), *ours[parts[0]][1:])
    return shapes | {name: (1, *shapes[name]) for name in rows}


def tensor_findings(source: str, tensors: Mapping[str, Any], formats: Sequence[str]) -> list[Finding]:
    """What is wrong with the numbers of tensors by name; `formats` are the number formats that a release may have."""
    import torch

    findings: list[Finding] = []
    sound: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        what = f"{source}: {name}"
        if not isinstance(tensor, torch.Tensor):
            findings.append(Finding(what, "a tensor", f"a {type(tensor).__name__}", FETCH_AGAIN))
        elif not tensor.is_floating_point():
            findings.append(Finding(what, "real numbers", format_of(tensor), "fetch weights that are not quantized"))
        elif not (finite := torch.isfinite(tensor)).all():
            count = tensor.numel() - int(finite.sum())
            findings.append(Finding(what, "finite numbers", f"{count} of {tensor.numel()} that are not", FETCH_AGAIN))
        else:
            sound[str(name)] = tensor
    findings += format_findings(source, sound, formats)
    findings += limited(list(constant_findings(source, sound)), source)
    findings += limited(list(scale_findings(source, sound)), source)
    findings += limited(list(row_findings(source, sound)), source)
    findings += limited(list(equal_findings(source, sound)), source)
    return findings


def format_of(tensor: Any) -> str:
    """Name of a number format: float16."""
    return str(tensor.dtype).removeprefix("torch.")


def format_findings(source: str, tensors: Mapping[str, Tensor], formats: Sequence[str]) -> list[Finding]:
    """Number formats that a release does not have, and single tensors of another one than the rest."""
    by_format = defaultdict(list)
    for name, tensor in tensors.items():
        by_format[format_of(tensor)].append(name)
    usual = max(by_format, key=lambda one: len(by_format[one]), default="")
    findings = []
    for found, names in by_format.items():
        what = f"{source}: {', '.join(names[:3])}{' …' if len(names) > 3 else ''}" if found != usual else source
        expected = " or ".join(formats) if found == usual else usual
        if found != usual or found not in formats:
            findings.append(Finding(what, expected, found, "compare with the release", Kind.DIFFERENCE))
    return findings


def is_matrix(tensor: Tensor) -> bool:
    """Whether a tensor has several rows."""
    return tensor.ndim >= 2 and tensor.shape[0] > 1


def constant_findings(source: str, tensors: Mapping[str, Tensor]) -> Iterator[Finding]:
    """Tensors of one number alone. Vectors count only where others of their kind differ: a new model's are constant."""
    constant = {
        name
        for name, tensor in tensors.items()
        if tensor.numel() > 1 and bool((tensor == tensor[0].flatten()[0]).all())
    }
    varied_families = {family(name) for name, tensor in tensors.items() if name not in constant and tensor.numel() > 1}
    singles_vary = any(
        name.endswith("bias") and not layer_of(name) and "norm" not in name and name not in constant for name in tensors
    )
    for name, tensor in tensors.items():
        value = float(tensor.flatten()[0]) if tensor.numel() else 0.0
        if tensor.numel() == 1:
            if value == 0:
                yield Finding(f"{source}: {name}", "a trained number", "0", FETCH_AGAIN)
        elif name in constant:
            is_single_bias = name.endswith("bias") and not layer_of(name) and "norm" not in name
            if is_matrix(tensor) or family(name) in varied_families or (is_single_bias and singles_vary):
                yield Finding(f"{source}: {name}", "trained numbers", f"{value:g} everywhere", FETCH_AGAIN)


def family(name: str) -> str:
    """The part of a layer that a tensor is, whichever layer and stack: "self_attn.in_proj_weight"."""
    return re.sub(r"\.\d+\.", ".#.", re.sub(r"^.*?layers\.\d+\.", "", name))


def scale_findings(source: str, tensors: Mapping[str, Tensor]) -> Iterator[Finding]:
    """Tensors whose numbers are absurdly large or small, against the same part of other layers, or by themselves."""
    roots = {name: root_mean_square(tensor) for name, tensor in tensors.items() if tensor.numel()}
    families = defaultdict(list)
    for name, tensor in tensors.items():
        if name in roots and roots[name] > 0:
            families[family(name), tuple(tensor.shape)].append(name)
    for (_, shape), names in families.items():
        usual = median(roots[name] for name in names)
        for name in names:
            root, matrix = roots[name], is_matrix(tensors[name])
            ratio = root / usual
            limit = FAMILY_RATIO[matrix]
            if len(names) > 2 and not 1 / limit < ratio < limit and (matrix or ratio > 1 or name.endswith("weight")):
                expected = f"numbers of about {usual:.2g}, as in {len(names) - 1} like it"
            elif bounds := out_of_bounds(root, shape, matrix):
                expected = bounds
            else:
                continue
            yield Finding(f"{source}: {name}", expected, f"of about {root:.2g}", FETCH_AGAIN)


def out_of_bounds(root: float, shape: tuple[int, ...], matrix: bool) -> str:
    """What a tensor's root mean square should be, where it is far from that; empty where it is possible."""
    if matrix:
        gain = root * float(shape[-1]) ** 0.5
        right = MIN_ROOT < root < MAX_ROOT and gain < MAX_GAIN
        return "" if right else f"numbers of {MIN_ROOT:g} to {min(MAX_ROOT, MAX_GAIN / shape[-1] ** 0.5):.2g}"
    largest = MAX_SCALAR if shape == (1,) else MAX_VECTOR
    return "" if root < largest else f"numbers up to {largest:g}"


def root_mean_square(tensor: Tensor) -> float:
    """The root mean square of a tensor's numbers."""
    return float(tensor.float().square().mean().sqrt())


def row_findings(source: str, tensors: Mapping[str, Tensor]) -> Iterator[Finding]:
    """Matrices with rows of zeros, but for the last one, which may stand for padding."""
    for name, tensor in tensors.items():
        if is_matrix(tensor):
            empty = ~(tensor != 0).flatten(start_dim=1).any(dim=1)
            count = int(empty[:-1].sum())
            if 0 < count < len(tensor) - 1:
                first = int(empty.nonzero()[0])
                found = f"{count} of {len(tensor)} rows of zeros, the first of them row {first}"
                yield Finding(f"{source}: {name}", "trained numbers in each row", found, FETCH_AGAIN, Kind.DOUBT)


def equal_findings(source: str, tensors: Mapping[str, Tensor]) -> Iterator[Finding]:
    """Tensors that hold the same numbers as another one, which no training yields."""
    alike = defaultdict(list)
    for name, tensor in tensors.items():
        if tensor.numel() > 1 and bool((tensor != tensor.flatten()[0]).any()):
            alike[tuple(tensor.shape), root_mean_square(tensor)].append(name)
    seen: dict[tuple[Any, ...], str] = {}
    for key, names in alike.items():
        for name in names if len(names) > 1 else ():
            first = seen.setdefault((key, digest(tensors[name])), name)
            if first != name:
                yield Finding(
                    f"{source}: {name}", "numbers of its own", f"those of {first}", FETCH_AGAIN, Kind.DIFFERENCE
                )


def digest(tensor: Tensor) -> str:
    """SHA-256 of a tensor's numbers in float32, whatever format they are stored in."""
    values = tensor.detach().float().contiguous().cpu().numpy()
    return hashlib.sha256(values.tobytes()).hexdigest()


def size_findings(source: str, found: Mapping[str, object], recorded: Mapping[str, object]) -> list[Finding]:
    """Sizes that differ from the release's."""
    return [
        Finding(f"{source}: {name}", str(value), str(found[name]), "fetch the release's file", Kind.DIFFERENCE)
        for name, value in recorded.items()
        if found[name] != value
    ]


def limited(findings: list[Finding], source: str) -> list[Finding]:
    """The first findings, and one that counts the others."""
    if len(findings) <= MAX_NAMED:
        return findings
    rest = findings[MAX_NAMED:]
    line = Finding(source, "none like these", f"{len(rest)} more", rest[0].remedy, rest[0].kind)
    return [*findings[:MAX_NAMED], line]


# Tokenizers.


def vocabulary_findings(
    source: str, special: Mapping[str, int], num_merges: int, base: int, needed: Sequence[str], rows: int | None
) -> list[Finding]:
    """What is wrong with the ids of a tokenizer: `base` ids, `num_merges` after them, then special tokens.

    `needed` special tokens must be there, in the order of their ids; `rows`: of the model's table, None = unknown.
    """
    largest = max(special.values(), default=0)
    if largest > MAX_ID or min(special.values(), default=0) < 0:
        return [Finding(source, f"ids up to {MAX_ID}", str(largest), "fetch the release's tokenizer")]
    findings = [
        Finding(source, f"the special token {token}", "none", "fetch the release's tokenizer")
        for token in needed
        if token not in special
    ]
    end = base + num_merges
    for token, index in special.items():
        if index < end:
            what = f"id {index}, which is that of a {'merge' if index >= base else 'byte or code'}"
            findings.append(
                Finding(f"{source}: {token}", f"an id of {end} or more", what, "compare with the release", Kind.DOUBT)
            )
    ids = {*range(end), *special.values()}
    gaps = [index for index in range(max(ids) + 1) if index not in ids]
    if gaps:
        found = f"{len(gaps)} ids that stand for nothing, the first of them {gaps[0]}"
        findings.append(Finding(source, f"{max(ids) + 1} entries", f"{found}: merges are missing", FETCH_AGAIN))
    elif rows is not None and len(ids) != rows:
        count = f"{len(ids)}: {base} + {num_merges} merges + {len(special)} special tokens"
        findings.append(Finding(source, f"{rows} entries, one for each row of the model", count, FETCH_AGAIN))
    order = [special[token] for token in needed if token in special]
    if order != sorted(order):
        found = ", ".join(f"{token} {special[token]}" for token in needed)
        findings.append(
            Finding(source, f"ids in the order {', '.join(needed)}", found, "they may be exchanged", Kind.DOUBT)
        )
    return findings
