"""The documents: links lead somewhere, commands and examples are valid, generated files are up to date."""

from __future__ import annotations

import ast
import functools
import importlib.util
import inspect
import json
import re
import shlex
import shutil
import sys
import tomllib
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import marstts
from command_lines import parse
from marstts import audio
from marstts.cli.main import app
from marstts.synthesis.loading import load
from marstts.synthesis.speaking import Speaking
from small_epub import write_small_epub

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("recipes/**/*.md"), *ROOT.glob("examples/*.md")]
)


def name_of(document: Path) -> str:
    return str(document.relative_to(ROOT))


def load_tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"tools_{name}", ROOT / "tools" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def links_of(text: str) -> list[str]:
    """Relative links of Markdown, without those in code."""
    prose = re.sub(r"^```.*?^```$|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", prose) if "://" not in link]


def headings(document: Path) -> list[str]:
    """The anchors that a page has for its headings."""
    titles = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]


def blocks_of(text: str, language: str = "") -> list[str]:
    """The fenced code blocks of a language."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    return [content for name, content in blocks if name == language]


def command_lines_of(text: str) -> list[str]:
    """The lines of unnamed and shell blocks that call marstts, without comments, pipes and redirections.

    Lines with columns belong to diagrams.
    """
    blocks = [block for language in ("", "sh", "bash", "console") for block in blocks_of(text, language)]
    lines = [line for block in blocks for line in re.sub(r"\\\n\s*", " ", block).splitlines()]
    called = [
        line[line.index("marstts ") :] for line in lines if re.match(r"(?:\$ |torchrun .* |echo .*\| *)?marstts ", line)
    ]
    cut = [re.sub(r"\s+#.*$", "", re.split(r" \| | > ", line)[0]) for line in called]
    return [line for line in cut if "   " not in line.strip()]


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_lead_to_files_and_headings_that_exist(document: Path) -> None:
    for link in links_of(document.read_text(encoding="utf-8")):
        name, _, heading = link.partition("#")
        target = document.parent / name if name else document
        assert target.exists(), link
        assert not heading or heading in headings(target), link


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_commands_exist_and_take_their_options(document: Path) -> None:
    for line in command_lines_of(document.read_text(encoding="utf-8")):
        if "..." in line or "…" in line:
            continue
        try:
            parse(shlex.split(line)[1:])
        except Exception as error:
            raise AssertionError(f"{line}: {error!r}") from error


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_python_examples_compile(document: Path) -> None:
    for number, block in enumerate(blocks_of(document.read_text(encoding="utf-8"), "python")):
        compile(block, f"{name_of(document)} block {number}", "exec")


def test_the_python_api_explains_the_public_names_of_a_synthesizer_and_no_others() -> None:
    text = (ROOT / "docs" / "python-api.md").read_text(encoding="utf-8")
    table = text.partition("## Synthesizer")[2].partition("###")[0]
    explained = {
        name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    session: Any = None
    public = {name for name in dir(marstts.Synthesizer(session)) if not name.startswith("_")}
    assert public == explained == {"clone", "open_voice", "session", "speak", "speak_many", "stream", "usual"}


def test_the_python_api_shows_every_setting_with_its_default() -> None:
    text = (ROOT / "docs" / "python-api.md").read_text(encoding="utf-8")
    table = text.partition("### Speaking")[2].partition("###")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [field.name for field in fields(Speaking)]


def test_the_page_on_serving_shows_every_field_of_a_request_for_speech() -> None:
    pytest.importorskip("starlette")
    from marstts.server.schemas import SpeechBody

    text = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    shown = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert not SpeechBody.model_fields.keys() - shown


@pytest.mark.parametrize("name", ["load", "clone", "open_voice", "speak", "stream", "speak_many"])
def test_the_python_api_shows_the_parameters_of_each_function(name: str) -> None:
    text = (ROOT / "docs" / "python-api.md").read_text(encoding="utf-8")
    [shown] = re.findall(rf"^(?:marstts\.)?{name}\((.*?)\) ->", text, flags=re.MULTILINE | re.DOTALL)
    function = marstts.load if name == "load" else getattr(marstts.Synthesizer, name)
    expected = [parameter for parameter in inspect.signature(function).parameters if parameter != "self"]
    assert re.findall(r"(\w+)(?==|,|$|\n)(?!\.)", re.sub(r"=[^,\n]+", "=", shown).replace("=", ",")) == expected


@pytest.mark.parametrize("name", ["load", "clone", "speak", "stream", "speak_many"])
def test_the_python_api_shows_the_defaults_of_each_function(name: str) -> None:
    text = (ROOT / "docs" / "python-api.md").read_text(encoding="utf-8")
    [shown] = re.findall(rf"^(?:marstts\.)?{name}\((.*?)\) ->", text, flags=re.MULTILINE | re.DOTALL)
    function = marstts.load if name == "load" else getattr(marstts.Synthesizer, name)
    found = dict(re.findall(r"(\w+)=(None|True|False|[\d.]+\d|\d|\"[^\"]*\")(?=,|\s|$)", shown))
    assert found, shown
    for parameter, value in found.items():
        assert ast.literal_eval(value) == inspect.signature(function).parameters[parameter].default, parameter


@pytest.mark.end_to_end
@pytest.mark.parametrize(
    ("page", "count"),
    [("README.md", 1), ("docs/quickstart.md", 3), ("docs/models/mini.md", 1), ("docs/python-api.md", 7)],
)
def test_python_examples_run(page: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples of a page share a namespace, in the order of the page."""
    examples = blocks_of((ROOT / page).read_text(encoding="utf-8"), "python")
    assert len(examples) >= count
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    audio.write(audio.read(ROOT / "examples" / "reference.flac"), tmp_path / "me.wav")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for block in examples:
        exec(compile(block, page, "exec"), namespace)
    if page == "docs/python-api.md":
        assert (tmp_path / "hello.flac").stat().st_size > 1000
        assert (tmp_path / "me.voice").is_file()


