"""What a codec's decoder is trained by to sound like its people: conditions, targets and losses, one option each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from safetensors.torch import save_file

from marstts.codec.mini import MiniCodecConfig
from marstts.errors import ConfigError, DataError
from marstts.generation.request import StopReason
from marstts.io.config import write_config
from marstts.io.precision import Precision
from marstts.speaker.mini import CONFIG_FILE, WEIGHTS_FILE, MiniEncoderConfig
from marstts.speaker.mini_model import MiniEncoderModel
from marstts_lab.data.manifest import Utterance, write_manifest
from marstts_lab.data.mined_takes import GeneratedHalf, MinedTake, PlannedTake, shard_path, write_takes
from marstts_lab.training.codec.config import AdversarialConfig, CodecTrainingConfig, Stage, TimbreSpeakerConfig
from marstts_lab.training.codec.envelope import EnvelopeConfig, envelope, envelope_loss
from marstts_lab.training.codec.frozen import SpeakerConsistency
from marstts_lab.training.codec.generated_codes import GeneratedCodes, GeneratedCodesConfig
from marstts_lab.training.codec.losses import (
    SpeakerConsistencyConfig,
    SpeakerConsistencyLoss,
    SpeakerEmbedding,
    SpectralLoss,
    mask_bands,
)
from marstts_lab.training.codec.new_speakers import NewSpeakersConfig, speed_of
from marstts_lab.training.codec.recognizer_loss import RecognizerConfig
from marstts_lab.training.codec.recordings import Recording, SpeakerTargets
from marstts_lab.training.codec.task import CodecTask, open_task
from marstts_lab.training.codec.term import CodecStep
from marstts_lab.training.codec.timbre_spread import spread_timbre
from marstts_lab.training.loop import LoopConfig, run
from marstts_lab.training.loss import Loss
from small_whisper import as_file, small_whisper

pytestmark = pytest.mark.slow

ENCODER = MiniEncoderConfig(size=9, width=12, blocks=2, num_mels=20)
PLAIN = MiniCodecConfig(
    fft_size=128, hop=32, num_mels=12, codebook_size=24, codebook_width=3, latent_width=10, encoder_width=14,
    encoder_blocks=(1, 1), decoder_width=18, decoder_blocks=(1, 1), pitch_width=8, pitch_dilations=(1, 2),
    timbre_width=6, timbre_encoder_width=8, timbre_encoder_blocks=1, timbre_mels=10,
)  # fmt: skip
MODEL = PLAIN.model_copy(update={"timbre_speaker_size": 9})
SEGMENT = 12 * MODEL.hop_lengths[0]
SPEAKERS = ("ann", "bob")
NO_CODES = tuple(np.zeros(0, np.int64) for _ in range(3))


def tone(number: int, samples: int) -> np.ndarray:
    """A buzz of its own pitch for each recording."""
    return 0.1 * np.sign(np.sin(2 * np.pi * (100 + 60 * number) * np.arange(samples) / 24_000))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of two speakers, takes in their voices, a speaker encoder, a recognizer and a former codec."""
    folder = tmp_path_factory.mktemp("likeness")
    rows, takes, rng = [], [], np.random.default_rng(0)
    for number in range(6):
        speaker = SPEAKERS[number % 2]
        soundfile.write(folder / f"{number}.wav", tone(number, 3 * SEGMENT), 24_000)
        rows.append(Utterance(id=str(number), audio=f"{number}.wav", text="la", speaker=speaker, style="regular",
                              seconds=3 * SEGMENT / 24_000, source_rate=24_000, license="own",
                              split="train" if number < 4 else "validation"))  # fmt: skip
        codes = tuple(rng.integers(0, 24, size=14 * size) for size in (1, 2, 4))
        plan = PlannedTake(id=str(number), reference="r", audio=folder / f"{number}.wav", transcript="la",
                           speaker=speaker, style="regular", text="lo", seed=0)  # fmt: skip
        half = GeneratedHalf({"identity": np.ones(5, np.float32)}, NO_CODES, codes, StopReason.EOS)
        takes.append(MinedTake(plan, 0.9, NO_CODES, half, None, None))
    write_manifest(rows, folder / "utterances.jsonl")
    (folder / "f0.jsonl").write_text("".join(f'{{"id": "{n}", "f0": [0, 120, 130, 140, 150]}}\n' for n in range(6)))
    (folder / "mined").mkdir()
    write_takes(takes, shard_path(folder / "mined", 0), (1, 2, 4), {"identity": 5})
    for name, seed in (("encoder", 0), ("other", 1)):
        (folder / name).mkdir()
        torch.manual_seed(seed)
        save_file(MiniEncoderModel(ENCODER).state_dict(), folder / name / WEIGHTS_FILE)
        write_config(ENCODER, folder / name / CONFIG_FILE)
    (folder / "whisper").mkdir()
    (folder / "whisper" / "model.bin").write_bytes(as_file(small_whisper()))
    before = settings(folder, model=PLAIN, timbre_speaker=None, generated_codes=None)
    run(open_task(before, folder / "utterances.jsonl", folder / "former"), before.loop, folder / "former")
    return folder


