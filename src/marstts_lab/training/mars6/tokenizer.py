"""Training of the text tokenizer: sentences in, a BPE vocabulary with the prompt's special tokens out.

Upstream: the texts of a manifest, or files of sentences.  Downstream: `run_folder` (a run's tokenizer.json).
MARS6 (arXiv:2501.05787), Sec. V-A: BPE with 512 entries.  Deviations: the special tokens are among the 512.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from marstts.errors import DataError
from marstts.mars6.prompt import SPECIAL_TOKENS
from marstts.text.normalize import normalize
from marstts.text.tokenizers.bpe import BPE
from marstts_lab.data.manifest import scan_manifest
from marstts_lab.data.sentence_files import lines_of

VOCAB_SIZE = 512


def train_bpe(texts: Iterable[str], vocab_size: int = VOCAB_SIZE) -> BPE:
    """Train a vocabulary on normalized texts, as in synthesis: numbers as words, plain punctuation.

    Special tokens come first: start and end of text, then "[8000]" to "[48000]". DataError where the texts are too few.
    """
    return BPE.train((spoken for text in texts if (spoken := normalize(text).strip())), vocab_size, SPECIAL_TOKENS)


def texts_of(paths: Iterable[Path]) -> Iterator[str]:
    """The texts of manifests (.jsonl; their training split) and of files with a sentence a line, plain or .gz.

    Of a line with tabs the last column counts, as in lists of sentences with their sources.
    """
    for path in paths:
        if not path.is_file():
            raise DataError(f"{path}: no such file; expected a manifest or a file of sentences")
        if path.suffix == ".jsonl":
            yield from manifest_texts(path)
        else:
            yield from (line.rstrip("\n").rpartition("\t")[2] for line in lines_of(path))


def manifest_texts(path: Path) -> Iterator[str]:
    """Texts of the training split; malformed lines are skipped, since `marstts tokenize` reports them."""
    lines = (line.row for line in scan_manifest(path))
    return (utterance.text for utterance in lines if utterance is not None and utterance.split == "train")
