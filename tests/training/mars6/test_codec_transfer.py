"""Codec transfer: the weights for one codec's codes and encoders, adapted to another's."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from marstts.cli.main import app
from marstts.codec.base import CodecSpec
from marstts.data.corpus import Corpus
from marstts.data.manifest import Utterance
from marstts.data.shards import EncoderInfo, ShardInfo, shard_path, write_shard
from marstts.data.utterance_table import UtteranceTable
from marstts.errors import DataError
from marstts.mars6.config import Mars6Config
from marstts.mars6.model import Mars6
from marstts.training.mars6.codec_transfer import TOKEN_TABLES, transfer_state

CODES, LAYOUT, PATCHES = 8, (1, 2), 5
CONFIG = Mars6Config(
    text_vocab_size=264, codebook_size=CODES, patch_layout=LAYOUT, width=16, encoder_layers=1, global_layers=1,
    local_layers=1, heads=2, local_heads=2, identity_size=3, style_size=4,
)  # fmt: skip
SPEC = CodecSpec(name="old", sample_rate=8000, codebook_size=CODES, hop_lengths=(256, 128))


def make_corpus(count: int = 30, seed: int = 0) -> Corpus:
    rng = np.random.default_rng(seed)
    facts = {"audio": "-", "text": "One.", "speaker": "s", "style": "regular", "license": "CC0"}
    return Corpus(
        codec=SPEC,
        encoders={"identity": EncoderInfo("toy-identity", 3), "style": EncoderInfo("toy-style", 4)},
        utterances=UtteranceTable(
            Utterance(id=f"u{i}", seconds=1.0, source_rate=8000, split="train" if i % 3 else "validation", **facts)
            for i in range(count)
        ),
        codes=tuple(rng.integers(0, CODES, count * PATCHES * n).astype(np.uint16) for n in LAYOUT),
        offsets=np.arange(count + 1) * PATCHES,
        embeddings={
            "identity": rng.normal(size=(count, 3)).astype(np.float16),
            "style": rng.normal(size=(count, 4)).astype(np.float16),
        },
    )


def renamed(corpus: Corpus, names: Sequence[np.ndarray], **changes: object) -> Corpus:
    """The corpus of a codec that calls code c of level l names[l][c], in another order of utterances."""
    codes = tuple(name[level].astype(np.uint16) for name, level in zip(names, corpus.codes, strict=True))
    turned = dataclasses.replace(corpus, codec=dataclasses.replace(SPEC, name="new"), codes=codes, **changes)
    return turned.select(range(len(corpus))[::-1])


def model() -> Mars6:
    torch.manual_seed(1)
    return Mars6(CONFIG).eval()


def tokens(corpus: Corpus, index: int) -> torch.Tensor:
    """(1, T, P)."""
    levels = [codes.reshape(PATCHES, -1) + level * CODES for level, codes in enumerate(corpus.codes_of(index))]
    return torch.from_numpy(np.hstack(levels))[None]


def logits(mars6: Mars6, corpus: Corpus, index: int) -> tuple[torch.Tensor, ...]:
    embeddings = corpus.embeddings_of([index])
    identity, style = (torch.from_numpy(embeddings[role]) for role in ("identity", "style"))
    text = torch.tensor([[1, 100, 101, 2]])
    return mars6(text, torch.tensor([4]), identity, style, tokens(corpus, index), torch.tensor([PATCHES])).logits


def test_permuted_codes_and_rotated_embeddings_leave_the_predictions_as_they_were() -> None:
    before = make_corpus()
    rng = np.random.default_rng(5)
    names = [rng.permutation(CODES) for _ in LAYOUT]
    turn = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    embeddings = {**before.embeddings, "style": (before.embeddings["style"] @ turn + 0.5).astype(np.float16)}
    encoders = {**before.encoders, "style": EncoderInfo("other", 4)}
    after = renamed(before, names, embeddings=embeddings, encoders=encoders)
    old_model, other = model(), Mars6(CONFIG).eval()
    other.load_state_dict(transfer_state(old_model, before, after))
    with torch.no_grad():
        old, new = logits(old_model, before, 3), logits(other, after, len(before) - 1 - 3)
    for level, name in enumerate(names):
        positions = [*name.tolist(), CODES]  # where the old code is now; the end of speech keeps its position
        torch.testing.assert_close(new[level][..., positions], old[level], rtol=1e-2, atol=5e-3)


def test_a_new_code_is_the_mean_of_co_occurring_codes_and_an_unused_one_of_all() -> None:
    before = make_corpus()
    halves = np.arange(CODES) // 2  # codes 0 and 1 are one now, and so on; 4 to 7 are never used
    after = renamed(before, [halves, halves])
    table = "local_decoder.tokens.weight"
    old, new = model().state_dict()[table], transfer_state(model(), before, after)[table]
    train = [i for i, utterance in enumerate(before.utterances) if utterance.split == "train"]
    counts = np.bincount(np.concatenate([before.codes_of(i)[0] for i in train]), minlength=CODES)
    for code in range(CODES // 2):
        both = slice(2 * code, 2 * code + 2)
        expected = (torch.from_numpy(counts[both])[:, None] * old[both]).sum(dim=0) / counts[both].sum()
        torch.testing.assert_close(new[code], expected.float())
    everything = (torch.from_numpy(counts)[:, None] * old[:CODES]).sum(dim=0) / counts.sum()
    torch.testing.assert_close(new[CODES - 1], everything.float())
    torch.testing.assert_close(new[-1], old[-1])


def test_encoders_that_stayed_keep_their_weights_to_the_bit() -> None:
    before = make_corpus()
    state = transfer_state(model(), before, renamed(before, [np.arange(CODES)] * 2))
    for name, value in model().state_dict().items():
        torch.testing.assert_close(state[name], value, rtol=0, atol=1e-6 if "tokens" in name or "output" in name else 0)


def test_a_codec_that_stayed_keeps_its_tokens_to_the_bit_while_an_encoder_changes() -> None:
    before = make_corpus(3)  # too few to contain every code
    encoders = {**before.encoders, "style": EncoderInfo("other", 4)}
    state, old = transfer_state(model(), before, dataclasses.replace(before, encoders=encoders)), model().state_dict()
    for name in TOKEN_TABLES:
        torch.testing.assert_close(state[name], old[name], rtol=0, atol=0)


def test_corpora_that_cannot_be_compared_are_refused() -> None:
    before = make_corpus()
    with pytest.raises(DataError, match=r"same patches, but those of old are \(1, 2\) at 31.2 Hz and those of slow"):
        slow = dataclasses.replace(before, codec=dataclasses.replace(SPEC, name="slow", hop_lengths=(512, 256)))
        transfer_state(model(), before, slow)
    with pytest.raises(DataError, match="has 8 codes a level, but many, whose shards are given, has 16"):
        many = dataclasses.replace(before, codec=dataclasses.replace(SPEC, name="many", codebook_size=16))
        transfer_state(model(), many, before)
    with pytest.raises(DataError, match="no recording of the training split is in both"):
        transfer_state(model(), before.split("validation"), before)


def write(corpus: Corpus, folder: Path) -> Path:
    folder.mkdir()
    info = ShardInfo(fingerprint="-", utterances=tuple(corpus.utterances), codec=corpus.codec, encoders=corpus.encoders)
    codes = [corpus.codes_of(i) for i in range(len(corpus))]
    write_shard(shard_path(folder, 0), info, codes, corpus.embeddings_of(range(len(corpus))))
    return folder


@pytest.mark.slow
def test_training_begins_with_transferred_weights(tmp_path: Path) -> None:
    before = make_corpus(60)
    for codes in before.codes:
        codes //= 3  # so that there is something to learn: half of the codes never come
    after = renamed(before, [np.random.default_rng(7).permutation(CODES) for _ in LAYOUT])
    settings = {
        "model": CONFIG.model_dump(mode="json"),
        "loop": {"steps": 40, "log_every": 40, "validate_every": 40},
        "batching": {"patches_per_batch": 40, "max_patches": 12},
        "optimizer": {"learning_rate": 3e-3, "warmup_steps": 5, "ema_decay": 0.5},
        "objective": {"level_weights": [1.0, 1.0]},
        "attention_guidance": {"weight": 0.0, "layers": [0], "heads": 1},
        "validation_patches": 100,
        "num_audio_samples": 0,
        "precision": "fp32",
    }
    old, new = write(before, tmp_path / "old"), write(after, tmp_path / "new")

    def train(name: str, data: Path, steps: int, *options: str) -> str:
        settings["loop"] |= {"steps": steps, "validate_every": steps}
        (tmp_path / "mars6.json").write_text(json.dumps(settings))
        where = ["--data", str(data), "--config", str(tmp_path / "mars6.json"), "--output", str(tmp_path / name)]
        result = CliRunner().invoke(app, ["train", "mars6", *where, "--threads", "1", *options])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result.output

    def loss(output: str) -> float:
        return float(output.split("validation: loss ")[1].split()[0])

    known = loss(train("first", old, 40))
    begin = ("--init-from", str(tmp_path / "first"))
    meaningless = loss(train("plain", new, 1, *begin))
    understood = loss(train("transferred", new, 1, *begin, "--transfer-from", str(old)))
    assert abs(understood - known) < 0.5 * (meaningless - known)
    assert "add --init-from RUN" in train("none", new, 1, "--transfer-from", str(old))
