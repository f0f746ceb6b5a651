"""Bundles: a bundle is a folder with a model and everything that it needs to speak.

Upstream: `models.export_bundle`.  Downstream: `models.open_model` and `synthesis.loading`; training starts from one.

    bundle.json          format version, name, revision, architecture, its settings, sampling defaults, codec, speaker
                         encoders, and the provenance of each part
    tokenizer.json       text tokenizer
    ARCHITECTURE/        the model, as its package writes it: for mars6 config.json, mars6.safetensors and four graphs
    codec/               kind `mini`: config.json, codec.safetensors and graphs; kind `snac`: SNAC as graphs
    identity/, style/    a folder for each role: kind `mini`: config.json, encoder.safetensors, encoder.onnx

The graphs read their weights from the safetensors file in the same folder. So nothing is stored twice, and fine-tuned
weights are used at once. Codecs and encoders of other kinds need no folder: `bundle.json` names them. Packaged bundles
are in `models_data/`; their name is the name of their folder. This module depends on no architecture.

The revision is a digest of all tensors (`onnx.revision`): `NAME@REVISION` says which weights a figure, a voice or a
take is of. `check_revision` finds weights that were exchanged by hand.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from marstts.codec.base import SPEAKER_FOLDER, Codec, timbre_encoders
from marstts.codec.registry import CodecPart, open_codec
from marstts.errors import CheckpointError, ConfigError, did_you_mean
from marstts.generation.request import SamplingConfig
from marstts.io.config import Config, parse_config, write_config
from marstts.io.files import atomic_folder
from marstts.io.part_provenance import PART_FILE, PartProvenance, read_part
from marstts.io.reading import open_regular, os_errors, parse_object, printable_name, read_text
from marstts.onnx.revision import revision_of
from marstts.speaker.base import SpeakerEncoder
from marstts.speaker.registry import EncoderPart, open_encoder
from marstts.weights.pretrained import HUB_SCHEME, MiniPart, PublishedPart, download_folder

FORMAT_VERSION: Literal[3] = 3

OLDER_FORMATS = (2,)
"""Formats that `models.upgrade_bundle` reads: 2 has neither revision nor provenance."""

BUNDLE_FILE, TOKENIZER_FILE, CODEC_FOLDER = "bundle.json", "tokenizer.json", "codec"

MAX_NAME = 200
"""Characters of a model's name."""

MAX_INFO_BYTES = 2**20
MAX_COPIED_BYTES = 64 * 2**30

PACKAGED_MODELS = Path(str(files("marstts"))) / "models_data"
"""Bundles that come with the package."""

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
"""An architecture or a role; also the name of a folder."""


class BundleInfo(Config):
    """`bundle.json`."""

    format_version: Literal[3] = FORMAT_VERSION
    name: str = Field(min_length=1, max_length=MAX_NAME)
    """The model's name in reports."""

    revision: str = Field("", pattern=r"^([0-9a-f]{12})?$")
    """Digest of all tensors, see `onnx.revision`; empty only while a bundle is being written."""

    architecture: Name
    """Name of the package that runs the model, e.g. "mars6"."""

    settings: dict[str, Any] = Field(default_factory=dict)
    """Defaults that only this architecture has; it validates them."""

    sampling: SamplingConfig = SamplingConfig()
    """Sampling defaults."""

    codec: Annotated[CodecPart, Field(discriminator="kind")]
    encoders: dict[Name, Annotated[EncoderPart, Field(discriminator="kind")]]
    """Speaker encoders by role."""

    provenance: dict[Name, PartProvenance] = Field(default_factory=dict)
    """How each part came about, by the name of its folder: the architecture, `codec`, the roles of the encoders."""

    @property
    def label(self) -> str:
        """Name and revision, as reports have them."""
        return labeled(self.name, self.revision)

    @property
    def needs_torch(self) -> bool:
        """True where a part other than the model runs in PyTorch."""
        return any(isinstance(part, PublishedPart) for part in (self.codec, *self.encoders.values()))


@dataclass(frozen=True, eq=False, kw_only=True)
class Bundle:
    """An open bundle without its model, which `models.open_model` opens."""

    folder: Path
    info: BundleInfo
    codec: Codec

    encoders: Mapping[str, SpeakerEncoder]
    """The model's speaker encoders by role."""

    @property
    def name(self) -> str:
        """The model's name in reports."""
        return self.info.name

    @property
    def voice_encoders(self) -> dict[str, SpeakerEncoder]:
        """The encoders of everything that a voice holds: the model's, and the codec's timbre encoder if it has one."""
        return {**self.encoders, **timbre_encoders(self.codec)}

    @property
    def sampling(self) -> SamplingConfig:
        """Sampling defaults."""
        return self.info.sampling