def settings(folder: Path, **changes: Any) -> CodecTrainingConfig:
    """A decoder stage on the corpus and the takes of the folder."""
    options: dict[str, Any] = {
        "model": MODEL, "loop": LoopConfig(steps=4), "stage": Stage.DECODER, "batch_size": 2, "segment_patches": 12,
        "warmup_steps": 0, "precision": Precision.FP32, "timbre_dropout": 0.0,
        "speaker_consistency": SpeakerConsistencyConfig(encoder=str(folder / "encoder")),
        "timbre_speaker": TimbreSpeakerConfig(encoder=str(folder / "encoder")),
        "generated_codes": takes_of(folder),
    }  # fmt: skip
    return CodecTrainingConfig(**options | changes)


def takes_of(folder: Path, **options: Any) -> GeneratedCodesConfig:
    return GeneratedCodesConfig(takes=(str(folder / "mined"),), **{"batch_size": 3, **options})


def task_of(folder: Path, **changes: Any) -> CodecTask:
    return CodecTask(settings(folder, **changes), folder / "utterances.jsonl")


def losses_of(task: CodecTask, made: CodecStep) -> dict[str, Loss]:
    return {loss.name: loss for term in task.terms for loss in term.losses(made)}


def state(task: CodecTask, part: str = "") -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in task.model.state_dict().items() if name.startswith(part)}


def test_a_decoder_stage_trains_what_the_speaker_embedding_adds_and_goes_on_from_a_codec_without_it(
    folder: Path, tmp_path: Path
) -> None:
    task = open_task(settings(folder), folder / "utterances.jsonl", tmp_path / "run", folder / "former")
    batch = task.segments.train(0)
    with torch.no_grad():
        before = task.timbre.of(batch.reference, batch.recordings)
        torch.testing.assert_close(before, task.model.timbre_encoder(task.model.log_mel(batch.reference)))
    weights = state(task)
    for step in range(3):
        task.train_step(step)
    changed = {name.split(".")[0] for name, value in state(task).items() if not torch.equal(value, weights[name])}
    assert changed == {"decoder", "timbre_encoder", "timbre_speaker"}


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_timbre_depends_on_the_whole_recording_or_on_the_segment(folder: Path, ratio: float) -> None:
    speaker = TimbreSpeakerConfig(encoder=str(folder / "other"), whole_ratio=ratio)
    task = task_of(folder, timbre_speaker=speaker)
    batch = task.segments.train(0)
    found = task.timbre.speaker_embeddings(batch.reference, batch.recordings)
    encoder = SpeakerEmbedding(str(folder / "other"), 24_000)
    whole = torch.stack([torch.from_numpy(soundfile.read(one.path, dtype="float32")[0]) for one in batch.recordings])
    with torch.no_grad():
        torch.testing.assert_close(found, encoder.embed(whole if ratio else batch.reference), atol=1e-4, rtol=1e-3)


def test_the_target_is_the_mean_of_the_persons_recordings(folder: Path) -> None:
    config = SpeakerConsistencyConfig(encoder=str(folder / "encoder"), target_recordings=2)
    task = task_of(folder, speaker_consistency=config)
    batch = task.segments.train(0)
    loss = SpeakerConsistencyLoss(config, 24_000)
    with torch.no_grad():
        wanted = [
            torch.nn.functional.normalize(
                sum(loss.embed(torch.from_numpy(soundfile.read(one.path, dtype="float32")[0])[None])[0] for one in who),
                dim=0,
            )
            for who in batch.people
        ]
        assert all(len(who) == 2 for who in batch.people)
        consistency = SpeakerConsistency(task.config, torch.device("cpu"))
        found = consistency(batch.samples, batch.samples, batch.people)
        torch.testing.assert_close(found, loss.distance(batch.samples, torch.stack(wanted)), atol=1e-4, rtol=1e-3)
    assert 0 < float(task.train_step(0)["generated_consistency"]) < 2


