"""Systems: codec resynthesis, models and their ablations, espeak-ng."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from marstts import audio
from marstts.audio import Waveform
from marstts.errors import DataError
from marstts.generation.request import SamplingConfig
from marstts.synthesis.speaking import USUAL, Speaking
from marstts.synthesis.synthesizer import Synthesizer
from marstts_lab.evaluation import open_systems
from marstts_lab.evaluation.open_systems import SystemOptions, find_systems
from marstts_lab.evaluation.systems import Clone, CodecResynthesis, EspeakNg, Model, Variant, ablate
from marstts_lab.evaluation.testset import folder_digest, take_seed
from marstts_lab.metrics.trial import Trial

pytestmark = pytest.mark.slow

RECORDINGS = Path(__file__).parents[1] / "audio"
TRIALS = [
    Trial(
        id=name, text=text, speaker=speaker, style="regular", reference=RECORDINGS / recording,
        reference_transcript=text, ground_truth=RECORDINGS / recording,
    )
    for name, text, speaker, recording in (
        ("a1", "Has never been surpassed.", "anna", "LJ001-0008.flac"),
        ("b1", "He might even have been made amiable himself.", "bert", "sense-0930.flac"),
    )
]  # fmt: skip


class HalvingCodec:
    """Halves every sample, and pads to whole patches of 1,000 samples."""

    spec = SimpleNamespace(name="halving", sample_rate=8000)

    def encode(self, waveform: Waveform):
        return (np.pad(waveform.samples, (0, -len(waveform.samples) % 1000)),)

    def decode(self, codes):
        return Waveform((codes[0] / 2).astype(np.float32), 8000)


def test_resynthesis_is_cut_to_the_length_of_the_recording():
    take = CodecResynthesis(HalvingCodec()).speak(TRIALS[0])
    original = audio.resample(audio.read(TRIALS[0].ground_truth), 8000)
    assert take.sample_rate == 8000
    np.testing.assert_allclose(take.samples, original.samples / 2, atol=1e-7)


class TimbreCodec(HalvingCodec):
    """Adds its timbre embedding, the length of a recording in seconds, to every sample."""

    timbre_width, timbre_encoder, timbre = 1, "seconds", 0.0

    def timbre_embedding(self, waveform: Waveform):
        return np.array([waveform.seconds], np.float32)

    def with_timbre(self, embedding):
        conditioned = TimbreCodec()
        conditioned.timbre = float(embedding[0])
        return conditioned

    def decode(self, codes):
        return Waveform(super().decode(codes).samples + np.float32(self.timbre), 8000)


def test_resynthesis_has_the_timbre_of_the_reference():
    trial = TRIALS[0].model_copy(update={"reference": TRIALS[1].reference})
    system = CodecResynthesis(TimbreCodec())
    plain, original = CodecResynthesis(HalvingCodec()), audio.read(trial.reference)
    difference = system.speak(trial).samples - plain.speak(trial).samples
    np.testing.assert_allclose(difference, original.seconds, rtol=1e-5)
    assert system.version != plain.version


class EchoSynthesizer:
    """A synthesizer that records its arguments."""

    session = SimpleNamespace(label="mini@0123456789ab")

    def clone(self, reference, transcript=None):
        return reference, transcript

    def speak(self, text, voice, seed):
        self.asked = (text, *voice, seed)
        return SimpleNamespace(waveform=Waveform(np.ones(5, np.float32), 8000))


def test_deep_clones_get_the_transcript_and_shallow_ones_do_not():
    echo = EchoSynthesizer()
    shallow, deep = (Model(echo, "mini", "digest", clone=kind, seed=3) for kind in Clone)
    assert (shallow.name, deep.name) == ("mini (shallow)", "mini (deep)")
    assert shallow.version != deep.version and shallow.model == "mini@0123456789ab"
    shallow.speak(TRIALS[0])
    assert echo.asked == (TRIALS[0].text, TRIALS[0].reference, None, take_seed(3, "a1"))
    deep.speak(TRIALS[0])
    assert echo.asked[2] == TRIALS[0].reference_transcript
    untranscribed = TRIALS[0].model_copy(update={"reference_transcript": ""})
    with pytest.raises(DataError, match=r"LJ001-0008\.flac: has no transcript"):
        deep.speak(untranscribed)
    shallow.speak(untranscribed)


@dataclass(frozen=True)
class SpeechModel:
    """The settings of a model that ablations change."""

    architecture: str = "mars6"
    quality_prefix_hz: int | None = 48000
    sampling: SamplingConfig = field(default_factory=SamplingConfig)


@dataclass(frozen=True)
class PlainModel:
    """A model without a quality prefix."""

    architecture: str = "plain"
    sampling: SamplingConfig = field(default_factory=SamplingConfig)


@dataclass(frozen=True)
class Session:
    """A session of a model."""

    model: SpeechModel | PlainModel
    name: str = "mini"


def test_ablations_change_one_setting():
    tts = Synthesizer(Session(SpeechModel()))
    without_ras = SpeechModel(sampling=SamplingConfig(ras_max_ratio=1.0))
    assert ablate(tts, Variant.NO_RAS).session == Session(without_ras)
    assert ablate(tts, Variant.NO_QUALITY_PREFIX).session == Session(SpeechModel(quality_prefix_hz=None))
    with pytest.raises(DataError, match="architecture plain have no quality prefix"):
        ablate(Synthesizer(Session(PlainModel())), Variant.NO_QUALITY_PREFIX)


def test_a_model_in_the_current_folder_has_the_name_of_that_folder(toy_bundle: Path, monkeypatch: pytest.MonkeyPatch):
    options = SystemOptions([Clone.SHALLOW], 0, None)
    [named] = find_systems(str(toy_bundle), options)
    monkeypatch.chdir(toy_bundle)
    [system] = find_systems(".", options)
    assert system.name == named.name == f"{toy_bundle.name} (shallow)"


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("before={bundle}", ["before (shallow)"]),
        ("my voice=mini@no-ras", ["my voice@no-ras (shallow)"]),
        ("theirs={takes}", ["theirs"]),
        ("{odd}", ["a=b"]),
        ("./{odd_name}", ["a=b"]),
    ],
)
def test_a_system_may_be_given_a_name(
    name: str, rows: list[str], toy_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    for folder in ("takes", "a=b"):
        Path(folder).mkdir()
    filled = name.format(bundle=toy_bundle, takes=tmp_path / "takes", odd=tmp_path / "a=b", odd_name="a=b")
    found = find_systems(filled, SystemOptions([Clone.SHALLOW], 0, None))
    assert [system.name for system in found] == rows


@pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="espeak-ng is not installed")
def test_espeak_ng_speaks_every_text():
    assert 1.0 < EspeakNg().speak(TRIALS[1]).seconds < 6.0


def test_seeds_differ_between_trials_and_runs():
    seeds = {take_seed(seed, name) for seed in range(5) for name in ("a1", "b1")}
    assert len(seeds) == 10 and all(0 <= seed < 2**32 for seed in seeds)


def test_folder_digest_changes_with_names_and_bytes(tmp_path: Path):
    (tmp_path / "a.wav").write_bytes(b"1")
    first = folder_digest(tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    assert folder_digest(tmp_path) != first
    assert folder_digest(tmp_path, (".wav",)) == first
    (tmp_path / "a.wav").write_bytes(b"2")
    assert folder_digest(tmp_path, (".wav",)) != first


@dataclass(frozen=True, eq=False)
class PaperSynthesizer:
    """A synthesizer whose takes are longer as in the paper."""

    usual: Speaking = USUAL
    session = SimpleNamespace(label="mini@0123456789ab")

    def clone(self, reference, transcript=None):
        return reference

    def speak(self, text, voice, seed):
        return SimpleNamespace(waveform=Waveform(np.ones(9 if self.usual.paper else 5, np.float32), 8000))


def test_models_speak_as_in_the_paper_where_they_are_asked_to(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(open_systems, "load_model", lambda name: PaperSynthesizer())
    [usual] = find_systems("mini", SystemOptions([Clone.SHALLOW], 0, None))
    [paper] = find_systems("mini", SystemOptions([Clone.SHALLOW], 0, None, paper=True))
    assert [len(system.speak(TRIALS[0]).samples) for system in (usual, paper)] == [5, 9]
    assert usual.version != paper.version
