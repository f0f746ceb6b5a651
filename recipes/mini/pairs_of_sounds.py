"""Preference pairs of a model's own takes: names and words said right or wrong, questions that rise or fall.

Usage: python recipes/mini/pairs_of_sounds.py MODEL MANIFEST OUTPUT --kind names|questions [--texts 400] [--seed 0]
           [--names FOLDER] [--recognizer base.en]

MODEL: the folder of a bundle.  MANIFEST: `utterances.jsonl` of people who lend their voices.  OUTPUT: a file of
pairs for `marstts preference train`.
*names*: four takes of a text; Whisper's transcript is read into phones as the text is, so that Jon is John; the least
wrong take is chosen, all with two wrong phones more are rejected; of takes as wrong as each other DistillMOS and the
likeness to the recording decide, by the codec's speaker encoder (CAM++), which judges no evaluation.  *questions*: the
ends of a take are sampled again from 0.8 s before its end; a take whose F0 rises by two trackers is chosen where a
question asks for a rise, the best by DistillMOS and likeness first; one that falls where it does not. Both sides of
such a pair have the same beginning, which is their prefix where the text can be divided, so that the ends alone are
compared.
Needs swift-f0, pyworld and distillmos; about 20 minutes of a core for 400 texts. Names of `text/test_names.txt` are
kept for tests.
"""

from __future__ import annotations

import argparse
import gzip
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import soxr
from faster_whisper import WhisperModel
from jiwer import process_words
from numpy.typing import NDArray
from raised_ends import final_rise
from swift_f0 import SwiftF0

import marstts
from marstts import audio
from marstts.audio import Waveform, audible_span
from marstts.codec.base import SPEAKER_FOLDER, Codes
from marstts.generation.loop import generate
from marstts.generation.request import Limits, StopReason
from marstts.speaker.mini import MiniSpeakerEncoder
from marstts.synthesis.model_session import ModelSession
from marstts.synthesis.speech import EDGE_BELOW_PEAK_DB, MAX_TAIL_SECONDS
from marstts.text.intonation import contour_of
from marstts.text.normalize import normalize
from marstts.text.phones import RISING
from marstts.text.pronunciation.words import phones_of
from marstts.voice import Voice
from marstts_lab.data.held_out_people import refuse_test_people
from marstts_lab.data.manifest import Utterance, read_chosen
from marstts_lab.data.pairs import Pair, PairLine, SideLine, write_pairs
from marstts_lab.metrics.quality import DistillMos

HERE = Path(__file__).parent
SPEAKERS = 60
TEXTS_IN_BATCH = 8
MAX_CHARACTERS = 80

TAKES, TAKES_TOP_P = 4, 0.6
MAX_CHOSEN, MIN_MARGIN = 0.12, 2
"""Phone error rate of a chosen take at most; and how many more errors a rejected one has at least."""

LIKENESS_WEIGHT, MIN_QUALITY_MARGIN = 5.0, 0.6
"""Points of DistillMOS that a cosine of 1 counts, so that both vary alike among takes of a text; and the points by
which two takes of the same words differ at least."""

ENDS, ENDS_TOP_P, END_SECONDS = 12, 0.8, 0.8
RISE, FALL = 2.0, -0.5
"""Semitones of the last 0.12 s over what comes before."""

