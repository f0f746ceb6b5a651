"""Words that were replaced by the field's words do not come back (docs/glossary.md has today's words)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

FOLDERS = ("src", "recipes", "tests", "docs", "examples", "benchmarks", "tools")
SUFFIXES = {".py", ".md", ".toml", ".sh", ".js", ".html", ".css", ".yml"}
NOT_CHECKED = (
    "docs/log/",
    "tests/golden/",
    "src/marstts/text/data/",
    "recipes/mini/text/",
    "tests/test_vocabulary.py",
    "tests/release/speak_from_wheel.py",
)
"""The log of past days is kept as it was; golden files and word lists hold other people's words."""

OLD_NAMES = """
    --beside --judges --judge-model --translate-from --from --max-damaged --deep-clone --callers --min-pace --max-pace
    StudioConfig learnt_guidance wordless_probability history_noise until_step chain_probability longest_chain
    other_reference_probability no_final_punctuation_probability rows_per_batch batches_per_step full_band_rate
    average_decay final_share clip_norm narrow_share narrow_hz room_share room_seconds noise_share noise_db equaliser_db
    max_damaged_share feature_weight degree_weight best_by odds_weight misfit_weight rejected_min_misfit
    wrong_words_weight rejected_share least_margin truth_vs_worst takes_per_text takes_per_shard speakers_per_base
    band_limited_share regular_share max_fault_share min_speech_share max_clipped_share spare_seconds shortest_seconds
    limit_factor first_patches largest_patches max_hasty_share max_constant_share max_repeat_difference
    fastest_characters_per_second usual_characters_per_second slowest_characters_per_second
    made_from.json made_by.json checkups.jsonl damaged.jsonl spoken.jsonl judges.json
    wrong_words cut_short style_is_right right_choices word_fault outside_model
    Stepper Berths berths are_in move_in move_out is_disturbed ProgramSize MAX_PROGRAMS PlacedCache InPatch
    SMALLEST_ROOM room_for hear_prefixes mix_openly mix_fused by_nobody without_words untold guided_chances with_slips
    HANDFUL Handful draw_among first_above heard_by_all ask_memory join_heads PatchDraws LiveBatcher Batcher _tell_all
    speak_wanted find_flaw Flaw JUDGED_AFTER AHEAD_PATCHES SIDE_BY_SIDE DeepClone rewrite_bundle part_like turbo_folder
    open_both Door DoorGroup DOORS COMPANY HerePanel Judges WordJudge SpeakerJudge StyleJudge ProsodyJudge QualityJudge
    Climb Rung RUNGS known_orders told_by_style is_odd Rival WORST_MISFIT Ward Guardian Checkup TakeCheck Miner
    Ears load_ears bundle_ears worker_ears open_ears ListeningConfig share_out passed_over faults_of voices_of
    StudioSpeaker sorted_out what_is_wrong seen_without load_sound told_degrees semitones_off follow_corpus
    follow_utterance HeardTwice shares_of_old_codes alignment_reward with_spoken_texts gentle_settings begun_at
    first_batch_of meeting_place first_decides without_averaging averaged_copy update_average REVIVE_BELOW
    count_cycles decoder_reach is_yardstick ask_at_once unlike_sentences name_tones stable_order thin_out
    short_enough deal_sentences telling_apart usual_seconds judge_length WrittenOutMish WrittenOutCrossEntropy
    write_mish warn_of_unspeakable speakable_sentences utilisation
    --min-speech --max-clipped --max-rejects --max-faults reach_patches take_away phones_at unknown_speaker own_encoders
    Attendance Tally Timeline Positioned Coded ladder.py rivals.py rival_runner.py damage.py distortion.py degrees.py
    melody.py timelines.py phonetics.py catalogue.py learn_vocabulary learn_merges DamagedStream
"""
"""Options, configuration keys, file names, report keys and names in code, matched as whole words."""

PHRASES = (
    # Words for what networks and metrics do.
    r"foretell\w*|foretold",
    r"(?:learn|learnt|learned|learns) by heart",
    r"learnt|unlearnt",
    r"pupils?",
    r"wordless",
    r"misfits?",
    r"slips",
    r"chances",
    r"bolder|livelier",
    r"torture",
    r"odd takes",
    r"word choice",
    # Words for parts of the program.
    r"wards?",
    r"guardians?",
    r"rungs?",
    r"berths?",
    r"tenants?",
    r"crew",
    r"check-?ups?(?!\.jsonl)",
    r"studios?",
    r"yardsticks?",
    r"stillborn",
    r"(?:goes|go|going) on where",
    r"(?:tell|told|telling|tells) apart",
    r"of (?:its|their) own",
    r"besides?",
    r"whoever|nobody in particular",
    r"reckon\w*|works? out",
    r"spoken to the end|with no say|pushed away",
    r"damaged",
    # British spelling.
    r"licences?",
    r"(?:normal|quant|optim|summar|recogn|real|util|equal|minim|maxim|memor|general)is(?:e|es|ed|er|ers|ing|ation)",
    r"initialis(?:e|es|ed|ing|ation)",
    r"analys(?:e|ed|ing)",
    r"neighbours?|neighbouring",
    r"behaviours?|colours?|favours?|centres?|centred|labelled|modelling",
    r"catalogues?|towards|afterwards|spelt|learnt|whilst|amongst|judgements?|per cent",
    r"(?:organ|character|categor|synchron|serial|token|visual|standard|random|custom|penal|capital|digit|discret|"
    r"parametr|parameter|factor|vector|regular|harmon|prior|emphas)is(?:e[ds]?|ing|ation)",
)
"""Prose and parts of names, matched in any case; `normalised_text` is a column of LJ Speech."""

