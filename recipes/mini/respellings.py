"""Finds other letters for words that a model of letters misreads, by its own takes; writes them into its bundle.

Usage: python recipes/mini/respellings.py BUNDLE WORDS STATE REFERENCE [REFERENCE ...] [--min-goodness -1] [--again]
[--whisper MODEL] [--write]

BUNDLE: a folder with a phone recognizer (phone_recognizer.py).  WORDS: one a line, those that matter most first.
STATE: every measurement, one JSON object a line; an interrupted run resumes, and a run of other words profits from what
is there.  REFERENCE: recordings of people who train; takes are spoken in their voices.  With --write, what was found
joins `respellings` of bundle.json; words that are there are left as they are. About 0.1 s of a core for a take, and
6 to 8 takes for a word. The table is taken at its word: where it is wrong ("wiry" as weary), delete what was found.
With --again, after a training, only words that are there are searched: they keep their letters, or get better ones.
With --whisper (MODEL: tiny.en, or a folder), other letters stay only where Whisper writes the word as often with them.

A word is spoken in a sentence, and judged by goodness of pronunciation: the model reads letters as it learned to, which
need not be how a dictionary has the word. Spellings are those of the letter-to-sound model whose phones are the
word's; which of them the model reads well, a linear model predicts from all measurements so far (reading_model.py).
Three rounds, each with seeds and voices of its own: words as they are written; those that are misread, in the two
spellings that promise most; and the better one beside the written one again. Only a spelling that is better in the last
round, too, and beyond two standard errors in all, is written, so that chance chooses few.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from reading_model import Example, ReadingModel, aligned, fit, letters_of, plain, sequences

import marstts
from marstts.bundle import read_info, write_info
from marstts.synthesis.backoff import BackoffConfig
from marstts.synthesis.words.pronunciation import spoken_phones
from marstts.text.pronunciation import heteronyms
from marstts.text.pronunciation.letters_to_sounds import guess
from marstts.text.pronunciation.words import known_phones, phones_of
from marstts_lab.metrics.recognition import FasterWhisperRecognizer, Recognizer

SENTENCE, OTHER_SENTENCE = "This is {}.", "They wrote {} there."
"""All rounds have the first; in the one by Whisper, half of the takes have the second."""

FIRST_TAKES, SPELLING_TAKES, LAST_TAKES, WHISPER_TAKES = 3, 2, 5, 6
BY_WHISPER = 4
"""The round whose takes are 1 where Whisper writes the word, else 0."""

MAX_SPELLINGS = 2

MISREAD_BELOW = -0.2
"""Mean goodness of a word that is spoken in other spellings."""

MIN_PROMISE = 0.12
"""Nats of a phone by which a spelling must be better by prediction."""

MIN_GAIN, TOTAL_GAIN = 0.12, 0.3
"""Nats of a phone by which a spelling must be better in either round, and in all takes together."""

MIN_GOODNESS = -1.0
"""Least mean goodness of a spelling. Names whose spelling is below -0.6 still gain (right 0.21 to 0.35, with the same
sound); words in sentences lose sound by it (DistillMOS -0.16), so these are searched with `--min-goodness -0.6`."""

WORST = -4.0
"""Goodness in the examples of the reading model, so that single takes do not decide."""

CHECKED = 8
"""Spellings of the highest prediction whose letters are read again by the letter-to-sound model, which is slow."""

BATCH, GROUP, CHUNK = 16, 64, 1000
"""Takes and words that are spoken together, and words after which the reading model is fitted again."""


def spellings(word: str, reading: ReadingModel) -> list[str]:
    """Other spellings of a word of the table that promise to be read better, the most promising first."""
    known = known_phones(word)
    if known is None or known.depends_on_context or word in heteronyms.table():
        return []
    written = aligned(word, known.phones)
    if written is None:
        return []
    rated = [(reading.predict(each), letters_of(each)) for each in sequences(known.phones)]
    least = reading.predict(written) + MIN_PROMISE
    promising = sorted((-value, letters) for value, letters in rated if value > least and letters.isalpha())
    others = [letters for _, letters in promising[:CHECKED] if letters != word and is_read_as(letters, known.phones)]
    return others[:MAX_SPELLINGS]


def is_read_as(letters: str, phones: Sequence[str]) -> bool:
    """Whether the letter-to-sound model, and the table if it has the word, read letters so, whatever the stress."""
    known, reading = known_phones(letters), guess(letters)
    is_other_word = known is not None and plain(known.phones) != plain(phones)
    return reading is not None and plain(reading) == plain(phones) and not is_other_word


def is_written(word: str, transcript: Sequence[str]) -> bool:
    """Whether the words of a transcript have the word, or one of the same phones."""
    phones = phones_of(word)
    others = {each: phones_of(each) for each in transcript}
    return word in others or (phones is not None and plain(phones) in [plain(each) for each in others.values() if each])


class Judge:
    """Goodness of words in spellings, kept in a file."""

    def __init__(
        self, bundle: Path, references: Sequence[Path], state: Path, whisper: Recognizer | None = None
    ) -> None:
        tts = marstts.load(bundle)
        self.whisper = whisper
        self.session = replace(tts.session, backoff=BackoffConfig(attempts=1))
        self.voices = [tts.clone(str(path)) for path in references]
        self.state = state
        self.known: dict[tuple[str, str, int], list[float]] = {}
        if state.is_file():
            for line in state.read_text().splitlines():
                row = json.loads(line)
                self.known[row["word"], row["spelling"], row["round"]] = row["goodness"]

    def rate(self, asked: Sequence[tuple[str, str]], takes: int, number: int) -> None:
        """Measure words in spellings, all of a round with the same seeds and voices for each spelling of a word."""
        left = [each for each in dict.fromkeys(asked) if (*each, number) not in self.known]
        while left:
            group: dict[str, str] = {}
            for word, spelling in left:
                if len(group) < GROUP:
                    group.setdefault(word, spelling)
            for word, goodness in self.speak(group, takes, number).items():
                self.known[word, group[word], number] = goodness
                with self.state.open("a") as file:
                    row = {"word": word, "spelling": group[word], "round": number, "goodness": goodness}
                    file.write(json.dumps(row) + "\n")
            left = [each for each in left if (*each, number) not in self.known]
            print(f"round {number}: {len(left)} left", flush=True)

    def speak(self, group: dict[str, str], takes: int, number: int) -> dict[str, list[float]]:
        """The goodness of each word in one spelling; a take that fails counts as -5."""
        model: Any = self.session.model
        respelled = replace(model, respellings={word: other for word, other in group.items() if word != other})
        tts = marstts.Synthesizer(session=replace(self.session, model=respelled))
        texts, voices, seeds = [], [], []
        for word in group:
            for take in range(takes):
                sentence = OTHER_SENTENCE if number == BY_WHISPER and take % 2 else SENTENCE
                texts.append(sentence.format(word.capitalize()))
                place = (sum(map(ord, word)) + 7 * number + take) % len(self.voices)
                voices.append(self.voices[place])
                seeds.append(1000 * number + take)
        found: dict[str, list[float]] = {word: [] for word in group}
        words = list(group)
        for result in tts.speak_many(texts, voices, batch=BATCH, seeds=seeds):
            word, spoken = words[(result.index - 1) // takes], result.speech
            if number == BY_WHISPER and self.whisper is not None:
                transcript = self.whisper.transcribe(spoken.waveform) if spoken is not None else ()
                found[word].append(float(is_written(word, transcript)))
            else:
                value = spoken.takes[0].goodness if spoken is not None else None
                found[word].append(-5.0 if value is None else round(max(-5.0, value), 4))
        return found

    def mean(self, word: str, spelling: str, number: int) -> float:
        """Mean goodness of a round."""
        return float(np.mean(self.known[word, spelling, number]))

    def examples(self) -> list[Example]:
        """All words in all letters that were spoken, as far as the letters have the phones of the table."""
        takes: dict[tuple[str, str], list[float]] = defaultdict(list)
        for (word, spelling, number), goodness in self.known.items():
            if number != BY_WHISPER:
                takes[word, spelling] += [max(WORST, each) for each in goodness]
        return [
            Example(graphones, float(np.mean(goodness)), len(goodness))
            for (word, spelling), goodness in takes.items()
            if (known := known_phones(word)) and (graphones := aligned(spelling, known.phones))
        ]


def search(
    judge: Judge, words: Sequence[str], least: float = MIN_GOODNESS, present: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The respellings of all words that need one, of a goodness of at least `least`; `present`: those of before."""
    found: dict[str, str] = {}
    for start in range(0, len(words), CHUNK):
        found |= search_chunk(judge, words[start : start + CHUNK], least, present or {})
    return found if judge.whisper is None else keep_recognized(judge, found, present or {})


