"""Models by architecture: the only module that imports the packages that implement `SpeechModel`.

Upstream: `synthesis.loading`, training, preference tuning, benchmarks, the command line.  Downstream: `mars6`.

An architecture is a module with the functions of `mars6.bundled`; a bundle's `architecture` names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from marstts.audio import Waveform
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
    load_bundle,
    model_folder,
    new_bundle,
    part_config,
    parts_of,
    read_info,
    replacing,
)
from marstts.codec.base import Codec
from marstts.codec.registry import CodecPart, SnacPart, add_snac_graphs, quantize_codec
from marstts.errors import CheckpointError
from marstts.generation.engine import Engine, EngineKind
from marstts.generation.request import SamplingConfig
from marstts.generation.speech_model import SpeechModel
from marstts.io.config import read_config
from marstts.io.precision import WeightFormat
from marstts.speaker.base import SpeakerEncoder
from marstts.speaker.registry import EncoderPart, ToyEncoderPart
from marstts.text.tokenizers.bpe import BPE
from marstts.weights.parts import MiniPart

ARCHITECTURES = {"mars6": "marstts.mars6.bundled", "mars5": "marstts.mars5.bundled"}
"""Module of each architecture, imported when first used."""

PUBLISHED_MODELS = dict(zip(PUBLISHED, ("marstts.mars6.published", "marstts.mars5.published"), strict=True))
"""Module that downloads and converts each published model."""


def architecture_of(name: str, source: str = "the bundle") -> Any:
    """The module of an architecture; CheckpointError where this version has none of that name."""
    if name not in ARCHITECTURES:
        raise CheckpointError(
            f"{source}: architecture {name!r}, but this marstts has {', '.join(ARCHITECTURES)}; update marstts"
        )
    return import_module(ARCHITECTURES[name])


def open_engine(folder: Path, kind: EngineKind) -> Engine[Any]:
    """The engine of the bundle in `folder`; `kind` is not AUTO."""
    info = read_info(folder)
    return architecture_of(info.architecture, str(folder)).open_engine(model_folder(folder, info), kind)


def has_graphs(folder: Path) -> bool:
    """Return True where ONNX Runtime can run the model of the bundle in `folder`."""
    info = read_info(folder)
    return architecture_of(info.architecture, str(folder)).has_graphs(model_folder(folder, info))


def open_model(bundle: Bundle, engine: Engine[Any], guidance: float | None = None) -> SpeechModel:
    """The speech model of an open bundle around an engine of it; `guidance` replaces the bundle's.

    Raises CheckpointError where the parts of the bundle do not fit one another, ConfigError for a guidance below 1.
    """
    module, source = architecture_of(bundle.info.architecture, str(bundle.folder)), str(bundle.folder)
    settings = module.parse_settings(bundle.info.settings, f"{source}/{BUNDLE_FILE}: settings")
    model = module.speech_model(engine, bundle.folder, settings, bundle.info.sampling, guidance)
    module.check_fit(source, model.config, model.tokenizer, bundle.codec.spec, bundle.encoders)
    return model


def model_encoders(model: SpeechModel, codec: Codec) -> Mapping[str, SpeakerEncoder]:
    """The speaker encoders by role that a model brings itself, over the codec of its bundle."""
    return architecture_of(model.architecture).model_encoders(model, codec)


def open_in_memory(module: Any, bundle: Bundle, guidance: float | None = None) -> SpeechModel:
    """The speech model of a PyTorch module, with tokenizer and settings of a bundle: for validation in training."""
    engine = architecture_of(bundle.info.architecture, str(bundle.folder)).torch_engine(module)
    return open_model(bundle, engine, guidance)


def load_for_training(model: Path | str) -> Any:
    """The PyTorch module of a bundle (name or folder), in float32 and evaluation mode.

    Raises CheckpointError that names every tensor that is missing, not expected, or of another shape.
    """
    folder = find_bundle(model)
    info = read_info(folder)
    return architecture_of(info.architecture, str(folder)).load_model(model_folder(folder, info))


def naive_decoder(model: Path | str, prompt: Any) -> Any:
    """A decoder of a bundle without a KV cache, for benchmarks: `decode_patch(previous (N, P), inputs) -> (P,)`."""
    info = read_info(find_bundle(model))
    return architecture_of(info.architecture).naive_decoder(load_for_training(model), prompt)


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
) -> None:
    """Write a bundle of a PyTorch module; an older bundle in `folder` is replaced when the new one is complete.

    `codec` and `encoders` (by role) are folders of exported mini ones, which are copied, or descriptions of others.
    The model's parameters are rounded to the format in place. CheckpointError if parts do not fit one another.
    """
    module = architecture_of(architecture)
    check_name(name)
    info = BundleInfo(
        name=name,
        architecture=architecture,
        settings=module.parse_settings(settings or {}, "settings").model_dump(),
        sampling=sampling or SamplingConfig(),
        codec=part_config(codec),
        encoders={role: part_config(part) for role, part in encoders.items()},
    )
    with new_bundle(folder, info, codec, encoders) as temporary:
        if isinstance(codec, SnacPart):
            from marstts.codec.snac_graphs import export_snac  # needs PyTorch

            export_snac(codec.source, temporary / CODEC_FOLDER, codec.sha256)
        tokenizer.save(temporary / TOKENIZER_FILE)
        model_folder(temporary, info).mkdir()
        bundle = load_bundle(temporary)
        module.check_fit(name, model.config, tokenizer, bundle.codec.spec, bundle.encoders)
        model_folder(temporary, info).rmdir()
        module.write_model(model, model_folder(temporary, info), weights)


def find_alignment(model: Any, tokenizer: BPE, *, architecture: str = "mars6") -> None:
    """Name in the configuration of a PyTorch module what follows the text in it, so that its bundle has word times."""
    architecture_of(architecture).find_alignment(model, tokenizer)


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
    source: Path | str, folder: Path, weights: WeightFormat | None = None, recordings: Sequence[Waveform] = ()
) -> str | None:
    """Write the bundle `source` (name or folder) to `folder`, which may be the same, with graphs as of this version.

    `weights` is INT8 to quantize, None to keep them; `recordings` are those of `quantize_codec`. Returns why the codec
    stayed as it was, where that was not meant. Raises CheckpointError for weights that are int8 already, and without
    graphs.
    """
    source = find_bundle(source)
    info = read_info(source)
    module = architecture_of(info.architecture, str(source))
    with replacing(folder) as temporary:
        copy_tree_without(source, temporary, info.architecture)
        folders = model_folder(source, info), model_folder(temporary, info)
        module.rewrite_model(*folders, weights, source / TOKENIZER_FILE)
        if weights is WeightFormat.INT8 and isinstance(info.codec, MiniPart):
            return quantize_codec(info.codec, source / CODEC_FOLDER, temporary / CODEC_FOLDER, recordings)
        return add_snac_graphs(info.codec, temporary / CODEC_FOLDER)


def random_bundle(folder: Path, codec: CodecPart, sharpness: float, sentences: list[str], name: str) -> None:
    """Write a bundle of the paper's size with random weights, for measuring speed."""
    model, tokenizer = architecture_of("mars6").random_model(sharpness, sentences)
    encoders = {role: ToyEncoderPart(size=size) for role, size in model.config.embedding_sizes.items()}
    export_bundle(folder, model, tokenizer, codec=codec, encoders=encoders, name=name)


