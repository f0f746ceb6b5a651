"""Test sets in miniature layouts, and the committed manifests against the code that makes them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import marstts
from marstts import audio
from marstts.audio import Waveform, write
from marstts.errors import DataError
from marstts.text.normalize import normalize
from marstts_lab.data.corpora import synthetic as corpora_synthetic
from marstts_lab.data.corpora.build_manifest import RawUtterance
from marstts_lab.data.corpora.folder import folder
from marstts_lab.data.corpora.synthetic import split_of_sentence
from marstts_lab.data.manifest import Utterance, write_manifest
from marstts_lab.evaluation.recordings import find_recordings
from marstts_lab.evaluation.testset import refuse_repeated_ids
from marstts_lab.evaluation.testsets import catalog, ears, hard_texts, synthetic
from marstts_lab.evaluation.testsets.catalog import missing_for_testset, open_testset, subsample
from marstts_lab.metrics.trial import Trial
from marstts_lab.metrics.words import plain_words

pytestmark = pytest.mark.slow


def recording(path: Path, seconds: float = 1.5) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write(Waveform(np.full(int(seconds * 8000), 0.1, np.float32), 8000), path)


# EARS


def test_ears_has_43_speakers_for_tests_and_64_for_validation():
    test, validation = ears.split_speakers().values()
    assert (len(test), len(validation), len({*test, *validation})) == (43, 64, 107)


def test_half_of_the_samples_of_each_style_are_cloned_from_the_other_half():
    pairs = list(ears.pair_samples(["p001"]))
    samples_used, references = {pair.sample for pair in pairs}, {pair.reference for pair in pairs}
    assert not samples_used & references
    assert len(samples_used) == len(references) == len(pairs)
    assert all(ears.style_of(pair.reference) == pair.style for pair in pairs)
    assert all(ears.style_of(pair.compared_with) == pair.style for pair in pairs)
    assert all(pair.compared_with not in (pair.sample, pair.reference) for pair in pairs)
    assert len({pair.compared_with for pair in pairs if pair.style == "regular"}) > 3
    for style, samples in ears.samples_by_style().items():
        assert sum(pair.style == style for pair in pairs) == len(samples) // 2
    assert {pair.style for pair in pairs} == {
        "regular", "loud", "whisper", "highpitch", "lowpitch", "fast", "emotional",
    }  # fmt: skip


@pytest.fixture
def small_ears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A speaker of the test set with two pairs, and all transcripts."""
    pairs = [
        ears.SamplePair("p001", "rainbow_01_loud", "sentences_05_loud", "rainbow_02_loud"),
        ears.SamplePair("p001", "emo_fear_sentences", "emo_relief_sentences", "emo_pain_sentences"),
    ]
    monkeypatch.setattr(ears, "pair_samples", lambda speakers: pairs)
    for pair in pairs:
        recording(tmp_path / "p001" / f"{pair.sample}.wav")
        recording(tmp_path / "p001" / f"{pair.reference}.wav")
        recording(tmp_path / "p001" / f"{pair.compared_with}.wav")
    samples = [sample for names in ears.samples_by_style().values() for sample in names]
    (tmp_path / "transcripts.json").write_text(json.dumps({sample: f"Words of {sample}." for sample in samples}))
    return tmp_path


def test_ears_is_read_from_its_layout(small_ears: Path):
    loud, fear = open_testset("ears", small_ears)
    assert (loud.id, loud.style, fear.style) == ("p001-rainbow_01_loud", "loud", "emotional")
    assert loud.compared_with == small_ears / "p001" / "rainbow_02_loud.wav"
    assert (loud.text, loud.reference_transcript) == ("Words of rainbow_01_loud.", "Words of sentences_05_loud.")
    assert loud.ground_truth.is_file() and fear.reference.name == "emo_relief_sentences.wav"


