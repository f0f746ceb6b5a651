"""Generate docs/cli.md from the commands themselves.

    python tools/cli_reference.py            write docs/cli.md
    python tools/cli_reference.py --check    fail where docs/cli.md is not what the commands are

Upstream: `marstts.cli.main`.  Downstream: docs/cli.md, which tests/test_cli_reference.py compares with this output.
"""

from __future__ import annotations

import argparse
import enum
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo, OptionInfo

from marstts.cli.main import app

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"

INTRODUCTION = """# Commands

`python tools/cli_reference.py` generates this page; a test compares it with the commands. Every command has `--help`.

Exit code 0 is success, 2 is an error with one sentence of explanation, 3 a fine-tuning that
did not help. Results go to standard output. Progress,
warnings and errors go to standard error.
"""

MANIFEST = "corpus/utterances.jsonl"

EXAMPLES = {
    "speak": 'marstts speak "Good morning." --reference me.wav --output morning.wav',
    "text": 'marstts text "It cost $5." --explain',
    "voice create": 'marstts voice create me.wav --name me --consent "my own voice"',
    "voice list": "marstts voice list",
    "voice show": "marstts voice show me",
    "voice rename": "marstts voice rename me narrator-me",
    "voice delete": "marstts voice delete me",
    "prepare synthetic": "marstts prepare synthetic --config recipes/mini/synthetic.toml --output corpus "
    "--sentences recipes/mini/text/modern.tsv.gz",
    "prepare f0": f"marstts prepare f0 {MANIFEST} --workers 2",
    "prepare folder": "marstts prepare folder --root recordings --output corpus --license CC0",
    "tokenize": f"marstts tokenize {MANIFEST} --output shards --codec codec --identity identity --style style",
    "estimate": "marstts estimate --config recipes/paper/mars6.toml --hours 46000 --gpus 8",
    "train tokenizer": f"marstts train tokenizer {MANIFEST} --output tokenizer.json",
    "train codec": f"marstts train codec --config recipes/mini/codec.toml --data {MANIFEST} --output runs/codec",
    "train speaker": f"marstts train speaker --config recipes/mini/style.toml --data {MANIFEST} --output runs/style",
    "train mars6": "marstts train mars6 --config recipes/mini/mars6.toml --data shards --output runs/mars6",
    "train mars5-ar": "marstts train mars5-ar --config recipes/mars5_tiny/ar.toml --data shards --output runs/ar",
    "train mars5-nar": "marstts train mars5-nar --config recipes/mars5_tiny/nar.toml --data shards --output runs/nar "
    "--tokenizers-from runs/ar",
    "finetune": "marstts finetune --data my_voice --output runs/my-voice",
    "preference mine": f"marstts preference mine mini --references {MANIFEST} --texts sentences.txt --output mined",
    "preference pairs": "marstts preference pairs mined --output pairs.jsonl",
    "preference train": "marstts preference train mini --pairs pairs.jsonl --held-out testset.jsonl "
    "--config recipes/mini/preference.toml --output runs/preference",
    "export": "marstts export runs/mars6 --template mini --name mine --output mine",
    "quantize": "marstts quantize ./my-bundle --output my-bundle-int8",
    "bundle upgrade": "marstts bundle upgrade older-bundle --output newer-bundle",
    "convert": "marstts convert model-2000100.pt --tokenizer eng-tok-512.model --output turbo --onnx",
    "doctor": "marstts doctor mars6-turbo --file model-2000100.pt --file eng-tok-512.model",
    "web": "marstts web --output site/tab",
    "benchmark": "marstts benchmark --model mini --quick",
    "evaluate": "marstts evaluate --system mini",
    "evaluate testset": f"marstts evaluate testset {MANIFEST} --output testset.jsonl --speakers 8 --sentences 200",
    "report": "marstts report runs/evaluation runs/theirs --output runs/report",
}
"""A command line for each command; tests/test_cli_reference.py parses each."""

TYPES: dict[Any, str] = {str: "TEXT", int: "INTEGER", float: "NUMBER", Path: "PATH"}


@dataclass(frozen=True)
class Parameter:
    """One argument or option of a command, as its function declares it."""

    names: tuple[str, ...]
    """Flags of an option, the name of an argument."""

    value: str
    """Type of its value; empty for flags."""

    default: str
    required: bool
    help: str