NAMES = "My name is {F} {L}.|This is {F} {L}.|{F} {L}.|Her name was {F} {L}.|I met {F} {L} yesterday.|Ask {L} about it."
SUBJECTS = "you|they|we|he|she|Anna|Peter|the doctor|your sister|the children|my brother|the teachers|Tom"
DO = (
    "like the music|need some help|live in London|want to come|know the answer|eat fish|play the piano|work on Sundays|"
    "remember the story|have enough money|speak French|drink coffee|own a car|sleep well|take the bus|sing in a choir|"
    "agree with me|feel better|miss the old house|trust him|hear the rain|pay the bill|close the window|read my letter"
)
BE = (
    "ready|at home|late again|in the garden|sure about that|hungry|from Ireland|on the list|afraid of dogs|"
    "busy tomorrow|happy with it|allowed to leave|outside|still awake|next in line|in the picture|on their way"
)
SHORT = (
    "Really?|Is that all?|Tomorrow?|Do you think so?|Are you sure?|Is it raining?|Any questions?|May I come in?|Ready?|"
    "Can you hear me?|Was it expensive?|Is it far?|Do you mind?|Anything else?|Have you eaten?|Is this your bag?|"
    "Are they coming?|Would you like some tea?|Could you repeat that?|Did it work?|You too?|Has it stopped?"
)
THINGS = "station|bank|ticket|problem|doctor|letter|map|key|dog|bridge|bottle|message|reason|mistake|present|recipe"
WH = "Where do|Why do|When did|How can|What did|Where will"
PLURAL = {"you", "they", "we", "the children", "the teachers"}


@dataclass(frozen=True, eq=False)
class Take:
    """A take and what it is judged by."""

    text: str
    speaker: str
    voice: Voice
    codes: Codes
    samples: NDArray[np.float32]
    num_given: int = 0
    """Patches at the beginning that other takes share."""

    value: float = 0.0
    """Phone error rate, or semitones at the end."""

    quality: float = 0.0
    """DistillMOS, 1 to 5, and the weighted likeness to the recording of the voice."""


def name_texts(rng: random.Random, folder: Path) -> Iterator[str]:
    """Sentences of names of the census, words alone, and two fifths of everyday sentences."""
    kept = set((HERE / "text" / "test_names.txt").read_text().lower().split())

    def names(*files: str) -> list[str]:
        rows = [line.split()[0] for file in files for line in (folder / file).read_text().splitlines()[:4000]]
        return [name.capitalize() for name in rows if name.lower() not in kept]

    first, last = names("dist.female.first", "dist.male.first")[:2400], names("dist.all.last")
    lines = gzip.decompress((HERE / "text" / "modern.tsv.gz").read_bytes()).decode().splitlines()
    words = sorted({word for line in lines for word in re.findall(r"\b[a-z]{4,11}\b", line) if word not in kept})
    sentences = [text for line in lines if len(text := line.rpartition("\t")[2]) <= MAX_CHARACTERS]
    while True:
        kind, word = rng.random(), rng.choice(words).capitalize()
        named = rng.choice(NAMES.split("|")).format(F=rng.choice(first), L=rng.choice(last))
        yield f"{word}." if kind < 0.3 else named if kind < 0.6 else rng.choice(sentences)


def question_texts(rng: random.Random) -> Iterator[str]:
    """Yes/no questions, and a quarter of statements and questions with a question word."""
    while True:
        who = rng.choice(SUBJECTS.split("|"))
        many, do, be = who in PLURAL, rng.choice(DO.split("|")), rng.choice(BE.split("|"))
        thing = rng.choice(THINGS.split("|")) + rng.choice(["", " here", " nearby", " for me", " in the house"])
        yield rng.choice([
            f"{'Do' if many else 'Does'} {who} {do}?", f"Did {who} {do}?", f"{'Are' if many else 'Is'} {who} {be}?",
            f"{'Were' if many else 'Was'} {who} {be}?", f"{rng.choice(['Can', 'Could', 'Will', 'Should'])} {who} {do}?",
            rng.choice(SHORT.split("|")), f"Is there a {thing}?", f"Have you seen the {thing}?",
            f"Is this the {thing}?",
            f"{who[0].upper()}{who[1:]} will {do}.", f"{who[0].upper()}{who[1:]} can {do}.",
            f"There is a {thing}.", f"{rng.choice(WH.split('|'))} {'they' if many else 'you'} {do}?",
        ])  # fmt: skip


