"""Finds other letters for the noun and for the verb of heteronyms, such as "record", and writes them into a bundle.

Usage: python recipes/mini/heteronyms.py BUNDLE STATE REFERENCE [REFERENCE ...] --whisper MODEL [--write]

BUNDLE, STATE and REFERENCE are those of `respellings.py`, whose search this is, with another measure: a take is right
where its sounds are nearer to the phones of its use than to those of the other one. Heteronyms that differ in stress
alone ("an insult", "to insult") are left out, for the phone recognizer has no stress. Weak vowels of a spelling may be
others than the word's. A use keeps its letters where Whisper (MODEL: tiny.en, or a folder) writes the word less often
with the new ones. With --write, what was found joins `respellings` of bundle.json. About
0.1 s of a core for a take, and 110 takes for a use that is said wrongly.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from reading_model import letters_of, sequences
from respellings import BATCH

import marstts
from marstts.bundle import read_info, write_info
from marstts.codec.base import PhoneRecognizingCodec
from marstts.synthesis.backoff import BackoffConfig
from marstts.synthesis.words.pronunciation import UNSTRESSED, accepted, goodness, spoken_phones
from marstts.text.phones import LABELS
from marstts.text.pronunciation.heteronyms import table
from marstts.text.pronunciation.letters_to_sounds import guess
from marstts.text.pronunciation.uses import Use
from marstts.text.pronunciation.words import phones_of
from marstts_lab.metrics.recognition import FasterWhisperRecognizer, Recognizer

SENTENCES: dict[Use, tuple[str, str]] = {
    "noun": ("This is the {}.", "We saw their {} today."),
    "verb": ("They {} it.", "You should {} them now."),
}
FIRST_TAKES, SPELLING_TAKES, LAST_TAKES = 6, 4, 8
FIRST, SPELLING, HOPEFUL_AGAIN, LAST, BY_WHISPER = range(1, 6)
"""Rounds."""

MAX_SPELLINGS, MAX_RELAXED, HOPEFUL = 6, 8, 3
"""Spellings that are read as the word's phones, those with other weak vowels, and those that are spoken again."""

PREFIXES = tuple("trans over com con dis mis per pre pro sub sur ab ad at de ex im in ob re".split())  # noqa: SIM905
"""Parts of words after which a hyphen is a spelling, too: "pro-test"."""

WEAK = tuple(vowel for vowel in UNSTRESSED if vowel != "ER")
"""Vowels without stress that stand for one another; "ER" does not: Whisper writes "subjurkt" as no noun "subject"."""

RIGHT_ABOVE = 0.84
"""Ratio of right takes of a use from which on it keeps its letters."""

MIN_GAIN, MAX_LOSS, MIN_GOODNESS = 0.3, 0.05, -0.6
"""By how much a spelling has to score better in the last round, how much goodness of the whole sentence it may lose,
and the least that it has to have."""

MAX_MARGIN, WORST = 2.0, -1.5
"""Bounds of margin and goodness in a score, so that single takes do not decide."""

TRIED, GROUP = 60, 48
"""Sequences of graphones whose letters are read again, and words that are spoken together."""


class Spoken(NamedTuple):
    """A use of a heteronym in some letters."""

    word: str
    use: Use
    spelling: str


class Measured(NamedTuple):
    """A take of a sentence."""

    goodness: float
    """By the phones of the use."""

    margin: float
    """Nats by which the take is nearer to the phones of its use than to those of the other one."""

    is_written: bool = False
    """Whether Whisper writes the word, or one of the same phones; asked in the last round alone."""


def spellings(word: str, use: Use) -> list[str]:
    """Other spellings of a use, the likeliest first."""
    phones = table()[word].phones(use)
    weak = [phone for phone in phones if is_weak(phone)]
    others = [tuple(v + "0" if each == phone else each for each in phones) for phone in weak for v in WEAK]
    variants = dict.fromkeys([phones, *others])
    tried = dict.fromkeys(letters_of(graphones) for each in variants for graphones in sequences(each)[:TRIED])
    exact, relaxed = [], []
    for letters in tried:
        reading = guess(letters)
        if letters == word or not letters.isalpha() or reading is None:
            continue
        if without_stress(reading) == without_stress(phones):
            exact.append(letters)
        elif relax(reading) == relax(phones):
            relaxed.append(letters)
    divided = [f"{prefix}-{word.removeprefix(prefix)}" for prefix in PREFIXES if word.startswith(prefix)]
    return exact[:MAX_SPELLINGS] + relaxed[:MAX_RELAXED] + divided[:1]