def test_recordings_of_a_person_that_cannot_be_read_are_left_out(folder: Path, tmp_path: Path) -> None:
    targets = SpeakerTargets(SpeakerEmbedding(str(folder / "encoder"), 24_000), 24_000, torch.device("cpu"))
    missing, there = Recording(tmp_path / "none.wav"), Recording(folder / "0.wav")
    torch.testing.assert_close(targets.person([missing, there], 2), targets.of(there).embedding)
    with pytest.raises(DataError, match="none of the recordings of a person"):
        targets.person([missing], 2)
    with pytest.raises(DataError, match="reference of a take"):
        targets.embeddings([missing])


def test_masked_bands_are_silent_about_the_output_and_the_rest_is_as_it_was() -> None:
    torch.manual_seed(0)
    mel = torch.randn(3, 40, 20)
    assert torch.equal(mask_bands(mel, 0), mel)
    masked = mask_bands(mel, 2)
    constant = masked.std(dim=2) < 1e-6
    assert all(8 <= int(row.sum()) <= 16 for row in constant)
    assert torch.equal(masked[~constant], mel[~constant])
    torch.testing.assert_close(masked.mean(dim=2), mel.mean(dim=2))
    assert not torch.equal(mask_bands(mel, 2), masked), "other bands each time"


def test_a_loss_with_masked_bands_differs_from_one_without_and_validation_hears_all(folder: Path) -> None:
    config = SpeakerConsistencyConfig(encoder=str(folder / "encoder"), masked_bands=2)
    masked, plain = task_of(folder, speaker_consistency=config), task_of(folder)
    torch.manual_seed(0)
    ours = masked.train_step(0)["speaker_consistency"]
    torch.manual_seed(0)
    assert float(ours) != float(plain.train_step(0)["speaker_consistency"])
    again = task_of(folder)
    assert task_of(folder, speaker_consistency=config).validate(0) == again.validate(0)


def test_the_envelope_ignores_the_level_and_quiet_frames_and_hears_a_tilt() -> None:
    torch.manual_seed(0)
    mel = torch.randn(2, 40, 30)
    padded = torch.cat([mel, torch.full((2, 40, 9), -11.0)], dim=2)
    torch.testing.assert_close(envelope(padded + 1.5), envelope(mel))
    assert envelope(mel).shape == (2, 38)
    tilted = mel + torch.linspace(1, -1, 40)[:, None]
    assert float(envelope_loss(mel, envelope(mel))) < 1e-6 < 0.3 < float(envelope_loss(tilted, envelope(mel)))


def test_takes_are_trained_to_the_envelope_of_the_reference_in_whose_voice_they_are(folder: Path) -> None:
    task = task_of(folder, envelope=EnvelopeConfig(weight=2.0), generated_codes=takes_of(folder, swap_ratio=1.0))
    made = task.reconstruct(0)
    loss = SpeakerEmbedding(str(folder / "encoder"), 24_000)
    term = losses_of(task, made)["envelope"]
    wholes = [torch.from_numpy(soundfile.read(one.path, dtype="float32")[0]) for one in made.takes.batch.recordings]
    wanted = torch.cat([envelope(loss.log_mel(whole[None])) for whole in wholes])
    torch.testing.assert_close(term.value, envelope_loss(loss.log_mel(made.takes.samples), wanted))
    assert term.weight == 2.0 and "envelope" in task.train_step(0)


