"""A bundle of architecture "mars5", through everything that knows models by their protocol only."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from mars5_published import ar_content, nar_content, save
from marstts import load, models
from marstts.audio import Waveform
from marstts.codec.registry import ToyCodecPart
from marstts.errors import CheckpointError, MissingExtraError
from marstts.generation.request import SamplingConfig
from marstts.mars5 import published
from marstts.mars5.ar import CodecLM
from marstts.mars5.checkpoint import Models
from marstts.mars5.config import CodecLMConfig, ResidualTransformerConfig
from marstts.mars5.nar import ResidualTransformer
from marstts.mars5.text import END_OF_SPEECH, END_OF_TEXT, START_OF_TEXT, JointVocabulary, SpeechBPE
from marstts.synthesis import clone as cloning
from marstts.synthesis.backoff import BackoffConfig
from marstts.synthesis.sentence import Attempt
from marstts.synthesis.synthesizer import Synthesizer
from marstts.text.segments import Segment
from marstts.text.tokenizers.bpe import BPE

pytestmark = pytest.mark.slow

CODEC = ToyCodecPart(codebook_size=16, hop_lengths=(640, 640, 640))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random models with a toy codec of three equal levels."""
    text = BPE.train(["the cat sat on the mat", "she sells sea shells"], 262, [START_OF_TEXT, END_OF_TEXT])
    vocabulary = JointVocabulary(text, SpeechBPE(((0, 1), (16, 2)), {END_OF_SPEECH: 18}, 16))
    torch.manual_seed(0)
    ar = CodecLMConfig(
        text_vocab_size=262, speech_vocab_size=19, width=12, layers=1, heads=2, head_size=4, feed_forward_width=8,
        speaker_layers=1, speaker_heads=2, speaker_feed_forward_width=8, levels=3, codebook_size=16,
    )  # fmt: skip
    nar = ResidualTransformerConfig(
        text_vocab_size=262, width=18, heads=2, encoder_layers=1, decoder_layers=1, speaker_layers=1,
        feed_forward_width=8, timestep_width=6, levels=3, codebook_size=16,
    )  # fmt: skip
    made = Models(CodecLM(ar).eval(), ResidualTransformer(nar).eval(), vocabulary)
    folder = tmp_path_factory.mktemp("bundles") / "mars5"
    models.export_bundle(
        folder, made, text, codec=CODEC, encoders={}, name="small", architecture="mars5",
        settings={"diffusion": {"timesteps": 2}, "tokens_per_second": 30.0}, sampling=SamplingConfig(top_p=0.9),
    )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def synthesizer(bundle: Path) -> Synthesizer:
    return load(bundle)


@pytest.fixture
def speech() -> Waveform:
    """Two seconds of a buzz with syllables."""
    time = np.arange(48_000) / 24_000
    buzz = sum(np.sin(2 * np.pi * 130 * harmonic * time) / harmonic for harmonic in range(1, 12))
    return Waveform((0.2 * buzz * (0.55 + 0.45 * np.sin(8 * np.pi * time))).astype(np.float32), 24_000)


def clone(synthesizer: Synthesizer, speech: Waveform, transcript: str | None = None):
    return cloning.clone(
        speech, transcript, codec=synthesizer.session.codec, encoders=synthesizer.session.encoders, min_speech_ratio=0
    )


@pytest.mark.parametrize("transcript", [None, "she sells"])
def test_speak(synthesizer: Synthesizer, speech: Waveform, transcript: str | None) -> None:
    voice = clone(synthesizer, speech, transcript)
    assert set(voice.embeddings) == {"speaker"}
    spoken = synthesizer.speak("The cat sat. On the mat.", voice, seed=3)
    again = synthesizer.speak("The cat sat. On the mat.", voice, seed=3)
    assert len(spoken.takes) == 2 and spoken.model.startswith("small@")
    assert all(len(take.codes) == 3 for take in spoken.takes)
    assert np.array_equal(spoken.waveform.samples, again.waveform.samples)


def test_a_stream_has_the_audio_of_whole_sentences(synthesizer: Synthesizer, speech: Waveform) -> None:
    voice = clone(synthesizer, speech)
    chunks = list(synthesizer.stream("The cat sat. On the mat.", voice, seed=3))
    assert chunks


def test_limits_count_tokens(synthesizer: Synthesizer, speech: Waveform) -> None:
    attempt = Attempt(segment=Segment(text="the cat sat on"), top_p=0.2, seed=(0,))
    request = synthesizer.session.request(attempt, clone(synthesizer, speech))
    longest = BackoffConfig().longest("the cat sat on") * BackoffConfig().max_length_factor
    assert request.limits.max_patches == int(np.ceil(longest * 30))


def test_bundles_of_other_codecs_are_refused(bundle: Path, tmp_path: Path) -> None:
    made = models.load_for_training(bundle)
    with pytest.raises(CheckpointError, match="codes per frame"):
        models.export_bundle(
            tmp_path / "other", made, made.vocabulary.text, codec=ToyCodecPart(codebook_size=16), encoders={},
            name="other", architecture="mars5",
        )  # fmt: skip
    with pytest.raises(CheckpointError, match="has no graphs"):
        load(bundle, engine="onnx")


def test_without_pytorch_one_sentence_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("marstts.mars5")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    for open_it in (
        lambda: models.architecture_of("mars5"),
        lambda: models.published_bundle("mars5-english", onnx=True),
    ):
        with pytest.raises(MissingExtraError, match=r"'torch', which is not installed: pip install 'marstts\[torch\]'"):
            open_it()


def test_the_published_model_is_converted_once_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ar, nar = save(ar_content(), tmp_path / "ar.pt"), save(nar_content(), tmp_path / "nar.pt")
    codec = ToyCodecPart(codebook_size=1024, hop_lengths=(320,) * 8)
    monkeypatch.setenv("MARSTTS_CACHE", str(tmp_path))
    published.convert(ar, nar, tmp_path / "mars5-english", codec=codec, ar_heads=4, nar_heads=3)
    assert models.published_bundle("mars5-english", onnx=True) == tmp_path / "mars5-english"
    synthesizer = load("mars5-english")
    assert synthesizer.session.name == "mars5-english"
    assert synthesizer.session.model.architecture == "mars5"
    assert synthesizer.session.model.reads_typed_text, "capitals and punctuation steer it"
    assert synthesizer.session.model.pipeline.profile.name == "released"
    fetched: list[tuple[str, ...]] = []
    monkeypatch.setattr(
        published, "find_file", lambda model, names, **_: (fetched.append((model, *names)), tmp_path)[1]
    )
    monkeypatch.setattr(published, "convert", lambda *given, as_release: None)
    monkeypatch.setenv("MARSTTS_CACHE", str(tmp_path / "elsewhere"))
    models.published_bundle("mars5-english", onnx=False)
    assert fetched == [("CAMB-AI/MARS5-TTS", "mars5_ar.safetensors"), ("CAMB-AI/MARS5-TTS", "mars5_nar.safetensors")]