NOT_HERE = ("mars6-turbo", "mars5-english", "loudspeaker", "aplay", "--output -", "marstts serve")
"""Parts of commands that need a network, a sound card or another program, or that run until they are interrupted."""


@pytest.mark.end_to_end
@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
def test_commands_for_newcomers_run_as_written(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        line
        for line in command_lines_of((ROOT / page).read_text(encoding="utf-8"))
        if not any(part in line for part in NOT_HERE)
    ]
    assert len(lines) >= 2
    audio.write(audio.read(ROOT / "examples" / "reference.flac"), tmp_path / "me.wav")
    for name in ("chapter.txt", "lines.txt"):
        (tmp_path / name).write_text("The rain has stopped.\nShall we go out?\n")
    write_small_epub(tmp_path / "book.epub")
    monkeypatch.chdir(tmp_path)
    for command in ("speak", "voice"):
        monkeypatch.setattr(f"marstts.cli.{command}.load", functools.cache(load))
    for line in lines:
        result = CliRunner().invoke(app, shlex.split(line)[1:], input="Hello.")
        assert result.exit_code == 0, f"{line}: {result.output}"


def test_pictures_are_those_of_their_tool(tmp_path: Path) -> None:
    diagrams = load_tool("diagrams")
    drawings = {name: diagrams.draw_packages(half) for half, name in diagrams.HALVES.items()}
    for name, drawing in {"network": diagrams.draw_network(), **drawings}.items():
        drawing.save(tmp_path / f"{name}.svg")
        shown = (ROOT / "docs" / "images" / f"{name}.svg").read_text(encoding="utf-8")
        assert (tmp_path / f"{name}.svg").read_text(encoding="utf-8") == shown, "run `python tools/diagrams.py`"


SAMPLES = ROOT / "docs" / "samples"


