"""A sentence as a state machine: which attempts follow a take, and which take is kept."""

from __future__ import annotations

import numpy as np
import pytest

from marstts.audio import Waveform
from marstts.generation.request import StopReason
from marstts.synthesis.backoff import BackoffConfig
from marstts.synthesis.repair import DIVIDED, OTHER_SEED
from marstts.synthesis.sentence import REPAIR_SEEDS, Attempt, Delivery, Sentence
from marstts.synthesis.speech import Take
from marstts.synthesis.words.flaws import FlawKind, TakeFlaw
from marstts.text.segments import Segment

TEXT = "the cat sat on the mat, and she sold sea shells by the shore."
BACKOFF = BackoffConfig(attempts=3)
FLAW = TakeFlaw(FlawKind.SKIPPED, "cat", 0.2)


def sentence(text: str = TEXT) -> Sentence:
    return Sentence(Segment(text=text), 0.2, (7, 4), BACKOFF)


def take(attempt: Attempt, outcome: str) -> Take:
    """A take that is good, too short, has a flawed word, is a question that stays level, or unclear: `unclear-0.9`."""
    name, _, nats = outcome.partition("-")
    seconds = 0.1 if outcome == "short" else BACKOFF.usual(attempt.segment.text)
    return Take(
        text=attempt.segment.text,
        codes=(np.arange(round(12 * seconds)),),
        waveform=Waveform(np.full(round(8000 * seconds), 0.1, np.float32), 8000),
        stop=StopReason.EOS,
        top_p=attempt.top_p,
        flaws=(FLAW,) if outcome == "flawed" else (),
        is_level=outcome == "level",
        goodness=-float(nats) if name == "unclear" else None,
    )


def run(outcomes: str, text: str = TEXT, of_parts: str = "good") -> tuple[list[Attempt], Take]:
    """Every attempt where takes turn out like this, the last outcome repeated; and the take that is kept."""
    state, made, names = sentence(text), [], outcomes.split()
    waiting = [state.start()]
    while waiting:
        attempt = waiting.pop(0)
        made.append(attempt)
        outcome = of_parts if attempt.part is not None else names[min(len(made), len(names)) - 1]
        following = state.advance(attempt, take(attempt, outcome))
        if isinstance(following, Take):
            assert not waiting
            return made, following
        waiting += following
    raise AssertionError("no take was kept")


@pytest.mark.parametrize(("outcomes", "attempts"), [("good", 1), ("short good", 2), ("flawed short good", 3)])
def test_the_first_acceptable_take_is_kept(outcomes: str, attempts: int) -> None:
    made, kept = run(outcomes)
    assert [(attempt.top_p, attempt.seed) for attempt in made] == [
        (0.2, (7, 4, 0)), (0.4, (7, 4, 1)), (0.6, (7, 4, 2)),
    ][:attempts]  # fmt: skip
    assert (kept.attempts, kept.warning, kept.repaired) == (attempts, None, None)
    assert [len(attempt.rejected) for attempt in made] == list(range(attempts))


@pytest.mark.parametrize(("outcomes", "attempts"), [("flawed flawed flawed good", 4), ("flawed " * 4 + "good", 5)])
def test_flawed_words_are_spoken_with_other_seeds(outcomes: str, attempts: int) -> None:
    made, kept = run(outcomes)
    assert len(made) == attempts and kept.repaired == OTHER_SEED and kept.warning is None
    assert {attempt.top_p for attempt in made[3:]} == {0.2} and len({attempt.seed for attempt in made}) == attempts


def test_then_the_sentence_is_divided_and_its_parts_are_joined() -> None:
    made, kept = run("flawed")
    whole, parts = made[: 3 + REPAIR_SEEDS], made[3 + REPAIR_SEEDS :]
    assert {attempt.part for attempt in whole} == {None} and [attempt.part for attempt in parts] == [0, 1]
    assert " ".join(attempt.segment.text for attempt in parts) == TEXT
    assert kept.repaired == DIVIDED and kept.flaws == () and kept.attempts == len(made)


@pytest.mark.parametrize(("outcomes", "text"), [("short", TEXT), ("flawed", "she sat."), ("flawed", TEXT)])
def test_where_nothing_helps_the_best_take_is_kept_with_a_warning(outcomes: str, text: str) -> None:
    _, kept = run(outcomes, text, of_parts="flawed")
    assert kept.warning is not None and kept.repaired is None and kept.text == text