def is_weak(phone: str) -> bool:
    """Whether a phone is a vowel that others may stand for."""
    return phone.endswith("0") and phone[:-1] in WEAK


def without_stress(phones: Sequence[str]) -> list[str]:
    """The phones without their stress."""
    return [phone.rstrip("012") for phone in phones]


def relax(phones: Sequence[str]) -> list[str]:
    """The phones without their stress, all weak vowels alike."""
    return ["" if is_weak(phone) else phone.rstrip("012") for phone in phones]


class Judge:
    """Takes of heteronyms, measured and kept in a file."""

    def __init__(self, bundle: Path, references: Sequence[Path], state: Path, whisper: Recognizer) -> None:
        tts = marstts.load(bundle)
        self.whisper = whisper
        self.session = replace(tts.session, backoff=BackoffConfig(attempts=1))
        self.voices = [tts.clone(str(path)) for path in references]
        self.state = state
        self.known: dict[tuple[Spoken, int], list[Measured]] = {}
        for line in state.read_text().splitlines() if state.is_file() else ():
            row = json.loads(line)
            takes = [Measured(*values) for values in row["takes"]]
            self.known[Spoken(row["word"], row["use"], row["spelling"]), row["round"]] = takes

    def rate(self, asked: Sequence[Spoken], takes: int, number: int) -> None:
        """Measure so many takes of a round, with the same sentences, seeds and voices for each spelling of a use."""
        left = [each for each in dict.fromkeys(asked) if (each, number) not in self.known]
        while left:
            group = list({each.word: each for each in reversed(left)}.values())[-GROUP:]
            for spoken, measured in self.speak(group, takes, number).items():
                self.known[spoken, number] = measured
                with self.state.open("a") as file:
                    file.write(json.dumps({**spoken._asdict(), "round": number, "takes": measured}) + "\n")
            left = [each for each in left if (each, number) not in self.known]
            print(f"round {number}: {len(left)} left", flush=True)

    def speak(self, group: Sequence[Spoken], takes: int, number: int) -> dict[Spoken, list[Measured]]:
        """Takes of uses of different words; one that fails counts as the worst."""
        model: Any = self.session.model
        asked = {each.word: each.spelling for each in group}  # as written, too, whatever the bundle has
        session = replace(self.session, model=replace(model, respellings={**model.respellings, **asked}))
        rows = [(spoken, take) for spoken in group for take in range(takes)]
        texts = [SENTENCES[spoken.use][take % 2].format(spoken.word) for spoken, take in rows]
        places = [sum(map(ord, spoken.word)) + 5 * number + take for spoken, take in rows]
        voices = [self.voices[place % len(self.voices)] for place in places]
        seeds = [1000 * number + take for _, take in rows]
        found: dict[Spoken, list[Measured]] = {spoken: [] for spoken in group}
        for result in marstts.Synthesizer(session=session).speak_many(texts, voices, batch=BATCH, seeds=seeds):
            spoken, text = rows[result.index - 1][0], texts[result.index - 1]
            take = result.speech.takes[0] if result.speech is not None else None
            measured = Measured(-5.0, -5.0) if take is None else self.measure(take.waveform, text, spoken)
            if take is not None and number == BY_WHISPER:
                measured = measured._replace(is_written=is_written(spoken, self.whisper.transcribe(take.waveform)))
            found[spoken].append(measured)
        return found

    def measure(self, waveform: marstts.Waveform, text: str, spoken: Spoken) -> Measured:
        """How near a take is to the phones of its use, and how much nearer than to those of the other one."""
        log_probs = cast(PhoneRecognizingCodec, self.session.codec).phone_log_probs(waveform)
        other: Use = "verb" if spoken.use == "noun" else "noun"
        own, others = (expected_labels(text, spoken.word, use) for use in (spoken.use, other))
        by_own, by_other = goodness(log_probs, own), goodness(log_probs, others)
        return Measured(round(max(-5.0, by_own), 4), round(by_own * len(own) - by_other * len(others), 4))

    def best(self, found: Sequence[Spoken], *numbers: int) -> list[Spoken]:
        """Spellings by their score in these rounds, the best first."""
        return sorted(found, key=lambda each: self.score(each, *numbers), reverse=True)

    def score(self, spoken: Spoken, *numbers: int) -> float:
        """What a spelling is chosen by, of all takes of these rounds: mean goodness and margin, both bounded."""
        takes = np.concatenate([self.known[spoken, number] for number in numbers])
        margin = np.clip(takes[:, 1], -MAX_MARGIN, MAX_MARGIN).mean()
        return float(margin + 2 * np.clip(takes[:, 0], WORST, 0).mean())

    def right(self, spoken: Spoken, number: int) -> float:
        """Ratio of right takes."""
        return float(np.mean([take.margin > 0 for take in self.known[spoken, number]]))

    def written(self, spoken: Spoken) -> float:
        """Ratio of takes whose word Whisper writes."""
        return float(np.mean([take.is_written for take in self.known[spoken, BY_WHISPER]]))

    def goodness(self, spoken: Spoken, number: int) -> float:
        """Mean goodness."""
        return float(np.mean([take.goodness for take in self.known[spoken, number]]))


