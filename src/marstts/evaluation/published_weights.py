"""An examination of published weights: what the files are, where they differ from what is recorded, how they speak.

Upstream: `marstts doctor`.  Downstream: `models` (conversion), `synthesis`, `metrics.recognition`.
The weights were never seen when this package was written; sizes, names and layouts are recorded from the released code.
Each fact is one `Check`. A file that is refused costs the checks that need it, and no others. `page` makes one page of
Markdown of all results: what a person sends back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from marstts import models
from marstts.audio import Waveform
from marstts.bundle import BUNDLE_FILE, TOKENIZER_FILE, Bundle, load_bundle, read_info
from marstts.codec.registry import CodecPart
from marstts.errors import CheckpointError, MarsError
from marstts.generation.engine import EngineKind
from marstts.io.config import write_config
from marstts.io.reading import read_text
from marstts.metrics.recognition import Recognizer, word_edits
from marstts.metrics.words import plain_words
from marstts.speaker.registry import EncoderPart
from marstts.synthesis.loading import open_synthesizer
from marstts.text.tokenizers.bpe import BPE
from marstts.text.tokenizers.minbpe import MAX_FILE_BYTES, parse_minbpe
from marstts.weights.pretrained import fingerprint, read_metadata, read_tensors
from marstts.weights.published_checkpoint import read_archive

SENTENCES = (
    "The ship left the harbor at dawn, and nobody saw it go.",
    "Well-known facts are seldom checked; that is how they stay well known.",
    "Please call me at half past nine tomorrow morning.",
)
"""One has a hyphen, which one of the published models never reads."""

SEED = 1

T = TypeVar("T")


@dataclass(frozen=True)
class Recorded:
    """What is known of a published model from its code."""

    sizes: Mapping[str, object]
    """Sizes of the model, by their names in its configuration, with dots."""

    special_tokens: tuple[str, ...]
    codec: Mapping[str, object]
    """Fields of the codec's description."""

    encoders: Mapping[str, int]
    """Length of the embeddings of each role that the bundle's encoders make."""

    profiles: Mapping[str, Mapping[str, object]]
    """Settings of the bundle by the name of a profile: each speaks the sentences."""

    weight_format: str | None = None
    """Number format in the files; None = unknown."""

    text_rows: str = "text_vocab_size"
    """The size that counts the entries of the text tokenizer."""


RECORDED = {
    "mars6-turbo": Recorded(
        sizes={
            "width": 512, "encoder_layers": 8, "global_layers": 8, "local_layers": 4, "codebook_size": 4096,
            "identity_size": 512, "style_size": 1024,
        },
        special_tokens=("<|startoftext|>", "<|endoftext|>"),
        codec={"sample_rate": 24_000, "codebook_size": 4096, "hop_lengths": (2048, 1024, 512)},
        encoders={"identity": 512, "style": 1024},
        profiles={"published spelling": {"spelling": "em dashes"}, "hyphens": {"spelling": "as written"}},
    ),
    "mars5-english": Recorded(
        sizes={
            "ar.width": 1536, "ar.layers": 26, "ar.heads": 24, "ar.feed_forward_width": 3584, "ar.speaker_layers": 2,
            "ar.speaker_feed_forward_width": 4608, "ar.levels": 8, "ar.codebook_size": 1024, "nar.width": 1024,
            "nar.encoder_layers": 8, "nar.decoder_layers": 16, "nar.speaker_layers": 3,
            "nar.feed_forward_width": 3072, "nar.timestep_width": 1024,
        },
        special_tokens=("<|startoftext|>", "<|endoftext|>"),
        codec={"sample_rate": 24_000, "codebook_size": 1024, "hop_lengths": (320,) * 8},
        encoders={},
        profiles={"released": {"profile": "released"}, "corrected": {"profile": "corrected"}},
        weight_format="float16",
        text_rows="ar.text_vocab_size",
    ),
}  # fmt: skip
"""By the model's name."""


@dataclass(frozen=True)
class Release:
    """The files of a published model, and the parts that it speaks with."""

    model: str
    """A name of `RECORDED`, whose format the files have."""

    files: Mapping[str, Path]
    """By role: "checkpoint" and "tokenizer", or "ar" and "nar"."""

    codec: Path | CodecPart | None = None
    """None = the published one."""

    encoders: Mapping[str, Path | EncoderPart] = field(default_factory=dict)


