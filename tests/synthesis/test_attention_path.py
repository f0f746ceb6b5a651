"""The path of a take through its text, from attention that a test draws."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from marstts.synthesis.words.attention_path import PathSearch, PlaceKind, SentencePlaces, cut_places, search_path

SENTENCE = "Nobody, he said, came."


def character_spans(sentence: str, before: int = 2) -> np.ndarray:
    """A token for every character, `before` marks in front and one behind."""
    inside = np.stack([np.arange(len(sentence)), np.arange(len(sentence)) + 1], axis=1)
    return np.concatenate([np.full((before, 2), -1), inside, np.full((1, 2), -1)])


def places_of(sentence: str = SENTENCE) -> SentencePlaces:
    return SentencePlaces.of(sentence, character_spans(sentence))


def steps_at(places: SentencePlaces, visited: list[int], sharpness: float = 0.8) -> list[np.ndarray]:
    """Attention (S,) that lies on one place after the other, the rest of it everywhere."""
    size = len(places.membership)
    steps = []
    for place in visited:
        tokens = places.membership[:, place] > 0
        steps.append(np.where(tokens, sharpness / max(1, tokens.sum()), 0.0) + (1 - sharpness) / size)
    return [step.astype(np.float32) for step in steps]


def test_a_sentence_is_cut_into_start_words_marks_and_end():
    kinds = [(place.kind.value, SENTENCE[place.start : place.end]) for place in cut_places(SENTENCE)]
    assert kinds == [
        ("start", ""), ("word", "Nobody"), ("mark", ","), ("word", "he"), ("word", "said"), ("mark", ","),
        ("word", "came"), ("mark", "."), ("end", ""),
    ]  # fmt: skip


def test_every_text_token_belongs_to_one_place():
    places = places_of()
    assert (places.membership.sum(axis=1) == 1).all()
    assert [places.places[int(row.argmax())].kind for row in places.membership[[0, 1, -1]]] == [
        PlaceKind.START, PlaceKind.START, PlaceKind.END,
    ]  # fmt: skip


def test_tokens_of_a_transcript_belong_to_the_start():
    places = SentencePlaces.of("he came.", character_spans("he came.", before=30))
    assert places.membership[:30, 0].all()


def test_the_path_of_sharp_attention_is_the_places_it_lies_on():
    places = places_of()
    visited = [0, 1, 1, 1, 2, 3, 4, 4, 6, 6, 8]
    assert search_path(places, steps_at(places, visited)).path.tolist() == visited


def test_one_step_that_looks_elsewhere_does_not_move_the_path():
    places = places_of()
    visited = [1, 1, 6, 1, 3, 4, 4, 3, 4, 6, 8]
    assert search_path(places, steps_at(places, visited, sharpness=0.5)).path.tolist() == [
        1, 1, 1, 1, 3, 4, 4, 4, 4, 6, 8,
    ]  # fmt: skip


def test_the_search_finds_the_best_of_all_paths():
    places = places_of("he came")
    rng = np.random.default_rng(0)
    steps = list(rng.dirichlet(np.full(len(places.membership), 0.2), size=5).astype(np.float32))
    attention = np.log(np.maximum(np.stack(steps) @ places.membership, 1e-2))

    def score(path: tuple[int, ...]) -> float:
        moves = zip((0, *path), path, strict=False)
        return sum(attention[step, place] for step, place in enumerate(path)) - sum(
            places.prices[before, after] for before, after in moves
        )

    best = max(product(range(len(places.places)), repeat=len(steps)), key=score)
    assert search_path(places, steps).path.tolist() == list(best)


def test_a_search_continued_step_by_step_equals_a_whole_one():
    places = places_of()
    steps = steps_at(places, [0, 1, 1, 3, 4, 6, 8], sharpness=0.6)
    search = PathSearch.begin(places)
    for step in steps:
        search = search.after([step])
    assert search.path.tolist() == search_path(places, steps).path.tolist()


@pytest.mark.parametrize("piece", [1, 2, 7, 30])
def test_a_step_has_the_same_attention_to_each_place_whichever_steps_come_with_it(piece: int):
    """A stream follows a take in pieces: its words are those of the whole take, to the last bit."""
    text = "A rather long sentence, with words of many tokens each, is followed in pieces."
    places = places_of(text)
    rng = np.random.default_rng(0)
    steps = [rng.dirichlet(np.full(len(places.spans), 0.1)).astype(np.float32) for _ in range(60)]
    whole, search = search_path(places, steps), PathSearch.begin(places)
    for first in range(0, len(steps), piece):
        search = search.after(steps[first : first + piece])
    np.testing.assert_array_equal(search.attention, whole.attention)
    np.testing.assert_array_equal(search.scores, whole.scores)