def test_missing_speakers_of_ears_are_counted(small_ears: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.undo()
    with pytest.raises(DataError, match=r"test split .* 43 speakers, but 42 of them are missing"):
        open_testset("ears", small_ears)
    with pytest.raises(DataError, match=r"validation split .* 64 speakers, but 64 of them are missing"):
        open_testset("ears-validation", small_ears)


# synthetic


def test_the_synthetic_manifest_has_a_held_out_sentence_of_every_speaker_and_style():
    lines = synthetic.committed_lines()
    by_id = {line.id: line for line in lines}
    synthesized = [line for line in lines if line.reference]
    assert set(Counter((line.speaker, line.style) for line in synthesized).values()) == {1}
    assert len(synthesized) == 8 * 7
    for line in synthesized:
        reference = by_id[line.reference]
        assert (reference.speaker, reference.style) == (line.speaker, line.style) and reference.text != line.text
    assert {split_of_sentence(line.text) for line in lines} == {"test"}


def corpus(path: Path) -> Path:
    """A manifest of two test speakers in two styles, and one training speaker."""
    utterances = [
        Utterance(
            id=f"{speaker}-test-{number}", audio=f"audio/{speaker}/{speaker}-test-{number}.flac",
            text=f"Sentence {number} of {style} {speaker}.", speaker=speaker, style=style, seconds=3.0,
            source_rate=24000, split=split, license="none",
        )
        for speaker, split in (("anna.20", "test"), ("bert.20", "test"), ("cleo.1", "train"))
        for style, numbers in (("regular", (1, 2, 3)), ("whisper", (4, 5)))
        for number in numbers
    ]  # fmt: skip
    write_manifest(utterances, path)
    for utterance in utterances:
        recording(path.parent / utterance.audio)
    return path


def test_missing_synthetic_recordings_are_rendered_and_the_others_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    lines = [
        synthetic.RenderedLine("flite-slt.20-test-1", "whisper", "Say this.", "flite-slt.20-test-2"),
        synthetic.RenderedLine("flite-slt.20-test-2", "whisper", "And that.", ""),
    ]
    monkeypatch.setattr(synthetic, "committed_lines", lambda: lines)
    monkeypatch.setattr(synthetic.engines, "check_installed", lambda names: None)
    rendered = []

    def render(output, spec):
        rendered.append((spec.id, spec.style, spec.text, spec.speaker.id))
        recording(output / "audio" / spec.speaker.id / f"{spec.id}.flac")
        return None, ""

    monkeypatch.setattr(corpora_synthetic, "render_to_file", render)
    recording(tmp_path / "audio" / "flite-slt.20" / "flite-slt.20-test-2.flac")
    [trial] = open_testset("synthetic", tmp_path)
    assert rendered == [("flite-slt.20-test-1", "whisper", "Say this.", "flite-slt.20")]
    assert trial.ground_truth.is_file() and trial.reference_transcript == "And that."
    assert open_testset("synthetic", tmp_path) == [trial] and len(rendered) == 1


@pytest.fixture
def three_voices(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Trial]:
    """The synthetic test set with two speakers' regular voices and one whisper."""
    voices = [
        Trial(
            id=f"{speaker}-test-1", text="Say this.", speaker=speaker, style=style,
            reference=tmp_path / f"{speaker}-{style}.flac", reference_transcript="And that.",
        )
        for speaker, style in (("anna.20", "regular"), ("anna.20", "whisper"), ("bert.20", "regular"))
    ]  # fmt: skip
    monkeypatch.setattr(hard_texts, "read_synthetic", lambda root: voices)
    return voices


def test_every_hard_text_is_spoken_in_every_regular_voice(three_voices: list[Trial]):
    trials = open_testset("hard-texts", Path("anywhere"))
    assert len(trials) == 2 * 125 and {trial.speaker for trial in trials} == {"anna.20", "bert.20"}
    assert {trial.reference for trial in trials} == {three_voices[0].reference, three_voices[2].reference}
    assert all(trial.ground_truth is None and plain_words(trial.words) for trial in trials)
    kinds = Counter(trial.style for trial in trials)
    assert kinds.keys() == {
        "one-word", "two-words", "sixty-words", "repeats", "numbers", "punctuation", "capitals", "unknown",
    }  # fmt: skip
    assert min(kinds.values()) >= 20 and len({trial.id for trial in trials}) == len(trials)
    refuse_repeated_ids(trials, Path("hard-texts"))


def test_metrics_of_hard_texts_use_the_words_of_the_front_end():
    for _, text, spoken in hard_texts.committed_texts():
        assert plain_words(normalize(text)) == plain_words(spoken or text), text


def test_the_synthetic_test_set_is_kept_in_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert catalog.cached_testset("synthetic") == tmp_path / "marstts" / "synthetic-testset"


# Seed-TTS-eval, LibriSpeech, anything


def test_seed_tts_is_read_from_its_list(tmp_path: Path):
    recording(tmp_path / "en" / "prompt-wavs" / "p1.wav")
    recording(tmp_path / "en" / "wavs" / "u1.wav")
    meta = tmp_path / "en" / "meta.lst"
    meta.write_text("u1|Prompt words.|prompt-wavs/p1.wav|Say this.\nu2|Prompt words.|prompt-wavs/p1.wav|And this.\n")
    first, second = open_testset("seed-tts", tmp_path)
    assert (first.id, first.text, first.reference_transcript) == ("u1", "Say this.", "Prompt words.")
    assert first.ground_truth == tmp_path / "en" / "wavs" / "u1.wav" and second.ground_truth is None
    meta.write_text("u1|Prompt words.|prompt-wavs/p1.wav|Say this.\n" * 2)
    with pytest.raises(DataError, match="u1 occur twice"):
        open_testset("seed-tts", tmp_path)
    meta.write_text("u1|Prompt words.|prompt-wavs/p2.wav|Say this.\n")
    with pytest.raises(DataError, match=r"meta\.lst:1: .*p2\.wav does not exist"):
        open_testset("seed-tts", tmp_path)
    meta.write_text("u1|Say this.\n")
    with pytest.raises(DataError, match="got 2 fields"):
        open_testset("seed-tts", tmp_path)
    with pytest.raises(DataError, match=r"meta\.lst: no such file"):
        open_testset("seed-tts", tmp_path / "nowhere")


def test_librispeech_pairs_recordings_of_4_to_10_seconds_across_chapters(tmp_path: Path):
    for chapter, lengths in ((7, (5.0, 3.0)), (8, (6.0, 11.0)), (9, (4.5,))):
        folder = tmp_path / "test-clean" / "61" / str(chapter)
        names = [f"61-{chapter}-{number:04d}" for number in range(len(lengths))]
        for name, seconds in zip(names, lengths, strict=True):
            recording(folder / f"{name}.flac", seconds)
        lines = "".join(f"{name} WORDS OF {name}\n" for name in names)
        (folder / f"61-{chapter}.trans.txt").write_text(lines)
    trials = open_testset("librispeech", tmp_path)
    assert [trial.id for trial in trials] == ["61-7-0000", "61-8-0000", "61-9-0000"]
    assert trials[0].text == "Words of 61-7-0000."
    assert all(trial.reference.stem.split("-")[1] != trial.id.split("-")[1] for trial in trials)
    (tmp_path / "test-clean" / "61" / "7" / "61-7-0000.flac").unlink()
    with pytest.raises(DataError, match="lists 61-7-0000"):
        open_testset("librispeech", tmp_path)
    with pytest.raises(DataError, match="expected LibriSpeech's"):
        open_testset("librispeech", tmp_path / "test-clean" / "61")


def test_any_folder_with_transcripts_is_a_test_set(tmp_path: Path):
    for name in ("anna/one.wav", "anna/two.wav", "bert/three.flac", "bert/four.flac", "bert/untranscribed.wav"):
        recording(tmp_path / name)
    (tmp_path / "metadata.csv").write_text("file|text\nanna/one|First words.\nanna/two|Second words.\n")
    (tmp_path / "bert" / "three.txt").write_text("Third words.")
    (tmp_path / "bert" / "four.txt").write_text("Fourth words.")
    trials = open_testset(str(tmp_path))
    assert {trial.id for trial in trials} == {"anna_one", "anna_two", "bert_three", "bert_four"}
    assert all(trial.reference.parent == trial.ground_truth.parent != trial.reference for trial in trials)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="with their transcripts"):
        open_testset(str(tmp_path / "empty"))


