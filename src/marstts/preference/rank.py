"""Ranking: of all mined takes, which one should a model not say, and what should it say instead?

Upstream: a folder of `takes`.  Downstream: `data.pairs`, then `training.orpo`; a `report` for people.
Who listens is told in `judging`, what becomes a pair in `ranking`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from marstts.checkpoint import load_bundle
from marstts.codec.base import Codec
from marstts.data.pairs import write_pairs
from marstts.data.workers import Engine
from marstts.errors import DataError
from marstts.preference.judging import judge_takes
from marstts.preference.ranking import RankConfig, as_pair, judges_wanted, make_pairs, rank_takes
from marstts.preference.report import write_extremes, write_report
from marstts.preference.takes import Claim, read_claim


def rank(
    mined: Path,
    output: Path,
    config: RankConfig,
    *,
    engine: Engine,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Judge the takes of `mined` (those not judged yet), write pairs to `output` and a report beside; returns that.

    DataError where nothing can be paired, a score is no number, or the takes were spoken through another codec.
    """
    claim = read_claim(mined)
    bundle = load_bundle(claim.model)
    check_codec(mined, claim, bundle.codec)
    takes = judge_takes(mined, claim.model, judges_wanted(config), engine, say)
    ranked = rank_takes(takes, config)
    pairs = make_pairs(ranked, config)
    if not pairs:
        raise DataError(
            f"{mined}: none of {len(ranked)} judged takes makes a pair; relax the thresholds of "
            "what may be rejected or chosen, or mine more takes"
        )
    made_by = {name: getattr(claim, name) for name in ("codec", "identity_encoder", "style_encoder")}
    write_pairs([as_pair(*sides, config.scheme, made_by) for sides in pairs], output, bundle.codec.spec.patch_layout)
    folder = output.with_name(f"{output.stem}-report")
    write_extremes(ranked, bundle.codec, config, folder)
    return write_report(takes, ranked, pairs, config, mined, folder)


def check_codec(mined: Path, claim: Claim, codec: Codec) -> None:
    """DataError if the takes are codes of another codec than the model has by now."""
    if codec.spec.name != claim.codec:
        raise DataError(
            f"{mined}: these takes are codes of {claim.codec!r}, but the model {claim.model} has the codec "
            f"{codec.spec.name!r} by now; mine again"
        )
