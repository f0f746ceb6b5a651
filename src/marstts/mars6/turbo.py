"""The interface of the published MARS6: its model with `inference`, its tokenizer, and the entry of PyTorch's hub.

Upstream: `published`, which fetches, examines and reads the files.  Downstream: programs written for the release.

    model, tokenizer = torch.hub.load("OWNER/marstts", "mars6_turbo", device="cpu", dtype=torch.float)
    ids = torch.tensor([tokenizer.encode("<|startoftext|>[48000]Hello.<|endoftext|>", allowed_special="all")])
    tokens = model.inference(ids, torch.tensor([ids.shape[1]]), clap, speaker, torch.tensor([0]), max_len=90)

The facade generates what the release generates (MARS6, arXiv:2501.05787, as published), one utterance per call; whole
texts, references and repeated attempts are those of `marstts.load("mars6-turbo")`.
Shapes: S text ids · T patches · P = 7 positions.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from marstts.errors import ConfigError, TextError
from marstts.generation.engine import TokenLayout
from marstts.generation.loop import generate
from marstts.generation.request import Limits, SamplingConfig
from marstts.mars6 import published
from marstts.mars6.config import Conditioning, Mars6Config
from marstts.mars6.encoder import FusedSlot
from marstts.mars6.engines.torch import TorchEngine, TorchState
from marstts.mars6.model import Mars6
from marstts.mars6.prompt import Mars6Prompt, PromptBatch
from marstts.text.tokenizers.bpe import BPE
from marstts.text.tokenizers.minbpe import read_minbpe
from marstts.weights.pretrained import cache_folder, download_release

logger = logging.getLogger(__name__)

PATCHES_PER_SECOND = 12
"""As the release counts; in truth there are 11.72."""


class RasSettings(Protocol):
    """What `inference` reads of a sampling configuration, which may be the release's own."""

    K: int
    t_r: float
    top_p: float
    enabled: bool
    cfg_guidance: float


@dataclass
class RASConfig:
    """Repetition-aware sampling, by the release's names and with its defaults."""

    K: int = 10
    """Number of the last L0 codes that a pick is compared with."""

    t_r: float = 0.1
    """A pick that makes up more of them is sampled again from the full distribution."""

    top_p: float = 0.001
    enabled: bool = True
    cfg_guidance: float = 1.0
    """w of classifier-free guidance: w · logits given the speaker + (1 - w) · logits without; 1 = none."""


class Mars6Turbo(nn.Module):
    """The published model behind its release's interface; `model` is ours."""

    def __init__(self, model: Mars6) -> None:
        super().__init__()
        self.model = model

    @torch.inference_mode()
    def inference(
        self,
        x: Tensor,
        x_lengths: Tensor,
        clap_embs: Tensor,
        spk_embs: Tensor,
        language: Tensor | int = 0,
        max_len: int = 1000,
        fp16: bool = False,
        ras_cfg: RasSettings | None = None,
        cache: Any = None,
        decoder_prefix: Tensor | None = None,
        lower_bound_dur: float = 0.0,
    ) -> Tensor:
        """New tokens (T, P) for text ids x (1, S), of which x_lengths (1,) count; T is 0 where speech ends at once.

        clap_embs (1, 1024) and spk_embs (1, 512) are the speaker's, `language` (1,) is an id, `max_len` the most new
        patches. `fp16` computes in half precision on a GPU. `decoder_prefix` (T, P) are tokens to continue from.
        Before `lower_bound_dur` seconds (12 patches each) speech cannot end. `cache` is ignored: KV caches are always
        used. Random numbers follow PyTorch's generator, which `torch.manual_seed` sets.
        Raises ConfigError for more than one row, and for ids that the model does not have.
        """
        config, device = self.model.config, next(self.model.parameters()).device
        prompt = make_prompt(config, x, x_lengths, clap_embs, spk_embs, decoder_prefix)
        settings, spoken = ras_cfg or RASConfig(), int(torch.as_tensor(language).reshape(-1)[0])
        if not 0 <= spoken < config.languages:
            raise ConfigError(f"language {spoken} was asked for; this model has 0 to {config.languages - 1}")
        if max_len < 1:
            raise ConfigError(f"max_len is {max_len}, expected at least 1 patch")
        engine = LanguageEngine(self.model, spoken)
        sampling = SamplingConfig(ras_window=settings.K, ras_max_ratio=settings.t_r if settings.enabled else 1.0)
        with torch.autocast(device.type, torch.float16, enabled=fp16 and device.type == "cuda"):
            [generated] = generate(
                engine if settings.cfg_guidance == 1 else GuidedEngine(engine, settings.cfg_guidance),
                [prompt],
                top_p=[min(settings.top_p, 1.0)],
                limits=[Limits(min(patches_before_end(lower_bound_dur), max_len), max_len)],
                rngs=[np.random.default_rng(int(torch.randint(2**63 - 1, ()).item()))],
                sampling=sampling,
            )
        return torch.from_numpy(generated.tokens).to(device)


