"""The bench: every judge of a test set, opened by name, and all they say about one take.

Upstream: `testset`, `metrics`.  Downstream: `score`, which hands them takes.

Two sets have names of their own. *offline* needs no download; *paper* is what MARS6 (arXiv:2501.05787), Sec. V, was
judged by: Whisper-base, WavLM-SV, UTMOS. Any other set is spelled out, each judge by its name and, after "=", where its
weights come from: "whisper=openai/whisper-small,resemblyzer,dnsmos". Figures of different judges do not compare.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from marstts import audio
from marstts.audio import Waveform
from marstts.config import Config
from marstts.errors import ConfigError
from marstts.evaluation.metrics import faults, prosody, sphinx
from marstts.evaluation.metrics.alignment import Aligner, Alignment
from marstts.evaluation.metrics.identity import Embedding, Resemblyzer, compare_speakers, cosine, level
from marstts.evaluation.metrics.length import judge_length, usual_seconds
from marstts.evaluation.metrics.quality import QUALITY_JUDGES, WORST, QualityJudge
from marstts.evaluation.metrics.recognition import (
    FasterWhisperRecogniser,
    Recogniser,
    SphinxRecogniser,
    WhisperRecogniser,
    character_edits,
    word_edits,
)
from marstts.evaluation.metrics.word_choice import WordChoices, WordChoiceTest, near_homophones
from marstts.evaluation.metrics.words import plain_words
from marstts.evaluation.scores import Prosody, TakeScore, VoiceScore, WordScore, WordTest
from marstts.evaluation.testset import Trial
from marstts.evaluation.versions import package_version
from marstts.speaker.base import SpeakerEncoder

SETS = {
    "offline": "sphinx,word-test,resemblyzer,identity,style,dnsmos,plcmos,prosody",
    "paper": "whisper,wavlm,utmos,prosody",
}
"""Judges by the name of their set."""

RECOGNISERS: Mapping[str, Callable[..., Recogniser]] = {
    "sphinx": SphinxRecogniser,
    "whisper": WhisperRecogniser,
    "faster-whisper": FasterWhisperRecogniser,
}
VOICES = ("resemblyzer", "wavlm", "identity")
"""Speaker encoders; *identity* is the one inside the model named beside the judges."""

STYLE = "style"
"""The style encoder inside the model named beside the judges: does a whisper stay a whisper?"""

OF_THE_MODEL = ("identity", STYLE)
OTHERS = ("word-test", "prosody", STYLE)
NO_SIMILARITY = -1.0
"""Where there is no speech: as far from the reference as can be."""


class Bench(Config):
    """Who judges; picklable, so that every process opens its own."""

    names: dict[str, str | None]
    """Where the weights of each judge come from, by its name; None for its own default."""

    model: str | None
    """Model whose identity and style encoders are the judges of those names."""


def parse_bench(names: str, model: str | None) -> Bench:
    """The bench of a set's name, or of judges' names with commas between; ConfigError where one is unknown."""
    wanted: dict[str, str | None] = {}
    for item in SETS.get(names, names).split(","):
        name, _, source = item.strip().partition("=")
        if name not in (*RECOGNISERS, *VOICES, *QUALITY_JUDGES, *OTHERS):
            known = ", ".join((*SETS, *RECOGNISERS, *VOICES, *QUALITY_JUDGES, *OTHERS))
            raise ConfigError(f"there is no judge {name!r}; expected some of {known}, with commas between")
        wanted[name] = source or None
    if len(wanted.keys() & RECOGNISERS.keys()) > 1:
        raise ConfigError(f"{names}: one recogniser at a time, of {', '.join(RECOGNISERS)}")
    if model is None:
        wanted = {name: source for name, source in wanted.items() if name not in OF_THE_MODEL}
    return Bench(names=wanted, model=model)


class Judges:
    """All judges of one test set; each take is judged by itself, whatever was judged before."""

    def __init__(
        self,
        trials: Sequence[Trial],
        *,
        recogniser: Recogniser | None = None,
        word_test: WordJudge | None = None,
        encoders: Mapping[str, SpeakerEncoder] | None = None,
        quality: Sequence[QualityJudge] = (),
        prosody: ProsodyJudge | None = None,
        style: SpeakerEncoder | None = None,
    ) -> None:
        self._recogniser = recogniser
        self._word_test = word_test
        self._voices = {name: SpeakerJudge(encoder, trials) for name, encoder in (encoders or {}).items()}
        self._quality = quality
        self._prosody = prosody
        self._style = None if style is None else StyleJudge(style, trials)
        self._source_seconds = {t.source: audio.read(t.source).seconds for t in trials if t.source is not None}
        self.versions = {
            **({} if recogniser is None else {"recogniser": recogniser.name, "jiwer": package_version("jiwer")}),
            **({} if word_test is None else {"word test": f"pocketsphinx {package_version('pocketsphinx')}"}),
            **{f"voice, {name}": encoder.name for name, encoder in (encoders or {}).items()},
            **{f"quality, {judge.scales[0].partition('_')[0]}": judge.name for judge in quality},
            **({} if prosody is None else {"prosody": prosody.name}),
            **({} if style is None else {"style": style.name}),
        }

    def score(
        self,
        system: str,
        trial: Trial,
        take: Waveform | None,
        problem: str | None = None,
        compute_seconds: float | None = None,
    ) -> TakeScore:
        """Judge one take; None, with the `problem`, where the system gave none. It gets the worst of every score."""
        source_seconds = None if trial.source is None else self._source_seconds[trial.source]
        verdict = judge_length(take, usual_seconds(trial.words) if source_seconds is None else source_seconds)
        speech = take if verdict.has_speech else None
        text = plain_words(trial.words)
        return TakeScore(
            system=system,
            trial=trial.id,
            speaker=trial.speaker,
            style=trial.style,
            verdict=verdict,
            problem=problem,
            seconds=0.0 if take is None else round(take.seconds, 3),
            source_seconds=None if source_seconds is None else round(source_seconds, 3),
            sample_rate=None if take is None else take.sample_rate,
            compute_seconds=None if compute_seconds is None else round(compute_seconds, 6),
            words=None if self._recogniser is None else recognise(self._recogniser, text, speech),
            word_test=None if self._word_test is None else self._word_test.judge(text, speech),
            voices={name: judge.compare(trial, speech) for name, judge in self._voices.items()},
            quality={scale: value for judge in self._quality for scale, value in rate(judge, speech).items()},
            prosody=None if self._prosody is None else self._prosody.judge(trial.source, speech),
            style_is_right=None if self._style is None else self._style.is_right(trial, speech),
        )


def open_judges(bench: Bench, trials: Sequence[Trial]) -> Judges:
    """Every judge of the bench, its weights loaded; raises MissingExtraError naming the extra that is not installed."""

    def source_of(name: str) -> dict[str, Any]:
        return {} if bench.names[name] is None else {"source": bench.names[name]}

    recogniser = next((opened(**source_of(name)) for name, opened in RECOGNISERS.items() if name in bench.names), None)
    return Judges(
        trials,
        recogniser=recogniser,
        word_test=WordJudge() if "word-test" in bench.names else None,
        encoders={name: open_encoder(name, bench) for name in VOICES if name in bench.names},
        quality=[judge() for name, judge in QUALITY_JUDGES.items() if name in bench.names],
        prosody=ProsodyJudge() if "prosody" in bench.names else None,
        style=open_encoder(STYLE, bench) if STYLE in bench.names else None,
    )


def open_encoder(name: str, bench: Bench) -> SpeakerEncoder:
    """An encoder by its name on the bench."""
    if name == "wavlm":
        from marstts.speaker.wavlm import PUBLISHED, WavLmEncoder

        return WavLmEncoder(bench.names[name] or PUBLISHED)
    if name in OF_THE_MODEL:
        from marstts.synthesis.loading import load

        assert bench.model is not None, "parse_bench leaves the model's encoders out where there is no model"
        model = load(bench.model)
        return model.style_encoder if name == STYLE else model.identity_encoder
    return Resemblyzer()


def recognise(recogniser: Recogniser, text: list[str], speech: Waveform | None) -> WordScore:
    """What is heard of the words of `text`: nothing, where there is no speech."""
    heard = [] if speech is None else recogniser.hear(speech)
    by_word, by_character = word_edits(text, heard), character_edits(text, heard)
    return WordScore(
        heard=" ".join(heard),
        word_errors=by_word.errors,
        words=by_word.length,
        character_errors=by_character.errors,
        characters=by_character.length,
        repeats=faults.repeats_itself(text, heard),
        cut_short=faults.breaks_off(text, heard),
    )


def rate(judge: QualityJudge, speech: Waveform | None) -> Mapping[str, float]:
    """A quality judge's scales; the lowest of each where there is no speech."""
    if speech is None:
        return dict.fromkeys(judge.scales, WORST)
    return {scale: round(value, 4) for scale, value in judge.rate(speech).items()}


