"""A corpus of names, words, lists and questions by Kokoro-82M, which says each name as the pronunciation table has it.

Usage: python recipes/mini/kokoro_names.py NAMES OUTPUT [--hours 0.35] [--kokoro FOLDER]

NAMES: the folder of `dist.all.last`, `dist.male.first` and `dist.female.first` of the package names (census of the
United States).  OUTPUT: gets `audio/` and `utterances.jsonl`. Names of `text/test_names.txt` are kept for tests.
Running it again resumes. About 1 s of a core for 1 s of speech.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import os
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from marstts import audio
from marstts.audio import trim_silence
from marstts.errors import DataError
from marstts.text.pronunciation.dictionary import entries
from marstts_lab.data.corpora.kokoro import FOLDER_VARIABLE, draw_voice, open_kokoro, parse_blend
from marstts_lab.data.manifest import Utterance, write_manifest

HERE = Path(__file__).parent
SPEAKERS = 420

MISAKI = {
    "AA": "ɑ", "AE": "æ", "AH": "ʌ", "AO": "ɔ", "AW": "W", "AY": "I", "CH": "ʧ", "DH": "ð", "EH": "ɛ", "ER": "ɜɹ",
    "EY": "A", "G": "ɡ", "HH": "h", "IH": "ɪ", "IY": "i", "JH": "ʤ", "NG": "ŋ", "OW": "O", "OY": "Y", "R": "ɹ",
    "SH": "ʃ", "TH": "θ", "UH": "ʊ", "UW": "u", "Y": "j", "ZH": "ʒ", "AH0": "ə", "ER0": "əɹ",
}  # fmt: skip
"""misaki's symbols of ARPAbet's phones; others are their lower case."""

NAMES = """
My name is {F} {L}.|Doctor {L} lives here.|Have you met {F} {L}?|{F} and {G} went home.|This is {F} {L}.
Please ask for {F} {L}.|Mister {L} called this morning.|I spoke to {F} about it.|{F} {L}.
The letter was from {L}.|Good morning, {F}.|Is {F} coming, too?
We met Miss {L} on Monday, and her brother {F} on Friday.|{L} and {M} signed it.|Captain {L} has the tickets.
Call {F} {L} at once.|They named the boy {F}.|Her name was {F}, not {G}.|It belongs to the {L} family.
Well, {F}, what do you think?|The winner is {F} {L}!|{F} {L} was born in {M}.|Senator {L} did not answer.
Nobody believed {F}.|Mrs. {L} bought two pounds of {w}.
"""
QUESTIONS = """
Is it an {w}?|Do you like {w}?|Are you {w}?|Did {F} call you?|Is this your {w}?|Have you seen the {w}?
Can you hear the {w}?|Is {F} at home?|Will {F} be there?|Do you know {F} {L}?|Should we go now?
Are they coming to the {w}?|Did you lose your {w}?|Would you like some {w}?|Is that all?|Really?|Are you sure?
Ready?|You bought a {w}?|May I open the {w}?|Has the {w} arrived?
"""
ANSWERS = """
Yes.|No.|Yes, of course.|No, thank you.|Maybe.|I don't know.|Not yet.|Hello.|Good night.|Thank you very much.
Stop!|All right.|Never mind.|Come in.|Goodbye.|Excuse me.|That's right.|How nice!|Sorry.|Please.|Now.|Later.
Exactly.|Me, too.|Go on.
"""


def choices(lines: str) -> list[str]:
    """The sentences of a list above."""
    return [one for line in lines.split("\n") for one in line.split("|") if one]


class Texts:
    """Draws sentences; `{F}` and `{G}` are first names, `{L}` and `{M}` surnames, `{w}` a word, all of the table."""

    def __init__(self, names: Path) -> None:
        self.phones = dict(entries())
        self.held = set((HERE / "text" / "test_names.txt").read_text().split())
        self.first = self.census(names / "dist.male.first", 0.5) + self.census(names / "dist.female.first", 0.5)
        self.last = self.census(names / "dist.all.last", 0.4)[:30_000]
        with gzip.open(HERE / "text" / "modern.tsv.gz", "rt") as file:
            self.sentences = [line.rstrip("\n").rpartition("\t")[2] for line in file]
        found = {word for line in self.sentences for word in re.findall("[a-z]{2,14}", line)}
        self.words = sorted(found & self.phones.keys())

    def census(self, path: Path, power: float) -> list[tuple[str, float]]:
        """Names of the table, and their weights: frequency (%) to a power."""
        rows = [line.split()[:2] for line in path.read_text().splitlines()]
        known = [(name.lower(), float(share)) for name, share in rows if len(name) > 2]
        return [(n, max(s, 0.0005) ** power) for n, s in known if n in self.phones and n not in self.held]

    def draw(self, rng: random.Random) -> str:
        """A sentence, whose names have their pronunciation: `[Nguyen](/…/)`."""
        draw_word = lambda: rng.choice(self.words)  # noqa: E731
        kinds: dict[Callable[[], str], float] = {
            lambda: self.filled(rng.choice(choices(NAMES)), rng): 0.48,
            lambda: draw_word().capitalize() + rng.choice("...?!"): 0.14,
            lambda: (
                ", ".join(draw_word() for _ in range(rng.randint(2, 4))).capitalize() + f", and {draw_word()}."
            ): 0.1,
            lambda: rng.choice(choices(ANSWERS)): 0.06,
            lambda: self.filled(rng.choice(choices(QUESTIONS)), rng): 0.14,
            lambda: rng.choice(self.sentences): 0.08,
        }
        [kind] = rng.choices(list(kinds), list(kinds.values()))
        return kind()

    def filled(self, template: str, rng: random.Random) -> str:
        """A sentence of a template."""
        first = [self.tagged(name) for name in drawn(self.first, rng)]
        last = [self.tagged(name) for name in drawn(self.last, rng)]
        return template.format(F=first[0], G=first[1], L=last[0], M=last[1], w=rng.choice(self.words))

    def tagged(self, name: str) -> str:
        """A name and its phones, as misaki reads them."""
        symbols = []
        for phone in self.phones[name]:
            stress = {"1": "ˈ", "2": "ˌ"}.get(phone[-1], "")
            base = phone.rstrip("012")
            symbols.append(stress + MISAKI.get(phone, MISAKI.get(base, base.lower())))
        return f"[{name.capitalize()}](/{''.join(symbols)}/)"


def drawn(names: list[tuple[str, float]], rng: random.Random) -> list[str]:
    """Two names, by their weights."""
    return rng.choices([name for name, _ in names], [weight for _, weight in names], k=2)


def utterances(texts: Texts, output: Path, seconds: float, folder: str) -> Iterator[Utterance]:
    """Speak until there are `seconds` of speech; what is there already is not spoken again."""
    kokoro, made = open_kokoro(folder), 0.0
    for number in itertools.count():
        if made >= seconds:
            return
        rng = random.Random(number)
        text, voice = texts.draw(rng), draw_voice(rng.randrange(SPEAKERS), 0)
        name = f"kokoro-{voice}"
        path = output / "audio" / f"{number:06d}.flac"
        if not path.exists():
            try:
                spoken = kokoro.speak(text, parse_blend(voice), float(np.clip(rng.gauss(1.0, 0.07), 0.85, 1.2)))
            except DataError:
                continue
            audio.write(trim_silence(spoken), path)
        length = audio.read(path).seconds
        made += length
        plain = re.sub(r"\[([^]]*)\]\(/[^)]*/\)", r"\1", text)
        yield Utterance(
            id=f"kokoro-{number:06d}", audio=f"audio/{path.name}", text=plain, speaker=name, style="regular",
            seconds=round(length, 3), source_rate=24000, split="validation" if number % 40 == 0 else "train",
            license="Apache-2.0 (synthetic, Kokoro-82M)",
        )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--hours", type=float, default=0.35)
    parser.add_argument("--kokoro", default=os.environ.get(FOLDER_VARIABLE, ""))
    options = parser.parse_args()
    (options.output / "audio").mkdir(parents=True, exist_ok=True)
    found = utterances(Texts(options.names), options.output, options.hours * 3600, options.kokoro)
    write_manifest(found, options.output / "utterances.jsonl")


if __name__ == "__main__":
    main()