def test_a_list_without_a_header_is_that_of_prepare_folder(tmp_path: Path):
    for name in ("a", "b", "c"):
        recording(tmp_path / f"{name}.wav")
    (tmp_path / "metadata.csv").write_text("a.wav|The first.|anna\nb|The second.|bert\nc.wav|The third.\n")
    found = [(one.speaker, one.transcript) for one in find_recordings(tmp_path)]
    assert found == [("anna", "The first."), ("bert", "The second."), (tmp_path.name, "The third.")]


def test_a_list_names_recordings_of_subfolders_as_prepare_folder_reads_it(tmp_path: Path):
    for name in ("anna/one.wav", "anna/two.flac", "bert/one.wav", "wavs/three.wav", "cleo/book/four.wav", "cleo/x.wav"):
        recording(tmp_path / name)
    lines = "anna/one.wav|The first.\n anna/two | The second. | amy \nbert/one.wav|Of this list.\nthree|The third.\n"
    lines += "cleo/book/four|The fourth.\ncleo/book/none.wav|A file that is not there.\n../x.wav|Outside.|eve"
    (tmp_path / "metadata.csv").write_text(lines)
    prepared = {row.audio: (row.speaker, row.text) for row in folder(tmp_path, "CC0") if isinstance(row, RawUtterance)}
    found = {one.path: (one.speaker, one.transcript) for one in find_recordings(tmp_path)}
    assert found == prepared | {tmp_path / "cleo" / "x.wav": ("cleo", "")} and len(prepared) == 5
    assert found[tmp_path / "wavs" / "three.wav"] == (tmp_path.name, "The third.")
    (tmp_path / "cleo" / "x.txt").write_text("Of its text file.")
    found = {one.path.relative_to(tmp_path).as_posix(): one.transcript for one in find_recordings(tmp_path)}
    assert (found["cleo/x.wav"], found["bert/one.wav"]) == ("Of its text file.", "Of this list.")


