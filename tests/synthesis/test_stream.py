"""Streams against the whole: the same tokens, the same audio, edges as documented, nothing taken back."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marstts import audio
from marstts.audio import TAIL_BELOW_PEAK_DB, Waveform
from marstts.audio.limiter import limit_peaks
from marstts.codec.mini import MiniCodec
from marstts.errors import TextError
from marstts.generation.scheduler import AsyncScheduler
from marstts.synthesis.backoff import BackoffConfig
from marstts.synthesis.incremental_decoder import StreamConfig
from marstts.synthesis.model_session import ModelSession
from marstts.synthesis.speech import (
    EDGE_BELOW_PEAK_DB,
    MAX_TAIL_SECONDS,
    Chunk,
    Continuation,
    Take,
    pause_after,
    silence,
)
from marstts.synthesis.stream_edges import SILENCE_DB, StreamingTrimmer
from marstts.synthesis.synthesizer import Synthesizer
from scripted import (
    CODEBOOK_SIZE,
    LOUD,
    SILENT,
    SOFT,
    Script,
    ScriptedEngine,
    ScriptedPrompt,
    ScriptedTake,
    good,
    scripted_synthesizer,
    with_engine,
    with_parts,
)

pytestmark = pytest.mark.slow

TEXT = "The cat sat on the mat. She sells sea shells there. It was a fine day for both."


class UndecidedStepper(ScriptedEngine):
    """Scripts the number of patches, not their codes; some frames are quiet."""

    def next_logits(self, state, tokens):
        logits, state = super().next_logits(state, tokens)
        logits[logits[:, -1] < 0, :CODEBOOK_SIZE] = 0.0
        return logits, state


def undecided(synthesizer: Synthesizer) -> Synthesizer:
    engine = synthesizer.session.engine
    return with_engine(synthesizer, UndecidedStepper(engine.script, engine.layout))


def samples_of(chunks: Sequence[Chunk]) -> np.ndarray:
    return np.concatenate([chunk.samples for chunk in chunks])


def edges_of(whole: np.ndarray) -> np.ndarray:
    """The documented rule for a sentence, looking at all of it."""
    padded = np.pad(whole.astype(np.float64), 1024)
    powers = [np.mean(padded[i : i + 2048] ** 2) for i in range(0, len(whole) + 1, 512)]
    floor = 10 ** (SILENCE_DB / 10)
    above = [10 * math.log10(power / max(max(powers[: n + 1]), floor) + 1e-20) for n, power in enumerate(powers)]
    loud = max((n for n, level in enumerate(above) if level > -TAIL_BELOW_PEAK_DB), default=0)
    longest = loud + MAX_TAIL_SECONDS * 24_000 / 512
    audible = [n for n, power in enumerate(powers) if power > floor and above[n] > -EDGE_BELOW_PEAK_DB and n <= longest]
    return whole[audible[0] * 512 : (audible[-1] + 1) * 512] if audible else whole[:0]


def documented(tts: Synthesizer, takes: Sequence[Take]) -> np.ndarray:
    """Expected audio of the stream, from the offline decode of every take's codes."""
    rate = tts.session.codec.spec.sample_rate
    pieces = []
    for index, take in enumerate(takes):
        pieces.append(limit_peaks(Waveform(edges_of(tts.session.codec.decode(take.codes).samples), rate)))
        if index + 1 < len(takes):
            pieces.append(silence(pause_after(take.text), rate))
    return audio.join(pieces).samples


def with_mini_codec(tts: Synthesizer) -> Synthesizer:
    """The packaged codec under a scripted model whose codes are random."""
    codec = MiniCodec(Path(str(files("marstts"))) / "models_data/mini/codec")
    return with_parts(tts, codec=codec)


