"""The published MARS5's vectors and logits, from ours."""

from __future__ import annotations

import pytest
import torch
from mars5_golden import Golden, open_golden, with_window
from torch import Tensor

from marstts.mars5.ar import CodecLM
from marstts.mars5.checkpoint import load_released
from marstts.mars5.nar import Conditioning, timestep_waves


@pytest.fixture
def golden5(request: pytest.FixtureRequest) -> Golden:
    return open_golden(request.config)


def ones(*values: int) -> Tensor:
    return torch.tensor(values)


def conditioning(golden5: Golden) -> Conditioning:
    text, codes, model = golden5.tensors["nar.text"], golden5.tensors["nar.codes"], golden5.models.nar
    return Conditioning(text, ones(text.shape[1]), model.encode_speaker(codes, ones(codes.shape[1])))


def frames(logits: Tensor, count: int) -> Tensor:
    """Ours are (B, T, L, K), theirs (B, T, K, L)."""
    return logits[:, :count].transpose(2, 3)


def test_both_containers_hold_the_same_models(golden5: Golden) -> None:
    sizes = golden5.record["config"]
    other = load_released(
        golden5.folder / "ar.safetensors", golden5.folder / "nar.safetensors", ar_heads=sizes["ar"]["nhead"],
        nar_heads=sizes["nar"]["nhead"],
    )  # fmt: skip
    assert other.config == golden5.models.config
    assert other.vocabulary.speech == golden5.models.vocabulary.speech
    for ours, theirs in ((other.ar, golden5.models.ar), (other.nar, golden5.models.nar)):
        for key, tensor in ours.state_dict().items():
            assert torch.equal(tensor, theirs.state_dict()[key]), key


def test_sizes(golden5: Golden) -> None:
    sizes, config = golden5.record["config"], golden5.models.config
    ar, nar = sizes["ar"], sizes["nar"]
    assert (config.ar.width, config.ar.heads, config.ar.layers, config.ar.speaker_layers, config.ar.window) == (
        ar["dim"], ar["nhead"], ar["n_layers"], ar["n_spk_layers"], ar["sliding_window"]
    )  # fmt: skip
    assert (config.ar.text_vocab_size, config.ar.vocab_size) == (sizes["n_text_vocab"], sizes["n_vocab"])
    assert (config.ar.feed_forward_width, config.ar.speaker_feed_forward_width, config.ar.head_size) == (
        sizes["ar_hidden_dim"], sizes["spk_ff_dim"], sizes["ar_head_dim"]
    )  # fmt: skip
    assert (config.nar.width, config.nar.heads, config.nar.encoder_layers, config.nar.decoder_layers) == (
        nar["dim"], nar["nhead"], nar["enc_layers"], nar["dec_layers"]
    )  # fmt: skip
    assert (config.nar.speaker_layers, config.nar.timestep_width, config.nar.feed_forward_width) == (
        nar["n_spk_layers"], nar["t_emb_dim"], sizes["nar_ff_dim"]
    )  # fmt: skip
    assert (config.nar.num_classes, config.nar.levels, config.nar.text_vocab_size) == (
        sizes["n_quant"], sizes["n_codebooks"], sizes["nar_text_vocab"]
    )  # fmt: skip


@torch.inference_mode()
def test_speaker_of_the_ar(golden5: Golden) -> None:
    model, tensors = golden5.models.ar, golden5.tensors
    golden5.close(model.speaker_encoder.embed(tensors["ar.spk_codes"]), "ar.spk_input")
    golden5.close(model.encode_speaker(tensors["ar.spk_codes"]), "ar.spk_embedding")
    golden5.close(model.encode_speaker(tensors["ar.spk_codes_padded"]), "ar.spk_embedding_padded")


@torch.inference_mode()
def test_logits_of_the_ar(golden5: Golden) -> None:
    model, tokens = golden5.models.ar, golden5.tensors["ar.tokens"]
    speaker = model.encode_speaker(golden5.tensors["ar.spk_codes"])
    golden5.close(model(tokens, speaker), "ar.logits")
    golden5.close(model(tokens, None)[:, -1], "ar.logits_no_speaker_last")