@dataclass(frozen=True)
class Check:
    """One fact: as it is recorded, and as it is found."""

    subject: str
    expected: str
    found: str

    @property
    def agrees(self) -> bool:
        """Whether both are the same."""
        return self.expected == self.found


@dataclass(frozen=True)
class SpokenSentence:
    """How one sentence was spoken in one profile."""

    profile: str
    text: str
    seconds: float
    transcript: str
    """The recognizer's transcript; empty without one."""

    error_rate: float | None
    """Word error rate; None without a recognizer."""


@dataclass(frozen=True)
class Examination:
    """All results."""

    model: str
    checks: tuple[Check, ...]
    numbers: Mapping[str, str]
    """What has no recorded value, to be sent back."""

    spoken: tuple[SpokenSentence, ...]
    notes: tuple[str, ...]
    """What could not be done, in one sentence each."""

    @property
    def differences(self) -> tuple[Check, ...]:
        """Checks that do not agree."""
        return tuple(check for check in self.checks if not check.agrees)


class Findings:
    """Results that come one after the other."""

    def __init__(self) -> None:
        self.checks: list[Check] = []
        self.numbers: dict[str, str] = {}
        self.spoken: list[SpokenSentence] = []
        self.notes: list[str] = []

    def compare(self, subject: str, expected: object, found: object) -> None:
        """Add a check."""
        self.checks.append(Check(subject, one_line(expected), one_line(found)))

    def attempt(self, subject: str, action: Callable[[], T]) -> T | None:
        """The result of an action that should be possible; a check either way, and None where it is not."""
        try:
            result = action()
        except MarsError as error:
            self.compare(subject, "possible", str(error))
            return None
        self.compare(subject, "possible", "possible")
        return result


def examine(
    release: Release,
    work: Path,
    *,
    recorded: Recorded | None = None,
    reference: Path | None = None,
    recognizer: Recognizer | None = None,
    on_step: Callable[[str], None] = lambda step: None,
) -> Examination:
    """Examine the files of a release, and speak with them; `work` is an empty folder for the converted model.

    `recorded` replaces `RECORDED` (a release in other sizes), `reference` the default voice. `on_step` is called with a
    few words before each part.
    """
    known, findings = recorded or RECORDED[release.model], Findings()
    on_step("files")
    for role, path in release.files.items():
        examine_file(role, path, known, findings)
    on_step("tokenizer")
    tokenizer = findings.attempt("tokenizer: reading", lambda: tokenizer_text(release))
    entries = None if tokenizer is None else examine_tokenizer(tokenizer, known, findings)
    on_step("model")
    bundle = work / "bundle"
    config = findings.attempt("model: reading", lambda: convert(release, bundle))
    if config is not None:
        examine_sizes(config, known, entries, findings)
        on_step("codec and encoders")
        opened = findings.attempt("codec and encoders: opening", lambda: load_bundle(bundle))
        if opened is not None:
            examine_parts(opened, known, findings)
            speak_profiles(bundle, known, reference, recognizer, findings, on_step)
    return Examination(
        release.model, tuple(findings.checks), findings.numbers, tuple(findings.spoken), tuple(findings.notes)
    )


def examine_file(role: str, path: Path, known: Recorded, findings: Findings) -> None:
    """Size, hash, classes, number format and tensors of one file."""
    digest = findings.attempt(f"{role}: file", lambda: fingerprint(path))
    if digest is None:
        return
    findings.numbers[f"{role}: file"] = f"{path.name}, {path.stat().st_size} bytes, SHA-256 {digest}"
    if path.suffix not in (".pt", ".safetensors"):
        return
    content = findings.attempt(f"{role}: reading", lambda: read_entries(path))
    if content is None:
        return
    entries, classes = content
    stored = entries.get("model")
    tensors = (
        {name: part for name, part in stored.items() if hasattr(part, "dtype")} if isinstance(stored, dict) else {}
    )
    findings.compare(f"{role}: classes other than tensors and plain data", "none", ", ".join(classes) or "none")
    formats = Counter(str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values())
    findings.numbers[f"{role}: tensors"] = (
        f"{len(tensors)}, {sum(tensor.numel() for tensor in tensors.values())} numbers, "
        + ", ".join(f"{count} {name}" for name, count in sorted(formats.items()))
    )
    if known.weight_format is not None:
        findings.compare(f"{role}: number format", known.weight_format, ", ".join(sorted(formats)))


