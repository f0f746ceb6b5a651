"""Configuration files that begin from another one."""

from pathlib import Path

import pytest

from marstts.config import Config, read_config, write_config
from marstts.errors import ConfigError


class Rates(Config):
    first: float = 1.0
    betas: tuple[float, ...] = (0.5, 0.5)


class Settings(Config):
    name: str
    rates: Rates = Rates()


def test_a_file_says_what_is_different_from_its_base(tmp_path: Path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "root.toml").write_text('name = "root"\n[rates]\nfirst = 2.0\nbetas = [0.1, 0.2, 0.3]')
    (tmp_path / "deep" / "middle.toml").write_text('base = "../root.toml"\n[rates]\nbetas = [0.9]')
    (tmp_path / "top.toml").write_text('base = "deep/middle.toml"\nname = "top"')
    settings = read_config(Settings, tmp_path / "top.toml")
    assert settings == Settings(name="top", rates=Rates(first=2.0, betas=(0.9,)))
    write_config(settings, tmp_path / "resolved.json")
    assert read_config(Settings, tmp_path / "resolved.json") == settings


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ('base = "a.toml"', "cannot be its own base"),
        ('base = "b.toml"', "b.toml: no such configuration file"),
        ("base = 3", "base should be the path of another file, got 3"),
        ('base = "ok.toml"\nnmae = "x"', "a.toml: nmae"),
    ],
)
def test_a_base_that_cannot_be_is_refused_in_words(tmp_path: Path, content: str, complaint: str):
    (tmp_path / "a.toml").write_text(content)
    (tmp_path / "ok.toml").write_text('name = "ok"')
    with pytest.raises(ConfigError, match=complaint):
        read_config(Settings, tmp_path / "a.toml")
