"""Public test sets in miniature layouts, and the committed manifests against what makes them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from marstts.audio import Waveform, write
from marstts.data.corpora.studio import split_of_sentence
from marstts.data.manifest import Utterance, write_manifest
from marstts.errors import DataError
from marstts.evaluation.metrics.words import plain_words
from marstts.evaluation.testset import Trial, refuse_repeated_ids
from marstts.evaluation.testsets import catalogue, ears, studio, torture
from marstts.evaluation.testsets.catalogue import open_testset, thin_out
from marstts.text.normalize import normalize


def tell(line: str) -> None:
    pass


def recording(path: Path, seconds: float = 1.5) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write(Waveform(np.full(int(seconds * 8000), 0.1, np.float32), 8000), path)


# EARS


def test_the_committed_ears_manifest_is_what_the_code_makes():
    for split, speakers in ears.split_speakers().items():
        committed = Path(ears.__file__).with_name(ears.MANIFESTS[split]).read_text(encoding="utf-8")
        assert committed.splitlines() == ears.manifest_lines(list(ears.plan(speakers)))
        assert ears.committed_pairs(split) == list(ears.plan(speakers))


def test_ears_has_43_speakers_for_tests_and_64_for_validation():
    test, validation = ears.split_speakers().values()
    assert (len(test), len(validation), len({*test, *validation})) == (43, 64, 107)


def test_half_of_the_samples_of_each_style_are_spoken_in_the_voice_of_the_other_half():
    pairs = list(ears.plan(["p001"]))
    spoken, references = {pair.sample for pair in pairs}, {pair.reference for pair in pairs}
    assert not spoken & references
    assert len(spoken) == len(references) == len(pairs)
    assert all(ears.style_of(pair.reference) == pair.style for pair in pairs)
    for style, samples in ears.samples_by_style().items():
        assert sum(pair.style == style for pair in pairs) == len(samples) // 2
    assert {pair.style for pair in pairs} == {
        "regular", "loud", "whisper", "highpitch", "lowpitch", "fast", "emotional",
    }  # fmt: skip


def test_the_names_of_samples_are_the_datasets_own():
    facts = Path(__file__).parents[3] / "shared/reference/ears/transcripts.json"
    if not facts.is_file():
        pytest.skip("EARS's own transcripts.json is not here")
    slow = {name for name in json.loads(facts.read_text()) if name.endswith("_slow")}
    ours = {sample for samples in ears.samples_by_style().values() for sample in samples}
    assert ours == json.loads(facts.read_text()).keys() - slow


@pytest.fixture
def small_ears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A speaker of the test set with two pairs, and all transcripts."""
    pairs = [
        ears.Pair("p001", "rainbow_01_loud", "sentences_05_loud"),
        ears.Pair("p001", "emo_fear_sentences", "emo_relief_sentences"),
    ]
    monkeypatch.setattr(ears, "committed_pairs", lambda split: pairs)
    for pair in pairs:
        recording(tmp_path / "p001" / f"{pair.sample}.wav")
        recording(tmp_path / "p001" / f"{pair.reference}.wav")
    samples = [sample for names in ears.samples_by_style().values() for sample in names]
    (tmp_path / "transcripts.json").write_text(json.dumps({sample: f"Words of {sample}." for sample in samples}))
    return tmp_path


def test_ears_is_read_from_its_own_layout(small_ears: Path):
    loud, fear = open_testset("ears", small_ears, tell)
    assert (loud.id, loud.style, fear.style) == ("p001-rainbow_01_loud", "loud", "emotional")
    assert (loud.text, loud.reference_transcript) == ("Words of rainbow_01_loud.", "Words of sentences_05_loud.")
    assert loud.source.is_file() and fear.reference.name == "emo_relief_sentences.wav"


def test_what_is_missing_of_ears_is_named(small_ears: Path):
    (small_ears / "p001" / "emo_relief_sentences.wav").unlink()
    with pytest.raises(DataError, match=r"emo_relief_sentences\.wav: missing"):
        open_testset("ears", small_ears, tell)
    (small_ears / "transcripts.json").write_text("{}")
    with pytest.raises(DataError, match="has no transcript of"):
        open_testset("ears", small_ears, tell)
    (small_ears / "transcripts.json").unlink()
    with pytest.raises(DataError, match=r"expected EARS's transcripts\.json"):
        open_testset("ears", small_ears, tell)
    with pytest.raises(DataError, match="say with --root"):
        open_testset("ears", None, tell)


