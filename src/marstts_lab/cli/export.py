"""`marstts export`, `quantize` and `bundle`: a trained model and all it needs as one bundle.

Upstream: run folders of `marstts train`, bundles.  Downstream: `models`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from marstts import models
from marstts.bundle import CODEC_FOLDER, TOKENIZER_FILE, check_revision, find_bundle, parts_of, read_info
from marstts.cli.part_options import given, refuse_with_nar
from marstts.cli.terminal import check_utf8, say
from marstts.codec.registry import open_codec, parse_codec
from marstts.errors import ConfigError, check_installed
from marstts.generation.request import SamplingConfig
from marstts.io.config import merged, parse_config, read_values
from marstts.io.part_provenance import MAX_TEXT, PartProvenance, read_part
from marstts.io.precision import WeightFormat
from marstts.io.reading import printable_name, printable_text
from marstts.onnx.build import EXPORT_PACKAGES
from marstts.speaker.registry import parse_encoder
from marstts.text.pronunciation.words import PhoneUse

Model = Annotated[str, typer.Argument(metavar="MODEL", help="A bundle with graphs, by name or folder.")]
Output = Annotated[Path, typer.Option(help="The folder to write; an older bundle there is replaced.")]

bundle_app = typer.Typer(help="Upgrade a bundle, or show what it is made of.", no_args_is_help=True)


def export(
    run: Annotated[
        Path, typer.Argument(metavar="RUN_FOLDER", help="A run of `marstts train mars6`, or of `train mars5-ar`.")
    ],
    name: Annotated[str, typer.Option(help="The model's name; voices do not depend on it.")],
    output: Output,
    nar: Annotated[
        Path | None, typer.Option(help="A run of `marstts train mars5-nar`: RUN_FOLDER is the AR of a MARS5.")
    ] = None,
    codec: Annotated[
        str | None, typer.Option(help="The codec's folder, `snac`, or `toy:CODES`: the codec of the shards.")
    ] = None,
    identity: Annotated[str | None, typer.Option(help="The identity encoder's folder, `wavlm`, or `toy:SIZE`.")] = None,
    style: Annotated[str | None, typer.Option(help="The style encoder's folder, `clap`, or `toy:SIZE`.")] = None,
    template: Annotated[
        str | None,
        typer.Option(help="Model whose codec, encoders and settings are used, e.g. the one before tuning."),
    ] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="tokenizer.json (default: that of the run).")] = None,
    quality_prefix_hz: Annotated[
        int | None, typer.Option(help="Sample rate (Hz) that the quality prefix asks for (default: 48000).")
    ] = None,
    top_p: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Top-p of the first attempt (default: the paper's 0.2).")
    ] = None,
    guidance: Annotated[
        float | None,
        typer.Option(min=1.0, help="Weight of classifier-free guidance of a MARS5's diffusion (default: 3)."),
    ] = None,
    spelling: Annotated[str | None, typer.Option(help="`simple`: capitals in small letters, names of letters.")] = None,
    phones: Annotated[
        PhoneUse | None,
        typer.Option(
            help="Words that a MARS6 reads in phones: none, given by the user, or all known; or in letters with phones."
        ),
    ] = None,
    timesteps: Annotated[int | None, typer.Option(min=1, help="Diffusion timesteps of a MARS5 (default: 200).")] = None,
    settings: Annotated[
        Path | None, typer.Option(help="Settings of a MARS5 in TOML: tables sampling and diffusion.")
    ] = None,
    weights: Annotated[
        WeightFormat, typer.Option(help="int8, for a MARS6, is faster and smaller.")
    ] = WeightFormat.FLOAT16,
) -> None:
    """Write a trained MARS6 with its codec and encoders as a bundle, with graphs that need no PyTorch; or a MARS5."""
    check_installed(EXPORT_PACKAGES, "train")
    check_utf8(name=name)
    if nar is not None:
        parts_of_mars6 = {"identity": identity, "style": style, "template": template, "tokenizer": tokenizer}
        refuse_with_nar(**parts_of_mars6, quality_prefix_hz=quality_prefix_hz, spelling=spelling, phones=phones)
        chosen = settings_with(settings, given(timesteps=timesteps, nar_guidance_w=guidance))
        return export_mars5(run, nar, output, name, codec, chosen, top_p, weights)
    if unused := given(timesteps=timesteps, guidance=guidance, settings=settings):
        raise ConfigError(f"--{next(iter(unused))} is for a MARS5; name the run of its NAR, too: --nar RUN")
    parts = chosen_parts(template, codec, {"identity": identity, "style": style})
    kept, sampling = settings_of(template)
    export_mars6(
        run,
        tokenizer or run / TOKENIZER_FILE,
        output,
        **parts,
        name=name,
        settings={**kept, **given(quality_prefix_hz=quality_prefix_hz, spelling=spelling, phones=phones)},
        sampling=SamplingConfig(**{**sampling, **given(top_p=top_p)}),
        weights=weights,
    )


def export_mars6(run: Path, tokenizer: Path, output: Path, *, name: str, **parts: Any) -> None:
    """Write the bundle of a MARS6, and print its size; `parts` are further arguments of `models.export_bundle`."""
    from marstts.text.tokenizers.bpe import BPE
    from marstts_lab.training.mars6.run_folder import trained_model  # needs PyTorch

    model, vocabulary = trained_model(run), BPE.load(tokenizer)
    models.find_alignment(model, vocabulary)
    models.export_bundle(output, model, vocabulary, name=name, provenance=read_part(run), **parts)
    print_written(output)


def export_mars5(
    ar: Path,
    nar: Path,
    output: Path,
    name: str,
    codec: str | None,
    settings: dict[str, Any],
    top_p: float | None,
    weights: WeightFormat,
) -> None:
    """Write the bundle of a MARS5, and print its size; its lengths are those of the corpus of its AR."""
    from marstts_lab.training.mars5.run_folder import read_rate, trained_models  # needs PyTorch

    if codec is None:
        raise ConfigError("--codec: not given; name the codec of the shards")
    rate = read_rate(ar)
    if (given_name := open_codec(codec).spec.name) != rate.codec:
        raise ConfigError(f"--codec {codec} is {given_name}, but {ar} was trained on codes of {rate.codec}; give that")
    made = trained_models(ar, nar)
    measured = {
        "sampling": {"eos_estimated_gen_length_factor": rate.per_character},
        "tokens_per_second": rate.per_second,
    }
    settings = merged(measured, settings)
    models.export_bundle(
        output,
        made,
        made.vocabulary.text,
        codec=parse_codec(codec),
        encoders={},
        name=name,
        architecture="mars5",
        settings=settings,
        sampling=SamplingConfig(**given(top_p=settings["sampling"].get("top_p") if top_p is None else top_p)),
        weights=weights,
        provenance=both_parts(ar, nar),
    )
    print_written(output)


def both_parts(ar: Path, nar: Path) -> PartProvenance | None:
    """The provenance of a MARS5: that of its AR, with that of its NAR in the note; None without both."""
    first, second = read_part(ar), read_part(nar)
    if first is None or second is None:
        return first or second
    configuration = {"ar": first.configuration, "nar": second.configuration}
    commands = f"{first.command}; {second.command}"[:MAX_TEXT]
    return first.model_copy(
        update={"configuration": configuration, "command": commands, "data": {**second.data, **first.data}}
    )


def print_written(output: Path) -> None:
    """Print name, revision and size of a bundle."""
    label = printable_text(read_info(output).label)
    say(f"{printable_name(output)}: {label}, {megabytes(output):.1f} MB")


def settings_of(template: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings and sampling of a model by name or folder; none without one."""
    if template is None:
        return {}, {}
    info = read_info(find_bundle(template))
    return dict(info.settings), info.sampling.model_dump()