@pytest.mark.parametrize("sizes", [(1, 1), (2, 24), (5, 7)])
def test_a_stream_joined_is_the_offline_decode(reference: Waveform, sizes: tuple[int, int]):
    tts = undecided(scripted_synthesizer(lambda attempt, prompt: ScriptedTake((23, 17, 31)[attempt])))
    voice, config = tts.clone(reference), StreamConfig(first_chunk_patches=sizes[0], max_chunk_patches=sizes[1])
    chunks = list(tts.stream(TEXT, voice, seed=3, top_p=1.0, config=config))
    takes = [chunk.take for chunk in chunks if chunk.take is not None]
    assert len(takes) == 3 and len(chunks) > 6
    np.testing.assert_allclose(samples_of(chunks), documented(tts, takes), atol=1e-3)


def test_with_the_packaged_codec_too(reference: Waveform):
    tts = undecided(scripted_synthesizer(lambda attempt, prompt: ScriptedTake(30)))
    voice, tts = tts.clone(reference), with_mini_codec(tts)
    chunks = list(tts.stream("The cat sat on the mat.", voice, top_p=1.0))
    [take] = [chunk.take for chunk in chunks if chunk.take is not None]
    assert len(chunks) >= 3 and len(take.codes[0]) == 30
    np.testing.assert_allclose(samples_of(chunks), documented(tts, [take]), atol=1e-3)