def test_a_file_of_the_folder_itself_is_meant_before_one_of_wavs(tmp_path: Path):
    for name in ("one.wav", "wavs/one.wav"):
        recording(tmp_path / name)
    (tmp_path / "metadata.csv").write_text("one.wav|First.\n")
    assert [one.transcript for one in find_recordings(tmp_path)] == ["First.", ""]


def test_real_speakers_get_eight_sentences_each_from_a_reference_of_good_length(tmp_path: Path):
    for number in range(10):
        for name, seconds in (("short", 2.0), ("good", 4.0), ("tiny", 0.5), ("long", 15.0)):
            recording(tmp_path / f"p{number}" / f"{name}.wav", seconds)
    (tmp_path / "p3" / "good.txt").write_text("Words of a speaker.")
    trials = open_testset("real-speakers", tmp_path)
    assert len(trials) == 80 and Counter(t.speaker for t in trials) == {f"p{n}": 8 for n in range(10)}
    assert {trial.reference.stem for trial in trials} == {"good"} and len({t.text for t in trials[:20]}) == 20
    assert {t.text for t in trials} <= {line.text for line in synthetic.committed_lines() if line.reference}
    assert [t.reference_transcript for t in trials if t.speaker in ("p3", "p4")] == ["Words of a speaker."] * 8 + [
        ""
    ] * 8
    for name in ("good", "long"):
        (tmp_path / "p7" / f"{name}.wav").unlink()
    assert next(t for t in open_testset("real-speakers", tmp_path) if t.speaker == "p7").reference.stem == "short"
    (tmp_path / "p7" / "short.wav").unlink()
    with pytest.raises(DataError, match="at least 10 speakers, but there are 9"):
        open_testset("real-speakers", tmp_path)


def test_real_speakers_of_a_corpus_are_those_of_no_training_split(tmp_path: Path):
    rows = []
    for number in range(12):
        for take, split in ((0, "test"), (1, "train" if number == 3 else "validation")):
            path = tmp_path / f"p{number}-{take}.wav"
            recording(path, 4.0)
            rows.append(
                Utterance(
                    id=path.stem, audio=path.name, text="Some words.", speaker=f"p{number}", style="regular",
                    seconds=4.0, source_rate=16000, split=split, license="CC0",
                )
            )  # fmt: skip
    write_manifest(rows, tmp_path / "utterances.jsonl")
    trials = open_testset("real-speakers", tmp_path)
    assert {trial.speaker for trial in trials} == {f"p{n}" for n in range(12)} - {"p3"}
    assert {trial.reference_transcript for trial in trials} == {"Some words."}


def test_the_test_split_of_a_manifest_is_a_test_set_and_unknown_names_are_refused(tmp_path: Path):
    trials = open_testset(str(corpus(tmp_path / "utterances.jsonl")))
    assert len(trials) == 10 and {trial.style for trial in trials} == {"regular", "whisper"}
    with pytest.raises(DataError, match=r"expected .*synthetic, hard-texts, ears, ears-validation, seed-tts"):
        open_testset("synthetics")


def test_a_subsample_is_spread_over_the_styles(tmp_path: Path):
    trials = open_testset(str(corpus(tmp_path / "utterances.jsonl")))
    few = subsample(trials, 4)
    assert Counter(trial.style for trial in few) == {"regular": 2, "whisper": 2}
    assert few == [trial for trial in trials if trial in few] and subsample(trials, None) == trials
    assert subsample(trials, 99) == trials


def test_the_packaged_voices_are_a_test_set_that_needs_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("shutil.which", lambda program: None)
    assert missing_for_testset("packaged-voices") == []
    for root in (None, tmp_path / "own"):
        trials = open_testset("packaged-voices", root)
        assert {trial.speaker for trial in trials} == set(marstts.voices())
        assert all(audio.read(trial.reference).seconds > 1 for trial in trials)
        assert open_testset("packaged-voices", root) == trials