class WordJudge:
    """Closed-response test and forced alignment, both by pocketsphinx."""

    def __init__(self) -> None:
        self._word_choice = WordChoiceTest()
        self._aligner = Aligner()

    def judge(self, text: list[str], speech: Waveform | None) -> WordTest:
        """Which words of `text` are there: none, where there is no speech."""
        if speech is None:
            known = sphinx.pronounceable(text)
            choices = WordChoices(0, sum(bool(near_homophones(w)) for w in known), len(text) - len(known))
            alignment = Alignment(None, None, choices.skipped)
        else:
            pcm = sphinx.prepare(speech)
            choices, alignment = self._word_choice.score(pcm, text), self._aligner.align(pcm, text)
        return WordTest(
            right_choices=choices.right,
            choices=choices.choices,
            words_unknown=choices.skipped,
            worst_word=alignment.worst_word,
            worst_word_score=alignment.worst_score,
            word_fault=alignment.at_fault,
        )


class SpeakerJudge:
    """One speaker encoder and its embeddings of a test set's references."""

    def __init__(self, encoder: SpeakerEncoder, trials: Sequence[Trial]) -> None:
        self._encoder = encoder
        self._references = {t.reference: encoder.embed(level(audio.read(t.reference))) for t in trials}
        self._speakers = {t.reference: t.speaker for t in trials}
        self._sources: dict[Path, Embedding] = {}

    def compare(self, trial: Trial, speech: Waveform | None) -> VoiceScore:
        """The take against its own reference and those of all other speakers; no speech is near to nobody."""
        others = self.references_of_others(trial.speaker)
        own = self._references[trial.reference]
        from_source = None if trial.source is None else round(cosine(self.embed_source(trial.source), own), 4)
        if speech is None:
            return VoiceScore(similarity=NO_SIMILARITY, source_similarity=from_source, nearer=0, pairs=len(others))
        found = compare_speakers(self._encoder.embed(level(speech)), own, others)
        return VoiceScore(
            similarity=round(found.similarity, 4),
            source_similarity=from_source,
            nearer=found.nearer,
            pairs=found.pairs,
        )

    def embed_source(self, path: Path) -> Embedding:
        if path not in self._sources:
            self._sources[path] = self._encoder.embed(level(audio.read(path)))
        return self._sources[path]

    def references_of_others(self, speaker: str) -> list[Embedding]:
        return [embedding for path, embedding in self._references.items() if self._speakers[path] != speaker]


