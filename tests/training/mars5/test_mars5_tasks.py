"""Training of MARS5's two models: batches, learning, resumption."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from marstts.codec.base import CodecSpec, Codes
from marstts.errors import CheckpointError, ConfigError
from marstts.io.precision import Precision
from marstts.mars5.checkpoint import load_models, write_models
from marstts.mars5.config import CodecLMConfig, ResidualTransformerConfig
from marstts.mars5.objective import ObjectiveConfig
from marstts.mars5.pipeline import Pipeline
from marstts.mars5.prompt import CloneMode
from marstts.mars5.repaint import DiffusionConfig
from marstts.mars5.text import JointVocabulary, SpeechBPE
from marstts_lab.data.batching import BatchingConfig, TrainingItem
from marstts_lab.data.manifest import Utterance
from marstts_lab.data.utterance_table import UtteranceTable
from marstts_lab.training.loop import LoopConfig, read_log, run
from marstts_lab.training.loss import total
from marstts_lab.training.mars5.batches import Collator, train_vocabulary
from marstts_lab.training.mars5.config import ArTrainConfig, NarTrainConfig
from marstts_lab.training.mars5.run_folder import train, trained_models
from marstts_lab.training.mars5.tasks import ArTask, Mars5Task, NarTask
from marstts_lab.training.optim import OptimizerConfig

pytestmark = pytest.mark.slow

WORDS = ("the", "cat", "sat", "on", "a", "mat")


@dataclasses.dataclass(frozen=True)
class Utterances:
    """A fake tokenized corpus: every word has four distinct frames, of three levels."""

    utterances: UtteranceTable
    codec: CodecSpec

    def __len__(self) -> int:
        return len(self.utterances)

    @property
    def num_patches(self) -> NDArray[np.int64]:
        return np.array([4 * len(utterance.text.split()) for utterance in self.utterances])

    def codes_of(self, index: int) -> Codes:
        words = [WORDS.index(word) for word in self.utterances[index].text.split()]
        places = [(word, place) for word in words for place in range(4)]
        frames = np.array([(word + place, 3 * word + place, word * place) for word, place in places]) % 12
        return tuple(frames.T.astype(np.int64))

    def split(self, name: str) -> Utterances:
        return Utterances(UtteranceTable(one for one in self.utterances if one.split == name), self.codec)


@pytest.fixture(scope="module")
def corpus() -> Utterances:
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, rng.integers(2, 6))) for _ in range(40)]
    utterances = UtteranceTable(
        Utterance(
            id=f"u{i}", audio="-", text=text, speaker="ann", style="regular", seconds=1.0, source_rate=8000,
            split="validation" if i % 5 == 0 else "train", license="CC0",
        )
        for i, text in enumerate(texts)
    )  # fmt: skip
    codec = CodecSpec(name="toy", sample_rate=8000, codebook_size=12, hop_lengths=(100, 100, 100))
    return Utterances(utterances, codec)


@pytest.fixture(scope="module")
def vocabulary(corpus: Utterances) -> JointVocabulary:
    return train_vocabulary(corpus, text_vocab_size=262, speech_vocab_size=18)  # type: ignore[arg-type]


def settings(steps: int = 30) -> dict:
    return {
        "loop": LoopConfig(steps=steps, log_every=steps, validate_every=steps),
        "batching": BatchingConfig(patches_per_batch=60, max_patches=40, concat_probability=0.3),
        "optimizer": OptimizerConfig(learning_rate=5e-3, warmup_steps=3, ema_decay=0.8),
        "objective": ObjectiveConfig(min_reference_frames=3, max_reference_frames=6),
        "precision": Precision.FP32, "device": "cpu", "validation_batches": 2,
    }  # fmt: skip


def ar_task(corpus: Utterances, vocabulary: JointVocabulary, **changes: object) -> ArTask:
    model = CodecLMConfig(
        text_vocab_size=262, speech_vocab_size=18, width=24, layers=1, heads=2, head_size=8, feed_forward_width=32,
        speaker_layers=1, speaker_heads=2, speaker_feed_forward_width=16, levels=3, codebook_size=12,
    )  # fmt: skip
    return ArTask(ArTrainConfig(model=model, **settings() | changes), corpus, vocabulary)  # type: ignore[arg-type]


def nar_task(corpus: Utterances, vocabulary: JointVocabulary, **changes: object) -> NarTask:
    model = ResidualTransformerConfig(
        text_vocab_size=262, width=24, heads=2, encoder_layers=1, decoder_layers=1, speaker_layers=1,
        feed_forward_width=32, timestep_width=8, levels=3, codebook_size=12,
    )  # fmt: skip
    config = NarTrainConfig(model=model, **settings() | changes)
    return NarTask(config, corpus, vocabulary)  # type: ignore[arg-type]


def test_batches_hold_text_codes_and_an_initial_reference(corpus: Utterances, vocabulary: JointVocabulary) -> None:
    train = corpus.split("train")
    objective = ObjectiveConfig(min_reference_frames=3, max_reference_frames=6)
    collate = Collator(train, vocabulary, objective, seed=4)  # type: ignore[arg-type]
    items = [TrainingItem((index,), index, (train.utterances[index].text,)) for index in (0, 3)]
    items.append(TrainingItem((1, 2), 1, (train.utterances[1].text, train.utterances[2].text)))
    batch, again = collate(items, 7), collate(items, 7)
    for row, item in enumerate(items):
        frames = np.concatenate([np.stack(train.codes_of(part), axis=1) for part in item.parts])
        length, text_length, tokens = int(batch.lengths[row]), int(batch.text_lengths[row]), batch.tokens[row]
        assert np.array_equal(batch.codes[row, :length].numpy(), frames)
        assert (batch.codes[row, length:] == 12).all()
        text = vocabulary.text.decode(batch.text_ids[row, :text_length].tolist())
        assert text == f"<|startoftext|>{' '.join(item.texts)}<|endoftext|>"
        assert tokens[:text_length].tolist() == batch.text_ids[row, :text_length].tolist()
        spoken = tokens[text_length : batch.token_lengths[row]].numpy()
        assert spoken[-1] == vocabulary.end
        assert vocabulary.decode_speech(spoken).tolist() == frames[:, 0].tolist()
        assert 3 <= batch.reference_lengths[row] <= min(6, length // 2)
    assert torch.equal(batch.reference_lengths, again.reference_lengths)
    assert batch.references.shape[1] == batch.reference_lengths.max()


@pytest.mark.parametrize("make", [ar_task, nar_task])
def test_training_learns_and_validates(make, corpus: Utterances, vocabulary: JointVocabulary) -> None:
    task: Mars5Task = make(corpus, vocabulary)
    before = task.validate(0)
    for step in range(30):
        task.train_step(step)
    after = task.validate(30)
    assert after["loss"] < 0.9 * before["loss"]
    assert after == task.validate(30), "validation is the same whenever it is done"


@pytest.mark.parametrize("make", [ar_task, nar_task])
def test_a_resumed_training_equals_an_uninterrupted_one(
    make, corpus: Utterances, vocabulary: JointVocabulary, tmp_path: Path
) -> None:
    def train_to(folder: Path, steps: Sequence[int]) -> Mars5Task:
        for last in steps:
            task = make(corpus, vocabulary, loop=LoopConfig(steps=last, log_every=2, validate_every=4, seed=3),
                        optimizer=OptimizerConfig(learning_rate=5e-3, schedule="constant"))  # fmt: skip
            run(task, task.config.loop, folder)
        return task

    whole, parts = train_to(tmp_path / "whole", [6]), train_to(tmp_path / "parts", [2, 6])
    for name, module in whole.modules.items():
        for key, tensor in module.state_dict().items():
            assert torch.equal(tensor, parts.modules[name].state_dict()[key]), (name, key)
    logs = [losses_after(2, folder) for folder in (tmp_path / "whole", tmp_path / "parts")]
    assert logs[0] == logs[1] != []


def losses_after(step: int, folder: Path) -> list[float]:
    """The logged training losses of later steps."""
    return [line["loss"] for line in read_log(folder) if line["step"] > step and line["split"] == "train"]


@pytest.mark.parametrize("make", [ar_task, nar_task])
def test_mixed_precision_trains_too(make, corpus: Utterances, vocabulary: JointVocabulary) -> None:
    task: Mars5Task = make(corpus, vocabulary, precision=Precision.BF16)
    scores = task.train_step(0)
    assert np.isfinite([float(score) for score in scores.values()]).all()
    assert all(parameter.dtype is torch.float32 for parameter in task.model.parameters())


def test_all_processes_together_learn_from_different_batches(
    corpus: Utterances, vocabulary: JointVocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, asked = ar_task(corpus, vocabulary), []
    items = task.sampler.items
    monkeypatch.setattr(task.sampler, "items", lambda number: (asked.append(number), items(number))[1])
    monkeypatch.setattr("marstts_lab.training.distributed.world_size", lambda: 3)
    monkeypatch.setattr("marstts_lab.training.distributed.rank", lambda: 2)
    for step in range(3):
        task.train_step(step)
    assert asked == [2, 5, 8]


def test_models_that_do_not_fit_the_corpus_are_refused(corpus: Utterances, vocabulary: JointVocabulary) -> None:
    other = dataclasses.replace(corpus, codec=dataclasses.replace(corpus.codec, codebook_size=13))
    with pytest.raises(ConfigError, match=r"codebook_size should be 13, not 12"):
        ar_task(other, vocabulary)
    hierarchical = dataclasses.replace(corpus, codec=dataclasses.replace(corpus.codec, hop_lengths=(100, 50, 25)))
    with pytest.raises(ConfigError, match="needs one on each"):
        nar_task(hierarchical, vocabulary)
    with pytest.raises(ConfigError, match="device"):
        ar_task(corpus, vocabulary, device="abacus")


def test_two_runs_make_a_model_that_speaks(corpus: Utterances, vocabulary: JointVocabulary, tmp_path: Path) -> None:
    """The steps from a corpus to codes, through run folders and the model's folder."""
    for make, name in ((ar_task, "ar"), (nar_task, "nar")):
        config = make(corpus, vocabulary, loop=LoopConfig(steps=2)).config
        assert train(config, corpus, vocabulary, tmp_path / name) == 2  # type: ignore[arg-type]
    write_models(trained_models(tmp_path / "ar", tmp_path / "nar"), tmp_path / "mars5")
    models = load_models(tmp_path / "mars5")
    pipeline = Pipeline(models, DiffusionConfig(timesteps=3))
    reference = np.stack(corpus.codes_of(0), axis=1)
    prompt = pipeline.prompt("the cat", pipeline.speaker(reference), CloneMode.SHALLOW)
    level0 = reference[:5, 0]
    [codes] = pipeline.codes([prompt], [vocabulary.encode_speech(level0)], [np.random.default_rng(1)])
    assert codes.shape == (5, 3) and np.array_equal(codes[:, 0], level0)