def labeled(name: str, revision: str) -> str:
    """`NAME@REVISION`; the name alone without a revision."""
    return f"{name}@{revision}" if revision else name


def check_name(name: str) -> None:
    """ConfigError for a name that no model can have."""
    if not 0 < len(name) <= MAX_NAME:
        raise ConfigError(f"a model's name has 1 to {MAX_NAME} characters, but this one has {len(name)}")


def load_bundle(model: Path | str, device: str = "cpu") -> Bundle:
    """Open the bundle of a packaged model's name, or in a folder; CheckpointError where there is none.

    `device`, PyTorch's name for one, is where published codecs and encoders run; mini ones need no device.
    """
    folder = find_bundle(model)
    info = read_info(folder)
    return Bundle(
        folder=folder,
        info=info,
        codec=open_codec(info.codec, folder / CODEC_FOLDER, device),
        encoders={role: open_encoder(part, role, folder / role, device) for role, part in info.encoders.items()},
    )


def packaged_models() -> list[str]:
    """Names of the models that come with the package."""
    return sorted(path.parent.name for path in PACKAGED_MODELS.glob(f"*/{BUNDLE_FILE}"))


def find_bundle(model: Path | str) -> Path:
    """The folder of a packaged model's name, of a path, or of a model on the hub: `hf://OWNER/NAME`.

    A name wins, `./mini` is always a path; names may be in any case where no folder has them.
    """
    model, known = in_known_case(model), packaged_models()
    if isinstance(model, str) and model.startswith(HUB_SCHEME):
        model = download_folder(model)
    if isinstance(model, str) and model in known:
        return PACKAGED_MODELS / model
    folder = Path(model)
    if not folder.is_dir():
        names = (*known, *PUBLISHED)
        raise CheckpointError(
            f"{printable_name(model)}: neither a folder nor the name of a model: {', '.join(names)}"
            f"{did_you_mean(str(model), names)}"
        )
    missing = [name for name in (BUNDLE_FILE, TOKENIZER_FILE) if not (folder / name).exists()]
    if missing:
        raise CheckpointError(
            f"{printable_name(folder)}: not a model bundle, it lacks {', '.join(missing)}; `marstts export` writes one"
        )
    return folder


def in_known_case(model: Path | str) -> Path | str:
    """The name of a packaged or published model as it is written, where it came in another case and is no folder."""
    if not isinstance(model, str) or Path(model).is_dir():
        return model
    names = {name.casefold(): name for name in (*PUBLISHED, *packaged_models())}
    return names.get(model.casefold(), model)


PUBLISHED = ("mars6-turbo", "mars5-english")
"""Names of models that are downloaded and converted when they are first used."""


def read_info(folder: Path, *, older: bool = False) -> BundleInfo:
    """Read `bundle.json`; checks its version first, for another version may have other fields.

    With `older`, the formats of `OLDER_FORMATS` are read, too: what they lack is empty.
    """
    path = folder / BUNDLE_FILE
    values = parse_object(read_text(path, MAX_INFO_BYTES, CheckpointError), printable_name(path), CheckpointError)
    version = values.get("format_version")
    is_older = type(version) is int and version in OLDER_FORMATS
    if is_older and older:
        values["format_version"] = FORMAT_VERSION
    elif version != FORMAT_VERSION:
        remedy = (
            f"write it again: marstts bundle upgrade {printable_name(folder)} --output FOLDER"
            if is_older
            else "update marstts, or export the model again"
        )
        raise CheckpointError(
            f"{printable_name(path)}: bundle format {str(version)[:20]!r}, but this marstts reads format "
            f"{FORMAT_VERSION}; {remedy}"
        )
    info = parse_config(BundleInfo, values, printable_name(path), CheckpointError)
    if not (info.revision or is_older):
        raise CheckpointError(f"{printable_name(path)}: has no revision; export the model again")
    if not model_folder(folder, info).is_dir():
        raise CheckpointError(f"{printable_name(folder)}: the bundle lacks the folder {info.architecture} of its model")
    return info


def is_current(folder: Path) -> bool:
    """Return True for the folder of a bundle in this version's format, False where there is none or an older one."""
    if not (folder / BUNDLE_FILE).is_file():
        return False
    try:
        read_info(folder)
    except CheckpointError:
        return False
    return True


def model_folder(folder: Path, info: BundleInfo) -> Path:
    """The folder of the model itself in the bundle `folder`."""
    return folder / info.architecture