class StyleJudge:
    """A style encoder and its embeddings of a test set's references, by speaker."""

    def __init__(self, encoder: SpeakerEncoder, trials: Sequence[Trial]) -> None:
        self._encoder = encoder
        self._references: dict[str, list[tuple[str, Embedding]]] = {}
        for trial in {t.reference: t for t in trials}.values():
            entry = (trial.style, encoder.embed(audio.read(trial.reference)))
            self._references.setdefault(trial.speaker, []).append(entry)

    def is_right(self, trial: Trial, speech: Waveform | None) -> bool | None:
        """Whether a reference in the trial's style is nearest of all that the speaker has; no speech has no style."""
        references = self._references[trial.speaker]
        if len({style for style, _ in references}) < 2:
            return None
        if speech is None:
            return False
        heard = self._encoder.embed(speech)
        return max(references, key=lambda entry: cosine(entry[1], heard))[0] == trial.style


class ProsodyJudge:
    """Melody and dynamics beside the source recording's."""

    def __init__(self) -> None:
        self.name = f"pyworld {package_version('pyworld')}, librosa {package_version('librosa')}"
        self._contours = lru_cache(maxsize=4096)(lambda path: prosody.contours(audio.read(path)))

    def judge(self, source: Path | None, speech: Waveform | None) -> Prosody | None:
        """None where there is no source; no speech correlates with nothing."""
        if source is None:
            return None
        of_source = self._contours(source)
        found = prosody.correlate(of_source if speech is None else prosody.contours(speech), of_source)
        if speech is None:
            found = prosody.Correlations(*(None if value is None else 0.0 for value in (found.pitch, found.energy)))
        return Prosody(
            pitch_correlation=None if found.pitch is None else round(found.pitch, 4),
            energy_correlation=None if found.energy is None else round(found.energy, 4),
        )
