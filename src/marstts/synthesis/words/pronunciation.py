"""Goodness of pronunciation: how well the sounds of a take agree with the words of its sentence.

Upstream: log-probabilities of phones by the codec's recognizer (`codec.base.PhoneRecognizingCodec`).
Downstream: `model_session`, whose takes that are unclear are sampled again.
After S. Witt and S. Young, "Phone-level pronunciation scoring and assessment" (Speech Communication 30, 2000), with
CTC's states in place of a hidden Markov model's: the log-probability of the best path through the expected phones, less
that of the best path through any phones. It is 0 where every sound is what the text says, and negative otherwise.
Shapes: T positions · K labels, the blank first · N expected phones · S = 2 N + 1 states of CTC.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from marstts.text.phones import LABELS, VOWELS, as_phones
from marstts.text.pronunciation.letters_to_sounds import guess
from marstts.text.pronunciation.words import known_phones, phones_in_context, word_pieces

UNSTRESSED = ("AH", "IH", "UH", "EH", "ER", "IY")
"""Vowels without stress that stand for one another."""

FUNCTION_WORDS = frozenset(
    (  # noqa: SIM905
        "a an and are as at be been by can could do does for from had has have he her him his i in is it its may might "
        "must my nor of on or our shall she should so some than that the their them then there they this to us was we "
        "were what when which who will with would you your"
    ).split()
)
"""Words with weak forms, any vowel of which is accepted, as one of a heteronym is."""

_LABEL = {phone: number for number, phone in enumerate(LABELS, start=1)}
_NEVER = -1e9


@dataclass(frozen=True)
class SpokenWord:
    """A word of a text and its phones."""

    text: str
    phones: tuple[str, ...]
    """ARPAbet with stress."""

    varies: bool
    """Whether its vowels depend on the context."""


def spoken_phones(text: str) -> Iterator[SpokenWord]:
    """The words of a normalized text; those that nothing has a pronunciation of have no phones."""
    for word, start, given in word_pieces(text):
        if given:
            yield SpokenWord(word, tuple(as_phones(given)), varies=False)
            continue
        known, phones = known_phones(word), phones_in_context(word, text, start)
        if phones is None and known is not None:
            yield SpokenWord(word, known.phones, varies=True)
        else:
            yield SpokenWord(word, phones or guess(word) or (), varies=word.lower() in FUNCTION_WORDS)


def accepted_labels(words: Sequence[SpokenWord]) -> list[tuple[int, ...]]:
    """The labels that are accepted for each expected phone."""
    return [accepted(phone, varies=word.varies) for word in words for phone in word.phones]


def accepted(phone: str, *, varies: bool) -> tuple[int, ...]:
    """The labels that are accepted for a phone of ARPAbet with stress."""
    name = phone.rstrip("012")
    if name in VOWELS and varies:
        return tuple(_LABEL[vowel] for vowel in VOWELS)
    if phone.endswith("0") and name in UNSTRESSED:
        return tuple(_LABEL[vowel] for vowel in UNSTRESSED)
    return (_LABEL[name],)


def goodness(log_probs: NDArray[np.float32], labels: Sequence[Sequence[int]]) -> float:
    """Nats of an expected phone by which a take falls short of its text, at most 0.

    log_probs (T, K); `labels`: those that are accepted for each of N > 0 phones. The worst where T < N. Where neighbors
    accept several labels, one sound may stand for both.
    """
    below_best = log_probs - log_probs.max(axis=1, keepdims=True)
    emitted = np.empty((len(log_probs), 2 * len(labels) + 1))
    emitted[:, ::2] = below_best[:, :1]
    for place, accepting in enumerate(labels):
        emitted[:, 2 * place + 1] = below_best[:, list(accepting)].max(axis=1)
    may_skip = np.zeros(emitted.shape[1], bool)  # the blank between two phones, which one label needs to come twice
    may_skip[3::2] = [len({*one, *other}) > 1 for one, other in pairwise(labels)]
    reached = np.full(emitted.shape[1], _NEVER)
    reached[:2] = 0.0
    for step, emission in enumerate(emitted):
        if step:
            advanced = np.concatenate([[_NEVER], reached[:-1]])
            skipped = np.where(may_skip, np.concatenate([[_NEVER, _NEVER], reached[:-2]]), _NEVER)
            reached = np.maximum(reached, np.maximum(advanced, skipped))
        reached = reached + emission
    return float(max(reached[-2:].max(), _NEVER)) / len(labels)
