"""Configuration files: defaults from another file, and refusals of everything that is no configuration."""

import os
from pathlib import Path

import pytest
from pydantic import Field

from marstts.errors import CheckpointError, ConfigError
from marstts.io.config import MAX_BASES, Config, read_config, write_config


class Rates(Config):
    first: float = 1.0
    betas: tuple[float, ...] = (0.5, 0.5)


class Settings(Config):
    name: str
    rates: Rates = Rates()
    limits: dict[str, int] = Field({})
    is_on: bool = False


def test_a_file_contains_only_what_differs_from_its_base(tmp_path: Path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "root.toml").write_text('name = "root"\nis_on = true\n[rates]\nfirst = 2.0\nbetas = [0.1, 0.2, 0.3]')
    (tmp_path / "deep" / "middle.toml").write_text('base = "../root.toml"\n[rates]\nbetas = [0.9]')
    (tmp_path / "top.toml").write_text('base = "deep/middle.toml"\nname = "top"')
    settings = read_config(Settings, tmp_path / "top.toml")
    assert settings == Settings(name="top", is_on=True, rates=Rates(first=2.0, betas=(0.9,)))
    write_config(settings, tmp_path / "resolved.json")
    assert read_config(Settings, tmp_path / "resolved.json") == settings


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ('base = "a.toml"', "cannot be its own base"),
        ('base = "b.toml"', "b.toml: no such file"),
        ("base = 3", "base should be the path of another file, got 3"),
        ('base = "ok.toml"\nnmae = "x"', "a.toml: nmae"),
    ],
)
def test_impossible_bases_are_refused(tmp_path: Path, content: str, complaint: str):
    (tmp_path / "a.toml").write_text(content)
    (tmp_path / "ok.toml").write_text('name = "ok"')
    with pytest.raises(ConfigError, match=complaint):
        read_config(Settings, tmp_path / "a.toml")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"name = \xff", "expected UTF-8 text"),
        (b"name = " + b"[" * 5000, "expected a TOML file"),
        (b'name = "x"\n[rates]\nfirst = true', "rates.first: expected a number, but this is true or false"),
        (b"a = '" + b"x" * 2**22 + b"'", "expected at most 4 MiB"),
    ],
)
def test_files_that_hold_no_configuration_are_refused_in_one_sentence(tmp_path: Path, content: bytes, complaint: str):
    (tmp_path / "a.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=complaint):
        read_config(Settings, tmp_path / "a.toml")


@pytest.mark.parametrize("content", [b"[]", b"{", b'{"name": 1e999}', b"[" * 5000, b"1" * 5000, b'{"name": "\\ud800"}'])
def test_json_that_holds_no_configuration_is_refused_with_the_callers_exception(tmp_path: Path, content: bytes):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"a\.json"):
        read_config(Settings, tmp_path / "a.json", CheckpointError)


def test_folders_devices_pipes_and_loops_are_refused_without_waiting(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "loop.toml").symlink_to(tmp_path / "loop.toml")
    (tmp_path / "zero.toml").symlink_to("/dev/zero")
    (tmp_path / "folder.toml").mkdir()
    for name in ("pipe", "loop", "zero", "folder"):
        with pytest.raises(ConfigError, match=f"{name}.toml"):
            read_config(Settings, tmp_path / f"{name}.toml")


def test_a_long_chain_of_bases_is_refused(tmp_path: Path):
    for number in range(MAX_BASES + 2):
        (tmp_path / f"{number}.toml").write_text(f'base = "{number + 1}.toml"')
    with pytest.raises(ConfigError, match="at most 8 files"):
        read_config(Settings, tmp_path / "0.toml")


def test_a_file_that_cannot_be_written_is_refused_and_the_older_one_stays(tmp_path: Path):
    path = tmp_path / "settings.json"
    write_config(Settings(name="old"), path)
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot be written"):
        write_config(Settings(name="new"), tmp_path / "file" / "settings.json", CheckpointError)
    assert read_config(Settings, path).name == "old"
