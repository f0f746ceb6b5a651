"""Train the model that tells how a word is used in a sentence (marstts.text.pronunciation.uses).

Usage: python recipes/pronunciations/uses.py OUTPUT TEXTS [TEXTS ...]
    OUTPUT: src/marstts/text/pronunciation/data/uses.xz
    TEXTS: English sentences, one a line, or after the last tab of a line; .gz as well; or a manifest (.jsonl)
Needs spaCy and en_core_web_sm (MIT), whose tags are the labels; two minutes of a core for 100,000 sentences.

Contexts are learnt from all nouns, adjectives and verbs with the word itself left out, each use weighted alike, and
for the tense from composed sentences as well; then each heteronym gets a weight of its own for each use, from the
sentences that have it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marstts.text.pronunciation import heteronyms
from marstts.text.pronunciation.uses import (
    HASH_BITS,
    STEPS_PER_NAT,
    TABLES,
    TOKEN,
    USES,
    Use,
    ends_with_s,
    far_features,
    features,
    place_of,
    tokens_around,
)

TAGS: dict[str, Use] = {
    **dict.fromkeys(("NN", "NNS"), "noun"),
    "JJ": "adjective",
    **dict.fromkeys(("VB", "VBP", "VBZ"), "verb"),
    **dict.fromkeys(("VBD", "VBN"), "past"),
}
"""The tags of the Penn Treebank that are uses."""

NOUN, ADJECTIVE, VERB, PAST, TENSE, NONE = range(TABLES + 1)
"""Tables."""

AUXILIARIES = frozenset("be am is are was were been have has had do does did done 's 're 've not".split())  # noqa: SIM905
"""Left out: what is around them tells nothing of other verbs."""

MIN_COUNT = 3
"""Occurrences of a feature in the training."""

EPOCHS, BATCH, LEARNING_RATE, TENSE_RATE, DECAY = 3, 256, 0.05, 0.2, 1e-3
PRIOR = 0.5
"""Of a heteronym's own weights, as their variance in squared nats."""

KEPT_ASIDE = 20
"""One in so many sentences is not trained on, but rated."""


SUBJECTS = ("I", "we", "you", "they", "people", "my friends", "the children", "some of us")
OBJECTS = ("it", "the book", "that story", "a lot", "in bed", "to them", "the news at home", "this letter aloud")
TIMES: dict[Use, tuple[str, ...]] = {
    "past": (
        "yesterday", "last night", "last week", "last year", "a month ago", "two days ago", "on Monday", "in 1990",
        "when I was young", "while she was away", "as soon as it arrived", "and laughed", "before he came",
    ),
    "verb": (
        "every day", "every week", "each morning", "usually", "often", "always", "sometimes", "today", "on Mondays",
        "when we travel", "as soon as it arrives", "and laugh", "before he comes", "if you can", "because it is good",
    ),
}  # fmt: skip


class Example(NamedTuple):
    """A word in its context."""

    word: str
    use: Use
    has_s: bool
    features: list[str]
    far: Sequence[str] = ()