HUMAN_WORDS = (r"told|tells", r"hears?|heard|hearing")
"""Prose that is right where people speak or listen, matched outside of `ABOUT_PEOPLE`."""

ABOUT_PEOPLE = (
    "src/marstts/text/",
    "src/marstts/listening_test/",
    "docs/evaluation/listening-tests.md",
    "docs/data/formats.md",
    "docs/samples/",
    "tests/text/",
    "tests/listening_test/",
)

FIRST_WORDS = {
    *("Of", "As", "By", "From", "Before", "After", "With", "Without", "For", "Through", "On", "In"),
    *(
        "What",
        "How",
        "Why",
        "Where",
        "Which",
        "Whatever",
        "It",
        "Its",
        "They",
        "That",
        "Those",
        "Let",
        "Only",
        "Something",
    ),
}
"""Words that a docstring does not begin with: it begins with a verb or the noun of the thing."""

PATTERN = re.compile(
    "|".join(
        [
            rf"(?<![\w-])(?:{'|'.join(re.escape(name) for name in OLD_NAMES.split())})(?![\w-])",
            rf"(?i:(?<![A-Za-z])(?:{'|'.join(PHRASES)})(?![A-Za-z]|_text))",
        ]
    )
)


HUMAN_PATTERN = re.compile(rf"(?i:\b(?:{'|'.join(HUMAN_WORDS)})\b)")


def checked_files() -> list[Path]:
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES]
    files += [*ROOT.glob("*.md"), *ROOT.glob("*.toml"), *ROOT.glob("*.yml"), ROOT / "Makefile"]
    return [path for path in files if not str(path.relative_to(ROOT).as_posix()).startswith(NOT_CHECKED)]


def old_words(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line number of each old word, and the word."""
    for match in PATTERN.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, match.group()


@pytest.mark.slow
def test_no_old_word_is_used() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {word}"
        for path in checked_files()
        for number, word in old_words(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n" + "\n".join(found)


def test_words_of_people_are_not_used_of_programs() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in checked_files()
        if not path.relative_to(ROOT).as_posix().startswith(ABOUT_PEOPLE)
        for match in HUMAN_PATTERN.finditer(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n" + "\n".join(found)


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module, and those inside its classes, functions and branches."""
    for node in body:
        yield node
        yield from statements([*getattr(node, "body", []), *getattr(node, "orelse", [])])


def first_words(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the first word of each docstring, those of fields and constants included."""
    for node in statements(ast.parse(source).body):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            words = re.findall(r"[\w']+", node.value.value)
            yield node.lineno, words[0] if words else ""


MAY_BEGIN = re.compile(rf"""[\"'][^\w']*(?:{"|".join(FIRST_WORDS)})\b""")
"""Finds strings that begin with one of the words; only their files are parsed."""


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {word}"
        for path in checked_files()
        if path.suffix == ".py"
        if (source := path.read_text(encoding="utf-8")) and MAY_BEGIN.search(source)
        for number, word in first_words(source)
        if word in FIRST_WORDS
    ]
    assert not found, "\n" + "\n".join(found)


def test_first_words_are_found_in_docstrings_of_fields_and_functions() -> None:
    source = 'x = 1\n"""Of a thing."""\ndef f():\n    """`What` it is."""\n    return "How"\n'
    assert sorted(word for _, word in first_words(source)) == ["Of", "What"]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("marstts report runs --beside mini", "--beside"),
        ("the config has history_noise = 0.1", "history_noise"),
        ("codes that can be foretold from text", "foretold"),
        ("Guidance Learnt by heart", "Learnt by heart"),
        ("a RECOGNISER of words", "RECOGNISER"),
        ("def normalise_level(x):", "normalise"),
    ],
)
def test_old_words_are_found_in_code_and_prose(text: str, word: str) -> None:
    assert word in [found for _, found in old_words(text)]


@pytest.mark.parametrize(
    "text",
    ["toward the afterward", "the --from-scratch option", "an analysis of initialisms", "a wrung rope", "backward"],
)
def test_longer_words_that_contain_an_old_word_are_left_alone(text: str) -> None:
    assert not list(old_words(text))


def test_the_check_reads_the_package_and_its_documents() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in checked_files()}
    assert {"src/marstts/voice.py", "README.md", "docs/cli.md", "recipes/mini/mars6.toml", "Makefile"} <= names
    assert not [name for name in names if name.startswith("docs/log/")]