def keep_recognized(judge: Judge, found: Mapping[str, str], present: Mapping[str, str]) -> dict[str, str]:
    """Those that Whisper writes as often as what is spoken now; the other words stay as they are."""
    before = {word: present.get(word, word) for word in found}
    asked = [(word, each) for word in found if found[word] != before[word] for each in (before[word], found[word])]
    judge.rate(asked, WHISPER_TAKES, BY_WHISPER)
    recognized = {each: judge.mean(*each, BY_WHISPER) for each in asked}
    kept = {
        word: before[word] if recognized.get((word, letters), 1) < recognized.get((word, before[word]), 0) else letters
        for word, letters in found.items()
    }
    return {word: letters for word, letters in kept.items() if letters != word}


def search_chunk(judge: Judge, words: Sequence[str], least: float, present: Mapping[str, str]) -> dict[str, str]:
    """The respellings of some words, by all measurements so far."""
    judge.rate([(word, word) for word in words], FIRST_TAKES, 1)
    reading = fit(judge.examples())
    misread = [word for word in words if word in present or judge.mean(word, word, 1) < MISREAD_BELOW]
    others = {word: spellings(word, reading) for word in misread}
    kept = {word: [present[word]] if word in present else [] for word in misread}
    asked = [(word, each) for word in misread for each in kept[word] + others[word]]
    judge.rate(asked, SPELLING_TAKES, 2)
    best = {word: max(found, key=lambda each: judge.mean(word, each, 2)) for word, found in others.items() if found}
    hopeful = {w: [s] for w, s in best.items() if judge.mean(w, s, 2) > judge.mean(w, w, 1) + MIN_GAIN}
    last = {word: [*kept[word], *hopeful.get(word, ())] for word in misread}
    judge.rate([(word, each) for word, found in last.items() if found for each in (word, *found)], LAST_TAKES, 3)
    better = {
        word: [each for each in found if each in kept[word] or is_better(judge, word, each, least)]
        for word, found in last.items()
    }
    return {w: max(found, key=lambda each: gain_of(judge, w, each)[0]) for w, found in better.items() if found}


