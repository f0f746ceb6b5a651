"""The evaluator of fine-tuning: words and voice of takes of held-out sentences, spoken as a user would.

Upstream: a tokenized corpus, whose validation split was set aside; a bundle.  Downstream:
`training.mars6.take_validation`, which calls it; `cli.finetune`.

Words are counted by a recognizer. Without one, by the model's own alignment, which finds missing and repeated words
but no unclear ones. The voice is the cosine of a take and the speaker's held-out recordings, by the bundle's encoder.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice

import numpy as np
from numpy.typing import NDArray
from torch import nn

from marstts import models
from marstts.audio import Waveform
from marstts.bundle import load_bundle
from marstts.codec.base import Codes, timbre_encoders
from marstts.errors import CheckpointError, DataError, MissingExtraError
from marstts.speaker.base import cosine
from marstts.synthesis.model_session import ModelSession
from marstts.synthesis.synthesizer import Synthesizer
from marstts.voice import Voice
from marstts_lab.data.corpus import Corpus
from marstts_lab.evaluation.testset import take_seed
from marstts_lab.metrics.identity import level
from marstts_lab.metrics.length import check_length, expected_seconds
from marstts_lab.metrics.recognition import Recognizer, character_edits, open_recognizer
from marstts_lab.metrics.words import plain_words
from marstts_lab.training.mars6.take_validation import StepScores

TAKES = 24
"""Takes of each validation: held-out sentences, again with other seeds where there are fewer."""

IDENTITY = "identity"
OWN_ALIGNMENT = "the model's own alignment, which does not notice unclear words"
NO_SIMILARITY = 0.0
"""Similarity of a take without speech."""

logger = logging.getLogger(__name__)


def find_recognizer(choice: str | None) -> Recognizer | None:
    """The recognizer of a name; for None the default one, or None with a warning where it is not available."""
    if choice is not None:
        return open_recognizer(choice)
    try:
        return open_recognizer("faster-whisper")
    except (MissingExtraError, CheckpointError) as error:
        logger.warning("word errors are counted by %s: %s", OWN_ALIGNMENT, error)
        return None


@dataclass(frozen=True)
class HeldOut:
    """A held-out utterance and the voice that speaks it."""

    text: str
    speaker: str
    codes: Codes
    voice: Voice
    """A clone of another recording of the speaker."""


class HeldOutEvaluator:
    """A `training.mars6.take_validation.TakeEvaluator` over the validation split of a corpus."""

    def __init__(self, base: str, corpus: Corpus, recognizer: Recognizer | None, takes: int = TAKES) -> None:
        """DataError where no held-out utterance has words."""
        self.bundle, self.recognizer, self.takes = load_bundle(base), recognizer, takes
        self.words_by = OWN_ALIGNMENT if recognizer is None else f"{recognizer.name}, per character"
        self.held_out = self._find_held_out(corpus)
        self._ceiling: StepScores | None = None
        validation = corpus.split("validation")
        role = IDENTITY if IDENTITY in self.bundle.encoders else next(iter(self.bundle.encoders))
        self._encoder = self.bundle.encoders[role]
        embeddings = validation.embeddings_of(range(len(validation)))[role]
        speakers = np.array(list(validation.utterances.strings("speaker")))
        self._speakers: dict[str, NDArray[np.float32]] = {
            speaker: embeddings[speakers == speaker].mean(axis=0) for speaker in set(speakers.tolist())
        }

    def __call__(self, model: nn.Module, step: int, seed: int = 0) -> StepScores:
        """Speak the held-out sentences with a model and score them."""
        speech_model = models.open_in_memory(model, self.bundle)
        session = ModelSession(
            name=self.bundle.name,
            model=speech_model,
            codec=self.bundle.codec,
            encoders={**self.bundle.voice_encoders, **models.model_encoders(speech_model, self.bundle.codec)},
        )
        synthesizer = Synthesizer(session)
        chosen = list(islice(cycle(self.held_out), self.takes))
        logger.info("step %d: %d takes of held-out sentences are spoken and measured", step, len(chosen))
        seeds = [take_seed(seed, str(number)) for number in range(len(chosen))]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of flawed takes, which are counted
            results = list(
                synthesizer.speak_many([one.text for one in chosen], [one.voice for one in chosen], seeds=seeds)
            )
        scores = []
        for result in results:
            speech = result.speech
            flaws = 1 if speech is None else sum(len(take.flaws) + (take.warning is not None) for take in speech.takes)
            scores.append(self._score(chosen[result.index - 1], None if speech is None else speech.waveform, flaws))
        return self._mean_scores(step, *zip(*scores, strict=True))

    def ceiling(self) -> StepScores:
        """Words and voice of the held-out recordings after the codec."""
        if self._ceiling is None:
            scores = [self._score(one, self.bundle.codec.decode(one.codes), 0) for one in self.held_out]
            self._ceiling = self._mean_scores(0, *zip(*scores, strict=True))
        return self._ceiling

    def _score(self, one: HeldOut, waveform: Waveform | None, flaws: int) -> tuple[int, int, float]:
        """Errors in the words, the units that they are counted in, and similarity, of one take."""
        text = plain_words(one.text)
        is_speech = waveform is not None and check_length(waveform, expected_seconds(one.text)).has_speech
        speech = waveform if is_speech else None
        embedded = None if speech is None else self._encoder.embed(level(speech))
        similarity = NO_SIMILARITY if embedded is None else cosine(embedded, self._speakers[one.speaker])
        if self.recognizer is None:
            return (len(text) if speech is None else min(flaws, len(text))), len(text), similarity
        edits = character_edits(text, [] if speech is None else self.recognizer.transcribe(speech))
        return edits.errors, edits.length, similarity

    def _mean_scores(
        self, step: int, errors: Sequence[int], units: Sequence[int], similarities: Sequence[float]
    ) -> StepScores:
        return StepScores(
            step=step,
            takes=len(errors),
            words_by=self.words_by,
            word_errors=round(sum(errors) / sum(units), 5),
            similarity=round(float(np.mean(similarities)), 5),
        )

    def _find_held_out(self, corpus: Corpus) -> list[HeldOut]:
        """At most `takes` utterances of the validation split, each with a voice of another recording."""
        train, validation = corpus.split("train"), corpus.split("validation")
        sources: dict[str, list[int]] = {}
        for index, speaker in enumerate(train.utterances.strings("speaker")):
            sources.setdefault(speaker, []).append(index)
        found: list[HeldOut] = []
        for index in range(len(validation)):
            utterance = validation.utterances[index]
            if not plain_words(utterance.text) or len(found) == self.takes:
                continue
            others = sources.get(utterance.speaker)
            voice = (
                self._voice(validation, index, utterance.speaker)
                if others is None
                else self._voice(train, others[len(found) % len(others)], utterance.speaker)
            )
            found.append(HeldOut(utterance.text, utterance.speaker, validation.codes_of(index), voice))
        if not found:
            raise DataError("no held-out utterance has words, so that no step can be validated; add recordings")
        return found

    def _voice(self, corpus: Corpus, index: int, speaker: str) -> Voice:
        """The shallow clone of an utterance: its stored embeddings, and the timbre of its codes."""
        codec = self.bundle.codec
        embeddings = {role: values[0] for role, values in corpus.embeddings_of([index]).items()}
        encoders = {role: self.bundle.encoders[role].name for role in embeddings}
        for role, encoder in timbre_encoders(codec).items():
            embeddings[role] = encoder.embed(codec.decode(corpus.codes_of(index)))
            encoders[role] = encoder.name
        return Voice(speaker, embeddings, None, codec.spec.name, encoders, "", "")


def evaluator_of(choice: str | None) -> Callable[[str, Corpus], HeldOutEvaluator]:
    """Opens the evaluator of a corpus with a recognizer by name, or with what is available for None."""
    recognizer = find_recognizer(choice)
    return lambda base, corpus: HeldOutEvaluator(base, corpus, recognizer)
