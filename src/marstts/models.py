"""Models by architecture: the only module that imports the packages that implement `SpeechModel`.

Upstream: `synthesis.loading`, training, preference tuning, benchmarks, the command line.  Downstream: `mars6`, `mars5`.

A bundle's `architecture` names its `Architecture`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from shutil import copytree
from typing import TYPE_CHECKING, Any, Protocol, cast

from marstts.bundle import (
    BUNDLE_FILE,
    CODEC_FOLDER,
    PUBLISHED,
    TOKENIZER_FILE,
    Bundle,
    BundleInfo,
    check_name,
    copy_tree_without,
    find_bundle,
    model_folder,
    new_bundle,
    part_config,
    parts_of,
    read_info,
    replacing,
    write_info,
)
from marstts.codec.base import Codec, CodecSpec
from marstts.codec.registry import CodecPart, open_codec
from marstts.errors import CheckpointError
from marstts.generation.engine import Engine, EngineKind
from marstts.generation.request import SamplingConfig
from marstts.generation.speech_model import SpeechModel
from marstts.io.config import Config
from marstts.io.part_provenance import PartProvenance
from marstts.io.precision import WeightFormat
from marstts.speaker.base import SpeakerEncoder
from marstts.speaker.registry import EncoderPart, open_encoder
from marstts.text.tokenizers.bpe import BPE

if TYPE_CHECKING:
    from marstts.mars5 import bundled as mars5
    from marstts.mars6 import bundled as mars6
    from marstts.weights.examination import Finding


class Architecture(Protocol):
    """How the models of an architecture are read, written and run; a module with these functions is one.

    A "module" is the model in PyTorch, "settings" are what `parse_settings` returns, and "config" has the
    sizes of a model.
    """

    def parse_settings(self, values: Mapping[str, Any], source: str) -> Config:
        """Validate the settings of a bundle; ConfigError names `source`."""
        ...

    def read_sizes(self, folder: Path) -> Config:
        """The sizes of the model in a model's folder."""
        ...

    def has_graphs(self, folder: Path) -> bool:
        """Return True where ONNX Runtime can run the model."""
        ...

    def open_engine(self, folder: Path, kind: EngineKind) -> Engine[Any]:
        """The engine of a model's folder; `kind` is not AUTO."""
        ...

    def torch_engine(self, module: Any) -> Engine[Any]:
        """The engine of a module that is in memory already."""
        ...

    def speech_model(self, engine: Any, bundle: Path, settings: Any, sampling: SamplingConfig) -> SpeechModel:
        """The speech model around an engine."""
        ...

    def model_encoders(self, model: Any, codec: Codec) -> Mapping[str, SpeakerEncoder]:
        """The speaker encoders by role that a model brings itself, over its codec."""
        ...

    def check_fit(
        self, source: str, config: Any, tokenizer: BPE, codec: CodecSpec, encoders: Mapping[str, SpeakerEncoder]
    ) -> None:
        """Raise CheckpointError that lists everything in which a model and its parts differ."""
        ...

    def load_model(self, folder: Path) -> Any:
        """The module of a model's folder, in float32 and evaluation mode."""
        ...

    def write_model(self, model: Any, folder: Path, weights: WeightFormat) -> None:
        """Write a model's folder; parameters are rounded to the format in place, but for int8."""
        ...

    def rewrite_model(self, source: Path, folder: Path, weights: WeightFormat | None, tokenizer: Path) -> None:
        """Copy a model's folder with graphs as of this version; its weights in int8, or as they are with None."""
        ...


ARCHITECTURES = {"mars6": "marstts.mars6.bundled", "mars5": "marstts.mars5.bundled"}
"""Module of each architecture, imported when first used."""

if TYPE_CHECKING:
    _CHECKED: tuple[Architecture, ...] = (mars6, mars5)

PUBLISHED_MODELS = dict(zip(PUBLISHED, ("marstts.mars6.published", "marstts.mars5.published"), strict=True))
"""Module that downloads and converts each published model."""


def architecture_of(name: str, source: str = "the bundle") -> Architecture:
    """The architecture of a name; CheckpointError where this version has none of that name."""
    if name not in ARCHITECTURES:
        raise CheckpointError(
            f"{source}: architecture {name!r}, but this marstts has {', '.join(ARCHITECTURES)}; update marstts"
        )
    return cast(Architecture, import_module(ARCHITECTURES[name]))


