"""The static folder: its files, what it refuses, and the reader that it packs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from typer.testing import CliRunner

from marstts.bundle import PACKAGED_MODELS, read_info
from marstts.cli.main import app
from marstts.errors import ConfigError, FileError
from marstts.onnx.session import open_session
from marstts.web.graphs import self_contained
from marstts.web.packages import COPIED, VARIABLE, find_packages, pinned
from marstts.web.reader import Reader
from marstts.web.site import CONTENT_SECURITY_POLICY, STATIC, write_site

BUNDLE = PACKAGED_MODELS / "mini"


def make_packages(folder: Path, versions: dict[str, str]) -> Path:
    """A folder node_modules with files that only have the right names."""
    for name, version in versions.items():
        for source in COPIED[name]:
            path = folder / name / source
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"// {source}")
        (folder / name / "package.json").write_text(json.dumps({"version": version, "license": "MIT"}))
    return folder


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_packages(tmp_path_factory.mktemp("npm") / "node_modules", pinned())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, packages: Path) -> Path:
    folder = tmp_path_factory.mktemp("site") / "site"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(packages))
        ran = CliRunner().invoke(app, ["web", "--output", str(folder)])
    assert ran.exit_code == 0 and "model" in ran.output, ran.output
    return folder


@pytest.mark.slow
def test_the_service_worker_keeps_every_file_of_the_page_and_its_parts(site: Path) -> None:
    source = (site / "service-worker.js").read_text(encoding="utf-8")
    found = re.search(r"const CACHES = (\{.*\});", source)
    assert found is not None
    caches = json.loads(found[1])
    kept = {path for paths in caches.values() for path in paths if path}
    written = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
    assert kept == written - {"_headers", "service-worker.js"}
    assert [len(name.split("-")) >= 3 for name in caches] == [True] * 3
    headers = (site / "_headers").read_text()
    assert CONTENT_SECURITY_POLICY in headers and CONTENT_SECURITY_POLICY in source
    assert CONTENT_SECURITY_POLICY in (site / "index.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_parts_list_what_a_visit_loads_with_its_sizes(site: Path) -> None:
    described = json.loads((site / "site.json").read_text())
    parts = {part["id"]: part["files"] for part in described["parts"]}
    assert set(parts) == {"reader", "runtime", "speaking", "cloning"}
    for files in parts.values():
        assert files and all((site / file["path"]).stat().st_size == file["bytes"] for file in files)
    assert {Path(file["path"]).name for file in parts["runtime"]} == set(COPIED["onnxruntime-web"].values())
    assert described["voices"][0]["name"] == "ada"
    assert described["model"]["label"] == read_info(BUNDLE).label


@pytest.mark.slow
def test_the_same_package_makes_the_same_site_in_place_of_an_earlier_one(site: Path, packages: Path) -> None:
    before = {path.relative_to(site): path.read_bytes() for path in site.rglob("*") if path.is_file()}
    write_site(site, "mini", packages)
    assert before == {path.relative_to(site): path.read_bytes() for path in site.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_the_packed_reader_needs_nothing_but_the_standard_library(site: Path) -> None:
    (packed,) = site.glob("runtime-*/reader.zip")
    described = json.loads((site / "site.json").read_text())
    request = json.dumps({"sentences": "Dr. Ray paid $5 on 3/4/2021 at the BBC. Zorkmids?"})
    code = (
        f"import sys, json; sys.path.insert(0, {str(packed)!r})\n"
        "from marstts.web.reader import Reader\n"
        "given = json.load(sys.stdin)\n"
        "print(Reader(given['tokenizer'], given['settings'] | {'phones': 'known'}).answer(given['request']))"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code],
        input=json.dumps(described["reader"] | {"request": request}),
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    reader = Reader(described["reader"]["tokenizer"], described["reader"]["settings"] | {"phones": "known"})
    assert json.loads(ran.stdout) == json.loads(reader.answer(request))


@pytest.mark.slow
def test_a_folder_with_other_files_is_refused(tmp_path: Path, packages: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(FileError, match="holds other files"):
        write_site(tmp_path, "mini", packages)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_missing_packages_are_named_with_versions_places_and_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(ConfigError) as caught:
        find_packages()
    message = str(caught.value)
    assert "npm install" in message and str(tmp_path / "node_modules") in message and VARIABLE in message
    assert all(f"{name}@{version}" in message for name, version in pinned().items())
    make_packages(tmp_path / "node_modules", pinned() | {"pyodide": "0.1.0"})
    with pytest.raises(ConfigError, match=r"pyodide is 0\.1\.0, expected"):
        find_packages()
    ran = CliRunner().invoke(app, ["web", "--output", str(tmp_path / "site")])
    assert ran.exit_code == 2 and not (tmp_path / "site").exists()
    make_packages(tmp_path / "node_modules", pinned())
    assert find_packages() == tmp_path / "node_modules"
    (tmp_path / "node_modules" / "pyodide" / "pyodide.mjs").unlink()
    with pytest.raises(ConfigError, match=r"pyodide lacks pyodide\.mjs"):
        find_packages(tmp_path / "node_modules")


def test_widened_graphs_compute_what_the_integers_say() -> None:
    """The rows that are multiplied alone, against the graph whose activations are rounded to integers."""
    content = self_contained(BUNDLE / "mars6" / "global.onnx")
    assert b"MatMulNBits" not in content
    config = json.loads((BUNDLE / "mars6" / "config.json").read_text())
    width = config["width"] // config["heads"]
    rng = np.random.default_rng(0)
    cache = {
        f"{kind}_{name}.{layer}": rng.standard_normal((1, config["heads"], count, width)).astype(np.float32)
        for kind, count in (("seen", 3), ("memory", 5))
        for name in ("keys", "values")
        for layer in range(config["global_layers"])
    }
    feeds = {
        "patches": rng.integers(0, config["codebook_size"], (1, 1, sum(config["patch_layout"]))),
        "first": np.array([3]),
        "seen_bias": np.zeros((1, 3), np.float32),
        "memory_bias": np.zeros((1, 5), np.float32),
        **cache,
    }
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    wide = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"]).run(None, feeds)
    rounded = open_session(BUNDLE / "mars6" / "global.onnx").run(None, feeds)
    assert np.corrcoef(wide[0].ravel(), rounded[0].ravel())[0, 1] > 0.995


class Attributes(HTMLParser):
    """All attributes of a page by name."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += attrs


def test_the_page_names_no_other_host_and_has_no_script_of_its_own() -> None:
    page = Attributes()
    page.feed((STATIC / "index.html").read_text(encoding="utf-8"))
    addresses = [value or "" for name, value in page.found if name in ("src", "href")]
    assert addresses and not any("//" in address for address in addresses)
    assert not any(name.startswith("on") or name == "style" for name, _ in page.found)
    for module in STATIC.glob("*.js"):  # type: ignore[attr-defined]
        code = re.sub(r"^\s*(?://|\*|/\*).*$", "", module.read_text(encoding="utf-8"), flags=re.MULTILINE)
        assert not re.search(r"https?://|\beval\(|innerHTML|sendBeacon|WebSocket", code), module.name
