import copy as copies
import dataclasses
import json

import numpy as np
import pytest
import safetensors.numpy

from marstts.errors import VoiceError
from marstts.voice import METADATA_KEY, Prefix, Voice, average_voice


def make_voice(deep=True):
    rng = np.random.default_rng(0)
    codes = tuple(rng.integers(0, 4096, size=5 * count) for count in (1, 2, 4))
    return Voice(
        name="Ada",
        embeddings={"identity": rng.normal(size=7).astype(np.float32), "style": rng.normal(size=11).astype(np.float32)},
        prefix=Prefix("We set sail — at dawn.", codes) if deep else None,
        codec="snac-24khz",
        encoders={"identity": "wavlm", "style": "clap"},
        source_sha256="ab" * 32,
        consent="Ada herself, in writing",
    )


def test_voices_are_equal_by_content(tmp_path):
    make_voice().save(tmp_path / "ada.voice")
    for copy in (make_voice(), Voice.load(tmp_path / "ada.voice"), copies.deepcopy(make_voice())):
        assert copy == make_voice() and hash(copy) == hash(make_voice())
    louder = {role: 2 * values for role, values in make_voice().embeddings.items()}
    for change in ({"name": "Bert"}, {"prefix": None}, {"embeddings": louder}, {"reference": b"x"}):
        assert dataclasses.replace(make_voice(), **change) != make_voice()
    assert make_voice() != "Ada" and len({make_voice(), make_voice(deep=False), make_voice()}) == 2


def test_the_voice_of_several_clones_lies_in_their_middle():
    first = make_voice()
    turned = {role: values[::-1].copy() for role, values in first.embeddings.items()}
    second = dataclasses.replace(make_voice(deep=False), embeddings=turned, source_sha256="cd" * 32)
    both = average_voice([first, second])
    for role, values in both.embeddings.items():
        ends = [first.embeddings[role], second.embeddings[role]]
        cosines = [values @ end / np.linalg.norm(values) / np.linalg.norm(end) for end in ends]
        assert cosines[0] == pytest.approx(cosines[1]) and cosines[0] > ends[0] @ ends[1] / np.linalg.norm(ends[0]) ** 2
        assert np.linalg.norm(values) == pytest.approx(np.linalg.norm(ends[0]), rel=1e-5) and values.dtype == np.float32
    assert (both.name, both.prefix, both.consent) == (first.name, first.prefix, first.consent)
    assert both.source_sha256 not in (first.source_sha256, second.source_sha256)
    assert average_voice([first]) == first


def test_clones_by_other_encoders_and_no_clones_have_no_common_voice():
    other = dataclasses.replace(make_voice(), encoders={"identity": "other", "style": "clap"})
    with pytest.raises(VoiceError, match="clone the recordings with one model"):
        average_voice([make_voice(), other])
    with pytest.raises(VoiceError, match="at least one recording"):
        average_voice([])


def rewrite(path, tensors=None, **changes):
    """Change what is inside a voice file."""
    with safetensors.safe_open(str(path), framework="np") as file:
        values = json.loads(file.metadata()[METADATA_KEY]) | changes
    tensors = safetensors.numpy.load(path.read_bytes()) if tensors is None else tensors
    path.write_bytes(safetensors.numpy.save(tensors, {METADATA_KEY: json.dumps(values)}))


@pytest.fixture
def voice_file(tmp_path):
    path = tmp_path / "ada.voice"
    make_voice().save(path)
    return path


@pytest.mark.parametrize("deep", [True, False])
def test_a_voice_survives_its_file(tmp_path, deep):
    voice = make_voice(deep)
    voice.save(tmp_path / "ada.voice")
    loaded = Voice.load(str(tmp_path / "ada.voice"))
    for field in dataclasses.fields(Voice):
        if field.name not in ("embeddings", "prefix"):
            assert getattr(loaded, field.name) == getattr(voice, field.name)
    for role in ("identity", "style"):
        np.testing.assert_array_equal(loaded.embeddings[role], voice.embeddings[role])
    assert (loaded.prefix is not None) == deep
    if deep:
        assert loaded.prefix.transcript == voice.prefix.transcript
        for ours, theirs in zip(loaded.prefix.codes, voice.prefix.codes, strict=True):
            assert ours.dtype == np.int64
            np.testing.assert_array_equal(ours, theirs)


