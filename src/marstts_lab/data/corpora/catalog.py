"""The corpora that can be prepared, by name: where to get them, and which recipe reads their layout.

Upstream: the recipes of this package.  Downstream: `marstts prepare`; `docs/data/corpora.md` describes the layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from marstts.errors import AudioError, DataError, MarsError
from marstts_lab.data.corpora.build_manifest import RawUtterance, RejectedItem, measure
from marstts_lab.data.corpora.libriheavy import libriheavy
from marstts_lab.data.corpora.parquet import ANISPEECH, GLOBE, read_parquet
from marstts_lab.data.corpora.transcripts import libritts, ljspeech, vctk


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One corpus."""

    read: Callable[[Path], Iterator[RawUtterance | RejectedItem]]
    """Reader of all items in its folder, in a fixed order."""

    summary: str
    """Content and license, in a line."""

    download: str
    """Source, and the files that its folder must hold."""

    def open(self, root: Path) -> Iterator[RawUtterance | RejectedItem]:
        """All items in `root`; DataError with the download hint if there is no such folder."""
        if not root.is_dir():
            raise DataError(f"{root}: no such folder. {self.download}")
        return self.read(root)


MAX_ITEMS = 100
"""Items of a corpus that `problem` looks at."""

RECIPES = {
    "libriheavy": Recipe(
        read=libriheavy,
        summary="LibriHeavy: 50,000 h of audiobooks, 16 kHz; public domain, its lists Apache-2.0.",
        download="Lists: huggingface.co/datasets/pkufool/libriheavy (libriheavy_cuts_*.jsonl.gz). Audio: "
        "github.com/facebookresearch/libri-light (small.tar, medium.tar, large.tar), unpacked into the lists' folder "
        "or its download/librilight/.",
    ),
    "globe": Recipe(
        read=partial(read_parquet, layout=GLOBE),
        summary="GLOBE: 535 h of 23,519 volunteers with accents of the world, 24 kHz; CC0.",
        download="huggingface-cli download MushanW/GLOBE --repo-type dataset --include 'data/*.parquet' --local-dir "
        "ROOT",
    ),
    "vctk": Recipe(
        read=vctk,
        summary="VCTK 0.92: 44 h of 110 people, 48 kHz; CC BY 4.0.",
        download="VCTK-Corpus-0.92.zip from datashare.ed.ac.uk/handle/10283/3443, unpacked.",
    ),
    "anispeech": Recipe(
        read=partial(read_parquet, layout=ANISPEECH),
        summary="AniSpeech: 23,656 lines of animated films, 44.1 kHz; MIT, rights in the recordings not stated.",
        download="huggingface-cli download ShoukanLabs/AniSpeech --repo-type dataset --local-dir ROOT",
    ),
    "libritts": Recipe(
        read=libritts,
        summary="LibriTTS or LibriTTS-R: 585 h of audiobooks, 24 kHz; CC BY 4.0.",
        download="The parts' archives from openslr.org/60 (LibriTTS) or openslr.org/141 (LibriTTS-R), unpacked; ROOT "
        "is the folder with train-clean-100 and so on.",
    ),
    "ljspeech": Recipe(
        read=ljspeech,
        summary="LJSpeech 1.1: 24 h of one woman, 22.05 kHz; public domain.",
        download="LJSpeech-1.1.tar.bz2 from keithito.com/LJ-Speech-Dataset, unpacked.",
    ),
}


def problem(name: str, root: Path) -> str | None:
    """The reason why the corpus in `root` cannot be prepared, by its first items; None where one can be read."""
    reason = "it has no recordings"
    try:
        for item in islice(RECIPES[name].open(root), MAX_ITEMS):
            if isinstance(item, RejectedItem):
                reason = item.reason
                continue
            try:
                measure(item)
            except AudioError as error:
                reason = str(error)
            else:
                return None
    except MarsError as error:
        reason = str(error)
    return f"{name}: {reason}"
