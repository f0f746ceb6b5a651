"""The examination of a model before it is used, and of a machine before hours of work begin on it.

Upstream: `marstts doctor`.  Downstream: `models`, `weights.examination`, synthesis, metrics.
A published model's files are compared with what is recorded of the release; then a trained model must still expect what
it once generated (`likelihood`), and speak three sentences. What cannot be compared is a note, never a finding.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from marstts import models
from marstts.audio import Waveform
from marstts.bundle import PUBLISHED, TOKENIZER_FILE, find_bundle, read_info
from marstts.codec.registry import CodecPart, open_codec
from marstts.errors import MarsError, check_installed
from marstts.generation.engine import EngineKind
from marstts.speaker.registry import EncoderPart, open_encoder
from marstts.synthesis.loading import has_gpu, open_synthesizer
from marstts.text.tokenizers.bpe import BPE
from marstts.weights.examination import Finding, Kind, attempt, digest, tensor_findings
from marstts.weights.release_record import (
    ReleaseRecord,
    digest_findings,
    length_findings,
    likelihood_findings,
    ranges,
    read_record,
    write_record,
)

SENTENCES = (
    "The ship left the harbor at dawn, and nobody saw it go.",
    "Well-known facts are seldom checked; that is how they stay well known.",
    "Please call me at half past nine tomorrow morning.",
)

SEED = 1

EXTRAS = {
    "torch": ("torch",),
    "train": ("torch", "tensorboard", "onnx", "onnxscript"),
    "data": ("torch", "pyarrow"),
    "released": ("torch", "snac", "transformers", "huggingface_hub", "onnx", "onnxscript"),
    "eval": (
        "faster_whisper", "jiwer", "distillmos", "pocketsphinx", "resemblyzer", "speechmos", "librosa", "requests",
        "pyworld", "matplotlib", "scipy",
    ),
    "ray": ("ray",),
    "eval-models": ("torch", "huggingface_hub", "utmos_pytorch"),
}  # fmt: skip
"""Packages to import, by the extra that installs them."""

BYTES_PER_GB = 10**9


@dataclass
class Examination:
    """What was found."""

    model: str
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What was measured, and what could not be compared, in one sentence each."""

    def of(self, kind: Kind) -> list[Finding]:
        """The findings of one kind."""
        return [finding for finding in self.findings if finding.kind is kind]


@dataclass(frozen=True)
class Parts:
    """Codec and encoders that replace those of a model; None or no entry = its own."""

    codec: Path | CodecPart | None = None
    encoders: Mapping[str, Path | EncoderPart] = field(default_factory=dict)


def examine_model(
    model: str,
    files: tuple[Path, Path] | None = None,
    parts: Parts | None = None,
    *,
    record: bool = False,
    reference: Path | None = None,
    speaks: bool = True,
    on_step: Callable[[str], None] = lambda step: None,
) -> Examination:
    """Examine a published model (by its files, or fetched), or a bundle by its name or folder.

    `record` stores what is found, to be compared with from then on; nothing is stored of a defective model. `speaks`
    False leaves out the sentences. `on_step` is called with a word before each part.
    """
    done, parts = Examination(model), parts or Parts()
    on_step("files")
    opened = open_files(done, model, files) if model in PUBLISHED else open_folder(done, model)
    if opened is None:
        done.notes.append("functional check: not made, since the files are not usable")
        return done
    module, tokenizer, architecture, digests, source = opened
    on_step("likelihood")
    old = None if record else read_record(done.model)
    found = examine_likelihood(done, models.likelihood_of(architecture), module, tokenizer, old)
    if old is not None:
        done.findings += digest_findings(done.model, digests, old)
    else:
        done.notes.append("digests of the tensors: not compared, for none are recorded (--record)")
    del module
    seconds: tuple[float, ...] = ()
    if speaks:
        on_step("sentences")
        seconds = examine_speech(done, source, parts, reference, old)
    if record and found is not None and not done.of(Kind.DEFECT):
        sequence, values = found
        made = ReleaseRecord(
            model=done.model, tensors=digests, sequence=sequence, log_likelihoods=ranges(values), seconds=seconds
        )
        done.notes.append(f"recorded in {write_record(made)}")
    return done