@contextmanager
def new_bundle(
    folder: Path, info: BundleInfo, codec: Path | CodecPart, encoders: Mapping[str, Path | EncoderPart]
) -> Iterator[Path]:
    """A folder to complete with tokenizer and model, which becomes `folder` at the end; on errors nothing changes.

    The folders of codec and encoders are there already: paths are copied, and their provenance is added to that of
    `info`. `bundle.json`, with the revision of all parts, is written at the end. An older bundle or an empty folder is
    replaced; CheckpointError where anything else would be lost.
    """
    with replacing(folder) as temporary:
        provenance = dict(info.provenance)
        for name, source in ((CODEC_FOLDER, codec), *encoders.items()):
            if isinstance(source, Path):
                copy_files(source, temporary / name)
                if name not in provenance and (record := provenance_of(source)) is not None:
                    provenance[name] = record
        yield temporary
        write_info(info.model_copy(update={"provenance": provenance}), temporary)


def write_info(info: BundleInfo, folder: Path) -> None:
    """Write `bundle.json` of a folder that has all other files, with the revision of its tensors."""
    write_config(info.model_copy(update={"revision": compute_revision(folder, info)}), folder / BUNDLE_FILE)


def compute_revision(folder: Path, info: BundleInfo) -> str:
    """The revision of the tensors that are in a bundle now."""
    described = {CODEC_FOLDER: info.codec, **info.encoders}
    return revision_of(
        {
            info.architecture: model_folder(folder, info),
            **{
                name: folder / name if isinstance(part, MiniPart) else part.model_dump(mode="json")
                for name, part in described.items()
            },
        }
    )


def check_revision(folder: Path) -> BundleInfo:
    """The description of a bundle; CheckpointError where its tensors are not those that its revision is of."""
    info = read_info(folder)
    if (found := compute_revision(folder, info)) != info.revision:
        raise CheckpointError(
            f"{printable_name(folder)}: {BUNDLE_FILE} says revision {info.revision}, but its weights are of revision "
            f"{found}: files were exchanged; write it again: marstts bundle upgrade {printable_name(folder)} "
            "--output FOLDER"
        )
    return info


def label_of(model: Path | str) -> str:
    """`NAME@REVISION` of a bundle, for reports; CheckpointError as `check_revision`."""
    return check_revision(find_bundle(model)).label


def provenance_of(part: Path) -> PartProvenance | None:
    """How the part in a folder came about: by its own record, or by that of the bundle that it is a folder of."""
    record = read_part(part)
    if record is None and (part.parent / BUNDLE_FILE).is_file():
        return read_info(part.parent, older=True).provenance.get(part.name)
    return record


def replacing(folder: Path) -> Any:
    """A new folder that becomes `folder` at the end; only a bundle or an empty folder is replaced."""
    return atomic_folder(folder, replace=lambda old: (old / BUNDLE_FILE).is_file(), kind=CheckpointError)


def part_config(part: Path | Any) -> Any:
    """The description of a part in `bundle.json`: a folder holds one of kind mini."""
    return MiniPart() if isinstance(part, Path) else part


def parts_of(folder: Path) -> tuple[Path | CodecPart, dict[str, Path | EncoderPart]]:
    """Codec and encoders of the bundle in `folder`, as `new_bundle` takes them."""
    info = read_info(folder)
    codec = folder / CODEC_FOLDER if isinstance(info.codec, MiniPart) else info.codec
    encoders: dict[str, Path | EncoderPart] = {
        role: folder / role if isinstance(part, MiniPart) else part for role, part in info.encoders.items()
    }
    return codec, encoders


def copy_files(source: Path, target: Path) -> None:
    """Copy the files of a folder, and of the one sub-folder that a codec may have: `codec.base.SPEAKER_FOLDER`."""
    if not source.is_dir():
        raise CheckpointError(f"{printable_name(source)}: expected the folder of an exported codec or speaker encoder")
    for folder, copy in ((source, target), (source / SPEAKER_FOLDER, target / SPEAKER_FOLDER)):
        if folder.is_dir():
            copy.mkdir()
            for path in sorted(path for path in folder.iterdir() if path.is_file() and path.name != PART_FILE):
                shutil.copyfile(path, copy / path.name)


def check_facts(source: str, facts: Mapping[str, tuple[object, object, str]]) -> None:
    """Raise CheckpointError that lists the facts of which the model's value differs from that of a part.

    Facts by name: the model's value, the other one, and the part that has it.
    """
    complaints = [
        f"{name} is {mine}, but the {whose} has {theirs}"
        for name, (mine, theirs, whose) in facts.items()
        if mine != theirs
    ]
    if complaints:
        raise CheckpointError(f"{source}: the model does not fit what it is bundled with: {'; '.join(complaints)}")


def copy_tree_without(source: Path, target: Path, name: str) -> None:
    """Copy a folder into an existing one, all but its sub-folder `name`; CheckpointError for devices and pipes."""
    for path in source.rglob("*"):
        if not path.is_dir():
            open_regular(path, MAX_COPIED_BYTES, CheckpointError).close()
    with os_errors(source, "be copied", CheckpointError):
        shutil.copytree(source, target, ignore=shutil.ignore_patterns(name), dirs_exist_ok=True)