@torch.inference_mode()
def test_logits_of_the_ar_beyond_its_window(golden5: Golden) -> None:
    for name, window in golden5.numbered(r"ar\.logits_window(\d+)"):
        model, tokens = with_window(golden5.models.ar, window), golden5.tensors["ar.tokens"]
        speaker = model.encode_speaker(golden5.tensors["ar.spk_codes"])
        golden5.close(model(tokens, speaker)[:, -golden5.tensors[name].shape[1] :], name)


@torch.inference_mode()
def test_logits_of_the_ar_with_kv_caches(golden5: Golden) -> None:
    check_cached(golden5, golden5.models.ar, "ar.logits")


@torch.inference_mode()
def test_logits_of_the_ar_with_kv_caches_beyond_its_window(golden5: Golden) -> None:
    """Unlike the published cache, which is one place too small there."""
    for name, window in golden5.numbered(r"ar\.logits_window(\d+)"):
        check_cached(golden5, with_window(golden5.models.ar, window), name)


def check_cached(golden5: Golden, model: CodecLM, name: str) -> None:
    """The last logits of a prefill and single steps are the recorded ones."""
    tokens, recorded = golden5.tensors["ar.tokens"], golden5.tensors[name]
    prefill = golden5.record["ar"]["prefill"]
    state = model.begin(tokens[:, :prefill], ones(prefill), model.encode_speaker(golden5.tensors["ar.spk_codes"]))
    steps = [state.logits]
    for place in range(prefill, tokens.shape[1]):
        state = model.advance(state, tokens[:, place])
        steps.append(state.logits)
    count = min(recorded.shape[1], len(steps))
    torch.testing.assert_close(torch.stack(steps[-count:], dim=1), recorded[:, -count:], atol=1e-4, rtol=1e-5)


@torch.inference_mode()
def test_speaker_and_timesteps_of_the_nar(golden5: Golden) -> None:
    golden5.close(conditioning(golden5).speaker, "nar.spk_embedding")
    width = golden5.models.nar.config.timestep_width
    golden5.close(timestep_waves(ones(0, 1, 7, 50, 199), width), "nar.timestep_embedding")


@torch.inference_mode()
def test_logits_of_the_nar(golden5: Golden) -> None:
    model, x, given = golden5.models.nar, golden5.tensors["nar.x"], conditioning(golden5)
    for name, timestep in golden5.numbered(r"nar\.logits_t(\d+)"):
        logits = model(x, ones(x.shape[1]), ones(timestep), given)
        golden5.close(frames(logits, golden5.tensors[name].shape[1]), name)


@torch.inference_mode()
def test_logits_of_the_nar_without_a_speaker(golden5: Golden) -> None:
    model, x, given = golden5.models.nar, golden5.tensors["nar.x"], conditioning(golden5)
    given = Conditioning(given.text_ids, given.text_lengths, model.null_speaker(1))
    for name, timestep in golden5.numbered(r"nar\.logits_t(\d+)_uncond"):
        logits = model(x, ones(x.shape[1]), ones(timestep), given)
        golden5.close(frames(logits, golden5.tensors[name].shape[1]), name)


@torch.inference_mode()
def test_logits_of_a_padded_batch_of_the_nar(golden5: Golden) -> None:
    model, prefix = golden5.models.nar, "nar.batch."
    batch = {key.removeprefix(prefix): part for key, part in golden5.tensors.items() if key.startswith(prefix)}
    speakers = model.encode_speaker(batch["codes"], batch["code_lengths"])
    lengths = (~batch["x_pad_mask"]).sum(dim=1)
    logits = model(batch["x"], lengths, batch["t"], Conditioning(batch["text"], batch["text_lengths"], speakers))
    golden5.close(logits[1, : lengths[1]].transpose(1, 2), "nar.batch.logits_row1")