Opened = tuple[Any, BPE, str, dict[str, str], Any]
"""Module, tokenizer, architecture, digests by name, and where the model is spoken from."""


def open_files(done: Examination, model: str, files: tuple[Path, Path] | None) -> Opened | None:
    """Examine and read the files of a published model; None where they are not usable."""
    paths = attempt(lambda: files or models.fetch_published(model), model, done.findings, "give --file twice")
    if paths is None:
        return None
    done.findings += models.examine_published(model, paths)
    for role, path in zip(models.ROLES[model], paths, strict=True):
        done.notes.append(f"{role}: {path.name}, {path.stat().st_size if path.is_file() else 0} bytes")
    if done.of(Kind.DEFECT):
        return None
    loaded = attempt(lambda: models.load_published(model, paths), model, done.findings)
    return None if loaded is None else (*loaded, models.published_digests(model, paths), paths)


def open_folder(done: Examination, model: str) -> Opened | None:
    """Examine and read a bundle; None where it is not usable."""
    folder = find_bundle(model)
    info = read_info(folder)
    done.model = info.name
    module = attempt(lambda: models.load_for_training(folder), info.name, done.findings, "export or install it again")
    if module is None:
        return None
    tensors = models.likelihood_of(info.architecture).named_tensors(module)
    found = tensor_findings(info.name, tensors, ("float32",))
    done.findings += found
    digests = {name: digest(tensor) for name, tensor in tensors.items()}
    return module, BPE.load(folder / TOKENIZER_FILE), info.architecture, digests, folder


def examine_likelihood(
    done: Examination, computed: Any, module: Any, tokenizer: BPE, record: ReleaseRecord | None
) -> tuple[dict[str, Any], dict[str, float]] | None:
    """Compare the likelihood of the recorded sequence, or of a new one where there is no record; returns both."""
    try:
        sequence = computed.make_sequence(module, tokenizer) if record is None else record.sequence
        values = computed.log_likelihoods(module, tokenizer, sequence)
    except (LookupError, ValueError, TypeError, RuntimeError) as error:
        if record is None:
            raise
        found = f"one that it cannot read ({type(error).__name__})"
        done.findings.append(Finding(f"{done.model}: record", "a sequence of this model", found, "record it again"))
        return None
    except MarsError as error:
        done.findings.append(Finding(f"{done.model}: generation", "codes", str(error), "fetch the files again"))
        return None
    shown = ", ".join(f"{name} {value:.3f}" for name, value in values.items())
    compared = "not compared, for none is recorded (--record)" if record is None else "compared with the record"
    done.notes.append(f"log-likelihood: {shown} nats, by chance {computed.chance(module):.3f}; {compared}")
    if record is not None:
        done.findings += likelihood_findings(done.model, values, record)
    return sequence, values


def examine_speech(
    done: Examination, source: Any, parts: Parts, reference: Path | None, record: ReleaseRecord | None
) -> tuple[float, ...]:
    """Speak the sentences, and compare their lengths; nothing and a note where codec or encoders are not at hand."""
    try:
        spoken = (
            speak_files(done.model, source, parts, reference) if isinstance(source, tuple) else speak(source, reference)
        )
    except MarsError as error:
        done.notes.append(f"sentences: not spoken: {error}")
        return ()
    seconds = tuple(round(waveform.seconds, 2) for waveform in spoken)
    compared = "compared with the record" if record is not None and record.seconds else "not compared"
    done.notes.append(f"sentences: {', '.join(f'{one:.2f} s' for one in seconds)}; {compared}")
    if record is not None:
        done.findings += length_findings(done.model, seconds, record)
    return seconds