def choose_recordings(manifest: Path, rng: random.Random, speakers: int = SPEAKERS) -> dict[str, str]:
    """Recordings of people who train, one each, by speaker."""
    rows = read_chosen(manifest, lambda one: one.split == "train" and 3.5 < one.seconds < 9)
    refuse_test_people(((one.speaker, (one.id, one.audio)) for one in rows), str(manifest))
    people: dict[str, list[Utterance]] = {}
    for row in rows:
        people.setdefault(row.speaker, []).append(row)
    chosen = [rng.choice(people[who]) for who in rng.sample(sorted(people), min(speakers, len(people)))]
    return {one.speaker: str(manifest.parent / one.audio) for one in chosen}


def sample(
    session: ModelSession, rows: Sequence[tuple[str, Voice, NDArray[np.int64] | None]], top_p: float, seed: int
) -> list[NDArray[np.int64] | None]:
    """Tokens (T, P) of a take of each text; after the given tokens, where there are some; None where it had no end."""
    model, rate = session.model, session.codec.spec.patch_rate
    prompts, limits = [], []
    for text, voice, begun in rows:
        prompt: Any = model.prompt(text, voice)
        prompts.append(prompt if begun is None else replace(prompt, prefix_tokens=begun))
        bounds = session.backoff.limits(text, rate)
        done = 0 if begun is None else len(begun)
        limits.append(Limits(max(bounds.min_patches - done, 1), max(bounds.max_patches - done, 2)))
    rngs = [np.random.default_rng((seed, row)) for row in range(len(rows))]
    found = generate(
        model.engine, prompts, top_p=[top_p] * len(rows), limits=limits, rngs=rngs, sampling=model.sampling
    )
    return [
        None if one.stop is not StopReason.EOS or len(one.tokens) < 2
        else one.tokens if begun is None else np.concatenate([begun, one.tokens])
        for one, (_, _, begun) in zip(found, rows, strict=True)
    ]  # fmt: skip


def as_take(session: ModelSession, text: str, speaker: str, voice: Voice, tokens: NDArray[np.int64]) -> Take:
    """Tokens as codes and sound, whose edges are those of a take: a tail that nobody hears has a pitch, too."""
    codes = session.model.codes(tokens, np.random.default_rng(0), session.model.prompt(text, voice))
    waveform = session.decode(codes, voice)
    start, end = audible_span(waveform, below_peak_db=EDGE_BELOW_PEAK_DB, max_tail_seconds=MAX_TAIL_SECONDS)
    return Take(text, speaker, voice, codes, waveform.samples[start:end])


class NameJudge:
    """Phone error rates of takes by a recognizer."""

    def __init__(self, recognizer: str) -> None:
        self.model = WhisperModel(recognizer, device="cpu", compute_type="int8", cpu_threads=1)

    def heard(self, samples: NDArray[np.float32], rate: int) -> str:
        """What the recognizer hears."""
        found, _ = self.model.transcribe(
            soxr.resample(samples, rate, 16000), language="en", beam_size=1, temperature=0.0, chunk_length=10,
            condition_on_previous_text=False,
        )  # fmt: skip
        return " ".join(one.text for one in found)

    def error_rate(self, take: Take, rate: int) -> float:
        """Phone errors of what is heard, relative to the text's phones."""
        found = process_words(phones(take.text), phones(self.heard(take.samples, rate)) or "-")
        return float(found.substitutions + found.deletions + found.insertions) / len(phones(take.text).split())


def phones(text: str) -> str:
    """All words of a text in phones without stress; heteronyms as letters."""
    words = re.findall(r"[a-z']+", normalize(text).lower())
    return " ".join(phone.rstrip("012") for word in words for phone in (phones_of(word) or tuple(word)))


