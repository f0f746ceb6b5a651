"""Bundles: a folder that holds a model and everything needed to speak with it.

Upstream: training, through `export_bundle`.  Downstream: `synthesis.loading` (speaking), training (fine-tuning).

    bundle.json          format version, name, quality prefix, sampling defaults, kinds of codec and speaker encoders
    tokenizer.json
    mars6/               config.json, mars6.safetensors, encoder.onnx, global.onnx, patch.onnx, local.onnx
    codec/               of kind `mini`: config.json, codec.safetensors, encoder.onnx, decoder.onnx, filters.onnx,
                         pitch.onnx; of kind `snac`, where it was at hand: config.json, snac.safetensors, encoder.onnx,
                         decoder.onnx
    identity/, style/    of kind `mini`: config.json, encoder.safetensors, encoder.onnx

Weights may be int8 instead (`mars6.quantise`): a bundle to speak with, not to go on from.
The graphs take their weights from the safetensors file beside them, so nothing is stored twice and what is fine-tuned
is what speaks. Codecs and encoders of other kinds need no folder: they are named in `bundle.json`. Nor does SNAC, but
with one it runs without PyTorch, and faster.
Bundles of the package lie in `models_data/` and go by their folder's name. Only `load_mars6` and `export_bundle` need
PyTorch.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from marstts.codec import snac
from marstts.codec.base import Codec
from marstts.codec.mini import MiniCodec
from marstts.codec.snac import SnacCodec
from marstts.codec.snac_onnx import SnacOnnx
from marstts.codec.toy import ToyCodec
from marstts.config import Config, parse_config, read_config, write_config
from marstts.errors import CheckpointError, ConfigError, MissingExtraError, require
from marstts.mars6.config import Mars6Config
from marstts.mars6.generate import SamplingConfig
from marstts.mars6.quantise import Precision, copy_mars6, is_int8, quantise
from marstts.onnx_export import Storage
from marstts.speaker import clap, wavlm
from marstts.speaker.base import SpeakerEncoder
from marstts.speaker.clap import ClapEncoder
from marstts.speaker.mini import MiniSpeakerEncoder
from marstts.speaker.toy import ToySpeakerEncoder
from marstts.speaker.wavlm import WavLmEncoder
from marstts.text.bpe import BPE

if TYPE_CHECKING:
    from marstts.mars6.model import Mars6

FORMAT_VERSION: Literal[1] = 1

BUNDLE_FILE, TOKENIZER_FILE = "bundle.json", "tokenizer.json"
MODEL_FOLDER, CODEC_FOLDER, IDENTITY_FOLDER, STYLE_FOLDER = "mars6", "codec", "identity", "style"
CONFIG_FILE, WEIGHTS_FILE = "config.json", "mars6.safetensors"
GRAPH_FILES = ("encoder.onnx", "global.onnx", "patch.onnx", "local.onnx")

PACKAGED_MODELS = Path(str(files("marstts"))) / "models_data"
"""Bundles that come with the package."""


class MiniPart(Config):
    """A codec or speaker encoder trained here, in a folder of the bundle."""

    kind: Literal["mini"] = "mini"


class PublishedPart(Config):
    """Weights that someone else published."""

    source: str
    """A file, a folder or a name on the hub."""

    sha256: str | None = None
    """Refuses any other weights."""


class SnacPart(PublishedPart):
    kind: Literal["snac"] = "snac"
    source: str = snac.PUBLISHED


class WavLmPart(PublishedPart):
    kind: Literal["wavlm"] = "wavlm"
    source: str = wavlm.PUBLISHED


class ClapPart(PublishedPart):
    kind: Literal["clap"] = "clap"
    source: str = clap.PUBLISHED


class ToyCodecPart(Config):
    """Sine-wave speech, for tests."""

    kind: Literal["toy"] = "toy"
    codebook_size: int = 4096
    hop_lengths: tuple[int, ...] = (2048, 1024, 512)
    sample_rate: int = 24_000


class ToyEncoderPart(Config):
    """Statistics of a spectrogram, for tests."""

    kind: Literal["toy"] = "toy"
    size: int = Field(gt=0)


CodecPart = MiniPart | SnacPart | ToyCodecPart
EncoderPart = MiniPart | WavLmPart | ClapPart | ToyEncoderPart


class BundleInfo(Config):
    """`bundle.json`."""

    format_version: Literal[1] = FORMAT_VERSION
    name: str = Field(min_length=1)
    """What the model is called in reports."""

    quality: int = 48_000
    """Sample rate (Hz) that the quality prefix asks for."""

    sampling: SamplingConfig = SamplingConfig()
    """Defaults of speaking."""

    guidance: float = Field(1.0, ge=1.0)
    """How strongly speech keeps to its words by default (`engine.guided`); more than 1 only for a model that learnt
    from rows without words."""

    codec: Annotated[CodecPart, Field(discriminator="kind")]
    identity: Annotated[EncoderPart, Field(discriminator="kind")]
    style: Annotated[EncoderPart, Field(discriminator="kind")]

    @property
    def needs_torch(self) -> bool:
        """Whether something besides the model runs in PyTorch."""
        return any(isinstance(part, PublishedPart) for part in (self.codec, self.identity, self.style))


@dataclass(frozen=True, eq=False, kw_only=True)
class Bundle:
    """A bundle, opened; the model itself is left to an engine."""

    folder: Path
    info: BundleInfo
    config: Mars6Config
    tokenizer: BPE
    codec: Codec
    identity_encoder: SpeakerEncoder
    style_encoder: SpeakerEncoder

    @property
    def name(self) -> str:
        """What the model is called in reports."""
        return self.info.name

    @property
    def quality(self) -> int:
        """Sample rate (Hz) that the quality prefix asks for."""
        return self.info.quality

    @property
    def guidance(self) -> float:
        """How strongly speech keeps to its words by default."""
        return self.info.guidance

    @property
    def sampling(self) -> SamplingConfig:
        """How its tokens are best drawn."""
        return self.info.sampling

    def __post_init__(self) -> None:
        check_fit(str(self.folder), self.config, self.tokenizer, self.codec, self.identity_encoder, self.style_encoder)


def load_bundle(model: Path | str, device: str = "cpu") -> Bundle:
    """The bundle of a packaged model's name, or in a folder; CheckpointError where it is none or parts do not fit.

    `device`, PyTorch's name for one, is where published neighbours run; mini ones need no device.
    """
    folder = find_bundle(model)
    info = read_info(folder)
    return Bundle(
        folder=folder,
        info=info,
        config=read_config(Mars6Config, folder / MODEL_FOLDER / CONFIG_FILE),
        tokenizer=BPE.load(folder / TOKENIZER_FILE),
        codec=open_codec(info.codec, folder / CODEC_FOLDER, device),
        identity_encoder=open_encoder(info.identity, folder / IDENTITY_FOLDER, "identity", device),
        style_encoder=open_encoder(info.style, folder / STYLE_FOLDER, "style", device),
    )


def packaged_models() -> list[str]:
    """Names of the models that come with the package."""
    return sorted(path.parent.name for path in PACKAGED_MODELS.glob(f"*/{BUNDLE_FILE}"))


def find_bundle(model: Path | str) -> Path:
    """The folder of a packaged model's name or of a path; a name wins, `./mini` is always a path."""
    known = packaged_models()
    if isinstance(model, str) and model in known:
        return PACKAGED_MODELS / model
    folder = Path(model)
    if not folder.is_dir():
        raise CheckpointError(
            f"{model}: neither a folder nor the name of a model that comes with marstts ({', '.join(known) or 'none'})"
        )
    missing = [name for name in (BUNDLE_FILE, TOKENIZER_FILE, MODEL_FOLDER) if not (folder / name).exists()]
    if missing:
        raise CheckpointError(
            f"{folder}: no model bundle, for it lacks {', '.join(missing)}; `marstts export` makes one"
        )
    return folder