def open_engine(folder: Path, kind: EngineKind) -> Engine[Any]:
    """The engine of the bundle in `folder`; `kind` is not AUTO."""
    info = read_info(folder)
    return architecture_of(info.architecture, str(folder)).open_engine(model_folder(folder, info), kind)


def has_graphs(folder: Path) -> bool:
    """Return True where ONNX Runtime can run the model of the bundle in `folder`."""
    info = read_info(folder)
    return architecture_of(info.architecture, str(folder)).has_graphs(model_folder(folder, info))


def open_model(bundle: Bundle, engine: Engine[Any]) -> SpeechModel:
    """The speech model of an open bundle around an engine of it.

    Raises CheckpointError where the parts of the bundle do not fit one another.
    """
    source = str(bundle.folder)
    architecture = architecture_of(bundle.info.architecture, source)
    settings = architecture.parse_settings(bundle.info.settings, f"{source}/{BUNDLE_FILE}: settings")
    model: Any = architecture.speech_model(engine, bundle.folder, settings, bundle.info.sampling)
    architecture.check_fit(source, model.config, model.tokenizer, bundle.codec.spec, bundle.encoders)
    return cast(SpeechModel, model)


def model_encoders(model: SpeechModel, codec: Codec) -> Mapping[str, SpeakerEncoder]:
    """The speaker encoders by role that a model brings itself, over the codec of its bundle."""
    return architecture_of(model.architecture).model_encoders(model, codec)


def open_in_memory(module: Any, bundle: Bundle) -> SpeechModel:
    """The speech model of a PyTorch module, with tokenizer and settings of a bundle: for validation in training."""
    engine = architecture_of(bundle.info.architecture, str(bundle.folder)).torch_engine(module)
    return open_model(bundle, engine)


def load_for_training(model: Path | str) -> Any:
    """The PyTorch module of a bundle (name or folder), in float32 and evaluation mode.

    Raises CheckpointError that names every tensor that is missing, not expected, or of another shape.
    """
    folder = find_bundle(model)
    info = read_info(folder)
    return architecture_of(info.architecture, str(folder)).load_model(model_folder(folder, info))


def export_bundle(
    folder: Path,
    model: Any,
    tokenizer: BPE,
    *,
    codec: Path | CodecPart,
    encoders: Mapping[str, Path | EncoderPart],
    name: str,
    architecture: str = "mars6",
    settings: Mapping[str, Any] | None = None,
    sampling: SamplingConfig | None = None,
    weights: WeightFormat = WeightFormat.FLOAT16,
    provenance: PartProvenance | None = None,
) -> None:
    """Write a bundle of a PyTorch module; an older bundle in `folder` is replaced when the new one is complete.

    `codec` and `encoders` (by role) are folders of exported mini ones, which are copied, or descriptions of others.
    `provenance` is that of the module; the parts bring theirs.
    The model's parameters are rounded to the format in place. CheckpointError if parts do not fit one another.
    """
    kind = architecture_of(architecture)
    check_name(name)
    opened = {role: open_encoder(part, role) for role, part in encoders.items()}
    kind.check_fit(name, model.config, tokenizer, open_codec(codec).spec, opened)
    info = BundleInfo(
        name=name,
        architecture=architecture,
        settings=kind.parse_settings(settings or {}, "settings").model_dump(),
        sampling=sampling or SamplingConfig(),
        codec=part_config(codec),
        encoders={role: part_config(part) for role, part in encoders.items()},
        provenance={} if provenance is None else {architecture: provenance},
    )
    with new_bundle(folder, info, codec, encoders) as temporary:
        tokenizer.save(temporary / TOKENIZER_FILE)
        kind.write_model(model, model_folder(temporary, info), weights)


def find_alignment(model: Any, tokenizer: BPE) -> None:
    """Name the heads that follow the text in the configuration of a MARS6, so that its bundle has word times."""
    from marstts.mars6.bundled import find_alignment as find_heads

    find_heads(model, tokenizer)


def export_like(template: Path | str, folder: Path, model: Any, tokenizer: BPE, *, name: str, **changes: Any) -> None:
    """Write a bundle of a PyTorch module with codec, encoders, settings and sampling of the bundle `template`.

    `changes` replace arguments of `export_bundle`; `settings` are merged.
    """
    source = find_bundle(template)
    info = read_info(source)
    codec, encoders = parts_of(source)
    given = {"codec": codec, "encoders": encoders, "architecture": info.architecture, "sampling": info.sampling}
    settings = {**info.settings, **changes.pop("settings", {})}
    export_bundle(folder, model, tokenizer, name=name, settings=settings, **{**given, **changes})