def model_config(model: Path | str) -> Any:
    """The architecture's configuration of a bundle (name or folder)."""
    folder = find_bundle(model)
    info = read_info(folder)
    module = architecture_of(info.architecture, str(folder))
    return read_config(module.Mars6Config, model_folder(folder, info) / module.CONFIG_FILE)


def published_bundle(name: str, *, onnx: bool) -> Path:
    """The folder of a published model in the user's cache, downloaded and converted if it is not there yet."""
    return import_module(PUBLISHED_MODELS[name]).cached_bundle(onnx=onnx)


def fetch_published(name: str) -> tuple[Path, Path]:
    """The files of a published model, downloaded if they are not in a cache: of MARS6 checkpoint and tokenizer, of
    MARS5 AR and NAR.
    """
    files: tuple[Path, Path] = import_module(PUBLISHED_MODELS[name]).fetch()
    return files


def convert_published_mars5(ar: Path, nar: Path, folder: Path, **options: Any) -> Any:
    """Convert the published checkpoints of MARS5 to a bundle; see `mars5.published.convert`."""
    return import_module(PUBLISHED_MODELS["mars5-english"]).convert(ar, nar, folder, **options)


def convert_published(checkpoint: Path, tokenizer: Path, folder: Path, **options: Any) -> Any:
    """Convert the published checkpoint and tokenizer of MARS6 to a bundle; see `mars6.published.convert`."""
    return import_module(PUBLISHED_MODELS["mars6-turbo"]).convert(checkpoint, tokenizer, folder, **options)
