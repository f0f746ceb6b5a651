"""The metrics of one take: each one processes a waveform, and gives takes without speech the worst score.

Upstream: takes, trials of a test set, and the adapters `recognition`, `identity`, `quality`, `prosody`.
Downstream: `panel`, which combines them; `preference`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from marstts import audio
from marstts.audio import Waveform
from marstts.metrics import prosody
from marstts.metrics.hub import package_version
from marstts.metrics.identity import Embedding, compare_speakers, level
from marstts.metrics.quality import WORST, QualityMetric
from marstts.metrics.recognition import Recognizer, character_edits, word_edits
from marstts.metrics.scores import Prosody, VoiceScore, WordScore
from marstts.metrics.testset import Trial
from marstts.metrics.words import has_repetition, is_truncated
from marstts.speaker.base import SpeakerEncoder, cosine

NO_SIMILARITY = -1.0
"""Cosine of a take without speech: the lowest there is."""


def score_words(recognizer: Recognizer, text: list[str], speech: Waveform | None) -> WordScore:
    """Transcribe a take and count its edits against the words of `text`; without speech the transcript is empty."""
    transcript = [] if speech is None else recognizer.transcribe(speech)
    by_word, by_character = word_edits(text, transcript), character_edits(text, transcript)
    return WordScore(
        transcript=" ".join(transcript),
        word_errors=by_word.errors,
        words=by_word.length,
        character_errors=by_character.errors,
        characters=by_character.length,
        has_repetition=has_repetition(text, transcript),
        truncated=is_truncated(text, transcript),
    )


def score_quality(metric: QualityMetric, speech: Waveform | None) -> Mapping[str, float]:
    """Scores on all scales of a quality metric; the lowest of each without speech."""
    if speech is None:
        return dict.fromkeys(metric.scales, WORST)
    return {scale: round(value, 4) for scale, value in metric.rate(speech).items()}


class SpeakerMetric:
    """One speaker encoder and its embeddings of a test set's references."""

    def __init__(self, encoder: SpeakerEncoder, trials: Sequence[Trial]) -> None:
        self._encoder = encoder
        self._references = {t.reference: encoder.embed(level(audio.read(t.reference))) for t in trials}
        self._speakers = {t.reference: t.speaker for t in trials}
        self._recordings: dict[Path, Embedding] = {}

    def score(self, trial: Trial, speech: Waveform | None) -> VoiceScore:
        """The take against its own reference and those of all other speakers; without speech none is near."""
        reference = self._references[trial.reference]
        others = [e for path, e in self._references.items() if self._speakers[path] != trial.speaker]
        truth = trial.ground_truth
        truth_similarity = None if truth is None else round(cosine(self._embed_recording(truth), reference), 4)
        similarity, num_correct = NO_SIMILARITY, 0
        if speech is not None:
            found = compare_speakers(self._encoder.embed(level(speech)), reference, others)
            similarity, num_correct = round(found.similarity, 4), found.num_correct
        return VoiceScore(
            similarity=similarity,
            ground_truth_similarity=truth_similarity,
            num_correct=num_correct,
            num_comparisons=len(others),
        )

    def _embed_recording(self, path: Path) -> Embedding:
        if path not in self._recordings:
            self._recordings[path] = self._encoder.embed(level(audio.read(path)))
        return self._recordings[path]


class StyleMetric:
    """A style encoder and its embeddings of a test set's references, by speaker."""

    def __init__(self, encoder: SpeakerEncoder, trials: Sequence[Trial]) -> None:
        self._encoder = encoder
        self._references: dict[str, list[tuple[str, Embedding]]] = {}
        for trial in {t.reference: t for t in trials}.values():
            entry = (trial.style, encoder.embed(audio.read(trial.reference)))
            self._references.setdefault(trial.speaker, []).append(entry)

    def is_correct(self, trial: Trial, speech: Waveform | None) -> bool | None:
        """Whether the speaker's nearest reference has the trial's style; False without speech.

        None where all references of the speaker have one style.
        """
        references = self._references[trial.speaker]
        if len({style for style, _ in references}) < 2:
            return None
        if speech is None:
            return False
        embedding = self._encoder.embed(speech)
        return max(references, key=lambda entry: cosine(entry[1], embedding))[0] == trial.style


class ProsodyMetric:
    """Correlation of F0 contours with the ground truth's."""

    def __init__(self) -> None:
        self.name = f"pyworld {package_version('pyworld')}, librosa {package_version('librosa')}"
        self._contours = lru_cache(maxsize=4096)(lambda path: prosody.contours(audio.read(path)))

    def score(self, ground_truth: Path | None, speech: Waveform | None) -> Prosody | None:
        """The correlation; 0 without speech, None without a ground truth."""
        if ground_truth is None:
            return None
        of_truth = self._contours(ground_truth)
        found = prosody.correlate(of_truth if speech is None else prosody.contours(speech), of_truth)
        if found is not None:
            found = 0.0 if speech is None else round(found, 4)
        return Prosody(f0_correlation=found)