def settings_with(file: Path | None, diffusion: dict[str, Any]) -> dict[str, Any]:
    """The settings of a file, with those of the diffusion that are given as options."""
    return merged({} if file is None else read_values(file), {"diffusion": diffusion})


def quantize(model: Model, output: Output) -> None:
    """Write the bundle of a MARS6 with int8 weights: faster and smaller."""
    upgrade_to(model, output, WeightFormat.INT8)


@bundle_app.command()
def upgrade(
    model: Model,
    output: Output,
    provenance: Annotated[
        Path | None, typer.Option(help="TOML with a table of each part whose provenance is to be written.")
    ] = None,
) -> None:
    """Write a bundle with format and graphs of this version; its weights do not change."""
    upgrade_to(model, output, None, {} if provenance is None else read_provenance(provenance))


@bundle_app.command()
def show(model: Annotated[str, typer.Argument(metavar="MODEL", help="A bundle, by name or folder.")]) -> None:
    """Print name, revision and provenance of a bundle, whose tensors are compared with its revision."""
    info = check_revision(find_bundle(model))
    say(f"{printable_text(info.label)} ({info.architecture})")
    for part in (info.architecture, CODEC_FOLDER, *info.encoders):
        say(f"\n{part}")
        record = info.provenance.get(part, PartProvenance())
        known = {name: value for name, value in record.model_dump().items() if value}
        for name, value in (known or {"provenance": "not recorded"}).items():
            shown = ", ".join(f"{key} {one}" for key, one in value.items()) if isinstance(value, dict) else value
            say(f"  {name}: {printable_text(shown)}")


@bundle_app.callback()
def bundles() -> None:
    """Upgrade a bundle, or show what it is made of."""


def read_provenance(path: Path) -> dict[str, PartProvenance]:
    """The tables of a file as the provenance of the parts that they are named after; ConfigError where one is none."""
    values = read_values(path)
    source = printable_name(path)
    if problem := next((name for name, value in values.items() if not isinstance(value, dict)), None):
        raise ConfigError(f"{source}: {printable_text(problem)}: expected a table named after a part, such as [codec]")
    return {name: parse_config(PartProvenance, value, f"{source}: {name}") for name, value in values.items()}


def upgrade_to(
    model: str, output: Path, weights: WeightFormat | None, provenance: dict[str, PartProvenance] | None = None
) -> None:
    """Write the bundle, and print its revision and size."""
    check_installed(EXPORT_PACKAGES, "train")
    models.upgrade_bundle(model, output, weights, provenance)
    kept = "weights as before" if weights is None else weights.value
    label = printable_text(read_info(output).label)
    say(f"{printable_name(output)}: {label}, {kept}, {megabytes(output):.1f} MB")


def chosen_parts(template: str | None, codec: str | None, encoders: dict[str, str | None]) -> dict[str, Any]:
    """Codec and encoders as `models.export_bundle` takes them: those that are named, the template's for the rest."""
    if template is None:
        missing = [f"--{name}" for name, value in ((CODEC_FOLDER, codec), *encoders.items()) if value is None]
        if missing:
            raise ConfigError(
                f"{', '.join(missing)}: not given; name the codec and encoders of the shards, or give --template"
            )
        template_codec, template_encoders = None, dict[str, Any]()
    else:
        template_codec, template_encoders = parts_of(find_bundle(template))
    return {
        "codec": template_codec if codec is None else parse_codec(codec),
        "encoders": {
            role: template_encoders[role] if name is None else parse_encoder(name, role)
            for role, name in encoders.items()
        },
    }


def megabytes(folder: Path) -> float:
    """Size of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