def test_missing_speakers_of_ears_are_counted(small_ears: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ears, "committed_pairs", lambda split: list(ears.plan(ears.split_speakers()[split])))
    with pytest.raises(DataError, match=r"test split .* 43 speakers, but 42 of them are missing"):
        open_testset("ears", small_ears, tell)
    with pytest.raises(DataError, match=r"validation split .* 64 speakers, but 64 of them are missing"):
        open_testset("ears-validation", small_ears, tell)


# studio


def test_the_studio_manifest_holds_a_sentence_of_every_speaker_and_style_that_nothing_was_trained_on():
    lines = studio.committed_lines()
    by_id = {line.id: line for line in lines}
    spoken = [line for line in lines if line.reference]
    assert set(Counter((line.speaker, line.style) for line in spoken).values()) == {1}
    assert len(spoken) == 8 * 7
    for line in spoken:
        reference = by_id[line.reference]
        assert (reference.speaker, reference.style) == (line.speaker, line.style) and reference.text != line.text
    assert {split_of_sentence(line.text) for line in lines} == {"test"}


def corpus(path: Path) -> Path:
    """A manifest of two test speakers in two styles, and one who is trained on."""
    utterances = [
        Utterance(
            id=f"{speaker}-test-{number}", audio=f"audio/{speaker}/{speaker}-test-{number}.flac",
            text=f"Sentence {number} of {style} {speaker}.", speaker=speaker, style=style, seconds=3.0,
            source_rate=24000, split=split, licence="none",
        )
        for speaker, split in (("anna.20", "test"), ("bert.20", "test"), ("cleo.1", "train"))
        for style, numbers in (("regular", (1, 2, 3)), ("whisper", (4, 5)))
        for number in numbers
    ]  # fmt: skip
    write_manifest(utterances, path)
    for utterance in utterances:
        recording(path.parent / utterance.audio)
    return path


def test_lines_of_a_studio_manifest_are_chosen_from_a_corpus(tmp_path: Path):
    from marstts.data.manifest import read_manifest

    path = corpus(tmp_path / "utterances.jsonl")
    lines = studio.choose_lines(read_manifest(path), tmp_path)
    spoken = [(line.speaker, line.style) for line in lines if line.reference]
    assert spoken == [(s, style) for s in ("anna.20", "bert.20") for style in ("regular", "whisper")]
    assert {line.reference for line in lines if line.reference} <= {line.id for line in lines}


def test_studio_recordings_that_are_there_are_used_and_the_others_rendered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    lines = [
        studio.Line("flite-slt.20-test-1", "whisper", "Say this.", "flite-slt.20-test-2"),
        studio.Line("flite-slt.20-test-2", "whisper", "And that.", ""),
    ]
    monkeypatch.setattr(studio, "committed_lines", lambda: lines)
    monkeypatch.setattr(studio.engines, "check_installed", lambda names: None)
    rendered = []

    def render(job):
        order, output = job
        rendered.append((order.id, order.style, order.text, order.speaker.id))
        recording(output / "audio" / order.speaker.id / f"{order.id}.flac")
        return None, ""

    monkeypatch.setattr(studio, "make", render)
    recording(tmp_path / "audio" / "flite-slt.20" / "flite-slt.20-test-2.flac")
    [trial] = open_testset("studio", tmp_path, tell)
    assert rendered == [("flite-slt.20-test-1", "whisper", "Say this.", "flite-slt.20")]
    assert trial.source.is_file() and trial.reference_transcript == "And that."
    assert open_testset("studio", tmp_path, tell) == [trial] and len(rendered) == 1


def test_missing_engines_are_named_with_their_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(studio.engines.shutil, "which", lambda program: None)
    with pytest.raises(DataError, match="apt-get install flite libttspico-utils rhvoice-english"):
        open_testset("studio", tmp_path, tell)


@pytest.fixture
def three_voices(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Trial]:
    """The studio test set with two people's regular voices and one's whisper."""
    voices = [
        Trial(
            id=f"{speaker}-test-1", text="Say this.", speaker=speaker, style=style,
            reference=tmp_path / f"{speaker}-{style}.flac", reference_transcript="And that.",
        )
        for speaker, style in (("anna.20", "regular"), ("anna.20", "whisper"), ("bert.20", "regular"))
    ]  # fmt: skip
    monkeypatch.setattr(torture, "read_studio", lambda root, tell: voices)
    return voices