@pytest.mark.parametrize("make", [ar_task, nar_task])
def test_gradient_checkpointing_stores_less_and_changes_no_step(
    make: Callable[..., Mars5Task], corpus: Utterances, vocabulary: JointVocabulary
) -> None:
    stored, gradients = [], []
    for is_on in (False, True):
        task, sizes = make(corpus, vocabulary, gradient_checkpointing=is_on), []

        def keep(tensor: torch.Tensor, sizes: list[int] = sizes) -> torch.Tensor:
            sizes.append(tensor.numel())
            return tensor

        batch = task.collate(task.sampler.items(0), 0)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = total(task.losses(task.passes, batch, torch.Generator().manual_seed(0)))
            stored.append(sum(sizes))
        loss.backward()
        gradients.append({name: value.grad for name, value in task.model.named_parameters()})
    assert stored[1] < 0.8 * stored[0]
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], msg=name)


def test_runs_that_do_not_fit_are_refused(corpus: Utterances, vocabulary: JointVocabulary, tmp_path: Path) -> None:
    for make, name in ((ar_task, "ar"), (nar_task, "nar")):
        config = make(corpus, vocabulary, loop=LoopConfig(steps=1)).config
        train(config, corpus, vocabulary, tmp_path / name)  # type: ignore[arg-type]
    config = ar_task(corpus, vocabulary).config
    for folder in ("ar", "nar"):  # of another size, and of another kind
        model = config.model.model_copy(update={"layers": config.model.layers + 1})
        with pytest.raises(CheckpointError, match=r"of another (kind of )?model"):
            train(config.model_copy(update={"model": model}), corpus, vocabulary, tmp_path / folder)
    trained_models(tmp_path / "ar", tmp_path / "nar")
    other = SpeechBPE(tuple((n, n) for n in range(5)), vocabulary.speech.special, 12)
    other.save(tmp_path / "nar" / "speech_tokenizer.json")
    with pytest.raises(CheckpointError, match="different speech tokenizers"):
        trained_models(tmp_path / "ar", tmp_path / "nar")
    vocabulary.speech.save(tmp_path / "nar" / "speech_tokenizer.json")
    for checkpoint in (tmp_path / "nar").glob("step-*"):
        shutil.rmtree(checkpoint)
    with pytest.raises(CheckpointError, match="no checkpoint"):
        trained_models(tmp_path / "ar", tmp_path / "nar")