def test_without_its_prefix_a_deep_voice_is_shallow():
    shallow = make_voice().without_prefix()
    assert shallow.prefix is None and shallow.name == "Ada"


def test_a_voice_fits_only_the_model_it_was_made_for():
    deep, shallow = make_voice(), make_voice(deep=False)
    deep.check_fits("snac-24khz", {"identity": "wavlm", "style": "clap"})
    with pytest.raises(VoiceError, match=r"identity encoder 'wavlm'.*needs 'mini'"):
        deep.check_fits("snac-24khz", {"identity": "mini", "style": "clap"})
    with pytest.raises(VoiceError, match=r"style encoder 'clap'.*needs 'mini'"):
        shallow.check_fits("snac-24khz", {"identity": "wavlm", "style": "mini"})
    with pytest.raises(VoiceError, match=r"codec 'snac-24khz'.*needs 'mini'"):
        deep.check_fits("mini", {"identity": "wavlm", "style": "clap"})
    shallow.check_fits("mini", {"identity": "wavlm", "style": "clap"})  # no codes, no matter which codec


@pytest.mark.parametrize("kept", [0, 1, 8, 100, 400, -1])
def test_a_truncated_file_is_refused(voice_file, kept):
    voice_file.write_bytes(voice_file.read_bytes()[:kept])
    with pytest.raises(VoiceError, match=f"{voice_file}: .*corrupt, cut short or something else"):
        Voice.load(voice_file)


@pytest.mark.parametrize("content", [b"Dear diary, " * 20, b"RIFF" + bytes(100), b"\xff" * 64])
def test_other_kinds_of_files_are_refused(tmp_path, content):
    (tmp_path / "letter.voice").write_bytes(content)
    with pytest.raises(VoiceError, match="expected a voice file"):
        Voice.load(tmp_path / "letter.voice")


def test_missing_files_folders_and_huge_files_are_refused(tmp_path, monkeypatch):
    with pytest.raises(VoiceError, match="no such file"):
        Voice.load(tmp_path / "missing.voice")
    with pytest.raises(VoiceError, match="folder"):
        Voice.load(tmp_path)
    make_voice().save(tmp_path / "ada.voice")
    monkeypatch.setattr("marstts.voice.MAX_FILE_BYTES", 100)
    with pytest.raises(VoiceError, match="at most"):
        Voice.load(tmp_path / "ada.voice")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"format_version": 1}, "voice format 1"),
        ({"surprise": "!"}, "surprise"),
        ({"transcript": "  "}, "transcript is empty"),
        ({"encoders": {"Identity!": "wavlm"}}, "expected the tensors"),
    ],
)
def test_wrong_descriptions_are_refused(voice_file, changes, sentence):
    rewrite(voice_file, **changes)
    with pytest.raises(VoiceError, match=sentence):
        Voice.load(voice_file)


@pytest.mark.parametrize(
    ("name", "tensor", "sentence"),
    [
        ("embedding.identity", np.zeros((7, 1), np.float32), "identity embedding"),
        ("codes.0", np.zeros(0, np.int64), "whole patches"),
        ("codes.2", np.full(20, 2**40), "outside any codebook"),
        ("codes.7", np.zeros(5, np.int64), "expected the tensors"),
    ],
)
def test_wrong_tensors_are_refused(voice_file, name, tensor, sentence):
    rewrite(voice_file, safetensors.numpy.load(voice_file.read_bytes()) | {name: tensor})
    with pytest.raises(VoiceError, match=sentence):
        Voice.load(voice_file)


def test_a_voice_that_cannot_be_written_raises_one_sentence(tmp_path):
    with pytest.raises(VoiceError, match="folder"):
        make_voice().save(tmp_path)


def test_a_voice_is_shown_in_one_short_line():
    shown = repr(make_voice())
    assert shown == "Voice('Ada', deep, 5 patches of prefix, encoders wavlm, clap)"
    assert "shallow" in repr(make_voice(deep=False))