def upgrade_bundle(
    source: Path | str,
    folder: Path,
    weights: WeightFormat | None = None,
    provenance: Mapping[str, PartProvenance] | None = None,
) -> None:
    """Write the bundle `source` (name or folder) to `folder`, which may be the same, in format and with graphs as of
    this version.

    `weights` is INT8 to quantize those of a MARS6, None to keep them. `provenance`, by part, replaces what the bundle
    says. Raises CheckpointError for INT8 where they are int8 already, without graphs, and for provenance of a part that
    the bundle does not have.
    """
    source = find_bundle(source)
    info = read_info(source, older=True)
    known = {**info.provenance, **(provenance or {})}
    if unknown := sorted(set(known) - {info.architecture, CODEC_FOLDER, *info.encoders}):
        parts = ", ".join((info.architecture, CODEC_FOLDER, *info.encoders))
        raise CheckpointError(f"{source}: no part {', '.join(unknown)} to say the provenance of; it has {parts}")
    if weights is not None:
        known[info.architecture] = quantized_from(info, known.get(info.architecture))
    architecture = architecture_of(info.architecture, str(source))
    with replacing(folder) as temporary:
        copy_tree_without(source, temporary, info.architecture)
        folders = model_folder(source, info), model_folder(temporary, info)
        if weights is None and not info.revision and not architecture.has_graphs(folders[0]):
            copytree(*folders)  # of an older format, and for PyTorch only
        else:
            architecture.rewrite_model(*folders, weights, source / TOKENIZER_FILE)
        write_info(info.model_copy(update={"provenance": known}), temporary)


def quantized_from(info: BundleInfo, record: PartProvenance | None) -> PartProvenance:
    """The provenance of a model whose weights are made int8: that of the bundle before, and its revision."""
    note = f"int8 of {info.label}"
    if record is None:
        return PartProvenance(note=note)
    return record.model_copy(update={"note": f"{record.note}; {note}" if record.note else note})


def model_config(model: Path | str) -> Any:
    """The sizes of a bundle's model (name or folder)."""
    folder = find_bundle(model)
    info = read_info(folder)
    return architecture_of(info.architecture, str(folder)).read_sizes(model_folder(folder, info))


def published_bundle(name: str, *, onnx: bool) -> Path:
    """The folder of a published model in the user's cache, downloaded and converted if it is not there yet."""
    return import_module(PUBLISHED_MODELS[name]).cached_bundle(onnx=onnx)


def convert_published_mars5(ar: Path, nar: Path, folder: Path, **options: Any) -> Any:
    """Convert the published checkpoints of MARS5 to a bundle; see `mars5.published.convert`."""
    return import_module(PUBLISHED_MODELS["mars5-english"]).convert(ar, nar, folder, **options)


def convert_published(checkpoint: Path, tokenizer: Path, folder: Path, **options: Any) -> Any:
    """Convert the published checkpoint and tokenizer of MARS6 to a bundle; see `mars6.published.convert`."""
    return import_module(PUBLISHED_MODELS["mars6-turbo"]).convert(checkpoint, tokenizer, folder, **options)


# Examination of published files and of bundles, for `marstts doctor`.

ROLES = {"mars6-turbo": ("checkpoint", "tokenizer"), "mars5-english": ("AR", "NAR")}
"""The two files of each published model, in their order."""


def fetch_published(name: str) -> tuple[Path, Path]:
    """The two files of a published model, fetched once."""
    return import_module(PUBLISHED_MODELS[name]).fetch()


def examine_published(name: str, files: tuple[Path, Path]) -> list[Finding]:
    """Everything in which the files of a published model are broken or differ from what is recorded of it."""
    module = import_module(PUBLISHED_MODELS[name])
    return module.examine(*files, module.RECORDED)


def published_digests(name: str, files: tuple[Path, Path]) -> dict[str, str]:
    """The digest of each tensor of a published model by its name, and of its tokenizer."""
    return import_module(PUBLISHED_MODELS[name].replace("published", "examined")).digests(*files)


def load_published(name: str, files: tuple[Path, Path]) -> tuple[Any, BPE, str]:
    """The module, the tokenizer and the architecture in the files of a published model."""
    return *import_module(PUBLISHED_MODELS[name]).load(*files), name.partition("-")[0]


def likelihood_of(architecture: str) -> Any:
    """The module that computes the likelihood of a recorded sequence: `mars6.likelihood` or `mars5.likelihood`."""
    return import_module(architecture_of(architecture).__name__.replace("bundled", "likelihood"))  # type: ignore[attr-defined]
