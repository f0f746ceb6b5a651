"""The pages on training name every option of the configurations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from marstts.io.config import Config
from marstts_lab.training.codec.config import CodecTrainingConfig
from marstts_lab.training.mars5.config import TrainConfig
from marstts_lab.training.mars6.config import PretrainConfig
from marstts_lab.training.mars6.orpo import OrpoConfig
from marstts_lab.training.speaker.config import SpeakerTrainingConfig

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {
    CodecTrainingConfig: ["training/codec.md"],
    PretrainConfig: ["training/mars6.md"],
    OrpoConfig: ["training/preference.md"],
    SpeakerTrainingConfig: ["training/speaker-encoders.md"],
    TrainConfig: ["models/mars5.md", "training/mars6.md"],
}
ARCHITECTURE = "model"
LOOP_PAGE = "training/overview.md"


def configs(annotation: Any) -> Iterator[type[Config]]:
    """The configurations among a type and its parts."""
    if isinstance(annotation, type) and issubclass(annotation, Config):
        yield annotation
    for part in get_args(annotation):
        yield from configs(part)


def options(config: type[Config]) -> Iterator[str]:
    """Names of all fields, with those of tables within, but without the sizes of networks."""
    for name, field in config.model_fields.items():
        yield name
        if name != ARCHITECTURE:
            for table in configs(field.annotation):
                yield from options(table)


@pytest.mark.parametrize(("config", "pages"), PAGES.items(), ids=[pages[0] for pages in PAGES.values()])
def test_pages_on_training_name_every_option(config: type[Config], pages: list[str]) -> None:
    text = "".join((DOCS / name).read_text(encoding="utf-8") for name in [*pages, LOOP_PAGE])
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    named = {word for code in inline for word in re.findall(r"\w+", code)}
    assert not [name for name in dict.fromkeys(options(config)) if name not in named]