@pytest.mark.parametrize("before", ["", "short", "short flawed"])
@pytest.mark.parametrize("outcome", ["good", "short", "flawed"])
@pytest.mark.parametrize("delivery", [Delivery.CHECKED, Delivery.UNCHECKED])
def test_no_attempt_follows_a_take_of_which_something_was_sent(before: str, outcome: str, delivery: Delivery) -> None:
    state = sentence()
    attempt = state.start()
    for name in before.split():
        following = state.advance(attempt, take(attempt, name))
        assert not isinstance(following, Take)
        [attempt] = following
    kept = state.advance(attempt, take(attempt, outcome), delivery)
    assert isinstance(kept, Take) and kept.attempts == len(before.split()) + 1
    assert (kept.warning is not None) == (outcome != "good" and delivery is Delivery.CHECKED)


def test_only_attempts_that_another_one_follows_may_be_given_up() -> None:
    made, _ = run("flawed")
    assert [attempt.may_give_up for attempt in made[:5]] == [True, True, False, False, False]


@pytest.mark.parametrize(
    ("outcomes", "attempts", "kept_attempt"),
    [
        ("level good", 2, 1), ("level level good", 3, 2), ("level", 3, 0), ("short level", 3, 1),
        ("level flawed", 3, 0), ("flawed flawed level", 3, 2),
    ],
)  # fmt: skip
def test_a_question_that_stays_level_is_asked_again_and_kept_without_warning(
    outcomes: str, attempts: int, kept_attempt: int
) -> None:
    made, kept = run(outcomes)
    assert len(made) == attempts and kept.attempts == attempts and kept.warning is None
    assert kept.top_p == made[kept_attempt].top_p and not kept.flaws


@pytest.mark.parametrize("outcome", ["level", "unclear-0.9"])
@pytest.mark.parametrize("delivery", [Delivery.CHECKED, Delivery.UNCHECKED])
def test_a_level_or_unclear_take_whose_beginning_was_sent_is_kept_as_it_is(delivery: Delivery, outcome: str) -> None:
    state = sentence()
    attempt = state.start()
    kept = state.advance(attempt, take(attempt, outcome), delivery)
    assert isinstance(kept, Take) and kept.attempts == 1 and kept.warning is None


@pytest.mark.parametrize("outcome", ["level", "unclear-0.9"])
def test_with_one_attempt_a_level_or_unclear_take_is_kept(outcome: str) -> None:
    backoff = BackoffConfig(question_attempts=1, clearness_attempts=1)
    state = Sentence(Segment(text=TEXT), 0.2, (7, 4), backoff)
    attempt = state.start()
    assert isinstance(state.advance(attempt, take(attempt, outcome)), Take)


@pytest.mark.parametrize(
    ("outcomes", "attempts", "kept_attempt"),
    [
        ("unclear-0.9 good", 2, 1), ("unclear-0.9 unclear-0.1", 2, 1), ("unclear-0.9 unclear-0.7 unclear-0.8", 3, 1),
        ("unclear-0.9 unclear-0.9 unclear-0.9", 3, 0), ("short unclear-0.9 unclear-0.8", 3, 2),
        ("unclear-0.9 flawed flawed", 3, 0), ("level unclear-0.9 level", 3, 1),
    ],
)  # fmt: skip
def test_an_unclear_sentence_is_spoken_again_and_the_clearest_take_is_kept(
    outcomes: str, attempts: int, kept_attempt: int
) -> None:
    made, kept = run(outcomes)
    assert len(made) == attempts and kept.attempts == attempts and kept.warning is None
    assert kept.goodness == take(made[0], outcomes.split()[kept_attempt]).goodness


def test_top_p_rises_with_refused_takes_only() -> None:
    made, _ = run("unclear-0.9 short unclear-0.9")
    assert [attempt.top_p for attempt in made] == [0.2, 0.2, 0.4] and len({attempt.seed for attempt in made}) == 3


@pytest.mark.parametrize("outcome", ["good", "unclear-0.9"])
def test_a_sound_take_of_a_repair_says_so(outcome: str) -> None:
    made, kept = run(f"flawed flawed flawed {outcome}")
    assert len(made) == 4 and kept.repaired == OTHER_SEED


def test_joined_parts_have_no_goodness() -> None:
    _, kept = run("flawed", of_parts="unclear-0.1")
    assert kept.repaired == DIVIDED and kept.goodness is None
