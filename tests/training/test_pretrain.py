"""Training of MARS6 on a corpus of invented codes: small enough for seconds, real in every step."""

import dataclasses
import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from marstts.audio import Waveform
from marstts.checkpoint import load_mars6
from marstts.codec.toy import ToyCodec
from marstts.data.batching import Batcher, Item
from marstts.data.manifest import Utterance
from marstts.data.shards import Corpus, ShardInfo, shard_path, write_shard
from marstts.errors import CheckpointError, ConfigError, DataError
from marstts.mars6.config import Mars6Config
from marstts.mars6.model import Mars6
from marstts.mars6.prompt import prompt_string
from marstts.text.bpe import BPE
from marstts.training.loop import LoopConfig, restore, run, save
from marstts.training.pretrain import (
    Collator,
    PretrainConfig,
    PretrainTask,
    attention_shape,
    learn_tokenizer,
    load_sound,
    open_run,
    start_from,
    trained_model,
    with_slips,
)

CODEC = ToyCodec(codebook_size=16, hop_lengths=(256, 128, 64), sample_rate=8000)
WORDS = ("one", "two", "three", "four")
VOCAB = 266
CONFIG = {
    "model": {
        "text_vocab_size": VOCAB,
        "codebook_size": 16,
        "width": 32,
        "encoder_layers": 1,
        "global_layers": 2,
        "local_layers": 1,
        "heads": 2,
        "local_heads": 4,
        "identity_size": 3,
        "style_size": 5,
    },
    "loop": {"steps": 6, "log_every": 2, "validate_every": 3, "checkpoint_minutes": 60.0},
    "batching": {"patches_per_batch": 60, "max_patches": 40},
    "optimizer": {"learning_rate": 3e-3, "warmup_steps": 2},
    "alignment": {"layers": [1], "heads": 1},
    "validation_patches": 60,
    "audio_samples": 2,
}


def config(**changes: object) -> PretrainConfig:
    merged = {name: dict(value) if isinstance(value, dict) else value for name, value in CONFIG.items()}
    for name, value in changes.items():
        merged[name] = {**merged.get(name, {}), **value} if isinstance(value, dict) else value
    return PretrainConfig.model_validate(merged)


def make_corpus(count: int = 48) -> Corpus:
    """Every word lasts two patches of its own code, so that there is something to learn."""
    rng = np.random.default_rng(0)
    words = [rng.integers(0, len(WORDS), rng.integers(2, 6)) for _ in range(count)]
    lengths = np.array([2 * len(w) for w in words])
    coarse = np.concatenate([np.repeat(w, 2) for w in words]).astype(np.uint16)
    return Corpus(
        codec=CODEC.spec,
        identity_encoder="who",
        style_encoder="how",
        utterances=tuple(
            Utterance(
                id=f"u{i}",
                audio="-",
                text=" ".join(WORDS[j] for j in w).capitalize() + ".",
                speaker=f"s{i % 3}",
                style="regular",
                seconds=1.0,
                source_rate=(8000, 16000, 24000)[i % 3],
                split="validation" if i % 6 == 0 else "train",
                licence="CC0",
            )
            for i, w in enumerate(words)
        ),
        codes=(coarse, np.repeat(coarse + 4, 2), np.repeat(coarse + 8, 4)),
        offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
        identity=rng.normal(size=(count, 3)).astype(np.float16),
        style=rng.normal(size=(count, 5)).astype(np.float16),
    )


CORPUS = make_corpus()
TOKENIZER = learn_tokenizer(CORPUS, VOCAB)


def task(settings: PretrainConfig | None = None, **options) -> PretrainTask:
    return PretrainTask(settings or config(), CORPUS, TOKENIZER, **options)


def quiet(_: str) -> None:
    pass


def weights(trained: PretrainTask) -> dict[str, torch.Tensor]:
    return {f"{k}.{n}": v.clone() for k, m in trained.modules.items() for n, v in m.state_dict().items()}


def collator() -> Collator:
    return Collator(CORPUS, TOKENIZER, config().model, full_band_rate=24_000)