def is_better(judge: Judge, word: str, spelling: str, least: float) -> bool:
    """Whether a spelling is better than the written one in the last round, and beyond two standard errors in all."""
    gain, error = gain_of(judge, word, spelling)
    is_last_better = judge.mean(word, spelling, 3) > judge.mean(word, word, 3) + MIN_GAIN
    goodness = np.mean(judge.known[word, spelling, 2] + judge.known[word, spelling, 3])
    return bool(is_last_better and gain > max(TOTAL_GAIN, 2 * error) and goodness > least)


def gain_of(judge: Judge, word: str, spelling: str) -> tuple[float, float]:
    """By how much goodness of a spelling is higher than that of the written one, and the standard error of it."""
    written = judge.known[word, word, 1] + judge.known[word, word, 3]
    other = judge.known[word, spelling, 2] + judge.known[word, spelling, 3]
    error = np.hypot(np.std(written) / len(written) ** 0.5, np.std(other) / len(other) ** 0.5)
    return float(np.mean(other) - np.mean(written)), float(error)


def lines(path: Path) -> Iterator[str]:
    """The words of a file, in small letters, each once; those that the table has no pronunciation of are left out."""
    for word in dict.fromkeys(path.read_text().lower().split()):
        if word.isalpha() and word.isascii() and len(word) > 2 and known_phones(word) and list(spoken_phones(word)):
            yield word


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("words", type=Path)
    parser.add_argument("state", type=Path)
    parser.add_argument("references", type=Path, nargs="+")
    parser.add_argument("--min-goodness", type=float, default=MIN_GOODNESS)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--whisper")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    whisper = FasterWhisperRecognizer(options.whisper) if options.whisper else None
    judge = Judge(options.bundle, options.references, options.state, whisper)
    known = read_info(options.bundle).settings.get("respellings", {})
    present = {word: letters for word, letters in known.items() if isinstance(letters, str)} if options.again else {}
    words = [word for word in lines(options.words) if (word in present if options.again else word not in known)]
    found = search(judge, words, options.min_goodness, present)
    print(f"{len(found)} respellings of {len(words)} words")
    if options.write:
        info = read_info(options.bundle)
        others = {word: letters for word, letters in known.items() if word not in words}
        settings = {**info.settings, "respellings": dict(sorted({**others, **found}.items()))}
        write_info(info.model_copy(update={"settings": settings}), options.bundle)


if __name__ == "__main__":
    main()