def patches_before_end(seconds: float) -> int:
    """Complete patches before speech may end: patch k may be the end where k / 12 reaches the seconds, as published."""
    following = 1
    while following / PATCHES_PER_SECOND < seconds:
        following += 1
    return following - 1


def make_prompt(
    config: Mars6Config, x: Tensor, x_lengths: Tensor, clap: Tensor, speaker: Tensor, prefix: Tensor | None
) -> Mars6Prompt:
    """The prompt of one utterance; ConfigError where a part has another shape or impossible ids."""
    ids, lengths = x.cpu().numpy().astype(np.int64), torch.as_tensor(x_lengths).reshape(-1)
    tokens = np.zeros((0, config.patch_size), np.int64) if prefix is None else prefix.cpu().numpy().astype(np.int64)
    expected = {
        "x": (ids.shape, (1, ids.shape[-1])), "x_lengths": (tuple(lengths.shape), (1,)),
        "clap_embs": (tuple(clap.shape), (1, config.style_size)),
        "spk_embs": (tuple(speaker.shape), (1, config.identity_size)),
        "decoder_prefix": (tokens.shape, (len(tokens), config.patch_size)),
    }  # fmt: skip
    wrong = [
        f"{name} has shape {found}, expected {right}" for name, (found, right) in expected.items() if found != right
    ]
    if wrong:
        raise ConfigError(f"one utterance is generated at a time: {'; '.join(wrong)}")
    text_ids = ids[0, : int(lengths[0])]
    if not len(text_ids):
        raise TextError("there is nothing to say: x_lengths is 0")
    for name, values, size in (("x", text_ids, config.text_vocab_size), ("decoder_prefix", tokens, config.eos)):
        if values.size and not 0 <= values.min() <= values.max() < size:
            raise ConfigError(
                f"{name} has ids from {values.min()} to {values.max()}, but this model has 0 to {size - 1}"
            )
    return Mars6Prompt(text_ids, as_numpy(speaker[0]), as_numpy(clap[0]), tokens)


def as_numpy(vector: Tensor) -> NDArray[np.float32]:
    """A tensor in float32 on the CPU."""
    return vector.detach().float().cpu().numpy()


class LanguageEngine(TorchEngine):
    """The PyTorch engine, in any of the model's languages."""

    def __init__(self, model: Mars6, language: int) -> None:
        super().__init__(model)
        self.language = language

    def encode(self, batch: PromptBatch) -> tuple[Tensor, Tensor]:
        """Run the encoder: the memory (B, S, D) and which of it are not padding (B, S)."""
        return self.model.encode(
            self.tensor(batch.text_ids),
            self.tensor(batch.text_lengths),
            self.tensor(batch.identity).to(self.dtype),
            self.tensor(batch.style).to(self.dtype),
            torch.full((len(batch.text_ids),), self.language, device=self.device),
        )


class GuidedEngine:
    """An `Engine` with classifier-free guidance: every row is followed by the same one of no speaker."""

    def __init__(self, engine: TorchEngine, weight: float) -> None:
        slots = engine.model.encoder.slots
        if not isinstance(slots, FusedSlot):
            raise ConfigError(
                "cfg_guidance needs a model with vectors for no speaker, as the published one; leave it 1"
            )
        self.engine, self.weight = engine, np.float32(weight)
        self.identity, self.style = (as_numpy(vector[0]) for vector in slots.null_speaker(1))

    @property
    def layout(self) -> TokenLayout:
        """The tokens of one patch."""
        return self.engine.layout

    def start(self, prompts: Sequence[Mars6Prompt]) -> TorchState:
        """Encode the texts twice, with and without their speaker."""
        pairs = ((prompt, replace(prompt, identity=self.identity, style=self.style)) for prompt in prompts)
        return self.engine.start([prompt for pair in pairs for prompt in pair])

    def next_logits(self, state: TorchState, tokens: NDArray[np.int64]) -> tuple[NDArray[np.float32], TorchState]:
        """tokens (B, p) -> guided logits (B, C + 1)."""
        logits, state = self.engine.next_logits(state, tokens.repeat(2, axis=0))
        return self.weight * logits[::2] + (1 - self.weight) * logits[1::2], state

    def append(self, state: TorchState, patches: NDArray[np.int64]) -> TorchState:
        """patches (B, P), finished ones."""
        return self.engine.append(state, patches.repeat(2, axis=0))

    def select(self, state: TorchState, rows: Sequence[int]) -> TorchState:
        """Return only these rows."""
        return self.engine.select(state, [place for row in rows for place in (2 * row, 2 * row + 1)])

    def join(self, states: Sequence[TorchState]) -> TorchState:
        """The rows of all states."""
        return self.engine.join(states)


