"""Fine-tuning that keeps a step only if it speaks better: words and voice of takes, measured at every validation.

A step counts if its voice is nearer to the speaker than that of the initial model and its words are no worse. Of those
that count, the one with the nearest voice is kept, as checkpoint `kept/`. Other takes of both models then confirm the
choice, for the best of many steps is partly luck.

Upstream: a `TakeEvaluator` (`evaluation.finetuning`), since this module scores no speech.  Downstream: `finetune`.
In the run folder: `validation.jsonl`, one line per step.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from torch import nn

from marstts.io.config import Config
from marstts.io.jsonl import read_rows, write_rows
from marstts.text.tokenizers.bpe import BPE
from marstts_lab.data.corpus import Corpus
from marstts_lab.training.checkpoint import Weights, save
from marstts_lab.training.mars6.config import PretrainConfig
from marstts_lab.training.mars6.run_folder import EMA
from marstts_lab.training.mars6.task import PretrainTask

VALIDATION_FILE = "validation.jsonl"
KEPT = "kept"
"""Checkpoint of the best step so far."""

MAX_WORD_RISE = 0.01
"""Word errors of a step are no worse if they rise by at most this much."""

CONFIRMING_SEED = 1
"""Seed of the takes that confirm the choice; those of the validations have seed 0."""

logger = logging.getLogger(__name__)


class StepScores(Config):
    """Words and voice of a model's takes; a line of `validation.jsonl`."""

    step: int
    takes: int
    words_by: str
    """Recognizer, or the other means that counted the errors."""

    word_errors: float
    """Errors per unit: characters of a recognizer's transcript, else words."""

    similarity: float
    """Cosine of the takes and the speaker's held-out recordings."""

    def is_better_than(self, initial: StepScores) -> bool:
        """Whether the voice is nearer and the words are no worse."""
        words_hold = self.word_errors <= initial.word_errors + MAX_WORD_RISE
        return words_hold and self.similarity > initial.similarity


class TakeEvaluator(Protocol):
    """Measures takes of held-out sentences."""

    def __call__(self, model: nn.Module, step: int, seed: int = 0) -> StepScores:
        """Words and voice of a model in evaluation mode; equal seeds give equal takes."""
        ...

    def ceiling(self) -> StepScores:
        """Words and voice of the held-out recordings after the codec: what the codec leaves of them."""
        ...


class OpenEvaluator(Protocol):
    """Makes the evaluator of a corpus; raises MissingExtraError or CheckpointError before any training."""

    def __call__(self, base: str, corpus: Corpus, /) -> TakeEvaluator: ...


def best_step(scores: Sequence[StepScores]) -> StepScores | None:
    """The step with the nearest voice whose words are no worse, the earlier of equals; None where none is better.

    The first of `scores` is the initial model.
    """
    better = [one for one in scores[1:] if one.is_better_than(scores[0])]
    return max(better, key=lambda one: (one.similarity, -one.step), default=None)


class FineTuneTask(PretrainTask):
    """Pretraining whose validations measure takes, too."""

    def __init__(
        self,
        config: PretrainConfig,
        corpus: Corpus,
        tokenizer: BPE,
        folder: Path,
        evaluator: TakeEvaluator,
        initial: nn.Module,
    ) -> None:
        """Measure the initial model, unless the run folder has it; scores by another recognizer are dropped."""
        super().__init__(config, corpus, tokenizer)
        self.folder, self.evaluator = folder, evaluator
        path = folder / VALIDATION_FILE
        found = {one.step: one for one in read_rows(StepScores, path)} if path.is_file() else {}
        first = found.get(0)
        if first is None or first.words_by != evaluator.ceiling().words_by:
            found = {0: evaluator(initial, 0)}
            write_rows(path, found.values())
        self.step_scores = found

    @property
    def ordered(self) -> list[StepScores]:
        """All scores by step."""
        return [self.step_scores[step] for step in sorted(self.step_scores)]

    def validate(self, step: int) -> dict[str, float]:
        """Losses, and words and voice of takes; writes `kept/` where the step is the best so far."""
        scores = super().validate(step)
        found = self.step_scores[0] if step == 0 else self.evaluator(self.ema, step)
        self.step_scores[step] = found
        if best_step(self.ordered) is found:
            save(Weights({EMA: self.ema}), self.folder, step, name=KEPT)
        write_rows(self.folder / VALIDATION_FILE, self.ordered)  # last: a run killed before this line validates again
        return scores | {"word_errors": found.word_errors, "similarity": found.similarity}


@dataclass(frozen=True)
class FineTuned:
    """The outcome: the initial model and a step of the fine-tuning, by the same takes."""

    before: StepScores
    after: StepScores | None
    """The kept step, or where none is better the one with the nearest voice; None where none was validated."""

    ceiling: StepScores
    helped: bool
    """Whether `after` is in the bundle; the initial model is if not."""

    @property
    def table(self) -> str:
        """Words and voice before and after, and of the recordings after the codec."""
        rows = [("recordings after the codec", self.ceiling), ("before", self.before)]
        rows += [] if self.after is None else [(f"after, step {self.after.step}", self.after)]
        lines = [f"{'':26}  word errors  similarity"]
        lines += [f"{name:26}  {one.word_errors:11.3f}  {one.similarity:10.3f}" for name, one in rows]
        lines.append(f"{self.before.takes} takes of held-out sentences; words by {self.before.words_by}")
        return "\n".join([*lines, *self.notes])

    @property
    def notes(self) -> list[str]:
        """Sentences that explain a row of the recordings that is worse than those of takes."""
        rows = [self.before, *([] if self.after is None else [self.after])]
        notes = []
        if self.ceiling.similarity < max(one.similarity for one in rows):
            notes.append(
                "The recordings after the codec are less similar than takes: similarity is to the mean of the "
                "speaker's recordings. Each recording differs from it and loses some of the voice in the codec; takes "
                "are made from an embedding of the voice, and lie nearer to the mean. A higher similarity than that of "
                "the recordings is no better voice: listen."
            )
        if self.ceiling.word_errors > min(one.word_errors for one in rows) + MAX_WORD_RISE:
            notes.append(
                "The recordings after the codec have more word errors than takes: the codec does not carry this voice "
                "well, or the texts are not what is said; training on them makes words worse."
            )
        return notes

    @property
    def summary(self) -> str:
        """One sentence: which weights are in the bundle, and why."""
        if self.after is None:
            return "no step was validated yet: the bundle has the initial model; run the same command again to resume"
        if self.helped:
            return f"step {self.after.step} was kept: its voice is nearer, and its words are no worse"
        if self.after.similarity <= self.before.similarity:
            return "fine-tuning did not help: no step has a nearer voice; the bundle has the initial model"
        return (
            "fine-tuning did not help: the voice is nearer only where the words are worse; the bundle has the initial "
            "model"
        )