def read_info(folder: Path) -> BundleInfo:
    """`bundle.json`; its version is looked at first, for another version may have other fields."""
    path = folder / BUNDLE_FILE
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        version = values.get("format_version")
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, AttributeError) as error:
        raise CheckpointError(f"{path}: expected the description of a bundle as JSON, but {error}") from error
    if version != FORMAT_VERSION:
        raise CheckpointError(
            f"{path}: bundle format {version!r}, but this marstts reads format {FORMAT_VERSION}; update marstts, or "
            "export the model again"
        )
    try:
        return parse_config(BundleInfo, values, str(path))
    except ConfigError as error:
        raise CheckpointError(str(error)) from error


def open_codec(part: CodecPart, folder: Path, device: str = "cpu") -> Codec:
    """The codec described by `part`; `folder` holds it where it is of kind mini, or SNAC as graphs for the CPU."""
    match part:
        case MiniPart():
            return MiniCodec(folder)
        case SnacPart():
            if device == "cpu" and has_snac_graphs(folder):
                return SnacOnnx(folder)
            return SnacCodec(part.source, sha256=part.sha256, device=device)
        case ToyCodecPart():
            return ToyCodec(part.codebook_size, part.hop_lengths, part.sample_rate)


def add_snac_graphs(part: CodecPart, folder: Path) -> str | None:
    """Write SNAC as graphs to a bundle's codec folder, if it is the codec; why not, where it is not at hand."""
    if not isinstance(part, SnacPart):
        return None
    from marstts.codec.snac_graphs import export_snac

    try:
        export_snac(part.source, folder, part.sha256)
    except (CheckpointError, MissingExtraError) as error:
        return str(error)
    return None