def read_entries(path: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The entries of a file, "model" and perhaps "vocab", and the other classes that it names."""
    if path.suffix == ".safetensors":
        return {"model": read_tensors(path), "vocab": read_metadata(path)}, ()
    return read_archive(path)


def tokenizer_text(release: Release) -> str:
    """The text tokenizer of a release in minbpe's format."""
    if "tokenizer" in release.files:
        return read_text(release.files["tokenizer"], MAX_FILE_BYTES)
    entries, _ = read_entries(release.files["ar"])
    vocabulary = entries.get("vocab")
    text = vocabulary.get("texttok.model") if isinstance(vocabulary, dict) else None
    if not isinstance(text, str):
        raise CheckpointError(f"{release.files['ar'].name}: it has no text tokenizer")
    return text


def examine_tokenizer(text: str, known: Recorded, findings: Findings) -> int | None:
    """Compare the special tokens of a tokenizer; returns the number of its entries."""
    try:
        special, merges = parse_minbpe(text)
    except (ValueError, IndexError) as error:
        findings.compare("tokenizer: format", "minbpe v1", str(error))
        return None
    missing = [token for token in known.special_tokens if token not in special]
    findings.compare("tokenizer: missing special tokens", "none", ", ".join(missing) or "none")
    inside = sorted(token for token, index in special.items() if index < 256 + len(merges))
    findings.compare("tokenizer: special tokens with the id of a byte or merge", "none", ", ".join(inside) or "none")
    findings.numbers["tokenizer"] = f"{len(merges)} merges, special tokens {special}"
    return len({*range(256 + len(merges)), *special.values()})


def convert(release: Release, bundle: Path) -> Any:
    """Write a release as a bundle, and return the sizes of its model."""
    if "ar" in release.files:
        return models.convert_published_mars5(
            release.files["ar"], release.files["nar"], bundle, name=release.model, codec=release.codec
        )
    return models.convert_published(
        release.files["checkpoint"], release.files["tokenizer"], bundle, name=release.model, codec=release.codec,
        encoders=release.encoders,
    ).config  # fmt: skip


def examine_sizes(config: Any, known: Recorded, entries: int | None, findings: Findings) -> None:
    """Compare the sizes of the model, and the entries of its tokenizer with its rows of text."""
    for name, expected in known.sizes.items():
        findings.compare(f"model: {name}", expected, value_of(config, name))
    findings.numbers["model"] = one_line(config.model_dump(mode="json"))
    if entries is not None:
        findings.compare("tokenizer: entries", value_of(config, known.text_rows), entries)


def value_of(config: Any, name: str) -> object:
    """A field of a configuration, by its name with dots."""
    for part in name.split("."):
        config = getattr(config, part)
    return config


def examine_parts(bundle: Bundle, known: Recorded, findings: Findings) -> None:
    """Compare codec and speaker encoders, and make numbers of a fixed sound with them."""
    tokenizer = BPE.load(bundle.folder / TOKENIZER_FILE)
    for number, sentence in enumerate(SENTENCES, start=1):
        findings.numbers[f"ids of sentence {number}"] = one_line(tokenizer.encode(sentence))
    for name, expected in known.codec.items():
        findings.compare(f"codec: {name}", expected, getattr(bundle.codec.spec, name))
    sound = fixed_sound()
    codes = findings.attempt("codec: encoding", lambda: bundle.codec.encode(sound))
    if codes is not None:
        findings.numbers["codec: first codes"] = one_line([level[:8].tolist() for level in codes])
        decoded = findings.attempt("codec: decoding", lambda: bundle.codec.decode(codes))
        if decoded is not None:
            findings.numbers["codec: level of the decoded sound"] = f"{np.sqrt((decoded.samples**2).mean()):.4f}"
    for role, size in known.encoders.items():
        encoder = bundle.encoders.get(role)
        if encoder is None:
            findings.compare(f"{role} encoder", "there", "missing")
            continue
        embedding = findings.attempt(f"{role} encoder: embedding", partial(encoder.embed, sound))
        if embedding is not None:
            findings.compare(f"{role} encoder: length", size, len(embedding))
            findings.numbers[f"{role} encoder: norm and first numbers"] = (
                f"{np.linalg.norm(embedding):.4f}, {np.round(embedding[:4], 4).tolist()}"
            )


def fixed_sound() -> Waveform:
    """Two seconds of a tone of 120 Hz with falling harmonics, whose level rises and falls four times a second."""
    time = np.arange(48_000) / 24_000
    tone = sum(np.sin(2 * np.pi * 120 * n * time) / n for n in range(1, 30))
    return Waveform((0.1 * tone * (0.6 + 0.4 * np.sin(8 * np.pi * time))).astype(np.float32), 24_000)


def speak_profiles(
    bundle: Path,
    known: Recorded,
    reference: Path | None,
    recognizer: Recognizer | None,
    findings: Findings,
    on_step: Callable[[str], None],
) -> None:
    """Speak the sentences in each profile."""
    info = read_info(bundle)
    for profile, settings in known.profiles.items():
        on_step(f"speech, {profile}")
        write_config(info.model_copy(update={"settings": {**info.settings, **settings}}), bundle / BUNDLE_FILE)
        spoken = findings.attempt(f"speech, {profile}", lambda: speak(bundle, reference))
        for text, waveform in zip(SENTENCES, spoken or (), strict=False):
            transcript = [] if recognizer is None else recognizer.transcribe(waveform)
            edits = None if recognizer is None else word_edits(plain_words(text), transcript)
            rate = None if edits is None else edits.errors / edits.length
            findings.spoken.append(SpokenSentence(profile, text, waveform.seconds, " ".join(transcript), rate))
    write_config(info, bundle / BUNDLE_FILE)


def speak(bundle: Path, reference: Path | None) -> list[Waveform]:
    """The sentences, spoken by a bundle in the voice of a recording, or in the default voice."""
    synthesizer = open_synthesizer(bundle, EngineKind.TORCH)
    voice = None if reference is None else synthesizer.clone(reference)
    return [synthesizer.speak(text, voice, seed=SEED).waveform for text in SENTENCES]


def one_line(value: object) -> str:
    """A value in one line, short enough for a table."""
    text = " ".join(str(value).split())
    return text if len(text) <= 400 else text[:399] + "…"


def page(examination: Examination) -> str:
    """The results as one page of Markdown, the conclusion first."""
    differences, total = examination.differences, len(examination.checks)
    conclusion = f"{len(differences)} of {total} checks differ." if differences else f"All {total} checks agree."
    lines = [f"# {examination.model}", "", conclusion, ""]
    lines += table("Differences", ("what", "recorded", "found"), [row_of(check) for check in differences])
    spoken = [
        (
            sentence.profile, sentence.text, f"{sentence.seconds:.2f} s", sentence.transcript,
            "" if sentence.error_rate is None else f"{sentence.error_rate:.2f}",
        )
        for sentence in examination.spoken
    ]  # fmt: skip
    lines += table("Speech", ("profile", "text", "length", "transcript", "word error rate"), spoken)
    lines += [f"- {note}" for note in examination.notes] + ([""] if examination.notes else [])
    lines += table("Numbers without a recorded value", ("what", "found"), list(examination.numbers.items()))
    agreeing = [row_of(check) for check in examination.checks if check.agrees]
    lines += table("Checks that agree", ("what", "recorded", "found"), agreeing)
    return "\n".join(lines)


def row_of(check: Check) -> tuple[str, str, str]:
    return check.subject, check.expected, check.found


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A heading and a table; nothing without rows."""
    if not rows:
        return []
    cells = [columns, ["---"] * len(columns), *([one_line(cell).replace("|", r"\|") for cell in row] for row in rows)]
    return [f"## {title}", "", *(f"| {' | '.join(row)} |" for row in cells), ""]