def test_the_pages_of_the_samples_play_every_take_beside_its_reference_and_the_rivals_take() -> None:
    samples = load_tool("samples_page")
    takes, rivals = samples.read_takes(), samples.read_rivals()
    for name, page in (("README.md", samples.page(takes, rivals)), ("player.html", samples.player(takes, rivals))):
        assert page == (SAMPLES / name).read_text(encoding="utf-8"), "run `python tools/samples_page.py`"
        for take in takes:
            [row] = [line for line in page.splitlines() if f'src="{take.file}"' in line]
            assert take.text in row and f'src="references/{take.reference}.mp3"' in row
            rival = rivals[take.text, take.reference]
            assert f'src="{rival.file}"' in row and rival.voice in row
    played = {take.file for take in takes} | {rival.file for rival in rivals.values()}
    on_disk = [path for folder in (SAMPLES, SAMPLES / "rival") for path in folder.glob("*.mp3")]
    assert played == {path.relative_to(SAMPLES).as_posix() for path in on_disk}
    planned = tomllib.loads((SAMPLES / "samples.toml").read_text(encoding="utf-8"))
    voices = planned.pop("rival")
    assert {rival.voice for rival in rivals.values()} <= set(voices.values())
    assert {take.text for take in takes} <= {row["text"] for rows in planned.values() for row in rows}
    references = {row["reference"] for rows in planned.values() for row in rows}
    assert references == {path.stem for path in (SAMPLES / "references").iterdir()}


@pytest.mark.speaks
def test_one_command_speaks_the_samples_again(tmp_path: Path) -> None:
    shutil.copytree(SAMPLES / "references", tmp_path / "references")
    (tmp_path / "people-2.mp3").write_bytes(b"of another plan")
    row = 'reference = "vctk-p225"\ntext = "{}"\n'
    texts = {"people": "Good morning.", "questions": "Is it late?", "names": "Call Anna."}
    (tmp_path / "samples.toml").write_text("".join(f"[[{name}]]\n{row.format(text)}" for name, text in texts.items()))
    (tmp_path / "rival").mkdir()
    (tmp_path / "rival" / "people-1.mp3").write_bytes(b"of the rival")
    samples = load_tool("samples_page")
    rival = samples.RivalTake("Good morning.", "vctk-p225", "rival/people-1.mp3", "bf_emma", "Kokoro", "2026-01-01")
    (tmp_path / "rival" / "takes.json").write_text(json.dumps([rival._asdict()]))
    samples.main(["speak", "--model", "mini", "--folder", str(tmp_path)])
    takes, rivals = samples.read_takes(tmp_path), samples.read_rivals(tmp_path)
    assert [take.text for take in takes] == list(texts.values())
    assert all(re.fullmatch(r"mini@[0-9a-f]{12}", take.model) for take in takes)
    assert {path.name for path in tmp_path.glob("*.mp3")} == {"people-1.mp3", "questions-1.mp3", "names-1.mp3"}
    assert all(audio.read(tmp_path / take.file).seconds > 0.2 for take in takes)
    assert (tmp_path / "rival" / "people-1.mp3").read_bytes() == b"of the rival", "its takes are kept"
    assert list(rivals.values()) == [rival]
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == samples.page(takes, rivals)
    assert (tmp_path / "player.html").read_text(encoding="utf-8") == samples.player(takes, rivals)
    assert all(samples.page(takes, rivals).count(f'src="{rival.file}"') == 1 for rival in rivals.values())