def test_a_batch_holds_texts_patches_and_the_references_embeddings():
    batch = collator()([Item((1,), 4, ("Two one.",)), Item((2, 5), 8, ("One.", "Four two."))])
    first = TOKENIZER.encode(prompt_string("Two one.", quality=16000))
    second = TOKENIZER.encode(prompt_string("One. Four two.", quality=48000))
    assert batch.text_lengths.tolist() == [len(first), len(second)]
    assert batch.text_ids[0, : len(first)].tolist() == first and batch.text_ids[1, : len(second)].tolist() == second
    np.testing.assert_array_equal(batch.identity.numpy(), CORPUS.identity[[4, 8]].astype(np.float32))
    np.testing.assert_array_equal(batch.style.numpy(), CORPUS.style[[4, 8]].astype(np.float32))

    coarse, middle, fine = CORPUS.codes_of(1)
    eos = 3 * 16
    for t in range(len(coarse)):
        expected = [coarse[t], *(16 + middle[2 * t : 2 * t + 2]), *(32 + fine[4 * t : 4 * t + 4])]
        assert batch.patches[0, t].tolist() == expected
    length = len(coarse) + 1
    assert batch.patch_lengths[0] == length and batch.patches[0, length - 1].tolist() == [eos] * 7
    assert (batch.patches[0, length:] == -100).all()
    pair = CORPUS.num_patches[2] + CORPUS.num_patches[5]
    assert batch.patch_lengths[1] == pair + 1 and (batch.patches[1, :pair] < eos).all()


@pytest.mark.parametrize(
    ("parts", "texts"),
    [((2, 5), ("One two three.", "Four two.")), ((2, 4, 5), ("One two three.", "Three one.", "Four two."))],
)
def test_the_boundary_of_a_chain_is_where_its_last_part_begins(parts, texts):
    make = collator()
    chain = make([Item(parts, 2, texts)])
    patch, token = chain.boundaries[0].tolist()
    assert patch == sum(CORPUS.num_patches[part] for part in parts[:-1])
    text_ids = chain.text_ids[0, : int(chain.text_lengths[0]) - 1].tolist()
    assert TOKENIZER.decode(text_ids[token:]) == " Four two."
    assert " ".join(texts) in TOKENIZER.decode(text_ids)
    assert make([Item((2,), 2, ("One two three.",))]).boundaries.tolist() == [[0, 0]]


def test_the_quality_prefix_tells_true_rates_apart():
    make = collator()
    announced = [make.quality(Item(parts, parts[0], ("One.",))) for parts in ((0,), (1,), (2,), (1, 2))]
    assert announced == [8000, 16000, 48000, 16000]


def test_training_learns_what_the_codes_say(tmp_path):
    settings = config(loop={"steps": 60, "validate_every": 60}, optimizer={"learning_rate": 6e-3})
    learner = task(settings)
    before = learner.validate(0, None)
    assert abs(before["loss0"] - np.log(17)) < 1.5
    run(learner, settings.loop, tmp_path, quiet)
    after = learner.validate(60, None)
    assert after["loss0"] < 0.6 * before["loss0"] and after["loss2"] < 0.25 * before["loss2"]
    assert after["accuracy2"] > 0.9
    logged = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    names = {"loss", "loss0", "loss1", "loss2", "accuracy0", "alignment", "sharpness", "monotonicity", "gradient"}
    assert names | {"learning_rate", "audio_seconds_per_second", "utilisation", "padding"} <= logged[0].keys()


def test_resumed_training_equals_uninterrupted_training(tmp_path):
    whole = task()
    run(whole, LoopConfig(steps=6, validate_every=4, log_every=2), tmp_path / "whole", quiet)
    first = task()
    run(first, LoopConfig(steps=3, validate_every=4, log_every=2), tmp_path / "parts", quiet)
    # the schedule is that of the whole run: the task holds it, the loop only stopped early
    second = task()
    assert run(second, LoopConfig(steps=6, validate_every=4, log_every=2), tmp_path / "parts", quiet) == 6
    for name, value in weights(whole).items():
        torch.testing.assert_close(weights(second)[name], value, rtol=0, atol=0, msg=name)


def test_prefetching_changes_nothing_but_time():
    eager, ahead = task(config(prefetch=False)), task(config(prefetch=True))
    for step in (0, 1, 2, 7):
        one, other = eager.training_batch(step), ahead.training_batch(step)
        assert torch.equal(one.patches, other.patches) and torch.equal(one.text_ids, other.text_ids)


