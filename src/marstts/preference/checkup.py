"""Check-ups of a model in tuning: judges listen to it every so often, and the best weights are kept by a stated rule.

The rule (`best_of`): a check-up counts if its speaker similarity is not below the lower end of the 95 % interval of the
model that tuning began with, and no more of its takes fail. Of those that count, the one with the fewest character
errors (or with the best words by the judge that `best_by` names) is the best; the beginning itself is one of them. So
words are never bought with the voice, and where nothing got better, nothing changes.

Upstream: a test set (`evaluation.testset`), a bundle's codec and encoders.  Downstream: `training.orpo`, as its judge.
What stands behind the rule lies in the run folder: `checkups.jsonl` (one line per check-up), `best/`, a run folder of
its own, which `marstts export` takes.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from marstts.audio import Waveform
from marstts.checkpoint import Bundle
from marstts.config import Config
from marstts.engine.guided import guided
from marstts.evaluation.intervals import Interval, ratio_interval
from marstts.evaluation.judges import NO_SIMILARITY, RECOGNISERS, recognise
from marstts.evaluation.metrics.identity import Embedding, cosine, level
from marstts.evaluation.metrics.length import Verdict, judge_length, usual_seconds
from marstts.evaluation.metrics.words import plain_words
from marstts.evaluation.systems import take_seed
from marstts.evaluation.testset import Trial
from marstts.mars6.generate import Generated, Stepper, StopReason, generate
from marstts.mars6.patches import unpatchify
from marstts.mars6.prompt import Prompt, build_prompt
from marstts.preference import judging
from marstts.preference.judging import Scale, decode
from marstts.preference.takes import read_lines, write_lines
from marstts.synthesis.backoff import BackoffConfig
from marstts.synthesis.clone import ReferenceWarning, clone
from marstts.text.normalize import normalize

if TYPE_CHECKING:
    from marstts.mars6.model import Mars6

CHECKUPS_FILE, BEST_FOLDER = "checkups.jsonl", "best"


class CheckupConfig(Config):
    """How the model is listened to: always the same sentences with the same seeds, one attempt each."""

    sentences: int = Field(40, gt=0)
    """The first so many trials of the test set."""

    recogniser: str = "sphinx"
    best_by: Literal[Scale.CER, Scale.WRONG_WORDS, Scale.MISFIT] = Scale.CER
    """Whose word decides which check-up is the best."""

    top_p: float | None = Field(None, ge=0.0, le=1.0)
    """Of all takes (default: where the model's own backoff starts)."""

    seed: int = Field(0, ge=0)


class TakeCheck(Config):
    """What is found in one take."""

    character_errors: int
    characters: int
    wrong_words: float
    misfit: float
    """See `judging.Scale`."""

    similarity: float
    length_ratio: float
    """Seconds, as a multiple of what the text usually takes."""

    repeats: bool
    """Whether a word or some words are heard twice in a row that are not so in the text."""

    empty: bool
    runaway: bool

    @property
    def failed(self) -> bool:
        return self.repeats or self.empty or self.runaway


class Checkup(Config):
    """One line of `checkups.jsonl`: everything said of the model at one step."""

    step: int
    cer: float
    cer_interval: tuple[float, float]
    wrong_words: float
    wrong_words_interval: tuple[float, float]
    misfit: float
    misfit_interval: tuple[float, float]
    similarity: float
    similarity_interval: tuple[float, float]
    """95 %, over sentences."""

    length_ratio: float
    repetition: float
    """Share of takes that repeat words."""

    failures: float
    """Share of takes that are empty, run away or repeat words."""

    takes: int


class Ward:
    """A test set and its judges, ready to listen to any model on the same codec and encoders."""

    def __init__(self, bundle: Bundle, trials: Sequence[Trial], config: CheckupConfig) -> None:
        """Clones every reference once (shallow), as for speaking."""
        self.bundle, self.config = bundle, config
        self.trials = trials[: config.sentences]
        self.recogniser = RECOGNISERS[config.recogniser]()
        self.word_test, self.aligner = judging.WordChoiceTest(), judging.Aligner()
        self.backoff = BackoffConfig()
        self.prompts: list[Prompt] = []
        self.references: list[Embedding] = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReferenceWarning)
            for trial in self.trials:
                voice = clone(
                    trial.reference,
                    codec=bundle.codec,
                    identity_encoder=bundle.identity_encoder,
                    style_encoder=bundle.style_encoder,
                )
                text = normalize(trial.text)
                self.prompts.append(build_prompt(text, voice, bundle.tokenizer, bundle.config, bundle.quality))
                self.references.append(voice.identity)

    def check(self, stepper: Stepper, step: int) -> Checkup:
        """Speak and judge every sentence."""
        top_p = self.bundle.sampling.top_p if self.config.top_p is None else self.config.top_p
        rate = self.bundle.codec.spec.patch_rate
        takes = generate(
            guided(stepper, self.bundle.tokenizer, self.bundle.guidance),
            self.prompts,
            top_p=[top_p] * len(self.prompts),
            limits=[self.backoff.limits(normalize(trial.text), rate) for trial in self.trials],
            rngs=[np.random.default_rng(take_seed(self.config.seed, trial.id)) for trial in self.trials],
            sampling=self.bundle.sampling,
        )
        found = [
            self.check_take(trial, reference, take)
            for trial, reference, take in zip(self.trials, self.references, takes, strict=True)
        ]
        return summarize(step, found)

    def check_take(self, trial: Trial, reference: Embedding, take: Generated) -> TakeCheck:
        """One take; where there is no speech, everything is as bad as can be."""
        config = self.bundle.config
        waveform = decode(self.bundle.codec, unpatchify(take.tokens, config.patch_layout, config.codebook_size))
        usual = usual_seconds(trial.text)
        speech = waveform if judge_length(waveform, usual).has_speech else None
        text = plain_words(trial.text)
        words = recognise(self.recogniser, text, speech)
        too_long = judge_length(waveform, usual) is Verdict.TOO_LONG
        return TakeCheck(
            character_errors=words.character_errors,
            characters=words.characters,
            wrong_words=judging.wrong_words(self.word_test, text, speech),
            misfit=judging.misfit(self.aligner, text, speech),
            similarity=NO_SIMILARITY if speech is None else self.similarity(speech, reference),
            length_ratio=waveform.seconds / usual,
            repeats=words.repeats,
            empty=speech is None,
            runaway=too_long or take.stop is StopReason.MAX_PATCHES,
        )

    def similarity(self, speech: Waveform, reference: Embedding) -> float:
        """By the bundle's own identity encoder: cosine to what the model was prompted with."""
        return cosine(self.bundle.identity_encoder.embed(level(speech)), reference)


