"""The MARS6 of a bundle: its folder, read and written.

Upstream: `models`, which calls these functions for bundles of architecture "mars6".  Downstream: `export`, `engines`.

    mars6/  config.json, mars6.safetensors, encoder.onnx, global.onnx, patch.onnx, local.onnx

Weights may be int8 (`export.quantize`); PyTorch computes with them in float32, so that they can be trained further.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from marstts.bundle import TOKENIZER_FILE, check_facts
from marstts.codec.base import Codec, CodecSpec
from marstts.errors import CheckpointError, require
from marstts.generation.engine import Engine, EngineKind
from marstts.generation.request import SamplingConfig
from marstts.io.config import Config, parse_config, read_config, write_config
from marstts.io.precision import WeightFormat
from marstts.io.reading import printable_name
from marstts.io.stored_tensors import stored_tensors
from marstts.mars6.config import CONFIG_FILE, WEIGHTS_FILE, Mars6Config
from marstts.mars6.engines.onnx import OnnxEngine
from marstts.mars6.export import decoder_graphs, quantize
from marstts.mars6.speech import Mars6Speech
from marstts.mars6.spelling import Spelling
from marstts.speaker.base import SpeakerEncoder
from marstts.text.phones import FALLING, PAIR_TOKENS, PHONE_TOKENS, RISING
from marstts.text.pronunciation.uses import Use
from marstts.text.pronunciation.words import PhoneUse
from marstts.text.tokenizers.bpe import BPE
from marstts.weights import published_checkpoint

if TYPE_CHECKING:
    from marstts.mars6.model import Mars6

GRAPH_FILES = ("encoder.onnx", "global.onnx", "patch.onnx", "local.onnx")


Word = Annotated[str, Field(pattern=r"^[a-z]+(?:'[a-z]+)*$", max_length=40)]
Respelling = Annotated[str, Field(pattern=r"^[a-z]+(?:['-][a-z]+)*$", max_length=60)]


class Mars6Settings(Config):
    """Settings of a bundle that only MARS6 has."""

    quality_prefix_hz: int | None = Field(48_000, gt=0)
    """Sample rate (Hz) that the quality prefix asks for (Sec. IV-B2); None leaves the prefix out."""

    style_offset: tuple[float, ...] = ()
    """Added to the style embedding of every voice, so that takes are as long as recordings; empty = nothing."""

    spelling: Spelling = Spelling.AS_WRITTEN
    """`simple`, for models trained on texts without capitals: "STOP" is read as "stop", "B B C" as "bee bee see".

    `em dashes`, for the published model, whose script has no hyphens."""

    phones: PhoneUse = PhoneUse.NONE
    """What the model reads beside letters: phones, or marks of intonation alone; the tokenizer must have them."""

    respellings: dict[Word, Respelling | dict[Use, Respelling]] = Field({}, max_length=50_000)
    """Letters for words, in small letters, whose own the model misreads (`recipes/mini/respellings.py`); for heteronyms
    those of the noun or of the verb."""


def parse_settings(values: Mapping[str, Any], source: str) -> Mars6Settings:
    """Validate the settings of a bundle; those of an earlier version may have guidance 1, which is none."""
    kept = {name: value for name, value in values.items() if (name, value) != ("guidance", 1.0)}
    return parse_config(Mars6Settings, kept, source)


def read_sizes(folder: Path) -> Mars6Config:
    """The sizes of the model in a model's folder."""
    return read_config(Mars6Config, folder / CONFIG_FILE)


def has_graphs(folder: Path) -> bool:
    """Return True where ONNX Runtime can run the model."""
    return all((folder / name).is_file() for name in GRAPH_FILES)


def open_engine(folder: Path, kind: EngineKind) -> Engine[Any]:
    """The engine of a model's folder; `kind` is not AUTO."""
    if kind is EngineKind.ONNX:
        return OnnxEngine(folder)
    from marstts.mars6.engines.torch import TorchEngine  # needs PyTorch

    return TorchEngine(load_model(folder).to("cuda" if kind is EngineKind.CUDA else "cpu"))


def torch_engine(module: Mars6) -> Engine[Any]:
    """The PyTorch engine of a model that is in memory already."""
    from marstts.mars6.engines.torch import TorchEngine  # needs PyTorch

    return TorchEngine(module)


def speech_model(engine: Engine[Any], bundle: Path, settings: Mars6Settings, sampling: SamplingConfig) -> Mars6Speech:
    """The speech model around an engine."""
    tokenizer = BPE.load(bundle / TOKENIZER_FILE)
    config = engine_config(engine)
    if len(settings.style_offset) not in (0, config.style_size):
        raise CheckpointError(
            f"{printable_name(bundle)}: style_offset has {len(settings.style_offset)} numbers, but style embeddings of "
            f"this model have {config.style_size}"
        )
    needed = set(PHONE_TOKENS) if settings.phones.has_phones else set()
    needed |= set(PAIR_TOKENS) if settings.phones is PhoneUse.GRAPHONES else set()
    needed |= {RISING, FALLING} if settings.phones is PhoneUse.CONTOURS else set()
    if not tokenizer.special_tokens.keys() >= needed:
        raise CheckpointError(
            f"{printable_name(bundle)}: its setting `phones` is {settings.phones.value!r}, but its tokenizer has none"
        )
    return Mars6Speech(
        config=config,
        tokenizer=tokenizer,
        engine=engine,
        quality_prefix_hz=settings.quality_prefix_hz,
        style_offset=settings.style_offset,
        spelling=settings.spelling,
        phones=settings.phones,
        respellings=settings.respellings,
        sampling=sampling,
    )