def test_a_step_of_several_batches_follows_the_mean_of_their_gradients():
    halves = {"precision": "fp32", "prefetch": False, "alignment": {"weight": 0.0}}
    both = task(config(batches_per_step=2, **halves))
    both.train_step(0)
    apart = task(config(**halves))
    gradients = []
    for number in (0, 1):
        apart.optimizer.zero_grad()
        apart.learn(0, number, 0.5)
        gradients.append([parameter.grad.clone() for parameter in apart.model.parameters()])
    joined = [one + other for one, other in zip(*gradients, strict=True)]
    length = torch.sqrt(sum(value.square().sum() for value in joined)).clamp_min(1.0)
    for parameter, gradient in zip(both.model.parameters(), joined, strict=True):
        torch.testing.assert_close(parameter.grad, gradient / length, rtol=1e-4, atol=1e-6)


def test_a_run_goes_on_with_the_batch_after_the_last_however_large_its_steps_were():
    learner = task(config(batches_per_step=3))
    assert learner.position(4) == {"batches": 12}
    learner.resume(4, {"batches": 8})  # by two processes with one batch each
    assert (learner.first_batch_of(4), learner.position(5)) == (8, {"batches": 11})
    learner.resume(4, {})  # a checkpoint that does not say
    assert learner.first_batch_of(4) == 12


def test_the_flux_loss_is_logged_and_moves_the_weights():
    plain, moved = task(), task(config(objective={"flux": {"beta": 0.5, "epsilon": 0.5}}))
    assert "flux" not in plain.train_step(0) and "flux" not in plain.validate(0, None)
    scores = moved.train_step(0)
    assert 0 < float(scores["flux"]) < 1 and moved.validate(0, None)["flux"] > 0
    weight = "local_decoder.output.weight"
    assert not torch.equal(plain.model.state_dict()[weight], moved.model.state_dict()[weight])


def test_utilisation_is_what_the_model_needs_of_what_the_device_can():
    known = task(config(peak_tflops=1e-3))
    assert known.peak == 1e9 and task().peak > 1e6
    known.last_step_at -= 100.0
    measured = known.throughput(num_patches=12_500.0, flops=5e10, model_seconds=90.0)
    assert measured["utilisation"] == pytest.approx(0.5, rel=0.05)
    assert measured["audio_seconds_per_second"] == pytest.approx(125 * 256 / 8000, rel=0.05)
    assert measured["outside_model"] == pytest.approx(0.1, abs=0.05)


def test_what_a_step_spends_outside_the_model_is_logged_where_it_can_be_told(monkeypatch):
    learner = task()
    learner.train_step(0)
    busy = learner.train_step(1)["outside_model"]
    learner.last_step_at -= 100.0  # of waiting
    assert 0 < float(busy) < 0.9 < float(learner.train_step(2)["outside_model"]) < 1
    monkeypatch.setattr(learner, "device", torch.device("meta"))
    assert "outside_model" not in learner.throughput(num_patches=1.0, flops=1.0, model_seconds=0.0)


def write_shards(folder: Path) -> list[Path]:
    info = ShardInfo(
        codec=CODEC.spec, identity_encoder="who", style_encoder="how", fingerprint="-", utterances=CORPUS.utterances
    )
    folder.mkdir()
    halves = [range(24), range(24, 48)]
    for index, rows in enumerate(halves):
        part = CORPUS.select(list(rows))
        write_shard(
            shard_path(folder, index),
            dataclasses.replace(info, utterances=part.utterances),
            [part.codes_of(i) for i in range(len(part))],
            *part.voices_of(range(len(part))),
        )
    return sorted(folder.glob("shard-*"))


def test_damaged_shards_are_counted_named_and_left_out_up_to_a_share(tmp_path):
    _, second = write_shards(tmp_path / "shards")
    run, said = tmp_path / "run", []
    assert len(load_sound([tmp_path / "shards"], run, 0.5, said.append)) == 48 and not said
    second.write_bytes(second.read_bytes()[:-20])
    assert len(load_sound([tmp_path / "shards"], run, 0.5, said.append)) == 24
    assert "1 of 2 shards are damaged" in said[0]
    named = [json.loads(line) for line in (run / "damaged.jsonl").read_text().splitlines()]
    assert [line["shard"] for line in named] == [str(second)] and named[0]["reason"]
    for share in (0.0, 0.4):
        with pytest.raises(DataError):
            load_sound([tmp_path / "shards"], run, share, quiet)