def summarize(step: int, takes: Sequence[TakeCheck]) -> Checkup:
    """All takes in a line; intervals by bootstrap over sentences."""

    def mean(values: Sequence[float]) -> Interval:
        return interval(values, [1.0] * len(takes))

    cer = interval([take.character_errors for take in takes], [take.characters for take in takes])
    wrong_words, misfit = mean([take.wrong_words for take in takes]), mean([take.misfit for take in takes])
    similarity = mean([take.similarity for take in takes])
    return Checkup(
        step=step,
        cer=cer.value,
        cer_interval=(cer.low, cer.high),
        wrong_words=wrong_words.value,
        wrong_words_interval=(wrong_words.low, wrong_words.high),
        misfit=misfit.value,
        misfit_interval=(misfit.low, misfit.high),
        similarity=similarity.value,
        similarity_interval=(similarity.low, similarity.high),
        length_ratio=float(np.mean([take.length_ratio for take in takes])),
        repetition=float(np.mean([take.repeats for take in takes])),
        failures=float(np.mean([take.failed for take in takes])),
        takes=len(takes),
    )


def interval(above: Sequence[float], below: Sequence[float]) -> Interval:
    """Ratio of two sums over takes."""
    found = ratio_interval(above, below)
    assert found is not None, "a test set has trials, and trials have words"
    return found


