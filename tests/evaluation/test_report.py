"""Tables from hand-made scores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from marstts.errors import DataError
from marstts.io.jsonl import append_rows
from marstts.io.provenance import write_provenance
from marstts_lab.evaluation.report import draw_wer_by_style, order_styles, write_report
from marstts_lab.evaluation.score import Provenance
from marstts_lab.evaluation.summary import gather_scores, summarize, within_noise
from marstts_lab.metrics.length import LengthStatus
from marstts_lab.metrics.scores import SCORES_FILE, TakeScore, VoiceScore, WordScore

pytestmark = pytest.mark.slow

PERFECT = {
    "speaker": "anna",
    "style": "regular",
    "length_status": LengthStatus.PLAUSIBLE,
    "error": None,
    "seconds": 2.0,
    "ground_truth_seconds": 2.0,
    "sample_rate": 24000,
    "compute_seconds": 0.5,
    "quality": {"dnsmos_ovrl": 3.0, "dnsmos_bak": 4.0},
}
WORDS = {
    "transcript": "", "word_errors": 0, "words": 5, "character_errors": 0, "characters": 20, "has_repetition": False,
    "truncated": False,
}  # fmt: skip
NOTHING = {
    "seconds": 0.0,
    "sample_rate": None,
    "compute_seconds": None,
    "length_status": LengthStatus.MISSING,
    "error": "no such take",
    "quality": {"dnsmos_ovrl": 1.0, "dnsmos_bak": 1.0},
    "words": WordScore(**{**WORDS, "word_errors": 5, "character_errors": 20, "truncated": True}),
    "voices": {"wavlm": VoiceScore(similarity=-1.0, ground_truth_similarity=0.9)},
}


def score(system: str, trial: str, similarity: float = 0.8, real: float = 0.9, **changed: object) -> TakeScore:
    """A perfect take with some things changed, those of its words included."""
    return TakeScore(
        **{
            **PERFECT,
            "words": WordScore(
                **{**WORDS, **{k: changed.pop(k) for k in list(changed) if k in WORDS and isinstance(changed[k], int)}}
            ),
            "voices": {"wavlm": VoiceScore(similarity=similarity, ground_truth_similarity=real)},
            **changed,
            "system": system,
            "trial": trial,
        }
    )


SCORES = [
    score("codec-resynthesis", "t1", character_errors=1),
    score("codec-resynthesis", "t2", character_errors=1),
    score("codec-resynthesis", "t3", character_errors=1, characters=60),
    score(
        "mini",
        "t1",
        character_errors=2,
        word_errors=1,
        seconds=5.0,
        length_status=LengthStatus.TOO_LONG,
        similarity=0.95,
    ),
    score("mini", "t2", **NOTHING),
    score("mini", "t3", character_errors=3, characters=60, seconds=3.0, sample_rate=16000),
]


def test_scores_are_ratios_of_sums():
    codec, mini = summarize(SCORES)
    values = {key: interval.value for key, interval in mini.scores.items()}
    assert (codec.system, mini.system, mini.takes) == ("codec-resynthesis", "mini", 3)
    assert values["cer"] == pytest.approx(25 / 100)
    assert values["wer"] == pytest.approx(6 / 15)
    assert values["truncation_rate"] == pytest.approx(1 / 3)
    assert values["duration_ratio"] == pytest.approx((2.5 + 1.5) / 2)  # the missing take has no length
    assert values["similarity_wavlm"] == pytest.approx((0.95 - 1.0 + 0.8) / 3)
    assert values["dnsmos_ovrl"] == pytest.approx(7 / 3)
    assert values["real_time_factor"] == pytest.approx(1.0 / 8.0)


def test_spoof_eer_is_50_for_takes_that_pass_as_their_speaker_and_0_for_a_missing_one():
    takes = [0.95, 0.93, 0.5, 0.4]  # two of four are nearer to the reference than every real recording
    rows = [score("mini", f"t{n}", similarity=take, real=0.9) for n, take in enumerate(takes)]
    assert summarize(rows)[0].scores["spoof_eer_wavlm"].value == pytest.approx(25.0, abs=25.0)
    assert summarize(rows[:2])[0].scores["spoof_eer_wavlm"].value == 50.0
    assert summarize([score("mini", "t1", **NOTHING)])[0].scores["spoof_eer_wavlm"].value == 0.0


def test_speaker_id_accuracy_is_the_fraction_of_takes_nearest_to_their_own_reference():
    voices = [VoiceScore(similarity=0.5, ground_truth_similarity=None, is_nearest=n != 1) for n in range(4)]
    rows = [score("mini", f"t{n}", voices={"wavlm": voice}) for n, voice in enumerate(voices)]
    assert summarize(rows)[0].scores["speaker_id_accuracy_wavlm"].value == pytest.approx(0.75)
    assert "speaker_id_accuracy_wavlm" not in summarize([score("mini", "t1")])[0].scores


def test_failures_are_without_speech_too_long_repeating_or_truncated():
    failures = [{"length_status": LengthStatus.TOO_LONG}, NOTHING, {"has_repetition": True}, {"truncated": True}]
    rows = [score("mini", f"t{n}", **dict(changed)) for n, changed in enumerate([*failures, {}, {}])]
    [summary] = summarize(
        [*rows, score("mini", "t9", length_status=LengthStatus.TOO_SHORT, words=None, style="whisper")]
    )
    assert summary.scores["failure_rate"].value == pytest.approx(4 / 7)
    assert summary.by_style["whisper"]["failure_rate"].value == 0.0


def test_each_style_has_its_own_scores():
    rows = [score("mini", "t1", word_errors=1), score("mini", "t2", word_errors=3, style="whisper")]
    [summary] = summarize(rows)
    assert summary.by_style["regular"]["wer"].value == pytest.approx(1 / 5)
    assert summary.by_style["whisper"]["wer"].value == pytest.approx(3 / 5)


def test_a_column_that_some_takes_lack_is_not_averaged_over_the_others():
    [summary] = summarize([score("mini", "t1"), score("mini", "t2", voices={}, words=None)])
    assert summary.scores["similarity_wavlm"] is None and summary.scores["cer"] is None
    assert summary.scores["dnsmos_ovrl"].value == 3.0


def many(system: str, errors: int) -> list[TakeScore]:
    """Thirty takes with the same spread of errors in every system, scored by a recognizer alone."""
    return [score(system, f"t{n}", word_errors=(n + errors) % 5, voices={}, quality={}) for n in range(30)]


def test_the_best_system_is_bold_and_systems_within_the_noise_are_marked(tmp_path: Path):
    worse = [
        s.model_copy(update={"system": "worse", "words": s.words.model_copy(update={"word_errors": 5})})
        for s in many("x", 0)
    ]
    markdown = write_report([*many("ground-truth", 0), *many("good", 0), *many("close", 1), *worse], tmp_path, {})
    table = markdown.split("\n\n")[1].splitlines()
    rows = {line.split(" | ")[0].strip("| "): line.split(" | ")[1] for line in table}
    assert rows["good"].startswith("**0.4") or rows["close"].startswith("**0.4")
    assert rows["close"].endswith("≈") or rows["good"].endswith("≈")
    assert not rows["worse"].endswith("≈") and "**" not in rows["worse"]
    assert "**" not in rows["ground-truth"] and "≈" not in rows["ground-truth"]  # upper bounds are not ranked
    _, good, close, worst = summarize([*many("ground-truth", 0), *many("good", 0), *many("close", 1), *worse])
    assert not within_noise(worst.differences["wer"]) and worst.differences["wer"].low > 0.3
    assert {good.is_best("wer"), close.is_best("wer")} == {True, False}


def test_report_files_have_every_system_and_failure(tmp_path: Path):
    write_report(SCORES, tmp_path, {"test set": "three sentences"})
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["metadata"] == {"test set": "three sentences"}
    codec, mini = results["systems"]
    assert codec["scores"]["cer"]["value"] == pytest.approx(0.03)
    assert codec["by_style"]["regular"]["cer"]["value"] == pytest.approx(0.03)
    assert mini["length_statuses"] == {"too long": 1, "missing": 1, "plausible": 1}

    markdown = write_report([*SCORES, score("mini", "t4", style="whisper")], tmp_path / "styles", {})
    assert "| failure rate ↓ | regular | whisper |" in markdown and "| WER ↓ | regular | whisper |" in markdown

    markdown = (tmp_path / "results.md").read_text()
    main, *others = (part for part in markdown.split("\n\n") if part.startswith("| system"))
    assert main.splitlines()[0] == "| system | WER ↓ | CER ↓ | spoof EER %, wavlm ↑ | SIM, wavlm ↑ | DNSMOS OVRL ↑ |"
    for table in (main, *others):
        assert len({row.count("|") for row in table.splitlines()}) == 1
        assert table.splitlines()[0].count("|") <= 10  # at most nine columns
    assert main.splitlines()[3].startswith("| mini | **0.400 [")
    assert others[-1].splitlines()[3].startswith("| mini | 3 |") and others[-1].endswith("| 1 / 0 / 1 |")
    assert "- mini: t2: missing, no such take" in markdown


def write_output(folder: Path, scores: list[TakeScore], **changed: object) -> Path:
    """An output folder as `score` writes it."""
    for system in {s.system for s in scores}:
        (folder / "takes" / system).mkdir(parents=True)
        values = {"system": system, "testset": "abc", "metrics": {"wavlm": "1"}, **changed}
        write_provenance(folder / "takes" / system, Provenance(**values))
    append_rows(folder / SCORES_FILE, scores)
    return folder


def test_systems_of_several_folders_are_compared(tmp_path: Path):
    truth = [score("ground-truth", "t1")]
    first = write_output(tmp_path / "a", [*truth, score("mini", "t1")], warnings=("two takes exist twice",))
    second = write_output(tmp_path / "b", [*truth, score("other", "t1")], warnings=("two takes exist twice",))
    found = gather_scores([first, second])
    assert [s.system for s in found.scores] == ["ground-truth", "mini", "other"]
    assert (found.testset, found.metrics, found.warnings["other"]) == (
        "abc",
        {"wavlm": "1"},
        ("two takes exist twice",),
    )
    third = write_output(tmp_path / "c", [score("mini", "t1", word_errors=2)], system="later version")
    assert [s.system for s in gather_scores([first, third]).scores] == ["ground-truth", "mini", "mini, c"]


def test_the_figure_has_styles_in_the_order_of_their_error_rates(tmp_path: Path):
    pytest.importorskip("matplotlib")
    rows = [score(system, f"{style}-{n}", style=style, word_errors=errors + n)
            for system in ("mini", "baseline") for style, errors in (("whisper", 3), ("regular", 0), ("loud", 1))
            for n in range(2)]  # fmt: skip
    summaries = summarize(rows)
    assert order_styles(summaries, "wer") == ["regular", "loud", "whisper"]
    png, svg = draw_wer_by_style(summaries, tmp_path)
    assert png.read_bytes().startswith(b"\x89PNG") and "<svg" in svg.read_text()
    with pytest.raises(DataError, match="no word error rate"):
        draw_wer_by_style(summarize([score("mini", "t1", words=None)]), tmp_path)