def test_a_share_of_takes_is_decoded_in_the_voice_of_another(folder: Path) -> None:
    config = takes_of(folder, batch_size=40, swap_ratio=0.4)
    data = GeneratedCodes(config, MODEL, num_patches=12, seed=0)
    batch = data.train(0)
    assert 0.2 < 1 - float(batch.is_own.float().mean()) < 0.6
    speaker_of = {take.recording: take.speaker for take in data.takes}
    for own, recording, own_recording in zip(batch.is_own, batch.recordings, batch.own_recordings, strict=True):
        assert (speaker_of[recording.path] == speaker_of[own_recording.path]) == bool(own)
    plain = GeneratedCodes(takes_of(folder, batch_size=40), MODEL, num_patches=12, seed=0).train(0)
    assert plain.is_own.all() and torch.equal(plain.reference, batch.own_reference)
    assert all(torch.equal(one, other) for one, other in zip(plain.codes, batch.codes, strict=True))
    with pytest.raises(DataError, match="swap_ratio needs takes of two speakers"):
        only = folder / "only"
        only.mkdir(exist_ok=True)
        plan = PlannedTake(id="a", reference="r", audio=folder / "0.wav", transcript="la", speaker="ann",
                           style="regular", text="lo", seed=0)  # fmt: skip
        codes = tuple(np.zeros(14 * size, np.int64) for size in (1, 2, 4))
        half = GeneratedHalf({"identity": np.ones(5, np.float32)}, NO_CODES, codes, StopReason.EOS)
        write_takes([MinedTake(plan, 0.9, NO_CODES, half, None, None)], shard_path(only, 0), (1, 2, 4),
                    {"identity": 5})  # fmt: skip
        GeneratedCodes(GeneratedCodesConfig(takes=(str(only),), swap_ratio=0.4), MODEL, num_patches=12, seed=0)


def test_takes_are_held_to_the_spectra_and_the_words_of_the_former_codecs_output(folder: Path) -> None:
    held = takes_of(
        folder, former=str(folder / "former"), spectral_weight=0.8, recognizer_weight=5.0, swap_ratio=0.4, batch_size=6
    )
    recognizer = RecognizerConfig(folder=str(folder / "whisper"))
    task = task_of(folder, generated_codes=held, recognizer=recognizer)
    weights = [value.clone() for value in task.takes.former.state_dict().values()]
    made = task.reconstruct(0)
    terms = losses_of(task, made)
    assert terms["generated_spectral"].weight == 0.8 and terms["generated_words"].weight == 5.0
    own = made.takes.batch.is_own
    assert bool(own.any()) and not bool(own.all())
    same = SpectralLoss(24_000)(made.takes.samples[own], made.takes.former[own], 0)
    torch.testing.assert_close(terms["generated_spectral"].value, same)
    scores = task.train_step(0)
    assert {"generated_spectral", "generated_words"} <= scores.keys()
    assert all(torch.equal(*pair) for pair in zip(weights, task.takes.former.state_dict().values(), strict=True))


def test_takes_in_their_own_voices_have_the_f0_of_the_former_codecs_output(folder: Path, tmp_path: Path) -> None:
    held = takes_of(folder, former=str(folder / "former"), spectral_weight=1.0, swap_ratio=0.4, batch_size=6)
    config = settings(folder, generated_codes=held)
    task = open_task(config, folder / "utterances.jsonl", tmp_path / "run", folder / "former")
    decoded = []
    for octaves in (0.0, 1.0):
        with torch.no_grad():
            task.model.decoder.pitch.head.bias += octaves
            torch.manual_seed(0)
            decoded.append(task.takes.decode(0))
    moved = (decoded[0].samples != decoded[1].samples).any(dim=1)
    assert torch.equal(moved, ~decoded[0].batch.is_own) and bool(moved.any())


def test_takes_are_fakes_for_the_discriminators_if_wanted(folder: Path) -> None:
    torch.manual_seed(0)
    with_takes = AdversarialConfig(fft_sizes=(256,), channels=4, crop_samples=2048, generated=True)
    task, plain = (
        task_of(folder, adversarial=config)
        for config in (with_takes, with_takes.model_copy(update={"generated": False}))
    )
    plain.modules["discriminators"].load_state_dict(task.modules["discriminators"].state_dict())
    torch.manual_seed(1)
    ours = task.train_step(0)
    torch.manual_seed(1)
    theirs = plain.train_step(0)
    for name in ("discriminator_loss", "adversarial"):
        assert float(ours[name]) != float(theirs[name])


def test_discriminators_are_trained_alone_at_first_and_then_the_codec(folder: Path) -> None:
    config = AdversarialConfig(fft_sizes=(256, 128), channels=4, crop_samples=2048, pretraining_steps=2)
    task = task_of(folder, adversarial=config)
    weights = state(task)
    judges = [value.clone() for value in task.modules["discriminators"].state_dict().values()]
    for step in range(2):
        assert set(task.train_step(step)) == {"discriminator_loss"}
    assert all(torch.equal(value, weights[name]) for name, value in state(task).items())
    members = zip(judges, task.modules["discriminators"].state_dict().items(), strict=True)
    learned = {name.split(".")[1] for old, (name, value) in members if not torch.equal(old, value)}
    assert learned == {"0", "1"}, "all of them"
    assert {"spectral", "adversarial"} <= task.train_step(2).keys()
    assert any(not torch.equal(value, weights[name]) for name, value in state(task).items())