class TurboTokenizer:
    """The published text tokenizer, by the method names of minbpe."""

    def __init__(self, bpe: BPE) -> None:
        self.bpe = bpe

    @property
    def special_tokens(self) -> dict[str, int]:
        """Each special token and its id."""
        return self.bpe.special_tokens

    @property
    def vocab(self) -> dict[int, str]:
        """The text of each id."""
        return {index: self.bpe.decode([index]) for index in range(self.bpe.vocab_size)}

    def encode(self, text: str, allowed_special: str | Collection[str] = "none_raise") -> list[int]:
        """Ids of a text, in which special tokens count as such where they are allowed.

        `allowed_special` is "all", "none" (they are plain text), "none_raise" (TextError where there is one), or a
        collection of those that count.
        """
        if allowed_special == "all":
            return self.bpe.encode(text)
        if allowed_special == "none_raise":
            found = [token for token in self.special_tokens if token in text]
            if found:
                raise TextError(f"the text holds the special token {found[0]}; give allowed_special='all' or 'none'")
        elif isinstance(allowed_special, str) and allowed_special != "none":
            raise ConfigError(f"allowed_special is {allowed_special!r}, expected 'all', 'none', 'none_raise' or a set")
        allowed = set() if isinstance(allowed_special, str) else set(allowed_special) & self.special_tokens.keys()
        if not allowed:
            return self.bpe.encode_plain(text)
        parts = re.split("(" + "|".join(map(re.escape, sorted(allowed))) + ")", text)
        coded = ([self.special_tokens[part]] if part in allowed else self.bpe.encode_plain(part) for part in parts)
        return [index for ids in coded for index in ids]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; ConfigError where one is none of this vocabulary."""
        wrong = next((index for index in ids if not 0 <= index < self.bpe.vocab_size), None)
        if wrong is not None:
            raise ConfigError(f"id {wrong} is out of range: the tokenizer has {self.bpe.vocab_size} ids")
        return self.bpe.decode([int(index) for index in ids])


def mars6_turbo(
    pretrained: bool = True,
    progress: bool = True,
    device: torch.device | str | None = None,
    dtype: torch.dtype = torch.half,
    ckpt_format: str = "pt",
    checkpoint_url: str | None = None,
    tokenizer_url: str | None = None,
) -> tuple[Mars6Turbo, TurboTokenizer]:
    """The result of `torch.hub.load` for the release: the model in `dtype` on `device`, and its tokenizer.

    `pretrained` False = random weights of the published sizes. `progress` shows downloads on standard error. `device`
    None = a GPU if there is one. `checkpoint_url` and `tokenizer_url` are addresses or paths of other copies; of the
    `ckpt_format` "safetensors" there is no published file, so it needs one.
    Raises ConfigError where something else is asked for, CheckpointError where a file is refused.
    """
    if ckpt_format not in ("pt", "safetensors"):
        raise ConfigError(f"ckpt_format is {ckpt_format!r}, expected 'pt' or 'safetensors'")
    if ckpt_format == "safetensors" and checkpoint_url is None and pretrained:
        raise ConfigError("no safetensors file of the model was published; give its checkpoint_url, or take 'pt'")
    if dtype not in (torch.half, torch.bfloat16, torch.float, torch.double):
        raise ConfigError(f"dtype is {dtype}, expected a type of real numbers, such as torch.half")
    tokenizer = fetch(tokenizer_url or published.RELEASE + published.TOKENIZER_NAME, ".model", progress)
    if pretrained:
        checkpoint = fetch(checkpoint_url or published.RELEASE + published.CHECKPOINT_NAME, f".{ckpt_format}", progress)
        loaded, bpe, findings = published.load_examined(checkpoint, tokenizer, as_release=checkpoint_url is None)
        model = loaded.model
        for finding in findings:
            logger.warning("%s", finding)
    else:
        bpe = read_minbpe(tokenizer)
        model = Mars6(Mars6Config(text_vocab_size=bpe.vocab_size, conditioning=Conditioning.FUSED)).eval()
    where = device or ("cuda" if torch.cuda.is_available() else "cpu")
    return Mars6Turbo(model.to(device=where, dtype=dtype)).eval(), TurboTokenizer(bpe)


def fetch(address: str, suffix: str, progress: bool) -> Path:
    """A file of this address, fetched once into the user's cache; a path is the file itself.

    Files of the release have the folder that `published.fetch` fills, those of other addresses one each.
    """
    url = urlsplit(address)
    if url.scheme not in ("http", "https"):
        return Path(address.removeprefix("file://"))
    folder, name = cache_folder() / "downloads", address.rpartition("/")[2]
    if not address.startswith(published.RELEASE):
        folder /= hashlib.sha256(address.encode()).hexdigest()[:16]
        name = Path(url.path).name or "file"
    if not name.endswith(suffix):
        name += suffix
    return download_release(
        published.TURBO, address, folder, published.MAX_DOWNLOAD_BYTES, name=name, progress=progress
    )