def test_tokens_and_rejections_are_those_of_speak(reference: Waveform):
    def script() -> Script:
        """Lengths of the attempts at each sentence."""
        attempts: dict[bytes, list[int]] = {}
        lengths = iter(([4, 23], [17], [60, 31]))

        def script(attempt: int, prompt: ScriptedPrompt) -> ScriptedTake:
            sentence = prompt.text_ids.tobytes()
            if sentence not in attempts:
                attempts[sentence] = next(lengths)
            return ScriptedTake(attempts[sentence].pop(0))

        return script

    spoken = undecided(scripted_synthesizer(script())).speak(
        TEXT, scripted_synthesizer(good).clone(reference), top_p=1.0
    )
    tts = undecided(scripted_synthesizer(script()))
    whole = StreamConfig(first_chunk_patches=100)  # nothing leaves before a take is whole
    takes = [chunk.take for chunk in tts.stream(TEXT, tts.clone(reference), top_p=1.0, config=whole) if chunk.take]
    assert [take.attempts for take in takes] == [2, 1, 2]
    for streamed, take in zip(takes, spoken.takes, strict=True):
        assert (streamed.text, streamed.stop, streamed.attempts) == (take.text, take.stop, take.attempts)
        for ours, theirs in zip(streamed.codes, take.codes, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_chunks_have_their_position(reference: Waveform):
    tts = scripted_synthesizer(good)
    chunks = list(tts.stream(TEXT + " 🙂", tts.clone(reference)))
    numbers = [chunk.sentence for chunk in chunks]
    assert numbers == sorted(numbers) and set(numbers) == {1, 2, 3}
    assert [chunk.is_last for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert [chunk.take is not None for chunk in chunks] == [
        index + 1 == len(chunks) or numbers[index + 1] > number for index, number in enumerate(numbers)
    ]
    assert chunks[0].warning == "left out what cannot be spoken: emoji and signs (🙂 slightly smiling face)"
    assert not any(chunk.warning for chunk in chunks[1:])
    for number in (1, 2, 3):
        sent = samples_of([chunk for chunk in chunks if chunk.sentence == number])
        [take] = [chunk.take for chunk in chunks if chunk.sentence == number and chunk.take]
        np.testing.assert_array_equal(sent[: len(take.waveform.samples)], take.waveform.samples)
    assert chunks[0].sample_rate == 24_000 and all(np.abs(chunk.samples).max() <= 1 for chunk in chunks)


@dataclass
class Gated(ScriptedEngine):
    """Makes a patch only when it may, and counts them."""

    def __post_init__(self) -> None:
        self.leave, self.made = threading.Semaphore(10**6), 0

    def next_logits(self, state, tokens):
        if tokens.shape[1] == 0:
            assert self.leave.acquire(timeout=20), "more patches were needed than allowed"
            self.made += 1
        return super().next_logits(state, tokens)


def gated(script: Any = lambda attempt, prompt: ScriptedTake(60)) -> tuple[Synthesizer, Gated]:
    tts = with_parts(scripted_synthesizer(script), backoff=BackoffConfig(min_chars_per_second=3))
    engine = Gated(script, tts.session.engine.layout)
    return with_engine(tts, engine), engine


def test_the_first_chunk_leaves_after_the_first_patches(reference: Waveform):
    tts, engine = gated()
    voice = tts.clone(reference)
    engine.leave = threading.Semaphore(2 + tts.session.codec.lookahead_patches)
    chunks = tts.stream("The cat sat on the mat.", voice)
    first = next(chunks)
    assert 0 < first.seconds < 2 * 2048 / 24_000
    engine.leave.release(1000)
    later = list(chunks)
    assert len(later) < 10 and later[-1].is_last and max(chunk.seconds for chunk in later) > 5 * first.seconds


def test_closing_a_stream_stops_the_work_within_a_patch(reference: Waveform):
    tts, engine = gated()
    voice = tts.clone(reference)
    engine.leave = threading.Semaphore(7)
    threads = threading.active_count()
    chunks = tts.stream(TEXT, voice)
    next(chunks)
    engine.leave.release(1)
    chunks.close()
    assert engine.made <= 8 and threading.active_count() == threads


def test_a_take_that_fails_before_audio_is_sent_is_sampled_again(reference: Waveform):
    """Silence, however long, is never sent; neither is what ends within the first portion."""
    for first in (ScriptedTake(22, SILENT), ScriptedTake(3)):
        tts = scripted_synthesizer(lambda attempt, prompt, first=first: first if attempt == 0 else ScriptedTake(20))
        chunks = list(
            tts.stream("The cat sat on the mat.", tts.clone(reference), config=StreamConfig(first_chunk_patches=12))
        )
        take = chunks[-1].take
        assert (take.attempts, take.top_p, take.warning) == (2, 0.4, None) and len(take.codes[0]) == 20
        assert samples_of(chunks) is not None and len(samples_of(chunks)) == len(take.waveform.samples)


def test_a_take_that_fails_after_audio_was_sent_is_kept_with_a_warning(reference: Waveform):
    tts = scripted_synthesizer(lambda attempt, prompt: ScriptedTake(58 if attempt == 0 else 20))
    chunks = list(tts.stream("The cat sat on the mat. It rained.", tts.clone(reference)))
    first, second = [chunk for chunk in chunks if chunk.take]
    assert first.take.attempts == 1 and len(first.take.codes[0]) == 58
    assert "beginning had been sent" in first.warning and "The cat sat" in first.warning
    assert second.warning is None and not any(chunk.warning for chunk in chunks if chunk.take is None)


def test_where_every_take_fails_unheard_the_best_is_sent_with_a_warning(reference: Waveform):
    spoken = [2, 1, 4, 3, 1]
    tts = scripted_synthesizer(lambda attempt, prompt: ScriptedTake(spoken[attempt]))
    text = "She sells sea shells on the sunny sea shore."
    [chunk] = tts.stream(text, tts.clone(reference), config=StreamConfig(first_chunk_patches=30))
    assert chunk.take.attempts == 5 and chunk.is_last and "5 attempts" in chunk.warning
    assert chunk.take.top_p == 0.6 and len(chunk.samples) == len(chunk.take.waveform.samples) > 0


def test_a_sentence_may_continue_from_the_take_before(reference: Waveform):
    tts = scripted_synthesizer(good)
    list(tts.stream(TEXT, tts.clone(reference, "Her words."), continuation=Continuation.PER_CHUNK))
    assert [len(prompt.prefix_tokens) for prompt in tts.session.engine.prompts][1:] == [20, 20]
    assert tts.session.engine.prompts[1].prefix_tokens[0, 0] == LOUD


def test_what_cannot_be_spoken_is_refused_before_the_first_chunk(reference: Waveform):
    tts = scripted_synthesizer(good)
    with pytest.raises(TextError, match="nothing to speak"):
        tts.stream("🙂", tts.clone(reference))


def test_streams_may_share_a_batcher(reference: Waveform):
    tts = undecided(scripted_synthesizer(good))
    voice = tts.clone(reference)
    alone = [samples_of(list(tts.stream(TEXT, voice, seed=seed, top_p=1.0))) for seed in range(3)]
    found: dict[int, np.ndarray] = {}

    def call(seed: int, scheduler: AsyncScheduler) -> None:
        found[seed] = samples_of(list(tts.stream(TEXT, voice, seed=seed, top_p=1.0, scheduler=scheduler)))

    with AsyncScheduler(tts.session.engine, capacity=2) as scheduler:
        callers = [threading.Thread(target=call, args=(seed, scheduler)) for seed in range(3)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(20)
    for seed in range(3):
        np.testing.assert_array_equal(found[seed], alone[seed])


class ChosenSizes:
    """Sizes of chunks that a test draws, as a server chooses them for more or fewer listeners."""

    checks_sent = True
    least = StreamConfig(first_chunk_patches=2, max_chunk_patches=4)

    def __init__(self, number: int) -> None:
        self._rng = np.random.default_rng(number)

    def first(self) -> int:
        return int(self._rng.integers(2, 7))

    def following(self, size: int) -> int:
        return int(self._rng.integers(4, 12))

    def may_wait(self, seconds: float) -> bool:
        return False


class Hesitant(UndecidedStepper):
    """A take begins with as many silent patches as its `code` says."""

    def next_logits(self, state, tokens):
        logits, state = super().next_logits(state, tokens)
        for row, (take, made) in enumerate(zip(state.takes, state.num_generated, strict=True)):
            if made < min(take.code, take.patches):
                logits[row, : CODEBOOK_SIZE + 1] = -1000.0
                logits[row, SILENT] = 0.0
        return logits, state


@pytest.mark.parametrize("has_packaged_codec", [False, True])
def test_what_a_listener_gets_does_not_depend_on_the_sizes_of_chunks(reference: Waveform, has_packaged_codec: bool):
    """Codes, attempts, edges and samples: of takes that end before or after something is sent, sound or flawed ones."""
    text, num_attempts, num_chunks = "She sells. It was a fine day.", list[int](), set[int]()
    voice = scripted_synthesizer(good).clone(reference)

    def stream(seed: int, sizes: ChosenSizes) -> list[Chunk]:
        rng = np.random.default_rng(seed)
        takes = [ScriptedTake(*rng.integers((1, 0), (16, 5)).tolist()) for _ in range(20)]
        tts = scripted_synthesizer(good)
        tts = with_engine(tts, Hesitant(lambda attempt, prompt: takes[attempt], tts.session.engine.layout))
        tts = with_parts(tts, backoff=BackoffConfig(max_chars_per_second=1000, onset_seconds=0.0))
        tts = with_mini_codec(tts) if has_packaged_codec else tts
        return list(tts.stream(text, voice, seed=seed, top_p=1.0, config=sizes))

    for seed in range(2 if has_packaged_codec else 6):
        streams = [stream(seed, ChosenSizes(number)) for number in range(3)]
        whole, *others = [samples_of(chunks) for chunks in streams]
        for other in others:
            assert len(other) == len(whole)
            np.testing.assert_allclose(other, whole, atol=3 / 32768)
        reports = [[chunk.take.report() for chunk in chunks if chunk.take] for chunks in streams]
        assert reports[1:] == reports[:-1]
        num_attempts += [report["attempts"] for report in reports[0]]
        num_chunks |= {sum(chunk.sentence == number for chunk in chunks) for chunks in streams for number in (1, 2)}
    assert len(num_chunks) > 1 and (has_packaged_codec or min(num_attempts) == 1 < max(num_attempts))


@pytest.mark.parametrize("patches", [1, 2, 3, 4, 6, 7, 11])
def test_a_take_is_sent_or_sampled_again_whoever_else_listens(reference: Waveform, patches: int):
    """Also where larger chunks, of a server with many listeners, would have sent nothing of it yet."""
    too_soft = BackoffConfig(min_loudness=-25.0, max_chars_per_second=1000, onset_seconds=0.0)
    attempts = []
    for first, following in ((2, 4), (2, 9), (3, 5), (6, 4), (9, 9)):
        sizes = ChosenSizes(0)
        sizes.first, sizes.following = lambda first=first: first, lambda size, following=following: following  # type: ignore[method-assign]
        tts = scripted_synthesizer(lambda attempt, _: ScriptedTake(20) if attempt else ScriptedTake(patches, SOFT))
        tts = with_parts(tts, backoff=too_soft)
        *_, last = tts.stream("She sells sea shells.", tts.clone(reference), config=sizes)
        assert last.take is not None and (last.take.warning is None) == (last.take.attempts == 2)
        attempts.append(last.take.attempts)
    assert attempts == [1 if patches >= 3 else 2] * 5  # two patches and one of lookahead


def test_edges_are_the_same_however_the_audio_comes_in():
    rng = np.random.default_rng(0)
    levels = [0, 1e-5, 0.3, 0.3, 1e-4, 0, 0.01, 0.3, 1e-3, 1e-4, 0]
    for end in ([], [0.01] * 20, [0.01] * 20 + [0.2, 0.01]):  # breath after the last word, and before it
        loudness = np.repeat(levels + end, 2048)
        whole = (loudness * rng.normal(size=len(loudness))).astype(np.float32)
        check_edges(whole, audio.join([Waveform(edges_of(whole), 24_000)]).samples)


def check_edges(whole: np.ndarray, expected: np.ndarray) -> None:
    assert 5 * 2048 < len(expected) < len(whole) - 2048
    for size in (100, 2048, 5000, len(whole)):
        edges = StreamingTrimmer(24_000)
        pieces = [edges.push(whole[start : start + size]) for start in range(0, len(whole), size)]
        joined = np.concatenate([*pieces, edges.finish()])
        np.testing.assert_allclose(joined, expected, atol=1e-7)


def test_pcm_is_sixteen_bits_little_endian():
    chunk = Chunk(samples=np.array([0, 1, -1, 0.5], np.float32), sample_rate=24_000, sentence=1)
    assert np.frombuffer(chunk.pcm(), "<i2").tolist() == [0, 32767, -32767, 16384]


@pytest.mark.parametrize(
    ("config", "is_checked"),
    [
        (StreamConfig(), True),
        (StreamConfig(checks_sent=False), False),
        (StreamConfig(checks_sent=False, first_chunk_patches=1000), True),  # nothing was sent: it can be sampled again
    ],
)
def test_flaws_are_looked_for_in_sent_sentences_only_if_someone_is_told(config, is_checked, monkeypatch):
    checked = []

    def decode_take(session, followed, *arguments, **options):
        checked.append(followed.segment.text)
        return original(session, followed, *arguments, **options)

    original = ModelSession.decode_take
    monkeypatch.setattr(ModelSession, "decode_take", decode_take)
    *_, last = scripted_synthesizer(good).stream("The cat sat on the mat.", config=config)
    assert checked == ["The cat sat on the mat."] * is_checked
    [expected] = scripted_synthesizer(good).speak("The cat sat on the mat.").takes
    assert last.take is not None and last.take.attempts == 1 and last.take.stop is expected.stop
    assert all(np.array_equal(*levels) for levels in zip(last.take.codes, expected.codes, strict=True))