def has_snac_graphs(folder: Path) -> bool:
    """Whether the codec's folder of a bundle holds SNAC as `codec.snac_graphs` writes it."""
    return (folder / "snac.safetensors").is_file()


def open_encoder(
    part: EncoderPart, folder: Path, role: Literal["identity", "style"], device: str = "cpu"
) -> SpeakerEncoder:
    """The speaker encoder described by `part`; `folder` holds it where it is of kind mini."""
    match part:
        case MiniPart():
            return MiniSpeakerEncoder(folder)
        case WavLmPart():
            return WavLmEncoder(part.source, sha256=part.sha256, device=device)
        case ClapPart():
            return ClapEncoder(part.source, sha256=part.sha256, device=device)
        case ToyEncoderPart():
            return ToySpeakerEncoder(role, part.size)


def check_fit(
    source: str,
    config: Mars6Config,
    tokenizer: BPE,
    codec: Codec,
    identity_encoder: SpeakerEncoder,
    style_encoder: SpeakerEncoder,
) -> None:
    """CheckpointError listing everything in which the model and what surrounds it differ."""
    facts = {
        "text_vocab_size": (config.text_vocab_size, tokenizer.vocab_size, "tokenizer"),
        "codebook_size": (config.codebook_size, codec.spec.codebook_size, f"codec {codec.spec.name}"),
        "patch_layout": (config.patch_layout, codec.spec.patch_layout, f"codec {codec.spec.name}"),
        "identity_size": (config.identity_size, identity_encoder.size, f"encoder {identity_encoder.name}"),
        "style_size": (config.style_size, style_encoder.size, f"encoder {style_encoder.name}"),
    }
    complaints = [
        f"{name} is {mine}, but the {whose} has {theirs}"
        for name, (mine, theirs, whose) in facts.items()
        if mine != theirs
    ]
    if complaints:
        raise CheckpointError(f"{source}: the model does not fit what it is bundled with: {'; '.join(complaints)}")


def load_mars6(model: Path | str) -> Mars6:
    """The PyTorch model of a bundle (name or folder), in float32 and evaluation mode, to be fine-tuned or looked into.

    Raises CheckpointError naming every tensor that is missing, not expected, or of another shape.
    """
    require("torch", "torch")
    from safetensors.torch import load_file

    from marstts.mars6.model import Mars6

    folder = find_bundle(model) / MODEL_FOLDER
    loaded = Mars6(read_config(Mars6Config, folder / CONFIG_FILE))
    path = folder / WEIGHTS_FILE
    try:
        tensors = load_file(path)
    except Exception as error:  # safetensors raises a class of its own for every kind of damage
        raise CheckpointError(f"{path}: expected the model's weights, but {error}") from error
    if is_int8(folder):
        raise CheckpointError(f"{path}: int8 weights, for speaking only; PyTorch takes the bundle they were made from")
    wanted = loaded.state_dict()
    complaints = [f"{name} is missing" for name in sorted(wanted.keys() - tensors.keys())]
    complaints += [f"{name} is not expected" for name in sorted(tensors.keys() - wanted.keys())]
    complaints += [
        f"{name} is {tuple(tensors[name].shape)} instead of {tuple(wanted[name].shape)}"
        for name in sorted(wanted.keys() & tensors.keys())
        if tensors[name].shape != wanted[name].shape
    ]
    if complaints:
        raise CheckpointError(f"{path}: weights of another model: {'; '.join(complaints)}")
    loaded.load_state_dict(tensors)
    return loaded.eval()