def test_a_run_with_all_losses_goes_through_the_loop(folder: Path, tmp_path: Path) -> None:
    config = settings(
        folder, loop=LoopConfig(steps=3, log_every=1, validate_every=2), envelope=EnvelopeConfig(),
        adversarial=AdversarialConfig(
            fft_sizes=(256,), channels=4, crop_samples=2048, generated=True, pretraining_steps=1
        ),
        recognizer=RecognizerConfig(folder=str(folder / "whisper")),
        generated_codes=takes_of(
            folder, former=str(folder / "former"), spectral_weight=0.8, recognizer_weight=5.0, swap_ratio=0.33
        ),
        speaker_consistency=SpeakerConsistencyConfig(
            encoder=str(folder / "encoder"), target_recordings=8, masked_bands=1
        ),
    )  # fmt: skip
    task = open_task(config, folder / "utterances.jsonl", tmp_path / "run", folder / "former")
    run(task, config.loop, tmp_path / "run")
    assert all(bool(value.isfinite().all()) for value in state(task, "decoder").values())


def test_validation_of_the_same_weights_has_the_same_scores(folder: Path) -> None:
    task = task_of(folder, timbre_speaker=TimbreSpeakerConfig(encoder=str(folder / "other"), whole_ratio=0.5))
    with torch.no_grad():
        for parameter in task.model.parameters():
            parameter += 0.1  # so that the embedding of the speaker encoder counts, and timbre embeddings do
    scores = []
    for seed in range(8):
        torch.manual_seed(seed)
        scores.append(task.validate(0))
    assert all(score == scores[0] for score in scores)


def test_all_options_that_contradict_each_other_are_named_at_once(folder: Path) -> None:
    with pytest.raises(ConfigError) as error:
        task_of(
            folder, generated_codes=None, envelope=EnvelopeConfig(), timbre_speaker=None,
            adversarial=AdversarialConfig(generated=True, pretraining_steps=4),
        )  # fmt: skip
    for complaint in ("losses of takes", "pretraining_steps is 4", "timbre_speaker_size needs"):
        assert str(error.value).count(complaint) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"timbre_speaker": None}, "timbre_speaker_size needs"),
        ({"model": PLAIN}, "timbre_speaker_size needs"),
        ({"model": PLAIN.model_copy(update={"timbre_speaker_size": 8})}, "embeddings of length 9"),
        ({"generated_codes": None, "envelope": EnvelopeConfig()}, "losses of takes"),
        ({"generated_codes": None, "adversarial": AdversarialConfig(generated=True)}, "losses of takes"),
        ({"generated_codes": {"spectral_weight": 1.0}}, "former"),
        ({"generated_codes": {"former": "former"}}, "former"),
        ({"generated_codes": {"former": "former", "recognizer_weight": 1.0}}, "needs .recognizer."),
        ({"adversarial": AdversarialConfig(pretraining_steps=4)}, "pretraining_steps is 4"),
    ],
)
def test_options_that_lack_what_they_need_are_refused(folder: Path, changes: dict[str, Any], message: str) -> None:
    if isinstance(changes.get("generated_codes"), dict):
        changes = {"generated_codes": takes_of(folder, **changes["generated_codes"])}
    with pytest.raises(ConfigError, match=message):
        task_of(folder, **changes)


def test_a_former_codec_with_other_codes_is_refused(folder: Path, tmp_path: Path) -> None:
    other = settings(folder, model=MODEL.model_copy(update={"codebook_size": 25}), generated_codes=None)
    run(open_task(other, folder / "utterances.jsonl", tmp_path / "other"), other.loop, tmp_path / "other")
    with pytest.raises(ConfigError, match="the former codec has other codes"):
        task_of(folder, generated_codes=takes_of(folder, former=str(tmp_path / "other"), spectral_weight=1.0))


