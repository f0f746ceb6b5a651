"""Preference pairs of mined takes: score the takes, rank them, write the rejected and chosen sides.

Upstream: a folder of `data.mined_takes`.  Downstream: `data.pairs`, then `training.mars6.orpo`; a `ranking` for humans.
`scoring` computes the metrics, `ranking` chooses the pairs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from marstts.bundle import load_bundle
from marstts.codec.base import Codec
from marstts.errors import DataError
from marstts.generation.request import StopReason
from marstts.io.provenance import read_provenance
from marstts_lab.data.mined_takes import Half, MinedTake, MiningProvenance, text_of
from marstts_lab.data.pairs import Pair, PairLine, SideLine, write_pairs
from marstts_lab.data.workers import Executor
from marstts_lab.preference.ranking import (
    RankConfig,
    RankedTake,
    Scheme,
    choose_pairs,
    generated_of,
    half_of,
    rank_takes,
    score_of,
    write_examples,
    write_report,
)
from marstts_lab.preference.scoring import IDENTITY, score_takes

RECORDING = "recording"


def make_pairs(mined: Path, output: Path, config: RankConfig, *, executor: Executor) -> dict[str, Any]:
    """Score the takes of `mined`, write pairs to `output` and a report to a folder next to it; returns the report.

    DataError where nothing can be paired, a score is not finite, or the takes are those of another codec or encoder.
    """
    provenance = read_provenance(MiningProvenance, mined, "marstts preference mine", DataError)
    bundle = load_bundle(provenance.model)
    codec = bundle.codec
    check_codec(mined, provenance, codec)
    encoder = bundle.encoders.get(IDENTITY)
    if config.similarity_weight and (encoder is None or encoder.name != provenance.encoders.get(IDENTITY)):
        raise DataError(
            f"{mined}: similarity needs takes in voices of the identity encoder that {provenance.model} has, but it is "
            "another or there is none; mine again, or set similarity_weight = 0"
        )
    takes = score_takes(mined, provenance.model, config.plan, executor)
    ranked = rank_takes(takes, config)
    pairs = choose_pairs(ranked, config)
    if not pairs:
        raise DataError(
            f"{mined}: none of {len(ranked)} scored takes makes a pair; relax the thresholds of rejected or chosen "
            "takes, or mine more takes"
        )
    write_pairs([as_pair(*sides, config.scheme, provenance) for sides in pairs], output, codec.spec.patch_layout)
    folder = output.with_name(f"{output.stem}-report")
    write_examples(ranked, codec, config, folder)
    return write_report(takes, ranked, pairs, config, mined, folder)


def check_codec(mined: Path, provenance: MiningProvenance, codec: Codec) -> None:
    """DataError if the takes are codes of another codec than the model has now."""
    if codec.spec.name != provenance.codec:
        raise DataError(
            f"{mined}: these takes are codes of {provenance.codec!r}, but the model {provenance.model} now has the "
            f"codec {codec.spec.name!r}; mine again"
        )


def as_pair(rejected: RankedTake, chosen: RankedTake | None, scheme: Scheme, made_by: MiningProvenance) -> Pair:
    """Two sides as a pair: its prompt is that of the rejected side."""
    half, take, output = half_of(scheme), rejected.take, generated_of(rejected, scheme)
    is_deep = len(output.prefix[0]) > 0
    prefix_text = take.plan.transcript if half is Half.FORWARD else take.plan.text
    line = PairLine(
        id=take.id if chosen is None else f"{take.id} {chosen.take.id}",
        scheme=scheme.value,
        text=text_of(take, half),
        transcript=prefix_text if is_deep else None,
        speaker=take.plan.speaker,
        codec=made_by.codec,
        encoders=made_by.encoders,
        row=0,
        chosen=recording_line(take) if chosen is None else take_line(chosen, scheme),
        rejected=take_line(rejected, scheme),
    )
    codes = take.ground_truth if chosen is None else generated_of(chosen, scheme).codes
    embeddings = {role: output.embeddings[role] for role in made_by.encoders}  # those that the model is conditioned on
    return Pair(line, embeddings, output.prefix, codes, output.codes)


def recording_line(take: MinedTake) -> SideLine:
    """The recording as a side; it always has an end of speech."""
    return SideLine(source=RECORDING, audio=take.plan.audio, patches=len(take.ground_truth[0]), has_eos=True)


def take_line(one: RankedTake, scheme: Scheme) -> SideLine:
    """A take as a side."""
    output, score = generated_of(one, scheme), score_of(one, scheme)
    return SideLine(
        source=f"{half_of(scheme).value} {one.take.id}",
        patches=len(output.codes[0]),
        has_eos=output.stop is StopReason.EOS,
        seed=one.take.plan.seed,
        cer=score.cer,
        mos=score.mos,
        similarity=score.similarity,
    )