def test_one_command_speaks_the_rivals_samples_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoken = []

    class Engine:
        """A stand-in for the rival, which needs files and packages that are not here."""

        def speak(self, text: str, blend: tuple[tuple[str, float], ...], speed: float) -> audio.Waveform:
            spoken.append((text, blend, speed))
            return audio.Waveform(np.sin(np.arange(12_000, dtype=np.float32)), 24_000)

    monkeypatch.setattr("marstts_lab.data.corpora.kokoro.open_kokoro", lambda folder: Engine())
    (tmp_path / "rival").mkdir()
    (tmp_path / "rival" / "names-7.mp3").write_bytes(b"of another plan")
    plan, takes, samples = "[rival]\nvctk-p225 = 'bf_emma'\nvctk-p226 = 'bm_george'\n", [], load_tool("samples_page")
    for section, reference in (("people", "vctk-p225"), ("questions", "vctk-p226"), ("names", "vctk-p225")):
        plan += f"[[{section}]]\nreference = '{reference}'\ntext = 'Of {section}?'\n"
        takes.append(samples.Take(section, f"Of {section}?", reference, f"{section}-1.mp3", "mini@0", "2026-01-01"))
    (tmp_path / "samples.toml").write_text(plan)
    takes.append(samples.Take("names", "Not spoken.", "vctk-p226", "names-2.mp3", "mini@0", "2026-01-01"))
    samples.keep(takes, tmp_path)
    samples.main(["rival", "--kokoro", "FOLDER", "--folder", str(tmp_path)])
    assert spoken == [
        ("Of people?", (("bf_emma", 1.0),), 1.0),
        ("Of questions?", (("bm_george", 1.0),), 1.0),
        ("Of names?", (("bf_emma", 1.0),), 1.0),
    ]
    assert {path.name for path in (tmp_path / "rival").glob("*.mp3")} == {f"{name}-1.mp3" for name in samples.TITLES}
    assert all(audio.read(path).seconds > 0.4 for path in (tmp_path / "rival").glob("*.mp3"))
    assert samples.read_takes(tmp_path) == takes, "the takes of the model are kept"
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    for take in takes[:3]:
        [row] = [line for line in page.splitlines() if f'src="{take.file}"' in line]
        assert f'src="rival/{take.file}"' in row
    assert page.count('src="rival/') == 3 and "Apache-2.0" in page and "synthetic speech" in page


SOURCES = (
    ROOT / "src" / "marstts",
    ROOT / "src" / "marstts_lab",
    ROOT / "src",
    ROOT / "listening_test" / "src",
    ROOT / "src" / "marstts" / "mars5",
)


def defines(dotted: str) -> bool:
    """Whether a module or package exists, or a module has what the rest of a dotted name says."""
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        for source in SOURCES:
            folder = source.joinpath(*parts[:cut])
            module = next(
                (path for path in (folder.with_suffix(".py"), folder / "__init__.py") if path.is_file()), None
            )
            if folder.is_dir() and cut == len(parts):
                return True
            content = "" if module is None else module.read_text(encoding="utf-8")
            if content and all(re.search(rf"\b{name}\b", content) for name in parts[cut:]):
                return True
    return False


def named_in(text: str) -> set[str]:
    """Modules, and what they define, on a page: `a.b`, `a/b.py`, `a/b.py`: `Name`, `Other`."""
    files = re.findall(r"`(\w+(?:/\w+)*)\.py`(?:: ((?:`[\w.]+`(?:, )?)+))?", text)
    inside = {f"{file}.{name}" for file, names in files for name in re.findall(r"`([\w.]+)`", names)}
    packages = {path.stem for source in SOURCES[:2] for path in source.iterdir()}
    dotted = {name for name in re.findall(r"`(\w+(?:\.(?!py`)\w+)+)`", text) if name.split(".")[0] in packages}
    return {name.replace("/", ".") for name in {file for file, _ in files} | inside | dotted}


@pytest.mark.parametrize("page", ["docs/architecture.md", "docs/paper.md", "docs/models/mars5-deviations.md"])
def test_modules_and_names_of_a_page_exist(page: str) -> None:
    named = named_in((ROOT / page).read_text(encoding="utf-8"))
    assert len(named) > 20
    assert [name for name in sorted(named) if not defines(name)] == []


def test_a_name_that_does_not_exist_is_found() -> None:
    assert defines("synthesis.backoff.rejection_reason") and defines("mars6.export")
    assert not defines("synthesis.backoff.no_such_name") and not defines("synthesis.no_such_module")