def export_bundle(
    folder: Path,
    model: Mars6,
    tokenizer: BPE,
    *,
    codec: Path | CodecPart,
    identity: Path | EncoderPart,
    style: Path | EncoderPart,
    name: str,
    quality: int = 48_000,
    sampling: SamplingConfig | None = None,
    guidance: float = 1.0,
    precision: Precision = Precision.FLOAT32,
) -> None:
    """Write a bundle; an older one in `folder` is replaced when the new one is complete.

    `codec`, `identity` and `style` are folders of exported mini ones, which are copied, or descriptions of others.
    The model's parameters are rounded to half precision in place. CheckpointError if parts do not fit one another.
    """
    from marstts.codec.snac_graphs import export_snac

    info = BundleInfo(
        name=name,
        quality=quality,
        sampling=sampling or SamplingConfig(),
        guidance=guidance,
        codec=describe(codec),
        identity=describe(identity),
        style=describe(style),
    )
    folders = {CODEC_FOLDER: codec, IDENTITY_FOLDER: identity, STYLE_FOLDER: style}
    with replacing(folder) as temporary:
        for part, source in folders.items():
            if isinstance(source, Path):
                copy_files(source, temporary / part)
        if isinstance(codec, SnacPart):
            export_snac(codec.source, temporary / CODEC_FOLDER, codec.sha256)
        tokenizer.save(temporary / TOKENIZER_FILE)
        write_config(info, temporary / BUNDLE_FILE)
        check_fit(
            name,
            model.config,
            tokenizer,
            open_codec(info.codec, temporary / CODEC_FOLDER),
            open_encoder(info.identity, temporary / IDENTITY_FOLDER, "identity"),
            open_encoder(info.style, temporary / STYLE_FOLDER, "style"),
        )
        write_mars6(model, temporary / MODEL_FOLDER, precision, Storage.HALF)


def write_mars6(model: Mars6, folder: Path, precision: Precision, storage: Storage) -> None:
    """Write a bundle's model with its graphs; what does not become int8 is in half precision then."""
    from marstts.mars6.graphs import export_mars6

    if precision is Precision.INT8:
        wide = folder.with_name(f"{folder.name}.float32")
        export_mars6(model, wide, Storage.HALF)
        quantise(wide, folder)
        shutil.rmtree(wide)
    else:
        export_mars6(model, folder, storage)
    (folder / WEIGHTS_FILE).chmod(0o644)  # safetensors writes for the owner's eyes only


def rewrite_bundle(source: Path | str, folder: Path, precision: Precision) -> str | None:
    """Write the bundle `source` (a name or folder) anew to `folder`, which may be the same: graphs of the decoders and
    of SNAC as this version writes them, MARS6 at this precision.

    Says why SNAC's graphs stayed as they were, where it is the codec but not at hand. Raises CheckpointError where the
    weights are int8 already, or the bundle has no graphs.
    """
    source = find_bundle(source)
    if is_int8(source / MODEL_FOLDER):
        raise CheckpointError(f"{source}: its weights are int8 already; give the bundle that it was made from")
    if not (source / MODEL_FOLDER / GRAPH_FILES[0]).is_file():
        raise CheckpointError(
            f"{source}: a bundle without graphs; `marstts export` or `convert --onnx` make one with them"
        )
    with replacing(folder) as temporary:
        shutil.copytree(source, temporary, ignore=shutil.ignore_patterns(MODEL_FOLDER), dirs_exist_ok=True)
        copy_mars6(source / MODEL_FOLDER, temporary / MODEL_FOLDER, precision)
        return add_snac_graphs(read_info(source).codec, temporary / CODEC_FOLDER)


def describe(part: Path | Any) -> Any:
    """What `bundle.json` says of a part: folders hold mini ones."""
    return MiniPart() if isinstance(part, Path) else part


def copy_files(source: Path, target: Path) -> None:
    """The files of a folder, not what lies deeper."""
    if not source.is_dir():
        raise CheckpointError(f"{source}: expected the folder of an exported codec or speaker encoder")
    target.mkdir()
    for path in sorted(source.iterdir()):
        if path.is_file():
            shutil.copyfile(path, target / path.name)


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """A new folder to write to, which becomes `folder` at the end; on errors, everything stays as it was.

    Only a bundle or an empty folder is replaced, lest someone lose something else.
    """
    if folder.exists() and not (folder / BUNDLE_FILE).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise CheckpointError(f"{folder}: there is something else than a model bundle here; give another folder")
    temporary, old = (folder.with_name(f".{folder.name}.{suffix}") for suffix in ("tmp", "old"))
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        if folder.exists():
            shutil.rmtree(old, ignore_errors=True)
            os.replace(folder, old)
        os.replace(temporary, folder)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
