"""The text vocabulary from manifests and sentence files, through the command."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from marstts.cli.main import app
from marstts.mars6.prompt import SPECIAL_TOKENS, prompt_string
from marstts.text.tokenizers.bpe import BPE
from marstts_lab.training.mars6.tokenizer import VOCAB_SIZE, texts_of, train_bpe

pytestmark = pytest.mark.slow

RUN = CliRunner()
SENTENCES = Path(__file__).parents[3] / "recipes" / "mini" / "text" / "modern.tsv.gz"


def manifest(path: Path, *rows: tuple[str, str]) -> Path:
    """A manifest of (text, split)."""
    facts = {"audio": "a.wav", "speaker": "s", "style": "regular", "seconds": 1.0, "source_rate": 16000, "license": ""}
    lines = [json.dumps({**facts, "id": str(i), "text": text, "split": split}) for i, (text, split) in enumerate(rows)]
    path.write_text("\n".join([*lines, "{broken"]) + "\n", encoding="utf-8")
    return path


def test_the_command_makes_a_vocabulary_of_512_with_the_prompts_special_tokens(tmp_path: Path) -> None:
    with gzip.open(SENTENCES, "rt", encoding="utf-8") as lines, gzip.open(tmp_path / "some.tsv.gz", "wt") as some:
        some.writelines(line for _, line in zip(range(600), lines, strict=False))
    target = tmp_path / "run" / "tokenizer.json"
    result = RUN.invoke(app, ["train", "tokenizer", str(tmp_path / "some.tsv.gz"), "--output", str(target)])
    assert result.exit_code == 0, result.output
    assert "512 entries" in result.stdout and "[16000]" in result.stdout
    tokenizer = BPE.load(target)
    assert tokenizer.vocab_size == VOCAB_SIZE == 512
    assert tuple(tokenizer.special_tokens) == SPECIAL_TOKENS and set(tokenizer.special_tokens.values()) == set(range(8))
    ids = tokenizer.encode(prompt_string("the ship left", quality=16_000))
    assert ids[1] == tokenizer.special_tokens["[16000]"]
    assert tokenizer.decode(ids) == prompt_string("the ship left", quality=16_000)
    assert len(tokenizer.encode("the ship left the harbour")) < 16  # of 25 characters


def test_only_the_training_texts_of_a_manifest_count_and_as_they_are_spoken(tmp_path: Path) -> None:
    path = manifest(tmp_path / "m.jsonl", ("It costs 5 pounds.", "train"), ("zebra zebra zebra", "test"))
    (tmp_path / "more.txt").write_text("source\tShall we go?\n\nplain line\n", encoding="utf-8")
    texts = list(texts_of([path, tmp_path / "more.txt"]))
    assert texts == ["It costs 5 pounds.", "Shall we go?", "", "plain line"]
    tokenizer = train_bpe(texts * 3, 8 + 256 + 12)
    assert len(tokenizer.encode("five")) < 4 and len(tokenizer.encode("zebra")) == 5


def test_the_order_of_the_files_does_not_matter(tmp_path: Path) -> None:
    texts = ["the cat sat on the mat", "she sells sea shells"]
    assert train_bpe(texts, 275).encode("the shells") == train_bpe(texts[::-1], 275).encode("the shells")


def test_gzipped_sentences_of_another_encoding_or_cut_off_are_refused_in_a_sentence(tmp_path: Path) -> None:
    plain = b"the cat sat on the mat\n" * 1000 + "Das Mädchen.".encode("latin-1")
    for content, complaint in (
        (gzip.compress(plain), f"t.gz: expected UTF-8 text, but byte {23 * 1000 + 5} is no part of a letter"),
        (gzip.compress(plain)[:40], "t.gz: expected a gzipped text, but it is corrupt or cut off; make the file again"),
        (b"the cat sat", "t.gz: expected a gzipped text, but it is corrupt or cut off; make the file again"),
    ):
        (tmp_path / "t.gz").write_bytes(content)
        result = RUN.invoke(app, ["train", "tokenizer", str(tmp_path / "t.gz"), "--output", str(tmp_path / "b.json")])
        assert result.exit_code == 2 and complaint in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "options", "complaint"),
    [(None, (), "no such file"), (b"a\xff\xfe", (), "byte 1 is no part of a letter; convert it"),
     (b"too short", (), "more text"), (b"the cat sat", ("--vocab-size", "100"), "need at least 264")],
)  # fmt: skip
def test_what_makes_no_vocabulary_is_refused_in_a_sentence(content, options, complaint: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "t.txt").write_bytes(content)
    result = RUN.invoke(
        app, ["train", "tokenizer", str(tmp_path / "t.txt"), "--output", str(tmp_path / "b.json"), *options]
    )
    assert result.exit_code == 2 and complaint in result.stderr and result.stderr.count("\n") == 1