def test_every_kind_of_torture_is_spoken_in_every_regular_voice(three_voices: list[Trial]):
    trials = open_testset("torture", Path("anywhere"), tell)
    assert len(trials) == 2 * 125 and {trial.speaker for trial in trials} == {"anna.20", "bert.20"}
    assert {trial.reference for trial in trials} == {three_voices[0].reference, three_voices[2].reference}
    assert all(trial.source is None and plain_words(trial.words) for trial in trials)
    kinds = Counter(trial.style for trial in trials)
    assert kinds.keys() == {
        "one-word", "two-words", "sixty-words", "repeats", "numbers", "punctuation", "capitals", "unknown",
    }  # fmt: skip
    assert min(kinds.values()) >= 20 and len({trial.id for trial in trials}) == len(trials)
    refuse_repeated_ids(trials, Path("torture"))


@pytest.mark.parametrize(("kind", "fewest", "most"), [("one-word", 1, 1), ("two-words", 2, 2), ("sixty-words", 60, 61)])
def test_tortures_are_as_long_as_they_say(kind: str, fewest: int, most: int):
    lengths = {len(plain_words(text)) for found, text, _ in torture.committed_texts() if found == kind}
    assert min(lengths) == fewest and max(lengths) <= most


def test_judges_of_torture_listen_for_what_the_front_end_reads_aloud():
    for _, text, spoken in torture.committed_texts():
        assert plain_words(normalize(text)) == plain_words(spoken or text), text


def test_the_studio_test_set_has_a_place_in_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert catalogue.cached_studio() == tmp_path / "marstts" / "studio-testset"


# Seed-TTS-eval, LibriSpeech, anything


def test_seed_tts_is_read_from_its_list(tmp_path: Path):
    recording(tmp_path / "en" / "prompt-wavs" / "p1.wav")
    recording(tmp_path / "en" / "wavs" / "u1.wav")
    meta = tmp_path / "en" / "meta.lst"
    meta.write_text("u1|Prompt words.|prompt-wavs/p1.wav|Say this.\nu2|Prompt words.|prompt-wavs/p1.wav|And this.\n")
    first, second = open_testset("seed-tts", tmp_path, tell)
    assert (first.id, first.text, first.reference_transcript) == ("u1", "Say this.", "Prompt words.")
    assert first.source == tmp_path / "en" / "wavs" / "u1.wav" and second.source is None
    meta.write_text("u1|Prompt words.|prompt-wavs/p1.wav|Say this.\n" * 2)
    with pytest.raises(DataError, match="u1 occur twice"):
        open_testset("seed-tts", tmp_path, tell)
    meta.write_text("u1|Prompt words.|prompt-wavs/p2.wav|Say this.\n")
    with pytest.raises(DataError, match=r"meta\.lst:1: .*p2\.wav does not exist"):
        open_testset("seed-tts", tmp_path, tell)
    meta.write_text("u1|Say this.\n")
    with pytest.raises(DataError, match="got 2 fields"):
        open_testset("seed-tts", tmp_path, tell)
    with pytest.raises(DataError, match="expected Seed-TTS-eval's English list"):
        open_testset("seed-tts", tmp_path / "nowhere", tell)


def test_librispeech_pairs_recordings_of_4_to_10_seconds_across_chapters(tmp_path: Path):
    for chapter, lengths in ((7, (5.0, 3.0)), (8, (6.0, 11.0)), (9, (4.5,))):
        folder = tmp_path / "test-clean" / "61" / str(chapter)
        names = [f"61-{chapter}-{number:04d}" for number in range(len(lengths))]
        for name, seconds in zip(names, lengths, strict=True):
            recording(folder / f"{name}.flac", seconds)
        lines = "".join(f"{name} WORDS OF {name}\n" for name in names)
        (folder / f"61-{chapter}.trans.txt").write_text(lines)
    trials = open_testset("librispeech", tmp_path, tell)
    assert [trial.id for trial in trials] == ["61-7-0000", "61-8-0000", "61-9-0000"]
    assert trials[0].text == "Words of 61-7-0000."
    assert all(trial.reference.stem.split("-")[1] != trial.id.split("-")[1] for trial in trials)
    (tmp_path / "test-clean" / "61" / "7" / "61-7-0000.flac").unlink()
    with pytest.raises(DataError, match="lists 61-7-0000"):
        open_testset("librispeech", tmp_path, tell)
    with pytest.raises(DataError, match="expected LibriSpeech's"):
        open_testset("librispeech", tmp_path / "test-clean" / "61", tell)