def sentences(path: Path) -> Iterator[str]:
    """The sentences of a file."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)["text"] if ".jsonl" in path.suffixes else line.rstrip("\n").rpartition("\t")[2]


def examples(text: str, tags: dict[tuple[int, int], str]) -> Iterator[Example]:
    """The words of a sentence whose use the tags tell; `tags`: by first character and last + 1."""
    for token in TOKEN.finditer(text):
        word, use = token[0].lower(), TAGS.get(tags.get(token.span(), ""))
        if use is not None and word.isalpha() and word not in AUXILIARIES:
            stem = word[:-1] if word.endswith("s") and word not in heteronyms.table() else word
            tokens, place = tokens_around(text, token.start())
            yield Example(stem, use, ends_with_s(word), features(stem, tokens, place), far_features(tokens, place))


def read_examples(texts: Sequence[str], tagger_name: str) -> list[list[Example]]:
    """The examples of each sentence."""
    import spacy  # needed for labels alone

    tagger = spacy.load(tagger_name, exclude=["parser", "ner", "lemmatizer"])
    return [
        list(examples(document.text, {(token.idx, token.idx + len(token)): token.tag_ for token in document}))
        for document in tagger.pipe(texts, batch_size=256)
    ]


def tenses() -> Iterator[Example]:
    """Composed sentences whose time tells the tense: the corpora have few of them."""
    for who in SUBJECTS:
        for what in OBJECTS:
            for use, times in TIMES.items():
                for when in times:
                    said = f"{who} read {what}"
                    for text in (f"{said} {when}.", f"{when}, {said}.", f"{when} {said}."):
                        tokens, place = tokens_around(text, text.index("read "))
                        yield Example("read", use, False, features("read", tokens, place), far_features(tokens, place))


class Weights:
    """Tables of weights (TABLES + 1, 2 ** HASH_BITS + 1) while they are trained; rare features share the last place.

    The last table is that of no weights, with which the one of tense is compared.
    """

    def __init__(self) -> None:
        self.values = np.zeros((TABLES + 1, (1 << HASH_BITS) + 1))
        self.squares = np.ones_like(self.values)

    def scores(self, places: NDArray[np.int32], tables: Sequence[int]) -> NDArray[np.float64]:
        """places (N, F) -> (N, tables)."""
        return np.stack([self.values[number][places].sum(axis=1) for number in tables], axis=1)

    def train(
        self, places: NDArray[np.int32], targets: NDArray[np.int64], tables: Sequence[int], trained: Sequence[int],
        rate: float = LEARNING_RATE,
    ) -> None:  # fmt: skip
        """Logistic regression by AdaGrad, each target weighted alike; places (N, F), targets (N,) are tables."""
        counts = np.bincount(targets, minlength=TABLES + 1)
        weight = (len(targets) / len(tables) / np.maximum(counts, 1))[targets].clip(0, 10)
        order = np.random.default_rng(0)
        for _ in range(EPOCHS):
            for batch in np.array_split(order.permutation(len(targets)), max(1, len(targets) // BATCH)):
                wrong = softmax(self.scores(places[batch], tables)) - (targets[batch, None] == np.array(tables))
                self.step(places[batch], wrong * weight[batch, None], tables, trained, rate)

    def step(
        self, places: NDArray[np.int32], wrong: NDArray[np.float64], tables: Sequence[int], trained: Sequence[int],
        rate: float,
    ) -> None:  # fmt: skip
        """One step down the gradient of the scores (N, tables)."""
        touched, inverse = np.unique(places, return_inverse=True)
        for number in trained:
            of_scores = np.repeat(wrong[:, list(tables).index(number)], places.shape[1])
            gradient = np.bincount(inverse.ravel(), of_scores, len(touched)) + DECAY * self.values[number, touched]
            self.squares[number, touched] += gradient**2
            self.values[number, touched] -= rate * gradient / np.sqrt(self.squares[number, touched])
        self.values[:, -1] = 0.0


def padded(rows: Sequence[Sequence[int]]) -> NDArray[np.int32]:
    """(N, F) places of features, at the end the last place as often as needed."""
    longest = max(map(len, rows))
    return np.array([[*row, *[-1] * (longest - len(row))] for row in rows], dtype=np.int32)


def softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """(N, K) -> (N, K)."""
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    found: NDArray[np.float64] = powers / powers.sum(axis=1, keepdims=True)
    return found


def train(from_texts: Sequence[Example]) -> Weights:
    """The weights of contexts."""
    found = [*from_texts, *tenses()]
    counts = Counter(feature for each in found for feature in (*each.features[:-1], *each.far))
    frequent = {feature: place_of(feature) for feature, count in counts.items() if count >= MIN_COUNT}
    places = padded([[frequent.get(f, -1) for f in each.features[:-1]] for each in found])
    all_places = padded([[frequent.get(f, -1) for f in (*each.features[:-1], *each.far)] for each in found])
    uses = np.array([USES.index(each.use) for each in found])
    has_s = np.array([each.has_s for each in found])
    weights = Weights()
    for chosen, tables, trained in (
        (~has_s & (uses != PAST), [NOUN, ADJECTIVE, VERB], [NOUN, ADJECTIVE, VERB]),
        (has_s & (uses != ADJECTIVE) & (uses != PAST), [NOUN, VERB], [NOUN, VERB]),
        (~has_s & (uses != VERB), [NOUN, ADJECTIVE, PAST], [PAST]),
    ):
        weights.train(places[chosen], uses[chosen], tables, trained)
    verbal = ~has_s & ((uses == VERB) | (uses == PAST))
    weights.train(all_places[verbal], np.where(uses[verbal] == PAST, TENSE, NONE), [NONE, TENSE], [TENSE], TENSE_RATE)
    return weights


def add_words(weights: Weights, found: Sequence[Example]) -> None:
    """Weights of the heteronyms themselves: logistic regression on what contexts leave open."""
    by_feature: dict[str, list[Example]] = defaultdict(list)
    for each in found:
        if each.word in heteronyms.table() and each.use != "past":
            by_feature[each.features[-1]].append(each)
    for feature, its in by_feature.items():
        heteronym = heteronyms.table()[its[0].word]
        possible = [number for number in (NOUN, ADJECTIVE, VERB) if heteronym.phones(USES[number])]
        its = [each for each in its if USES.index(each.use) in possible]
        scores = weights.scores(padded([[place_of(f) for f in each.features[:-1]] for each in its]), possible)
        wanted = np.array([[USES.index(each.use) == number for number in possible] for each in its])
        own = np.zeros(len(possible))
        for _ in range(200 if its else 0):
            gradient = (wanted - softmax(scores + own)).sum(axis=0) - own / PRIOR
            own += gradient / (0.25 * len(its) + 1 / PRIOR)
        weights.values[possible, place_of(feature)] = own
        weights.values[PAST, place_of(feature)] = weights.values[VERB, place_of(feature)]


def print_accuracy(weights: Weights, found: Sequence[Example]) -> None:
    """How often verbs kept aside are told from nouns and adjectives, and past forms from others."""
    tense = [each for each in found if each.use in ("verb", "past") and not each.has_s]
    others = [each for each in found if each.use != "past"]
    for name, its, tables in (("use", others, [NOUN, ADJECTIVE, VERB]), ("tense", tense, [NONE, TENSE])):
        read = [[*each.features, *(each.far if name == "tense" else ())] for each in its]
        best = weights.scores(padded([[place_of(f) for f in each] for each in read]), tables).argmax(axis=1)
        is_verbal = np.array([each.use == ("past" if name == "tense" else "verb") for each in its])
        is_right = (best == len(tables) - 1) == is_verbal
        print(f"{name}: {is_right[is_verbal].mean():.3f} of {is_verbal.sum()} verbs or past forms kept aside, ", end="")
        print(f"{is_right[~is_verbal].mean():.3f} of {(~is_verbal).sum()} others")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("texts", type=Path, nargs="+")
    parser.add_argument("--tagger", default="en_core_web_sm", help="a pipeline of spaCy")
    options = parser.parse_args()
    texts = list(dict.fromkeys(text for path in options.texts for text in sentences(path)))
    by_sentence = read_examples(texts, options.tagger)
    kept = [each for number, its in enumerate(by_sentence) if number % KEPT_ASIDE == 0 for each in its]
    weights = train([each for number, its in enumerate(by_sentence) if number % KEPT_ASIDE for each in its])
    print_accuracy(weights, kept)
    add_words(weights, [each for its in by_sentence for each in its])
    steps = np.clip(np.round(weights.values[:TABLES, :-1] * STEPS_PER_NAT), -127, 127).astype(np.int8)
    options.output.write_bytes(lzma.compress(steps.tobytes(), preset=9 | lzma.PRESET_EXTREME))
    print(f"{options.output}: {options.output.stat().st_size} bytes")


if __name__ == "__main__":
    main()
