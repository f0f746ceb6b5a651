"""Codec training data: corpora and speakers by their weights, references of the same speaker, timbre embeddings."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from marstts.codec.mini import MiniCodecConfig
from marstts.errors import ConfigError
from marstts.io.precision import Precision
from marstts_lab.data.manifest import Utterance, write_manifest
from marstts_lab.training.codec.augmentation import AugmentationConfig
from marstts_lab.training.codec.config import CodecTrainingConfig, FrequencyWarpConfig, Stage
from marstts_lab.training.codec.segments import Segments, sampling_weights, weighted_manifest
from marstts_lab.training.codec.task import CodecTask, open_task
from marstts_lab.training.loop import LoopConfig, run

pytestmark = pytest.mark.slow

PLAIN = MiniCodecConfig(
    fft_size=128, hop=32, num_mels=12, codebook_size=24, codebook_width=3, latent_width=10, encoder_width=14,
    encoder_blocks=(1, 1), decoder_width=18, decoder_blocks=(1, 1), pitch_width=8, pitch_dilations=(1, 2),
)  # fmt: skip
VOICED = PLAIN.model_copy(
    update={"timbre_width": 6, "timbre_encoder_width": 14, "timbre_encoder_blocks": 1, "timbre_mels": 9}
)
AS_IT_IS = AugmentationConfig(eq_std_db=0, noise_probability=0, band_limit_probability=0, reverb_probability=0)


def settings(model: MiniCodecConfig = VOICED, steps: int = 4, **changes: object) -> CodecTrainingConfig:
    loop = LoopConfig(steps=steps, log_every=2, validate_every=100)
    values = {
        "batch_size": 4,
        "segment_patches": 12,
        "learning_rate": 5e-3,
        "warmup_steps": 2,
        "precision": Precision.FP32,
    } | changes
    return CodecTrainingConfig(model=model, loop=loop, **values)


def corpus(folder: Path, speakers: dict[str, int], level: float) -> Path:
    """Recordings of constant level, so that a segment shows its corpus; the last of each speaker is for validation."""
    folder.mkdir()
    utterances, lines = [], []
    for speaker, count in speakers.items():
        for number in range(count + 1):
            id = f"{speaker}-{number}"
            noise = np.random.default_rng(len(utterances)).standard_normal(6000)
            soundfile.write(folder / f"{id}.wav", level * np.sign(noise), 24000)
            split = "validation" if number == count else "train"
            utterances.append(
                Utterance(id=id, audio=f"{id}.wav", text="la", speaker=speaker, style="regular", seconds=0.25,
                          source_rate=24000, split=split, license="own")
            )  # fmt: skip
            lines.append(json.dumps({"id": id, "f0": [0, 0, *range(120, 350, 10)]}))
    write_manifest(utterances, folder / "utterances.jsonl")
    (folder / "f0.jsonl").write_text("\n".join(lines) + "\n")
    return folder / "utterances.jsonl"


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return corpus(tmp_path_factory.mktemp("a") / "people", {"ann": 6, "bob": 1}, 0.2)


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return corpus(tmp_path_factory.mktemp("b") / "synthetic", {"cat": 2}, 0.4)


def drawn(segments: Segments, steps: int) -> Counter[str]:
    """Number of segments of each speaker in `steps` batches."""
    found: Counter[str] = Counter()
    original = segments.valid_segment

    def watch(index: int, rng: np.random.Generator) -> Any:
        found[segments.known[index].utterance.speaker] += 1
        return original(index, rng)

    segments.valid_segment = watch  # type: ignore[method-assign]
    for step in range(steps):
        segments.train(step)
    return found


def test_corpora_are_drawn_by_their_weights(people: Path, synthetic: Path) -> None:
    found = drawn(Segments([(people, 3.0), (synthetic, 1.0)], settings(PLAIN)), 100)
    assert 0.68 < (found["ann"] + found["bob"]) / 400 < 0.82


def test_corpora_without_weights_are_drawn_by_their_recordings(people: Path, synthetic: Path) -> None:
    found = drawn(Segments([(people, None), (synthetic, None)], settings(PLAIN)), 100)
    assert 0.15 < found["cat"] / 400 < 0.29  # 2 of 9


def test_speakers_are_drawn_more_evenly_with_a_smaller_exponent(people: Path) -> None:
    sources = Segments(people, settings(PLAIN)).known
    bob = [source.utterance.speaker for source in sources].index("bob")
    shares = [sampling_weights(sources, exponent)[bob] for exponent in (1.0, 0.5, 0.0)]
    np.testing.assert_allclose(shares, [1 / 7, 1 / (1 + 6**0.5), 1 / 2])


def test_references_are_other_recordings_of_the_speaker_recorded_alike(people: Path) -> None:
    segments = Segments(people, settings(augmentation=AS_IT_IS))
    ann = next(source for source in segments.known if source.utterance.id == "ann-0")
    waves = {f"ann-{n}": soundfile.read(people.parent / f"ann-{n}.wav", dtype="float32")[0] for n in range(6)}
    for seed in range(10):
        reference = segments.segment(ann, 0.0, np.random.default_rng(seed)).reference
        homes = [
            id for id, wave in waves.items()
            if any(np.array_equal(wave[s : s + 64], reference[:64]) for s in range(len(wave) - 64))
        ]  # fmt: skip
        assert len(homes) == 1 and homes != ["ann-0"]


def test_a_lone_recording_is_its_own_reference_from_its_other_end(people: Path) -> None:
    segments = Segments(people, settings())
    bob = next(source for source in segments.known if source.utterance.id == "bob-0")
    cut = segments.segment(bob, 0.1, np.random.default_rng(0))
    wave, _ = soundfile.read(people.parent / "bob-0.wav", dtype="float32")
    np.testing.assert_array_equal(cut.reference, wave[-len(cut.reference) :])


def test_codecs_without_timbre_embeddings_read_no_references(people: Path) -> None:
    assert Segments(people, settings(PLAIN)).train(0).reference.shape == (4, 0)


def test_a_codec_without_timbre_starts_one_with_it_unchanged(people: Path, tmp_path: Path) -> None:
    old = CodecTask(settings(PLAIN), people)
    run(old, settings(PLAIN).loop, tmp_path / "old")
    (tmp_path / "old" / "config.json").write_text(settings(PLAIN).model_dump_json())
    new = open_task(settings(), people, tmp_path / "new", tmp_path / "old")
    latents = torch.randn(1, 10, 8)
    with torch.no_grad():
        grown = new.model.decoder(latents, torch.ones(1, 6))
        for ours, theirs in zip(grown, old.model.decoder(latents), strict=True):
            torch.testing.assert_close(ours, theirs)
    other = VOICED.model_copy(update={"decoder_width": 20})
    with pytest.raises(ConfigError, match="other sizes"):
        open_task(settings(other), people, tmp_path / "wrong", tmp_path / "old")


@pytest.mark.parametrize("stage", list(Stage))
def test_the_timbre_encoder_learns_in_every_stage(people: Path, stage: Stage) -> None:
    task = CodecTask(settings(stage=stage, timbre_dropout=0.0), people)
    assert task.model.timbre_encoder is not None
    before = task.model.timbre_encoder.project.weight.clone()
    codebook = task.model.quantizer.codebooks[0][1].entries.clone()
    for step in range(3):  # in the first step the modulations are still zero
        task.train_step(step)
    assert not torch.equal(task.model.timbre_encoder.project.weight, before)
    assert torch.equal(task.model.quantizer.codebooks[0][1].entries, codebook) == (stage is Stage.DECODER)


def test_a_frozen_timbre_keeps_voices_and_pitch_while_the_decoder_learns(people: Path) -> None:
    task = CodecTask(settings(stage=Stage.DECODER, freeze_timbre=True), people)
    before = {name: value.clone() for name, value in task.model.state_dict().items()}
    for step in range(2):
        task.train_step(step)
    moved = {name for name, value in task.model.state_dict().items() if not torch.equal(value, before[name])}
    assert moved and all(name.startswith("decoder.") and "pitch" not in name for name in moved)


def test_some_segments_are_decoded_without_a_timbre(people: Path) -> None:
    task = CodecTask(settings(timbre_dropout=0.5), people)
    torch.manual_seed(0)
    embeddings = task.timbre.with_dropout(torch.randn(40, 1024))
    silent = int((embeddings == 0).all(dim=1).sum())
    assert 10 < silent < 30


def test_frequencies_move_only_where_a_timbre_embedding_tells_the_speaker(people: Path) -> None:
    warp = FrequencyWarpConfig(probability=0.5, factors=(0.8, 1.25))
    task = CodecTask(settings(stage=Stage.DECODER, frequency_warp=warp), people)
    timbre = torch.ones(400, 6)
    timbre[:100] = 0
    factors = task.timbre.frequency_factors(timbre)
    assert factors is not None and bool((factors[:100] == 1).all())
    moved = factors[100:][factors[100:] != 1]
    assert 110 < len(moved) < 190 and 0.8 <= float(moved.min()) < 0.85 and 1.2 < float(moved.max()) <= 1.25
    assert CodecTask(settings(stage=Stage.DECODER), people).timbre.frequency_factors(timbre) is None


def test_the_encoder_alone_reads_moved_frequencies(people: Path) -> None:
    task = CodecTask(settings(stage=Stage.DECODER), people)
    samples, pitch = torch.randn(2, 12 * 1024), torch.full((2, 384), 120.0)
    with torch.no_grad():
        plain = task.model(samples, pitch, torch.ones(2, 6))
        moved = task.model(samples, pitch, torch.ones(2, 6), torch.tensor([1.0, 1.2]))
    for ours, theirs in zip(moved.codes, plain.codes, strict=True):
        assert torch.equal(ours[0], theirs[0])
    assert any(not torch.equal(ours[1], theirs[1]) for ours, theirs in zip(moved.codes, plain.codes, strict=True))
    assert np.isfinite(float(CodecTask(
        settings(stage=Stage.DECODER, frequency_warp=FrequencyWarpConfig(probability=1.0)), people
    ).train_step(0)["spectral"]))  # fmt: skip


def test_moved_frequencies_need_a_timbre(people: Path) -> None:
    with pytest.raises(ConfigError, match="frequency_warp needs a timbre embedding"):
        CodecTask(settings(PLAIN, frequency_warp=FrequencyWarpConfig()), people)


def test_validation_has_scores_by_corpus_and_without_timbre(people: Path, synthetic: Path) -> None:
    scores = CodecTask(settings(), [(people, None), (synthetic, None)]).validate(0)
    assert {"spectral_corpus0", "spectral_corpus1", "spectral_without_timbre"} <= scores.keys()
    assert scores["spectral_without_timbre"] == pytest.approx(scores["spectral"])  # untrained modulations


def test_weights_follow_the_file_name(people: Path) -> None:
    assert weighted_manifest(str(people)) == (people, None)
    assert weighted_manifest(f"{people}:0.6") == (people, 0.6)
    for wrong in (f"{people}:much", f"{people}:0", f"{people}:-1"):
        with pytest.raises(ConfigError, match="positive number"):
            weighted_manifest(wrong)