def test_any_folder_with_words_is_a_test_set(tmp_path: Path):
    for name in ("anna/one.wav", "anna/two.wav", "bert/three.flac", "bert/four.flac", "bert/unheard.wav"):
        recording(tmp_path / name)
    (tmp_path / "anna" / "transcripts.tsv").write_text("id\ttext\none\tFirst words.\ntwo\tSecond words.\n")
    (tmp_path / "bert" / "three.txt").write_text("Third words.")
    (tmp_path / "bert" / "four.txt").write_text("Fourth words.")
    trials = open_testset(str(tmp_path), None, tell)
    assert {trial.id for trial in trials} == {"anna_one", "anna_two", "bert_three", "bert_four"}
    assert all(trial.reference.parent == trial.source.parent != trial.reference for trial in trials)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="with their words in"):
        open_testset(str(tmp_path / "empty"), None, tell)


def test_a_list_may_say_who_speaks(tmp_path: Path):
    for name in ("one.wav", "two.wav", "three.wav", "four.wav"):
        recording(tmp_path / name)
    rows = "one.wav\tanna\tFirst words.\ntwo.wav\tanna\tSecond words.\nthree.wav\tbert\tThird.\nfour.wav\tcleo\t\n"
    (tmp_path / "transcripts.tsv").write_text(f"file\tspeaker\ttext\n{rows}")
    trials = open_testset(str(tmp_path), None, tell)
    assert {(trial.id, trial.speaker, trial.reference.stem) for trial in trials} == {
        ("one", "anna", "two"), ("two", "anna", "one"),
    }  # fmt: skip


def test_people_speak_the_studios_sentences_in_their_own_voices(tmp_path: Path):
    for number in range(10):
        for name, seconds in (("short", 2.0), ("good", 4.0), ("tiny", 0.5), ("long", 15.0)):
            recording(tmp_path / f"p{number}" / f"{name}.wav", seconds)
    (tmp_path / "p3" / "good.txt").write_text("Words of somebody.")
    trials = open_testset("people", tmp_path, tell)
    assert len(trials) == 20 and Counter(t.speaker for t in trials) == {f"p{n}": 2 for n in range(10)}
    assert {trial.reference.stem for trial in trials} == {"good"} and len({t.text for t in trials}) == 20
    assert {t.text for t in trials} <= {line.text for line in studio.committed_lines() if line.reference}
    assert [t.reference_transcript for t in trials if t.speaker in ("p3", "p4")] == ["Words of somebody."] * 2 + [
        ""
    ] * 2
    for name in ("good", "long"):
        (tmp_path / "p7" / f"{name}.wav").unlink()
    assert next(t for t in open_testset("people", tmp_path, tell) if t.speaker == "p7").reference.stem == "short"
    (tmp_path / "p7" / "short.wav").unlink()
    with pytest.raises(DataError, match="at least 10 people are wanted, but there are 9"):
        open_testset("people", tmp_path, tell)


def test_a_manifests_test_split_is_a_test_set_and_what_is_nothing_is_named(tmp_path: Path):
    trials = open_testset(str(corpus(tmp_path / "utterances.jsonl")), None, tell)
    assert len(trials) == 10 and {trial.style for trial in trials} == {"regular", "whisper"}
    with pytest.raises(DataError, match="expected studio, torture, ears, ears-validation, seed-tts"):
        open_testset("studioo", None, tell)


def test_fewer_trials_are_taken_from_all_styles(tmp_path: Path):
    trials = open_testset(str(corpus(tmp_path / "utterances.jsonl")), None, tell)
    few = thin_out(trials, 4)
    assert Counter(trial.style for trial in few) == {"regular": 2, "whisper": 2}
    assert few == [trial for trial in trials if trial in few] and thin_out(trials, None) == trials
    assert thin_out(trials, 99) == trials
