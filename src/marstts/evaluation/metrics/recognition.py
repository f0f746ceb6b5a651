"""Open recognition: what a recogniser hears in a take, and how far that is from the text (WER, CER).

Upstream: takes, as waveforms, and plain words (`words.plain_words`, the one normaliser).  Downstream: `judges`.

The paper's recogniser is Whisper-base: MARS6 (arXiv:2501.05787), Sec. V. Its weights are downloaded when first used.
The default needs no download: pocketsphinx hears the LJSpeech reader at CER 0.11, so only differences between
systems, over 40 sentences and more, mean something, and its figures do not stand beside Whisper's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from marstts.audio import Waveform, resample
from marstts.errors import CheckpointError, require
from marstts.evaluation.metrics import sphinx
from marstts.evaluation.metrics.words import plain_words
from marstts.evaluation.versions import package_version

WHISPER_BASE = "openai/whisper-base"
"""The paper's recogniser, multilingual; English is asked for."""


@dataclass(frozen=True)
class Edits:
    """Substitutions, insertions and deletions on the way from a reference of `length` units to what was heard."""

    errors: int
    length: int


class Recogniser(Protocol):
    """Something that writes down what it hears."""

    @property
    def name(self) -> str:
        """With its version, as reports print it."""
        ...

    def hear(self, waveform: Waveform) -> list[str]:
        """Plain words heard, none if there are none; resamples by itself."""
        ...


class SphinxRecogniser:
    """pocketsphinx with its own trigram language model; five times as fast as the audio on one core."""

    def __init__(self) -> None:
        self.name = f"pocketsphinx {package_version('pocketsphinx')}"
        self._decoder = sphinx.new_decoder(lm=sphinx.model_path("en-us/en-us.lm.bin"))

    def hear(self, waveform: Waveform) -> list[str]:
        """Plain words heard; the level of the recording does not matter."""
        sphinx.decode(self._decoder, sphinx.prepare(waveform))
        return plain_words(" ".join(sphinx.heard_words(self._decoder)))


class WhisperRecogniser:
    """Whisper by `transformers`, greedy; `source` is a name on the hub or a folder with safetensors weights."""

    def __init__(self, source: str = WHISPER_BASE) -> None:
        transformers, self._torch = require("transformers", "judges"), require("torch", "judges")
        self.name = f"{source} (transformers {package_version('transformers')})"
        try:
            self._processor = transformers.WhisperProcessor.from_pretrained(source)
            model = transformers.WhisperForConditionalGeneration.from_pretrained(source, use_safetensors=True)
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:300]
            raise CheckpointError(
                f"{source}: Whisper's weights are neither here nor to be downloaded: {reason}"
            ) from error
        self._model = model.eval()

    def hear(self, waveform: Waveform) -> list[str]:
        """Plain words heard; recordings of more than 30 s are cut there, as Whisper's window is."""
        rate = self._processor.feature_extractor.sampling_rate
        features = self._processor(resample(waveform, rate).samples, sampling_rate=rate, return_tensors="pt")
        english = {"language": "en", "task": "transcribe"} if self._model.generation_config.is_multilingual else {}
        with self._torch.inference_mode():
            ids = self._model.generate(features.input_features, do_sample=False, num_beams=1, **english)
        return plain_words(self._processor.batch_decode(ids, skip_special_tokens=True)[0])


class FasterWhisperRecogniser:
    """Whisper by `faster-whisper` (CTranslate2, 8-bit on CPUs), greedy; `source` is a size or a converted folder."""

    def __init__(self, source: str = "base") -> None:
        package = require("faster_whisper", "judges")
        self.name = f"faster-whisper {source} ({package_version('faster-whisper')})"
        self._model = package.WhisperModel(source, device="cpu", compute_type="int8", cpu_threads=1)

    def hear(self, waveform: Waveform) -> list[str]:
        """Plain words heard."""
        samples = resample(waveform, 16000).samples
        segments, _ = self._model.transcribe(samples, language="en", beam_size=1, condition_on_previous_text=False)
        return plain_words(" ".join(segment.text for segment in segments))


def word_edits(reference: Sequence[str], heard: Sequence[str]) -> Edits:
    """Fewest edits in words (jiwer); `reference` must not be empty."""
    result = require("jiwer", "eval").process_words(" ".join(reference), " ".join(heard))
    return Edits(result.substitutions + result.insertions + result.deletions, len(reference))


def character_edits(reference: Sequence[str], heard: Sequence[str]) -> Edits:
    """Fewest edits in characters, the spaces between words included (jiwer); `reference` must not be empty."""
    text = " ".join(reference)
    result = require("jiwer", "eval").process_characters(text, " ".join(heard))
    return Edits(result.substitutions + result.insertions + result.deletions, len(text))