def main() -> None:
    """Write the page, or compare it."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--check", action="store_true")
    page = render()
    if not arguments.parse_args().check:
        PAGE.write_text(page, encoding="utf-8")
    elif page != PAGE.read_text(encoding="utf-8"):
        sys.exit("docs/cli.md differs from the commands; run `python tools/cli_reference.py`")


def render() -> str:
    """Return the whole page as Markdown."""
    commands = list(walk(typer.main.get_command(app)))
    rows = [f"| [`{name}`](#{anchor(name)}) | {escape(first_sentence(command))} |" for name, command in commands]
    overview = "\n".join(["| command | what it does |", "|---|---|", *rows])
    sections = [section(name, command) for name, command in commands]
    return "\n\n".join([INTRODUCTION.strip(), overview, *sections]) + "\n"


def walk(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every command below a group with its full name, in the order of the help; groups that run come first."""
    for name in group.list_commands(None):
        command = open_command(group, name)
        full = f"{prefix}{name}"
        if hasattr(command, "list_commands"):
            if command.invoke_without_command:
                yield full, command
            yield from walk(command, f"{full} ")
        elif not command.hidden:
            yield full, command


def open_command(group: Any, name: str) -> Any:
    """Import a lazy command, or return the sub-command of an ordinary group."""
    if group.name is None or type(group).__name__ == "LazyGroup":
        _, command, _ = group.resolve_command(group.make_context("marstts", [name], resilient_parsing=True), [name])
        return command
    return group.get_command(None, name)


def section(name: str, command: Any) -> str:
    """Return the section of one command: what it does, an example, its arguments and options."""
    parts = [f"## {name}", paragraph(command.help)]
    if name in EXAMPLES:
        parts.append(f"```\n{EXAMPLES[name]}\n```")
    rows = [row(parameter) for parameter in parameters_of(inspect.unwrap(command.callback))]
    if rows:
        parts.append("\n".join(["| argument or option | value | default | meaning |", "|---|---|---|---|", *rows]))
    return "\n\n".join(part for part in parts if part)


def parameters_of(function: Callable[..., Any]) -> Iterator[Parameter]:
    """Yield the parameters of a command's function, read from its annotations, which every version of typer keeps."""
    hints = get_type_hints(function, include_extras=True)
    for parameter in inspect.signature(function).parameters.values():
        hint = hints[parameter.name]
        if get_origin(hint) is not Annotated:
            continue  # the context
        kind, *metadata = get_args(hint)
        info = next((entry for entry in metadata if isinstance(entry, (ArgumentInfo, OptionInfo))), None)
        if info is None or info.hidden:
            continue
        is_option = isinstance(info, OptionInfo)
        flag = "--" + parameter.name.replace("_", "-")
        implied = (flag, f"--no{flag[1:]}") if kind is bool else (flag,)
        first = () if info.default is ... else (info.default,)  # typer's place for the first name in an annotation
        declared = (
            tuple(str(name) for name in (*first, *(info.param_decls or ())) if str(name).startswith("-")) or implied
        )
        default = None if parameter.default is inspect.Parameter.empty else parameter.default
        yield Parameter(
            names=declared if is_option else (info.metavar or parameter.name.upper(),),
            value="" if kind is bool or not is_option else value_of(kind, info.metavar),
            default=default_of(default, declared[0]),
            required=parameter.default is inspect.Parameter.empty,
            help=paragraph(info.help),
        )


def row(parameter: Parameter) -> str:
    """Return the table row of one argument or option."""
    names = ", ".join(f"`{name}`" for name in parameter.names)
    required = " (required)" if parameter.required else ""
    cells = [names + required, parameter.value, parameter.default, parameter.help]
    return "| " + " | ".join(escape(cell) for cell in cells) + " |"


def value_of(kind: Any, metavar: str | None) -> str:
    """Return what an option of this type takes."""
    if get_origin(kind) in (list, tuple, Sequence):
        return value_of(get_args(kind)[0], metavar) + ", may be repeated"
    alternatives = [entry for entry in get_args(kind) if entry is not type(None)]
    if len(alternatives) == 1:
        return value_of(alternatives[0], metavar)
    if metavar is not None:
        return f"`{metavar}`"
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return ", ".join(f"`{member.value}`" for member in kind)
    return f"`{TYPES[kind]}`"


def default_of(default: Any, flag: str) -> str:
    """Return the default as it is typed; empty where there is none."""
    if default is None or default is False:
        return ""
    if default is True:
        return f"`{flag}`"
    values = default if isinstance(default, (tuple, list)) else [default]
    return " ".join(f"`{value.value if isinstance(value, enum.Enum) else value}`" for value in values if value != "")


def escape(cell: str) -> str:
    """Return a text that a table's cell can hold."""
    return cell.replace("|", "\\|")


def paragraph(text: str | None) -> str:
    """Return a help text on one line."""
    return " ".join((text or "").replace("\b", "").split())


def first_sentence(command: Any) -> str:
    """Return the first sentence of a command's help."""
    return paragraph(command.help).partition(". ")[0].rstrip(".") + "."


def anchor(name: str) -> str:
    """Return the anchor of a heading."""
    return name.replace(" ", "-")


if __name__ == "__main__":
    main()