def objection(checkup: Checkup, beginning: Checkup) -> str | None:
    """Why a check-up does not count, beside the one that tuning began with; None if it does."""
    lowest = beginning.similarity_interval[0]
    if checkup.similarity < lowest:
        return f"similarity {checkup.similarity:.3f} is below {lowest:.3f}, the interval it began with"
    if checkup.failures > beginning.failures:
        return f"{checkup.failures:.0%} of its takes fail, instead of {beginning.failures:.0%}"
    return None


def best_of(checkups: Sequence[Checkup], by: Scale = Scale.CER) -> Checkup:
    """The best by the rule above, the earlier one of equals; the first of `checkups` is the beginning."""
    counted = [checkup for checkup in checkups if objection(checkup, checkups[0]) is None]
    return min(counted, key=lambda checkup: (getattr(checkup, by.value), checkup.step))


class Guardian:
    """Judges a model in tuning, writes down what was found, and keeps the best weights. A `training.orpo.Judge`."""

    def __init__(self, folder: Path, ward: Ward, say: Callable[[str], None] = print) -> None:
        """`folder` is the run's; what was found there before a stop still counts."""
        self.folder, self.ward, self.say = folder, ward, say
        path = folder / CHECKUPS_FILE
        found: list[Checkup] = read_lines(Checkup, path) if path.is_file() else []
        self.checkups = {checkup.step: checkup for checkup in found}

    def __call__(self, model: Mars6, step: int) -> Mapping[str, float]:
        """Listen to the model as it is at `step`; 0 is the beginning."""
        from marstts.engine.torch import TorchEngine

        checkup = self.ward.check(TorchEngine(model), step)
        self.checkups[step] = checkup
        ordered = [self.checkups[step] for step in sorted(self.checkups)]
        against = objection(checkup, ordered[0])
        if against is not None:
            self.say(f"step {step} does not count: {against}")
        if best_of(ordered, self.ward.config.best_by) is checkup:
            self.keep(model, step)
        write_lines(ordered, self.folder / CHECKUPS_FILE)  # last: a stop before this line makes the check-up again
        names = ("cer", "wrong_words", "misfit", "similarity", "length_ratio", "repetition", "failures")
        return {name: getattr(checkup, name) for name in names}

    @property
    def has_begun(self) -> bool:
        """Whether the model that tuning begins with was listened to."""
        return 0 in self.checkups

    @property
    def best(self) -> Checkup:
        """The best so far."""
        return best_of([self.checkups[step] for step in sorted(self.checkups)], self.ward.config.best_by)

    def keep(self, model: Mars6, step: int) -> None:
        """Write `best/`, which then holds this step alone: the new one is complete before an old one goes."""
        from safetensors.torch import save_file

        from marstts.training.pretrain import AVERAGE, CONFIG_FILE, TOKENIZER_FILE

        best = self.folder / BEST_FOLDER
        best.mkdir(exist_ok=True)
        for name in (CONFIG_FILE, TOKENIZER_FILE):
            shutil.copyfile(self.folder / name, best / name)
        temporary, final = best / f".step-{step:08d}.tmp", best / f"step-{step:08d}"
        for stale in (temporary, final):
            shutil.rmtree(stale, ignore_errors=True)
        temporary.mkdir()
        weights = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
        save_file(weights, temporary / f"{AVERAGE}.safetensors")
        (temporary / "state.json").write_text(json.dumps({"step": step}) + "\n", encoding="utf-8")
        temporary.rename(final)
        for old in best.glob("step-*"):
            if old != final:
                shutil.rmtree(old)