def speak_files(model: str, files: tuple[Path, Path], parts: Parts, reference: Path | None) -> list[Waveform]:
    """The sentences by a published model, in a bundle that is made for it."""
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work) / "bundle"
        if model == PUBLISHED[1]:
            models.convert_published_mars5(*files, folder, codec=parts.codec)
        else:
            models.convert_published(*files, folder, codec=parts.codec, encoders=parts.encoders)
        return speak(folder, reference)


def speak(bundle: Path, reference: Path | None) -> list[Waveform]:
    """The sentences in the voice of a recording, or in the default voice."""
    kind = EngineKind.CUDA if has_gpu() else EngineKind.TORCH
    synthesizer = open_synthesizer(bundle, kind)
    voice = None if reference is None else synthesizer.clone(reference)
    return [synthesizer.speak(text, voice, seed=SEED).waveform for text in SENTENCES]


# The machine, before hours of work.


@dataclass(frozen=True)
class Needs:
    """What a recipe needs."""

    parts: Parts = Parts()
    extras: Sequence[str] = ()
    """Extras whose packages must be installed."""

    device: str | None = None
    """PyTorch's name of the device."""

    folder: Path | None = None
    free_gb: float = 0.0
    """Free space (GB) that the disk of `folder` must have."""

    metrics: str | None = None
    """Metrics as `marstts evaluate` takes them, whose packages and weights must be there."""


def examine_machine(needs: Needs) -> list[Finding]:
    """What is missing on this machine; weights that are not there yet are fetched."""
    findings: list[Finding] = []
    for extra in needs.extras:
        attempt_need(partial(check_installed, EXTRAS[extra], extra), f"packages of {extra}", findings)
    if needs.device is not None and needs.device.startswith("cuda") and not has_gpu():
        remedy = "run on a machine with a GPU, or with DEVICE=cpu"
        findings.append(Finding(f"device {needs.device}", "a GPU that PyTorch finds", "none", remedy))
    if needs.folder is not None and needs.free_gb > 0:
        free = shutil.disk_usage(existing(needs.folder)).free / BYTES_PER_GB
        if free < needs.free_gb:
            remedy = "choose a folder on a larger disk, or make room"
            findings.append(Finding(f"disk of {needs.folder}", f"{needs.free_gb:g} GB free", f"{free:.1f} GB", remedy))
    if needs.parts.codec is not None:
        codec = needs.parts.codec
        attempt_need(lambda: open_codec(codec), f"codec {name_of(codec)}", findings)
    for role, part in needs.parts.encoders.items():
        attempt_need(partial(open_encoder, part, role), f"{role} encoder {name_of(part)}", findings)
    if needs.metrics:
        attempt_need(lambda: check_metrics(needs.metrics or ""), "metrics", findings)
    return findings


def attempt_need(action: Callable[[], Any], what: str, findings: list[Finding]) -> None:
    """Add a finding where something that is needed is not there; its message says what to do."""
    try:
        action()
    except MarsError as error:
        findings.append(Finding(what, "to be there", str(error), "before anything is computed"))


def check_metrics(names: str) -> None:
    """MissingExtraError or CheckpointError where a package or weights of a metric are missing."""
    if find_spec("marstts_lab") is None:
        raise MarsError("metrics are part of the package marstts_lab, which is not installed")
    panel = import_module("marstts_lab.metrics.panel")  # found by its name: nothing that speaks imports the lab
    config = panel.parse_metrics(names, None)
    missing = panel.missing_packages(config.names)
    if missing:
        raise MarsError("; ".join(missing))
    panel.fetch_weights(config)


def existing(folder: Path) -> Path:
    """The nearest folder above that exists."""
    folder = folder.absolute()
    return next(parent for parent in (folder, *folder.parents) if parent.exists())


def name_of(part: Any) -> str:
    """A part's folder, or its kind."""
    return str(part) if isinstance(part, Path) else str(part.kind)