def is_written(spoken: Spoken, transcript: Sequence[str]) -> bool:
    """Whether the words of a transcript have the heteronym, or one of the same phones."""
    phones = without_stress(table()[spoken.word].phones(spoken.use))
    return any(word == spoken.word or without_stress(phones_of(word) or ()) == phones for word in transcript)


def expected_labels(text: str, word: str, use: Use) -> list[tuple[int, ...]]:
    """The labels that are accepted for a sentence whose heteronym has this use."""
    labels: list[tuple[int, ...]] = []
    for each in spoken_phones(text):
        if each.text == word:
            labels += [accepted_strictly(phone) for phone in table()[word].phones(use)]
        else:
            labels += [accepted(phone, varies=each.varies) for phone in each.phones]
    return labels


def accepted_strictly(phone: str) -> tuple[int, ...]:
    """The labels that are accepted for a phone of a heteronym."""
    er = LABELS.index("ER") + 1
    return tuple(label for label in accepted(phone, varies=False) if label != er or not is_weak(phone))


def uses() -> Iterator[tuple[str, Use]]:
    """The uses whose sounds differ from those of the other one."""
    for word, heteronym in table().items():
        phones = [without_stress(heteronym.phones(use)) for use in SENTENCES]
        if all(phones) and phones[0] != phones[1]:
            yield from ((word, use) for use in SENTENCES)


def search(judge: Judge) -> dict[str, dict[Use, str]]:
    """Other letters for the uses that need some."""
    written = [Spoken(word, use, word) for word, use in uses()]
    judge.rate(written, FIRST_TAKES, FIRST)
    wrong = [each for each in written if judge.right(each, FIRST) < RIGHT_ABOVE]
    others = {each: [each._replace(spelling=other) for other in spellings(each.word, each.use)] for each in wrong}
    judge.rate([other for found in others.values() for other in found], SPELLING_TAKES, SPELLING)
    hopeful = {each: judge.best(found, SPELLING)[:HOPEFUL] for each, found in others.items() if found}
    judge.rate([other for found in hopeful.values() for other in found], LAST_TAKES, HOPEFUL_AGAIN)
    best = {each: judge.best(found, SPELLING, HOPEFUL_AGAIN)[0] for each, found in hopeful.items()}
    judge.rate([spoken for pair in best.items() for spoken in pair], LAST_TAKES, LAST)
    better = {each: other for each, other in best.items() if is_better(judge, each, other)}
    judge.rate([spoken for pair in better.items() for spoken in pair], LAST_TAKES, BY_WHISPER)
    found: dict[str, dict[Use, str]] = {}
    for each, other in better.items():
        if judge.written(other) >= judge.written(each):
            found.setdefault(each.word, {})[each.use] = other.spelling
    return found


def is_better(judge: Judge, written: Spoken, other: Spoken) -> bool:
    """Whether other letters are better with the seeds and voices of the last round, too, and as clear."""
    return (
        judge.score(other, LAST) > judge.score(written, LAST) + MIN_GAIN
        and judge.right(other, LAST) > judge.right(written, LAST)
        and judge.goodness(other, LAST) > max(MIN_GOODNESS, judge.goodness(written, LAST) - MAX_LOSS)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("state", type=Path)
    parser.add_argument("references", type=Path, nargs="+")
    parser.add_argument("--whisper", required=True)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    whisper = FasterWhisperRecognizer(options.whisper)
    found = search(Judge(options.bundle, options.references, options.state, whisper))
    print(f"{sum(map(len, found.values()))} respellings of {len(found)} heteronyms")
    if options.write:
        info = read_info(options.bundle)
        respellings = {**info.settings.get("respellings", {}), **found}
        settings = {**info.settings, "respellings": dict(sorted(respellings.items()))}
        write_info(info.model_copy(update={"settings": settings}), options.bundle)


if __name__ == "__main__":
    main()