def test_the_alignment_reward_is_given_until_its_step():
    learner = task(config(alignment={"until_step": 1}))
    assert "alignment" in learner.train_step(0)
    assert "alignment" not in learner.train_step(1)
    assert "alignment" not in task(config(alignment={"weight": 0.0})).train_step(0)


def test_the_alignment_reward_moves_the_weights():
    rewarded, plain = task(config(alignment={"weight": 5.0})), task(config(alignment={"weight": 0.0}))
    for learner in (rewarded, plain):
        learner.train_step(0)
    query = "global_decoder.layers.1.cross_attention.query.weight"
    assert not torch.equal(rewarded.model.state_dict()[query], plain.model.state_dict()[query])


def test_precisions_agree_closely():
    half, full = task(config(precision="bf16")), task(config(precision="fp32"))
    one, other = half.validate(0, None), full.validate(0, None)
    assert one["loss"] != other["loss"] and abs(one["loss"] - other["loss"]) < 0.05


def test_compiled_training_takes_the_same_step(monkeypatch):
    # traced as ever, but not translated to machine code, which takes minutes
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    compiled, eager = task(config(compile=True, precision="fp32")), task(config(precision="fp32"))
    assert compiled.model.local_decoder.layers[0]._compiled_call_impl is not None
    one, other = compiled.train_step(0), eager.train_step(0)
    assert float(one["loss"]) == pytest.approx(float(other["loss"]), rel=1e-4)
    assert float(one["gradient"]) == pytest.approx(float(other["gradient"]), rel=1e-3)


def test_validation_hears_the_averaged_weights_and_leaves_all_weights_alone():
    learner = task()
    scores = learner.validate(0, None)
    before = weights(learner)
    with torch.no_grad():
        learner.model.local_decoder.output.weight.mul_(3)
    assert learner.validate(0, None) == scores
    with torch.no_grad():
        learner.model.local_decoder.output.weight.div_(3)
    for name, value in weights(learner).items():
        torch.testing.assert_close(value, before[name])


def test_samples_are_spoken_into_tensorboard():
    class Writer:
        def __init__(self) -> None:
            self.texts: dict[str, str] = {}
            self.audio: dict[str, Waveform] = {}

        def add_text(self, name, text, step):
            self.texts[name] = text

        def add_audio(self, name, samples, step, rate):
            self.audio[name] = Waveform(np.asarray(samples)[0], rate)

    writer = Writer()
    task(codec=CODEC).validate(5, writer)
    assert sorted(writer.texts) == ["sample/0", "sample/1"]
    assert writer.audio and all(w.sample_rate == 8000 and len(w.samples) % 256 == 0 for w in writer.audio.values())


def test_attention_along_the_diagonal_is_called_monotonic_and_sharp():
    batch = collator()([Item((1,), 1, ("One two.",)), Item((3,), 3, ("One.",))])
    length = batch.patches.shape[1]
    forward = torch.eye(length).expand(2, 1, length, length)
    shape = attention_shape((forward,), batch, heads=1)
    assert float(shape["monotonicity"]) == pytest.approx(1.0, abs=1e-4) and float(shape["sharpness"]) == 1.0
    backward = attention_shape((forward.flip(-1),), batch, heads=1)
    assert float(backward["monotonicity"]) == pytest.approx(-1.0, abs=1e-4)
    flat = attention_shape((torch.full((2, 1, length, 10), 0.1),), batch, heads=1)
    assert abs(float(flat["monotonicity"])) < 1e-3 and float(flat["sharpness"]) == pytest.approx(0.1)


def test_a_run_keeps_its_tokenizer_and_configuration_and_gives_its_model_back(tmp_path):
    settings = config()
    tokenizer = open_run(tmp_path, settings, CORPUS)
    assert tokenizer.vocab_size == VOCAB
    assert open_run(tmp_path, settings, make_corpus(12)).encode("One two.") == tokenizer.encode("One two.")
    with pytest.raises(CheckpointError, match="no checkpoint here"):
        trained_model(tmp_path)
    learner = task(settings)
    learner.train_step(0)
    save(learner, tmp_path, 1)
    model = trained_model(tmp_path)
    for name, value in model.state_dict().items():
        assert torch.equal(value, learner.average.state_dict()[name])