class EndJudge:
    """Rises of F0 at the ends of takes by two trackers."""

    def __init__(self) -> None:
        self.tracker = SwiftF0(1)

    def rise(self, samples: NDArray[np.float32], rate: int) -> float | None:
        """Semitones, the smaller of both trackers where it rises; None for too little voice."""
        tail = soxr.resample(samples, rate, 16000)[-22400:]
        found = self.tracker.detect(tail, 16000)
        times = np.asarray(found.timestamps)
        voiced = (found.confidence >= 0.5) & (found.pitch_hz > 60) & (found.pitch_hz < 500)
        if voiced.sum() < 8:
            return None
        end = times[voiced][-1]
        last = found.pitch_hz[voiced & (times > end - 0.12)]
        before = found.pitch_hz[voiced & (times > end - 0.45) & (times <= end - 0.2)]
        if min(len(last), len(before)) < 3:
            return None
        first = float(12 * np.log2(np.median(last) / np.median(before)))
        if first < RISE:
            return first
        second = final_rise(soxr.resample(samples, rate, 24000)[-33600:])
        return None if second is None else min(first, second)


class QualityJudge:
    """DistillMOS of takes, and their likeness to the recordings of their voices by the codec's speaker encoder."""

    def __init__(self, bundle: Path, recordings: dict[str, str]) -> None:
        self.mos, self.encoder = DistillMos(), MiniSpeakerEncoder(bundle / "codec" / SPEAKER_FOLDER)
        self.speakers = {who: self.encoder.embed(audio.read(file)) for who, file in recordings.items()}

    def sorted(self, takes: Sequence[Take], rate: int) -> list[Take]:
        """Takes with their quality, the best first."""
        rated = [replace(one, quality=self._quality(one, Waveform(one.samples, rate))) for one in takes]
        return sorted(rated, key=lambda one: -one.quality)

    def _quality(self, take: Take, waveform: Waveform) -> float:
        likeness = float(self.encoder.embed(waveform) @ self.speakers[take.speaker])
        return self.mos.rate(waveform)["distillmos"] + LIKENESS_WEIGHT * likeness


def name_pairs(
    session: ModelSession, batch: Sequence[tuple[str, str, Voice]], judge: NameJudge, listener: QualityJudge, seed: int
) -> Iterator[tuple[Take, Take]]:
    """(chosen, rejected) of the texts where takes differ in words or, with the same words, in quality."""
    rows = [row for row in batch for _ in range(TAKES)]
    tokens = sample(session, [(text, voice, None) for text, _, voice in rows], TAKES_TOP_P, seed)
    rate = session.codec.spec.sample_rate
    for start in range(0, len(rows), TAKES):
        takes = [
            as_take(session, *row, one)
            for row, one in zip(rows[start:], tokens[start : start + TAKES], strict=False)
            if one is not None
        ]
        scored = [replace(one, value=judge.error_rate(one, rate)) for one in takes]
        least = min((one.value for one in scored), default=1.0)
        if least > MAX_CHOSEN:
            continue
        num_phones = len(phones(scored[0].text).split())
        best = listener.sorted([one for one in scored if one.value == least], rate)
        wrong = [one for one in scored if (one.value - least) * num_phones >= MIN_MARGIN - 1e-6]
        worse = [one for one in best[-1:] if best[0].quality - one.quality >= MIN_QUALITY_MARGIN]
        yield from ((best[0], one) for one in wrong + worse)


def question_pairs(
    session: ModelSession,
    batch: Sequence[tuple[str, str, Voice]],
    judge: EndJudge,
    words: NameJudge,
    listener: QualityJudge,
    seed: int,
) -> Iterator[tuple[Take, Take]]:
    """(chosen, rejected) of the texts some of whose ends rise and some fall."""
    rate = session.codec.spec.sample_rate
    begun = sample(session, [(text, voice, None) for text, _, voice in batch], TAKES_TOP_P, seed)
    count = round(END_SECONDS * session.codec.spec.patch_rate)
    kept = [(row, one[: max(len(one) - count, 1)]) for row, one in zip(batch, begun, strict=True) if one is not None]
    rows = [(text, speaker, voice, start) for (text, speaker, voice), start in kept for _ in range(ENDS)]
    if not rows:
        return
    tokens = sample(session, [(text, voice, start) for text, _, voice, start in rows], ENDS_TOP_P, seed + 1)
    for first in range(0, len(rows), ENDS):
        takes = []
        for row, one in zip(rows[first : first + ENDS], tokens[first : first + ENDS], strict=True):
            if one is None:
                continue
            take = replace(as_take(session, *row[:3], one), num_given=len(row[3]))
            rise = judge.rise(take.samples, rate)
            if rise is not None:
                takes.append(replace(take, value=rise))
        takes.sort(key=lambda one: one.value)
        text = rows[first][0]
        asks = text.endswith("?") and contour_of(text[:-1]) == RISING
        up, down = [one for one in takes if one.value >= RISE], [one for one in takes if one.value <= FALL]
        if not up or not down:
            continue
        chosen_first = listener.sorted(up if asks else down, rate)
        for chosen, rejected in zip(chosen_first, down, strict=False) if asks else [(chosen_first[0], up[-1])]:
            if words.error_rate(chosen, rate) <= MAX_CHOSEN:
                yield chosen, rejected


