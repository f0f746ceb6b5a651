"""Tables from hand-made scores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from marstts.errors import DataError
from marstts.evaluation.comparison import gather
from marstts.evaluation.figure import draw_wer_by_style, order_styles
from marstts.evaluation.metrics.length import Verdict
from marstts.evaluation.report import summarize, within_noise, write_report
from marstts.evaluation.score import Claim
from marstts.evaluation.scores import Prosody, TakeScore, VoiceScore, WordScore, WordTest, append_score

PERFECT = {
    "speaker": "anna",
    "style": "regular",
    "verdict": Verdict.PLAUSIBLE,
    "problem": None,
    "seconds": 2.0,
    "source_seconds": 2.0,
    "sample_rate": 24000,
    "compute_seconds": 0.5,
    "prosody": Prosody(pitch_correlation=0.5, energy_correlation=0.25),
    "quality": {"dnsmos_ovrl": 3.0, "dnsmos_bak": 4.0},
}
WORDS = {
    "heard": "", "word_errors": 0, "words": 5, "character_errors": 0, "characters": 20, "repeats": False,
    "cut_short": False,
}  # fmt: skip
TEST = {
    "right_choices": 3, "choices": 3, "words_unknown": 0, "worst_word": "x", "worst_word_score": -3.0,
    "word_fault": False,
}  # fmt: skip
NOTHING = {
    "seconds": 0.0,
    "sample_rate": None,
    "compute_seconds": None,
    "verdict": Verdict.MISSING,
    "problem": "no such take",
    "prosody": Prosody(pitch_correlation=0.0, energy_correlation=0.0),
    "quality": {"dnsmos_ovrl": 1.0, "dnsmos_bak": 1.0},
    "words": WordScore(**{**WORDS, "word_errors": 5, "character_errors": 20, "cut_short": True}),
    "word_test": WordTest(**{**TEST, "right_choices": 0, "worst_word_score": None, "word_fault": True}),
    "voices": {"ears": VoiceScore(similarity=-1.0, source_similarity=0.9, nearer=0, pairs=6)},
}


def score(system: str, trial: str, similarity: float = 0.8, real: float = 0.9, **changed: object) -> TakeScore:
    """A perfect take with some things changed, those of its words and word test included."""
    return TakeScore(
        **{
            **PERFECT,
            "words": WordScore(
                **{**WORDS, **{k: changed.pop(k) for k in list(changed) if k in WORDS and isinstance(changed[k], int)}}
            ),
            "word_test": WordTest(**{**TEST, **{k: changed.pop(k) for k in list(changed) if k in TEST}}),
            "voices": {"ears": VoiceScore(similarity=similarity, source_similarity=real, nearer=5, pairs=6)},
            **changed,
            "system": system,
            "trial": trial,
        }
    )


SCORES = [
    score("codec", "t1", character_errors=1),
    score("codec", "t2", character_errors=1),
    score("codec", "t3", character_errors=1, characters=60),
    score("mini", "t1", character_errors=2, word_errors=1, seconds=5.0, verdict=Verdict.TOO_LONG, similarity=0.95),
    score("mini", "t2", **NOTHING),
    score("mini", "t3", character_errors=3, characters=60, seconds=3.0, words_unknown=2, sample_rate=16000),
]


def test_scores_are_ratios_of_sums():
    codec, mini = summarize(SCORES)
    values = {key: interval.value for key, interval in mini.scores.items()}
    assert (codec.system, mini.system, mini.takes) == ("codec", "mini", 3)
    assert values["cer"] == pytest.approx(25 / 100)
    assert values["wer"] == pytest.approx(6 / 15)
    assert values["cut_short"] == pytest.approx(1 / 3)
    assert values["word_choice"] == pytest.approx(6 / 9)
    assert values["word_faults"] == pytest.approx(1 / 3)
    assert values["length"] == pytest.approx((2.5 + 1.5) / 2)  # the missing take has no length to speak of
    assert values["nearer_ears"] == pytest.approx(10 / 18)
    assert values["similarity_ears"] == pytest.approx((0.95 - 1.0 + 0.8) / 3)
    assert values["dnsmos_ovrl"] == pytest.approx(7 / 3)
    assert values["pitch"] == pytest.approx(1 / 3) and values["energy"] == pytest.approx(0.5 / 3)
    assert values["real_time_factor"] == pytest.approx(1.0 / 8.0)
    assert mini.words_unknown == 2


def test_the_error_rate_counts_takes_that_pass_for_real_and_a_missing_one_does_not():
    takes = [0.95, 0.93, 0.5, 0.4]  # two of four are nearer to the reference than every real recording
    rows = [score("mini", f"t{n}", similarity=take, real=0.9) for n, take in enumerate(takes)]
    assert summarize(rows)[0].scores["eer_ears"].value == pytest.approx(25.0, abs=25.0)
    assert summarize(rows[:2])[0].scores["eer_ears"].value == 50.0
    assert summarize([score("mini", "t1", **NOTHING)])[0].scores["eer_ears"].value == 0.0


@pytest.mark.parametrize(
    ("nearer", "pairs", "chance"),
    [(40, 40, 1.0), (39, 40, 31 / 40), (8, 40, 0.0), (9, 9, 1.0)],  # one in 40 is nearer: not among 9 of 40 in 31 of 40
)
def test_first_of_ten_is_the_chance_over_all_lines_of_ten(nearer: int, pairs: int, chance: float):
    voice = VoiceScore(similarity=0.5, source_similarity=None, nearer=nearer, pairs=pairs)
    [summary] = summarize([score("mini", "t1", voices={"ears": voice})])
    assert summary.scores["first_ears"].value == pytest.approx(chance)


def test_there_is_no_line_of_ten_among_fewer_people():
    [summary] = summarize([score("mini", "t1")])
    assert "first_ears" not in summary.scores and "nearer_ears" in summary.scores


def test_odd_takes_are_without_speech_too_long_repeating_or_cut_short():
    odd = [{"verdict": Verdict.TOO_LONG}, NOTHING, {"repeats": True}, {"cut_short": True}]
    rows = [score("mini", f"t{n}", **dict(changed)) for n, changed in enumerate([*odd, {}, {}])]
    [summary] = summarize([*rows, score("mini", "t9", verdict=Verdict.TOO_SHORT, words=None, style="whisper")])
    assert summary.scores["odd"].value == pytest.approx(4 / 7)
    assert summary.by_style["whisper"]["odd"].value == 0.0


def test_errors_are_divided_by_the_codecs_on_the_same_sentences():
    codec, mini = summarize(SCORES)
    assert codec.cer_over_ceiling.value == 1.0
    assert mini.cer_over_ceiling.value == pytest.approx(25 / 3)
    _, partial = summarize([*SCORES[:2], *SCORES[3:]])
    assert partial.cer_over_ceiling.value == pytest.approx((22 / 40) / (2 / 40))
    [alone] = summarize(SCORES[3:])
    assert alone.cer_over_ceiling is None


def test_styles_are_summed_up_by_themselves():
    rows = [score("mini", "t1", word_errors=1), score("mini", "t2", word_errors=3, style="whisper")]
    [summary] = summarize(rows)
    assert summary.by_style["regular"]["wer"].value == pytest.approx(1 / 5)
    assert summary.by_style["whisper"]["wer"].value == pytest.approx(3 / 5)


def test_odd_takes_are_counted_and_named():
    _, mini = summarize(SCORES, {"mini": ["2 takes belong to no trial"]})
    assert mini.verdicts == {Verdict.TOO_LONG: 1, Verdict.MISSING: 1, Verdict.PLAUSIBLE: 1}
    assert mini.faults == ["t1: too long, 5.0 s for 2.0 s", "t2: missing, no such take"]
    assert mini.sample_rates == {24000: 1, 16000: 1}
    assert mini.remarks[0] == "2 takes belong to no trial"
    assert "1 takes have another sample rate than the 24000 Hz of the rest: t3 (16000 Hz)" in mini.remarks[1]


def test_a_measure_some_takes_lack_is_not_averaged_over_the_rest():
    [summary] = summarize([score("mini", "t1"), score("mini", "t2", voices={}, words=None)])
    assert summary.scores["similarity_ears"] is None and summary.scores["cer"] is None
    assert summary.scores["word_choice"].value == 1.0


def many(system: str, errors: int, real: float = 0.9) -> list[TakeScore]:
    """Thirty takes that differ among themselves alike in every system."""
    return [score(system, f"t{n}", word_errors=(n + errors) % 5 if errors == 1 else n % 5) for n in range(30)]


def test_the_best_competitor_stands_out_and_what_is_within_the_noise_is_marked(tmp_path: Path):
    worse = [
        s.model_copy(update={"system": "worse", "words": s.words.model_copy(update={"word_errors": 5})})
        for s in many("x", 0)
    ]
    markdown = write_report([*many("source", 0), *many("good", 0), *many("close", 1), *worse], tmp_path, {})
    rows = {
        line.split(" | ")[0].strip("| "): line.split(" | ")[2] for line in markdown.splitlines() if "| 30 |" in line
    }
    assert rows["good"].startswith("**0.4") or rows["close"].startswith("**0.4")
    assert rows["close"].endswith("≈") or rows["good"].endswith("≈")
    assert not rows["worse"].endswith("≈") and "**" not in rows["worse"]
    assert "**" not in rows["source"] and "≈" not in rows["source"]  # bounds do not compete
    _, good, close, worst = summarize([*many("source", 0), *many("good", 0), *many("close", 1), *worse])
    assert not within_noise(worst.differences["wer"]) and worst.differences["wer"].low > 0.3
    assert {good.is_best("wer"), close.is_best("wer")} == {True, False}


def test_report_files_hold_every_system_and_fault(tmp_path: Path):
    write_report(SCORES, tmp_path, {"test set": "three sentences"})
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["facts"] == {"test set": "three sentences"}
    codec, mini = results["systems"]
    assert codec["scores"]["cer"]["value"] == pytest.approx(0.03)
    assert codec["by_style"]["regular"]["cer"]["value"] == pytest.approx(0.03)
    assert mini["verdicts"] == {"too long": 1, "missing": 1, "plausible": 1}

    markdown = write_report([*SCORES, score("mini", "t4", style="whisper")], tmp_path / "styles", {})
    assert "| odd takes ↓ | regular | whisper |" in markdown and "| WER ↓ | regular | whisper |" in markdown

    markdown = (tmp_path / "results.md").read_text()
    first, more = markdown.split("\n\n")[1:3]
    assert first.splitlines()[0] == "| system | takes | WER ↓ | CER ↓ | EER %, ears ↑ | SIM, ears ↑ | DNSMOS OVRL ↑ |"
    for table in (first, more):
        assert len({row.count("|") for row in table.splitlines()}) == 1
    assert first.splitlines()[3].startswith("| mini | 3 | **0.400 [") and more.splitlines()[3].endswith("| 1 / 0 / 1 |")
    assert "- mini: t2: missing, no such take" in markdown
    assert "left out of both: mini 2." in markdown


def test_columns_nobody_was_judged_by_are_left_out(tmp_path: Path):
    markdown = write_report([score("mini", "t1", voices={}, quality={}, word_test=None)], tmp_path, {})
    table = markdown.split("\n\n")[1]
    assert (
        "WER" in table
        and "EER" not in table
        and "DNSMOS" not in table
        and "word choice" not in markdown.split("## Notes")[0]
    )
    assert "No take is too long, too short, empty or missing." in markdown


def write_output(folder: Path, scores: list[TakeScore], **claim: object) -> Path:
    """An output folder as `score` leaves it."""
    for system in {s.system for s in scores}:
        (folder / "takes" / system).mkdir(parents=True)
        made_by = Claim(**{"system": system, "testset": "abc", "judges": {"ears": "1"}, **claim})
        (folder / "takes" / system / "made_by.json").write_text(made_by.model_dump_json())
    for one in scores:
        append_score(one, folder)
    return folder


def test_output_folders_are_put_side_by_side(tmp_path: Path):
    source = [score("source", "t1")]
    first = write_output(tmp_path / "a", [*source, score("mini", "t1")], remarks=("odd",))
    second = write_output(tmp_path / "b", [*source, score("other", "t1")], remarks=("odd",))
    pool = gather([first, second])
    assert [s.system for s in pool.scores] == ["source", "mini", "other"]
    assert (pool.testset, pool.judges, pool.remarks["other"]) == ("abc", {"ears": "1"}, ("odd",))
    third = write_output(tmp_path / "c", [score("mini", "t1", word_errors=2)], system="later version")
    assert [s.system for s in gather([first, third]).scores] == ["source", "mini", "mini, c"]


@pytest.mark.parametrize(
    ("claim", "complaint"),
    [({"testset": "xyz"}, "different test sets"), ({"judges": {"ears": "2"}}, r"different judges \(ears\)")],
)
def test_what_does_not_compare_is_refused(tmp_path: Path, claim: dict, complaint: str):
    first = write_output(tmp_path / "a", [score("mini", "t1")])
    second = write_output(tmp_path / "b", [score("other", "t1")], **claim)
    with pytest.raises(DataError, match=rf"mini and other .*{complaint}"):
        gather([first, second])
    with pytest.raises(DataError, match="expected an output folder"):
        gather([tmp_path])
    (first / "takes" / "mini" / "made_by.json").unlink()
    with pytest.raises(DataError, match=r"made_by\.json is gone"):
        gather([first])


def test_the_figure_is_drawn_twice_and_its_styles_grow_harder(tmp_path: Path):
    pytest.importorskip("matplotlib")
    rows = [score(system, f"{style}-{n}", style=style, word_errors=errors + n)
            for system in ("mini", "rival") for style, errors in (("whisper", 3), ("regular", 0), ("loud", 1))
            for n in range(2)]  # fmt: skip
    summaries = summarize(rows)
    assert order_styles(summaries, "wer") == ["regular", "loud", "whisper"]
    png, svg = draw_wer_by_style(summaries, tmp_path)
    assert png.read_bytes().startswith(b"\x89PNG") and "<svg" in svg.read_text()
    with pytest.raises(DataError, match="no word error rate"):
        draw_wer_by_style(summarize([score("mini", "t1", words=None)]), tmp_path)
