"""The metrics of one take: each one processes a waveform, and gives takes without speech the worst score.

Upstream: takes, trials of a test set, and the adapters `recognition`, `identity`, `quality`.
Downstream: `panel`, which combines them; `preference`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from marstts import audio
from marstts.audio import Waveform
from marstts.speaker.base import SpeakerEncoder, cosine
from marstts_lab.metrics.identity import Embedding, level
from marstts_lab.metrics.quality import WORST, QualityMetric
from marstts_lab.metrics.recognition import Recognizer, character_edits, word_edits
from marstts_lab.metrics.scores import VoiceScore, WordScore
from marstts_lab.metrics.trial import Trial
from marstts_lab.metrics.words import has_repetition, is_truncated

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
        """The take against its reference and those of other speakers, the ground truth against its reference."""
        reference, truth = self._references[trial.reference], trial.ground_truth
        truth_similarity = None if truth is None else round(cosine(self._embed_recording(truth), reference), 4)
        others = [e for path, e in self._references.items() if self._speakers[path] != trial.speaker]
        similarity, is_nearest = NO_SIMILARITY, False
        if speech is not None:
            take = self._encoder.embed(level(speech))
            similarity = cosine(take, reference)
            is_nearest = all(cosine(take, other) < similarity for other in others)
        return VoiceScore(
            similarity=round(similarity, 4),
            ground_truth_similarity=truth_similarity,
            is_nearest=is_nearest if others else None,
        )

    def _embed_recording(self, path: Path) -> Embedding:
        if path not in self._recordings:
            self._recordings[path] = self._encoder.embed(level(audio.read(path)))
        return self._recordings[path]