def test_new_speakers_are_recordings_at_another_speed_with_their_own_f0_embedding_and_mean(folder: Path) -> None:
    new = NewSpeakersConfig(ratio=1.0, take_ratio=1.0, factors=(1.2, 1.3))
    consistency = SpeakerConsistencyConfig(encoder=str(folder / "encoder"), target_recordings=2)
    task = task_of(
        folder, new_speakers=new, speaker_consistency=consistency, generated_codes=takes_of(folder, swap_ratio=1.0)
    )
    batch = task.segments.train(0)
    speeds = {speed_of(speaker, new) for speaker in SPEAKERS}
    assert {one.speed for one in batch.recordings} <= speeds and all(one.speed != 1 for one in batch.recordings)
    assert all(one.speed == batch.recordings[row].speed for row, who in enumerate(batch.people) for one in who)
    for row, speed in enumerate(one.speed for one in batch.recordings):
        assert 1.2 <= max(speed, 1 / speed) <= 1.3
        number = int(batch.recordings[row].path.stem) % 2  # of the same speaker as the segment
        peaks = [np.fft.rfftfreq(SEGMENT, 1 / 24_000)[np.abs(np.fft.rfft(batch.samples[row])).argmax()]]
        assert any(abs(peaks[0] / ((100 + 60 * n) * speed) - 1) < 0.05 for n in range(number, 6, 2))
        assert 120 * speed - 1 < float(batch.f0[row].min()) <= float(batch.f0[row].max()) < 150 * speed + 1
    takes = task.takes.codes.train(0)
    assert all(one.speed in speeds for one in takes.recordings) and all(one.speed == 1 for one in takes.own_recordings)
    assert 0 < float(task.train_step(0)["generated_consistency"]) < 2


def test_a_recording_that_would_be_shorter_than_a_segment_gives_no_new_speaker(folder: Path) -> None:
    fast = NewSpeakersConfig(ratio=1.0, factors=(3.5, 3.6))
    speeds = {speaker: speed_of(speaker, fast) for speaker in SPEAKERS}
    task = task_of(folder, new_speakers=fast)
    for source in task.segments.known:
        wanted = speeds[source.utterance.speaker]
        assert task.segments.at_new_speed(source).speed == (wanted if wanted < 3 else 1.0)


def test_spread_timbre_embeddings_differ_more_and_the_output_stays(folder: Path, tmp_path: Path) -> None:
    task = open_task(settings(folder), folder / "utterances.jsonl", tmp_path / "run", folder / "former")
    for step in range(3):
        task.train_step(step)
    with torch.no_grad():
        task.model.timbre_encoder.project.bias += 4.0  # what all have in common
    references, speakers = task.references(24)
    codes = [
        torch.from_numpy(np.random.default_rng(0).integers(0, 24, size=(len(references), 12 * n))) for n in (1, 2, 4)
    ]

    def outputs() -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            timbre = task.model.timbre_of(references, speakers)
            torch.manual_seed(0)
            return timbre, task.model.decode(codes, timbre, torch.full((len(timbre), 96), 120.0))

    (timbre, before) = outputs()
    spread_timbre(task.model, references, speakers, 3.0)
    spread, after = outputs()

    def differences(rows: torch.Tensor) -> float:
        return float((rows - rows.mean(dim=0)).square().mean())

    assert differences(spread) > 2 * differences(timbre)
    torch.testing.assert_close(spread.square().mean(dim=1), torch.ones(len(spread)))
    assert float((after - before).square().mean()) < 0.02 * float(before.square().mean())
    with pytest.raises(ConfigError, match="timbre_spread needs a timbre embedding that is trained"):
        task_of(folder, timbre_spread=2.0, freeze_timbre=True)


def test_a_run_that_begins_with_another_codec_spreads_its_timbre_once(folder: Path, tmp_path: Path) -> None:
    config = settings(folder, timbre_spread=3.0)
    task = open_task(config, folder / "utterances.jsonl", tmp_path / "run", folder / "former")
    plain = open_task(settings(folder), folder / "utterances.jsonl", tmp_path / "plain", folder / "former")
    name = "timbre_encoder.project.weight"
    assert not torch.equal(state(task)[name], state(plain)[name])
    run(task, config.loop, tmp_path / "run")
    again = open_task(config, folder / "utterances.jsonl", tmp_path / "run", folder / "former")
    run(again, config.loop, tmp_path / "run")
    assert torch.equal(state(again)[name], state(task)[name])
