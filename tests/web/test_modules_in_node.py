"""The tab's modules under Node: what the Python engine computes from the same inputs, with mini's graphs."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded import write_recorded

from marstts.web.packages import COPIED
from marstts.web.site import STATIC

pytestmark = [pytest.mark.slow]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("recorded")
    write_recorded(folder)
    return folder, json.loads((folder / "recorded.json").read_text())


@pytest.fixture(scope="module")
def found(
    node_modules: Path, recorded: tuple[Path, dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    runtime = tmp_path_factory.mktemp("runtime")
    for source, name in COPIED["onnxruntime-web"].items():
        shutil.copyfile(node_modules / "onnxruntime-web" / source, runtime / name)
    script = Path(__file__).with_name("check.mjs")
    ran = subprocess.run(
        ["node", str(script), str(STATIC), str(runtime), str(recorded[0])], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout.splitlines()[-1])


def test_logits_and_attention_are_those_of_the_python_engine(found: dict[str, Any]) -> None:
    assert found["logits"] < 1e-3 and found["attention"] < 1e-4


def test_the_same_random_numbers_give_the_same_tokens(found: dict[str, Any], recorded: Any) -> None:
    assert found["tokens"] == [step["tokens"] for step in recorded[1]["steps"]["steps"]]
    assert len({tuple(tokens) for tokens in found["tokens"]}) > 10


def test_the_loop_makes_one_patch_after_another_up_to_its_limit(found: dict[str, Any]) -> None:
    assert [row[:2] for row in found["loop"]][:5] == [[number, number] for number in range(1, 6)]
    assert found["loop"][-1][2] in ("patch limit", "end of speech") and len(found["loop"]) <= 9


def test_the_warm_up_runs_every_graph_and_leaves_no_trace(found: dict[str, Any]) -> None:
    warm_up = found["warmUp"]
    assert all(count > 0 for count in warm_up["ran"].values()), warm_up["ran"]
    assert 12 <= warm_up["ran"]["patch"] < 24, "it is short"
    assert warm_up["patches"] > 12 and warm_up["isSame"] and warm_up["samples"] == 0


def test_style_embeddings_get_the_offset_of_the_bundle(found: dict[str, Any]) -> None:
    assert found["style"] < 1e-6


def test_audio_is_that_of_the_python_codec_whole_and_in_pieces(found: dict[str, Any]) -> None:
    assert found["audio"] < 1e-3 and found["pieces"] < 2e-3
    mean, power = found["noise"]
    assert abs(mean) < 0.1 and abs(power - 1.0) < 0.1


def test_edges_loudness_and_peaks_are_those_of_the_package(found: dict[str, Any]) -> None:
    assert found["trimmed"] < 1e-6 and found["span"] == 0
    assert abs(found["loudness"]) < 0.05
    assert found["limited"] < 1e-5


def test_paths_words_and_flaws_are_those_of_the_package(found: dict[str, Any], recorded: Any) -> None:
    words = recorded[1]["words"]
    assert found["cut"] == words["cut"]
    assert found["path"] == words["path"] and found["latest"] == words["latest"]
    assert found["audible"] < 1e-4
    np.testing.assert_allclose(found["spans"], words["spans"], atol=2e-3)
    assert [word[0] for word in found["words"]] == [word[0] for word in words["words"]]
    np.testing.assert_allclose([word[1:] for word in found["words"]], [word[1:] for word in words["words"]], atol=2e-3)
    assert found["flaws"] == words["flaws"]


def test_limits_and_top_p_are_those_of_backoff(found: dict[str, Any], recorded: Any) -> None:
    assert found["schedule"] == recorded[1]["backoff"]["schedule"]
    assert found["limits"] == recorded[1]["backoff"]["limits"]


def test_clones_have_the_embeddings_of_the_package(found: dict[str, Any]) -> None:
    assert found["prepared"] < 1e-4
    assert all(distance < 2e-3 for distance in found["embeddings"].values()), found["embeddings"]
    silent, short = found["refused"]
    assert "too quiet" in silent and "at least 1 s" in short
