"""The release's own interface of MARS6: the example of its document, on small recorded weights."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from marstts.codec.toy import ToyCodec
from marstts.errors import CheckpointError, ConfigError, TextError
from marstts.mars6.turbo import Mars6Turbo, RASConfig, TurboTokenizer, mars6_turbo
from marstts.weights import pretrained

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[1] / "golden" / "mars6"
RECORD = json.loads((GOLDEN / "io.json").read_text("utf-8"))["main"]["generation"]
FILES = {"checkpoint_url": str(GOLDEN / "checkpoint.pt"), "tokenizer_url": str(GOLDEN / "tokenizer.model")}


@pytest.fixture(scope="module")
def turbo() -> tuple[Mars6Turbo, TurboTokenizer]:
    return mars6_turbo(device="cpu", dtype=torch.float, **FILES)


@pytest.fixture(scope="module")
def recorded() -> dict[str, Tensor]:
    return load_file(GOLDEN / "io.safetensors")


def speaker(seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "clap_embs": torch.randn(1, 1024, generator=generator),
        "spk_embs": torch.nn.functional.normalize(torch.randn(1, 512, generator=generator), dim=-1),
    }


def ids_of(tokenizer: TurboTokenizer, text: str) -> Tensor:
    return torch.tensor(tokenizer.encode(f"<|startoftext|>[48000]{text}<|endoftext|>", allowed_special="all"))[None]


def test_the_notebooks_steps_end_in_a_waveform(turbo: tuple[Mars6Turbo, TurboTokenizer]) -> None:
    """Shallow, then deep with the first chunk's tokens: the calls of the document's example, in its order."""
    model, tokenizer = turbo
    chunks, tokens = ("Hello from a small model!", "And again."), None
    for text in chunks:
        x = ids_of(tokenizer, text if tokens is None else f"{chunks[0]} {text}")
        settings = RASConfig(K=10, t_r=0.09, top_p=0.2, enabled=True, cfg_guidance=1.0)
        tokens = model.inference(
            x, torch.tensor([x.shape[1]]), **speaker(), language=torch.tensor([0]), max_len=30, fp16=False,
            ras_cfg=settings, cache=None, decoder_prefix=tokens, lower_bound_dur=len(text) / 32,
        )  # fmt: skip
        assert tokens.shape[1] == 7 and tokens.dtype == torch.long
        levels = [tokens[:, :1].flatten(), tokens[:, 1:3].flatten() - 4096, tokens[:, 3:].flatten() - 8192]
        assert len(levels[2]) / 48 >= len(text) / 32 - 1 / 12
        waveform = ToyCodec().decode([level.numpy() for level in levels])
        assert len(waveform.samples) == 2048 * len(tokens) and np.isfinite(waveform.samples).all()


@pytest.mark.parametrize("run", [run for run in RECORD if run["top_p"] == 0 and not run["ras_enabled"]], ids=str)
def test_the_tokens_are_those_of_the_release(
    run: dict[str, Any], turbo: tuple[Mars6Turbo, TurboTokenizer], recorded: dict[str, Tensor]
) -> None:
    """Greedy runs of the released classes: guidance, prefix, minimum and maximum included."""
    x = recorded["enc.text_ids"]
    settings = RASConfig(run["K"], run["t_r"], run["top_p"], run["ras_enabled"], run["cfg_guidance"])
    prefix = None if run["prefix"] is None else torch.tensor(run["prefix"])
    tokens = turbo[0].inference(
        x, torch.tensor([x.shape[1]]), recorded["enc.clap"], recorded["enc.speaker"], recorded["enc.language"],
        run["max_len"], ras_cfg=settings, decoder_prefix=prefix, lower_bound_dur=run["lower_bound_dur"],
    )  # fmt: skip
    assert tokens.tolist() == run["tokens"]


def test_pytorchs_seed_repeats_a_take(turbo: tuple[Mars6Turbo, TurboTokenizer]) -> None:
    model, x = turbo[0], ids_of(turbo[1], "Good morning.")

    def take(seed: int) -> list[list[int]]:
        torch.manual_seed(seed)
        settings = RASConfig(top_p=1.0, enabled=False)
        return model.inference(x, torch.tensor([x.shape[1]]), **speaker(), max_len=6, ras_cfg=settings).tolist()

    assert take(1) == take(1)
    assert len({str(take(seed)) for seed in range(4)}) > 1


def test_the_dtype_is_that_of_the_weights_and_computes(turbo: tuple[Mars6Turbo, TurboTokenizer]) -> None:
    for dtype in (torch.half, torch.bfloat16):
        model, tokenizer = mars6_turbo(device="cpu", dtype=dtype, **FILES)
        assert {parameter.dtype for parameter in model.parameters()} == {dtype}
        x = ids_of(tokenizer, "Hello.")
        assert model.inference(x, torch.tensor([x.shape[1]]), **speaker(), max_len=3).shape[1] == 7
    with pytest.raises(ConfigError, match="real numbers"):
        mars6_turbo(device="cpu", dtype=torch.int8, **FILES)


def test_without_pretrained_weights_the_model_has_the_published_sizes() -> None:
    model, tokenizer = mars6_turbo(pretrained=False, device="cpu", dtype=torch.float, **FILES)
    sizes = model.model.config
    assert (sizes.width, sizes.encoder_layers, sizes.global_layers, sizes.local_layers) == (512, 8, 8, 4)
    assert sizes.text_vocab_size == len(tokenizer.vocab)


def test_shapes_and_ids_that_the_model_has_not_are_refused(turbo: tuple[Mars6Turbo, TurboTokenizer]) -> None:
    model, x = turbo[0], ids_of(turbo[1], "Hello.")
    length = torch.tensor([x.shape[1]])
    with pytest.raises(ConfigError, match="one utterance is generated at a time: x has shape"):
        model.inference(torch.cat((x, x)), length, **speaker())
    with pytest.raises(ConfigError, match=r"decoder_prefix has shape \(2, 6\)"):
        model.inference(x, length, **speaker(), decoder_prefix=torch.zeros(2, 6, dtype=torch.long))
    with pytest.raises(ConfigError, match=r"clap_embs has shape \(1, 512\), expected \(1, 1024\)"):
        model.inference(x, length, speaker()["spk_embs"], speaker()["spk_embs"])
    with pytest.raises(ConfigError, match="x has ids from"):
        model.inference(x + 5000, length, **speaker())
    with pytest.raises(ConfigError, match="language 7"):
        model.inference(x, length, **speaker(), language=torch.tensor([7]))
    with pytest.raises(ConfigError, match="max_len is 0"):
        model.inference(x, length, **speaker(), max_len=0)
    with pytest.raises(TextError, match="x_lengths is 0"):
        model.inference(x, torch.tensor([0]), **speaker())


def test_special_tokens_count_where_they_are_allowed(turbo: tuple[Mars6Turbo, TurboTokenizer]) -> None:
    tokenizer = turbo[1]
    [start, *_] = tokenizer.special_tokens
    text = f"{start}cat{start}"
    assert tokenizer.decode(tokenizer.encode(text, allowed_special="all")) == text
    assert tokenizer.encode(text, allowed_special={start}) == tokenizer.encode(text, allowed_special="all")
    plain = tokenizer.encode(text, allowed_special="none")
    assert tokenizer.special_tokens[start] not in plain and tokenizer.decode(plain) == text
    with pytest.raises(TextError, match="special token"):
        tokenizer.encode(text)
    with pytest.raises(ConfigError, match="expected 'all'"):
        tokenizer.encode(text, allowed_special="some")
    with pytest.raises(ConfigError, match="out of range"):
        tokenizer.decode([100_000])


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server on this machine that holds the files under other names; it counts answers."""
    served = {"/x/my.pt": GOLDEN / "checkpoint.pt", "/y/my.pt?download=1": GOLDEN / "checkpoint.safetensors"}
    served["/tok"] = GOLDEN / "tokenizer.model"

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = served[self.path].read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None: ...

    monkeypatch.setenv("MARSTTS_CACHE", str(tmp_path / "cache"))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_other_addresses_are_fetched_once_and_shown_where_asked(
    mirror: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = {"checkpoint_url": f"{mirror}/x/my.pt", "tokenizer_url": f"{mirror}/tok"}
    first, _ = mars6_turbo(device="cpu", dtype=torch.float, progress=False, **urls)
    assert "my.pt: downloading" not in (shown := capsys.readouterr().err), shown
    urls["checkpoint_url"] = f"{mirror}/y/my.pt?download=1"
    second, _ = mars6_turbo(device="cpu", dtype=torch.float, progress=True, ckpt_format="safetensors", **urls)
    assert "my.pt" in capsys.readouterr().err
    for ours, theirs in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    monkeypatch.setattr(pretrained, "connection_problem", lambda address: OSError("no network"))
    mars6_turbo(device="cpu", dtype=torch.float, **urls, ckpt_format="safetensors")
    with pytest.raises(CheckpointError, match="no network"):
        mars6_turbo(device="cpu", checkpoint_url=f"{mirror}/z.pt", tokenizer_url=urls["tokenizer_url"])


def test_formats_that_were_not_published_are_refused() -> None:
    with pytest.raises(ConfigError, match="no safetensors file of the model was published"):
        mars6_turbo(ckpt_format="safetensors")
    with pytest.raises(ConfigError, match="'gguf', expected 'pt' or 'safetensors'"):
        mars6_turbo(ckpt_format="gguf")