def engine_config(engine: Any) -> Mars6Config:
    """The configuration of the model that an engine of this package runs."""
    config = engine.config
    assert isinstance(config, Mars6Config)
    return config


def model_encoders(model: Mars6Speech, codec: Codec) -> Mapping[str, SpeakerEncoder]:
    """MARS6 brings no speaker encoders: its bundle has them."""
    return {}


def check_fit(
    source: str, config: Mars6Config, tokenizer: BPE, codec: CodecSpec, encoders: Mapping[str, SpeakerEncoder]
) -> None:
    """Raise CheckpointError that lists everything in which the model and its codec, encoders and tokenizer differ."""
    facts: dict[str, tuple[object, object, str]] = {
        "text_vocab_size": (config.text_vocab_size, tokenizer.vocab_size, "tokenizer"),
        "codebook_size": (config.codebook_size, codec.codebook_size, f"codec {codec.name}"),
        "patch_layout": (config.patch_layout, codec.patch_layout, f"codec {codec.name}"),
    }
    for role, size in config.embedding_sizes.items():
        encoder = encoders.get(role)
        if encoder is None:
            raise CheckpointError(f"{source}: the bundle has no {role} encoder, which a MARS6 needs")
        facts[f"{role}_size"] = (size, encoder.size, f"encoder {encoder.name}")
    check_facts(source, facts)


def load_model(folder: Path) -> Mars6:
    """The PyTorch model of a folder, in float32 and evaluation mode.

    Raises CheckpointError that names every tensor that is missing, not expected, or of another shape.
    """
    require("torch", "torch")
    from safetensors.torch import load_file

    from marstts.mars6.model import Mars6

    path = folder / WEIGHTS_FILE
    config = read_config(Mars6Config, folder / CONFIG_FILE, CheckpointError)
    stored_tensors(path)  # refuses what is no regular file of tensors
    try:
        tensors = load_file(path)
    except Exception as error:  # safetensors raises another class for every kind of corruption
        raise CheckpointError(f"{printable_name(path)}: expected the model's weights, but {error}") from error
    if quantize.is_int8(folder):
        tensors = quantize.dequantized(tensors, len(config.patch_layout))
    model = published_checkpoint.sizes_only(Mars6, config)  # a size that does not fit must not be allocated
    found, wanted = (
        {name: tuple(tensor.shape) for name, tensor in one.items()} for one in (tensors, model.state_dict())
    )
    complaints = published_checkpoint.shape_complaints(found, wanted)
    if complaints:
        raise CheckpointError(f"{printable_name(path)}: weights of another model: {'; '.join(complaints[:8])}")
    model.to_empty(device="cpu")
    model.load_state_dict(tensors)
    return model.eval()


def write_model(model: Mars6, folder: Path, weights: WeightFormat = WeightFormat.FLOAT16) -> None:
    """Write a model's folder with its graphs. Its parameters are rounded to the format in place, except for int8."""
    from marstts.mars6.export.graphs import export_mars6  # needs PyTorch

    if weights is WeightFormat.INT8:
        wide = folder.with_name(f"{folder.name}.float16")
        export_mars6(model, wide, WeightFormat.FLOAT16)
        quantize.quantize(wide, folder)
        shutil.rmtree(wide)
    else:
        export_mars6(model, folder, weights)
    (folder / WEIGHTS_FILE).chmod(0o644)  # safetensors makes files that only their owner can read


def write_weights(model: Mars6, folder: Path) -> None:
    """Write a model's folder without graphs, in float32: for PyTorch only."""
    from safetensors.torch import save_file

    folder.mkdir()
    save_file({key: tensor.contiguous() for key, tensor in model.state_dict().items()}, folder / WEIGHTS_FILE)
    write_config(model.config, folder / CONFIG_FILE)
    (folder / WEIGHTS_FILE).chmod(0o644)


def find_alignment(model: Mars6, tokenizer: BPE) -> None:
    """Name the heads whose attention follows the text in the model's configuration, for word times."""
    from marstts.mars6.aligned_heads import name_aligned_heads  # needs PyTorch

    name_aligned_heads(model, tokenizer)


def rewrite_model(source: Path, folder: Path, weights: WeightFormat | None, tokenizer: Path) -> None:
    """Copy a model's folder with graphs as this version writes them; its weights in int8, or as they are with None.

    Aligned heads are looked for where none are known. `tokenizer` is the file of the model's tokenizer.

    Raises CheckpointError where weights that should become int8 are so already, or there are no graphs.
    """
    if weights is WeightFormat.INT8 and quantize.is_int8(source):
        raise CheckpointError(
            f"{printable_name(source)}: its weights are int8 already; give the bundle that it was quantized from"
        )
    if not (source / GRAPH_FILES[0]).is_file():
        raise CheckpointError(
            f"{printable_name(source)}: a model without graphs; `marstts export` or `convert --onnx` write them"
        )
    model = load_model(source)  # refuses weights that do not fit the configuration
    quantize.copy_mars6(source, folder, weights)
    if not model.config.aligned_heads:
        find_alignment(model, BPE.load(tokenizer))
        write_config(model.config, folder / CONFIG_FILE)
        decoder_graphs.write_decoder_graphs(model.config, folder, WEIGHTS_FILE)
