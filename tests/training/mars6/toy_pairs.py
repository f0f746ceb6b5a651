"""Preference pairs of random codes, and a MARS6 of a few thousand parameters to train on them."""

from __future__ import annotations

import numpy as np
import torch

from marstts.mars6.config import Mars6Config
from marstts.mars6.model import Mars6
from marstts.mars6.prompt import SPECIAL_TOKENS
from marstts.mars6.speech import Mars6Speech
from marstts.mars6.spelling import Spelling
from marstts.text.phones import PHONE_TOKENS
from marstts.text.tokenizers.bpe import BPE
from marstts_lab.data.pairs import Pair, PairLine, SideLine
from marstts_lab.training.mars6.orpo import OrpoConfig, OrpoTask

TOKENIZER = BPE.train(["the cat sat on the mat", "she sells sea shells"], 270, SPECIAL_TOKENS).with_special_tokens(
    PHONE_TOKENS
)
CONFIG = Mars6Config(
    text_vocab_size=TOKENIZER.vocab_size, codebook_size=11, width=24, encoder_layers=1, global_layers=2, local_layers=1,
    heads=2, local_heads=3, identity_size=5, style_size=4,
)  # fmt: skip
SPEECH = Mars6Speech(
    config=CONFIG, tokenizer=TOKENIZER, engine=None, quality_prefix_hz=24_000, spelling=Spelling.SIMPLE,
    style_offset=(0.5, 0.0, -0.5, 0.0),
)  # fmt: skip
PROMPT_OF = SPEECH.prompt


def codes(rng: np.random.Generator, patches: int):
    return tuple(rng.integers(0, CONFIG.codebook_size, patches * count) for count in CONFIG.patch_layout)


def pair(seed: int, chosen: int, rejected: int, prefix: int = 0, has_eos: bool = True) -> Pair:
    rng = np.random.default_rng(seed)
    line = PairLine(
        id=f"pair-{seed}", scheme="ground_truth_vs_worst", text="A B C sat."[: 6 + seed], speaker="anna", codec="toy",
        transcript="She sells." if prefix else None, encoders={"identity": "i", "style": "s"}, row=seed,
        chosen=SideLine(source="recording", patches=chosen, has_eos=True),
        rejected=SideLine(source="cycle x", patches=rejected, has_eos=has_eos),
    )  # fmt: skip
    identity, style = rng.standard_normal(5).astype(np.float32), rng.standard_normal(4).astype(np.float32)
    return Pair(
        line, {"identity": identity, "style": style}, codes(rng, prefix), codes(rng, chosen), codes(rng, rejected)
    )


PAIRS = [pair(0, 3, 5), pair(1, 4, 2, prefix=3), pair(2, 6, 6, has_eos=False), pair(3, 2, 7, prefix=1)]


def model() -> Mars6:
    torch.manual_seed(5)
    return Mars6(CONFIG).eval()


def config(**changes) -> OrpoConfig:
    values = {
        "loop": {"steps": 3, "log_every": 1, "validate_every": 3},
        "optimizer": {"learning_rate": 1e-2, "warmup_steps": 0, "ema_decay": 0.5},
        "pairs_per_batch": 2, "precision": "fp32", "device": "cpu",
    }  # fmt: skip
    return OrpoConfig.model_validate(values | changes)


def task(settings: OrpoConfig | None = None, validate_model=None, pairs=PAIRS) -> OrpoTask:
    return OrpoTask(settings or config(), pairs, model(), PROMPT_OF, TOKENIZER, validate_model=validate_model)