def test_fine_tuning_begins_with_the_weights_of_another_run(tmp_path):
    settings = config()
    tokenizer = open_run(tmp_path / "base", settings, CORPUS)
    base = task(settings)
    base.train_step(0)
    save(base, tmp_path / "base", 1)
    assert open_run(tmp_path / "tuned", settings, CORPUS, tmp_path / "base").encode("Two.") == tokenizer.encode("Two.")
    tuned = task(config(loop={"seed": 9}))
    start_from(tuned, tmp_path / "base")
    for module in tuned.modules.values():
        for name, value in module.state_dict().items():
            assert torch.equal(value, base.average.state_dict()[name])
    other = task(config(model={"width": 64}))
    with pytest.raises(CheckpointError, match="do not fit"):
        start_from(other, tmp_path / "base")


def test_model_and_data_that_do_not_fit_are_refused_with_every_reason():
    settings = config(
        model={"codebook_size": 32, "style_size": 6}, alignment={"layers": [2]}, objective={"level_weights": [1.0]}
    )
    with pytest.raises(ConfigError) as caught:
        task(settings, codec=ToyCodec(codebook_size=16))
    for complaint in (
        "codebook_size is 32",
        "style_size is 6",
        "has layers 0 to 1",
        "speaks 3 levels",
        "samples would be by",
    ):
        assert complaint in str(caught.value)
    with pytest.raises(DataError, match="no utterances in its validation split"):
        PretrainTask(config(), CORPUS.split("train"), TOKENIZER)
    with pytest.raises(ConfigError, match="expected `auto`"):
        task(config(device="abacus"))


def test_restoring_a_checkpoint_restores_the_optimizer(tmp_path):
    learner = task()
    learner.train_step(0)
    save(learner, tmp_path, 1)
    other = task()
    assert restore(other, tmp_path) == 1
    one, two = learner.train_step(1), other.train_step(1)
    assert float(one["loss"]) == float(two["loss"]) and float(one["gradient"]) == float(two["gradient"])


def test_batches_of_training_come_from_the_training_split_only():
    train = CORPUS.split("train")
    batcher = Batcher(train, config().batching, seed=0)
    spoken = {part for step in range(batcher.batches_per_epoch) for item in batcher.items(step) for part in item.parts}
    assert {train.utterances[part].split for part in spoken} == {"train"} and len(spoken) == 40


def test_fine_tuning_begins_with_the_weights_and_words_of_a_bundle(toy_bundle: Path, tmp_path: Path):
    published = load_mars6(toy_bundle)
    fresh = SimpleNamespace(modules={name: Mars6(published.config) for name in ("model", "average")})
    start_from(fresh, toy_bundle)
    for module in fresh.modules.values():
        for name, value in module.state_dict().items():
            assert torch.equal(value, published.state_dict()[name])
    words = open_run(tmp_path, config(), CORPUS, toy_bundle)
    assert words.encode("Two.") == BPE.load(toy_bundle / "tokenizer.json").encode("Two.")


def test_slips_replace_codes_by_others_of_their_level_and_nothing_else():
    model = Mars6Config(**CONFIG["model"])
    batch = task(config()).training_batch(0)
    heard = with_slips(batch.patches, 0.5, model, seed=0, number=3)
    changed = heard != batch.patches
    codes = (batch.patches >= 0) & (batch.patches != model.eos)
    assert 0.3 < changed[codes].float().mean() < 0.6 and not changed[~codes].any()
    levels = torch.tensor(model.position_levels).expand_as(heard)
    assert torch.equal((heard // model.codebook_size)[codes], levels[codes])
    assert torch.equal(heard, with_slips(batch.patches, 0.5, model, seed=0, number=3))


def test_training_may_tell_the_model_a_past_with_slips():
    true, slipped = task(config()), task(config(history_noise=0.9))
    assert float(true.train_step(0)["loss"]) != float(slipped.train_step(0)["loss"])
    validation = [learner.validate(0, None)["loss"] for learner in (task(config()), task(config(history_noise=0.9)))]
    assert validation[0] == validation[1]