def as_pair(session: ModelSession, chosen: Take, rejected: Take, number: int, kind: str) -> Pair:
    """Both takes as a pair of `marstts preference train`; what they share of a yes/no question is their prefix.

    Its transcript is all but the last word, whatever words the prefix has: the prompt is the same then.
    """
    per_patch = session.engine.layout.codes_per_level
    begun, _, last = chosen.text.rpartition(" ")
    is_divided = bool(begun and chosen.num_given and last.endswith("?") and contour_of(chosen.text[:-1]) == RISING)
    given = chosen.num_given if is_divided else 0

    def part(codes: Codes, start: int, end: int | None) -> Codes:
        return tuple(
            level[start * n : None if end is None else end * n] for level, n in zip(codes, per_patch, strict=True)
        )

    sides = [part(one.codes, given, None) for one in (chosen, rejected)]
    lines = [
        SideLine(source=f"take of {one.value:.2f}", patches=len(codes[0]), has_eos=True)
        for one, codes in zip((chosen, rejected), sides, strict=True)
    ]
    line = PairLine(
        id=f"{kind} {number}", scheme=kind, text=last if is_divided else chosen.text,
        transcript=begun if is_divided else None, speaker=chosen.speaker, codec=session.codec.spec.name,
        encoders=session.encoder_names, row=0, chosen=lines[0], rejected=lines[1],
    )  # fmt: skip
    embeddings = {role: chosen.voice.embeddings[role] for role in session.encoder_names}
    return Pair(line, embeddings, part(chosen.codes, 0, given), *sides)


def main() -> None:
    """Read the command line and write the pairs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("model")
    parser.add_argument("manifest", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--kind", choices=["names", "questions"], required=True)
    parser.add_argument("--texts", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--names", type=Path, default=Path("names"))
    parser.add_argument("--recognizer", default="base.en")
    found = parser.parse_args()
    if not Path(found.model).is_dir():
        parser.error(f"MODEL: expected the folder of a bundle, not {found.model}")
    rng = random.Random(found.seed)
    tts = marstts.load(found.model)
    session = tts.session
    recordings = choose_recordings(found.manifest, rng)
    voices = [(who, tts.clone(file)) for who, file in recordings.items()]
    texts = name_texts(rng, found.names) if found.kind == "names" else question_texts(rng)
    words, ends, listener = NameJudge(found.recognizer), EndJudge(), QualityJudge(Path(found.model), recordings)
    pairs: list[Pair] = []
    for start in range(0, found.texts, TEXTS_IN_BATCH):
        batch = [(normalize(next(texts)).strip(), *rng.choice(voices)) for _ in range(TEXTS_IN_BATCH)]
        seed = found.seed * 1_000_003 + start
        made = (
            name_pairs(session, batch, words, listener, seed)
            if found.kind == "names"
            else question_pairs(session, batch, ends, words, listener, seed)
        )
        pairs += [as_pair(session, *sides, len(pairs) + number, found.kind) for number, sides in enumerate(made)]
        print(f"{start + TEXTS_IN_BATCH} texts, {len(pairs)} pairs", flush=True)
        if pairs:
            write_pairs(pairs, found.output, session.codec.spec.patch_layout)


if __name__ == "__main__":
    main()
