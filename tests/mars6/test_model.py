"""The model: sizes, causality, padding, caches."""

import pytest
import torch

from marstts.mars6.config import Conditioning, Mars6Config
from marstts.mars6.model import Mars6, scored_patches

pytestmark = pytest.mark.slow

CONFIG = Mars6Config(
    text_vocab_size=23, codebook_size=11, width=24, encoder_layers=2, global_layers=3, local_layers=2,
    heads=2, local_heads=3, identity_size=5, style_size=9,
)  # fmt: skip
FUSED = CONFIG.model_copy(update={"conditioning": Conditioning.FUSED, "languages": 4})
B, S, T, P = 3, 8, 6, 7


def tiny(config: Mars6Config = CONFIG) -> Mars6:
    torch.manual_seed(0)
    return Mars6(config).eval()


def random_patches(batch: int, length: int, config: Mars6Config = CONFIG) -> torch.Tensor:
    levels = torch.tensor(config.position_levels)
    return torch.randint(0, config.codebook_size, (batch, length, P)) + levels * config.codebook_size


def batch(config: Mars6Config = CONFIG) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    patches, lengths = random_patches(B, T, config), torch.tensor([6, 3, 4])
    for row, length in enumerate(lengths):
        patches[row, length - 1] = config.eos
        patches[row, length:] = -100
    return {
        "text_ids": torch.randint(0, 23, (B, S)), "text_lengths": torch.tensor([8, 5, 7]),
        "identity": torch.randn(B, 5), "style": torch.randn(B, 9), "patches": patches, "patch_lengths": lengths,
    }  # fmt: skip


def row_of(inputs: dict[str, torch.Tensor], row: int) -> dict[str, torch.Tensor]:
    alone = {name: value[row : row + 1] for name, value in inputs.items()}
    alone["text_ids"] = alone["text_ids"][:, : int(alone["text_lengths"])]
    alone["patches"] = alone["patches"][:, : int(alone["patch_lengths"])]
    return alone


def test_default_model_has_the_papers_size():
    with torch.device("meta"):
        paper, published = Mars6(Mars6Config()), Mars6(Mars6Config(conditioning=Conditioning.FUSED))
    assert sum(p.numel() for p in paper.parameters()) == 66_817_172  # "70M" in the paper
    assert sum(p.numel() for p in published.parameters()) == 67_344_532  # as counted in the released checkpoint


@pytest.mark.parametrize("config", [CONFIG, FUSED], ids=["two_slots", "fused"])
def test_logits_come_per_level_for_valid_patches_only(config):
    output = tiny(config)(**batch(config))
    assert [tuple(level.shape) for level in output.logits] == [(13, 1, 12), (13, 2, 12), (13, 4, 12)]
    assert output.scored.sum(dim=1).tolist() == [6, 3, 4]


@pytest.mark.parametrize("config", [CONFIG, FUSED], ids=["two_slots", "fused"])
def test_padding_and_other_rows_change_nothing(config):
    model, inputs = tiny(config), batch(config)
    together = model(**inputs).logits
    for row, start in enumerate((0, 6, 9)):
        alone = model(**row_of(inputs, row)).logits
        for level_together, level_alone in zip(together, alone, strict=True):
            torch.testing.assert_close(level_together[start : start + len(level_alone)], level_alone)


def test_later_patches_cannot_influence_earlier_logits():
    model, inputs = tiny(), batch()
    embedded = {}

    def keep(name):
        def hook(module, args, output):
            output.retain_grad()
            embedded[name] = output

        return hook

    model.global_decoder.patch_embedding.tokens.register_forward_hook(keep("global"))
    model.local_decoder.tokens.register_forward_hook(keep("local"))
    for patch in range(T):
        for position in range(P):
            flat = torch.cat([level[:6] for level in model(**inputs).logits], dim=1)  # row 0: (6, P, C + 1)
            model.zero_grad()
            flat[patch, position].square().sum().backward()
            attended = embedded["global"].grad[0].abs().sum(dim=(1, 2)) > 0
            assert attended.tolist() == [n < patch for n in range(T - 1)]
            read = embedded["local"].grad[:6].abs().sum(dim=2) > 0
            expected = torch.zeros(T, P - 1, dtype=torch.bool)
            expected[patch, :position] = True
            if patch == T - 1:  # the tokens of the final patch are end of speech: embedded as the zero padding row
                assert not (read & ~expected).any()
            else:
                assert torch.equal(read, expected)


def test_text_and_both_speaker_vectors_influence_the_first_logits():
    model, inputs = tiny(), batch()
    inputs["identity"].requires_grad_()
    inputs["style"].requires_grad_()
    model(**inputs).logits[0][0].square().sum().backward()
    assert inputs["identity"].grad[0].abs().sum() > 0 and inputs["style"].grad[0].abs().sum() > 0
    assert not inputs["identity"].grad[1:].any()
    read = model.encoder.text_embedding.weight.grad.abs().sum(dim=1) > 0
    assert set(read.nonzero().flatten().tolist()) == set(inputs["text_ids"][0].tolist())


def test_scoring_some_patches_gives_their_rows_of_the_full_scores():
    model, inputs = tiny(), batch()
    correct = torch.zeros(B, T, dtype=torch.bool)
    correct[0, 2] = correct[1, 0] = correct[2, 3] = correct[2, 5] = True  # the last is padding: not scored
    some, full = model(**inputs, scored=correct), model(**inputs)
    assert some.scored.sum() == 3
    for few, all_ in zip(some.logits, full.logits, strict=True):
        torch.testing.assert_close(few, all_[some.scored[full.scored]])


def test_cross_attention_of_chosen_layers_is_returned_and_ignores_padding():
    model, inputs = tiny(), batch()
    plain, shown = model(**inputs), model(**inputs, attention_layers=(1, 2))
    assert len(plain.cross_attention) == 0 and len(shown.cross_attention) == 2
    assert shown.cross_attention[0].shape == (B, 2, T, S + 2)
    assert not shown.cross_attention[1][1, ..., 2 + 5 :].any()
    for a, b in zip(plain.logits, shown.logits, strict=True):
        torch.testing.assert_close(a, b)


def test_language_embeddings_are_used_in_fused_conditioning_only():
    for config, matters in ((CONFIG, False), (FUSED, True)):
        model, inputs = tiny(config), batch(config)
        default = model(**inputs).logits[0]
        torch.testing.assert_close(model(**inputs, language=torch.zeros(B, dtype=torch.long)).logits[0], default)
        other = model(**inputs, language=torch.full((B,), 3)).logits[0]
        assert torch.allclose(other, default) is not matters


def test_fused_conditioning_has_null_speaker_embeddings():
    model, inputs = tiny(FUSED), batch(FUSED)
    identity, style = model.encoder.slots.null_speaker(B)
    assert identity.shape == (B, 5) and style.shape == (B, 9)
    assert model(**{**inputs, "identity": identity, "style": style}).logits[0].shape[0] == 13


@pytest.mark.parametrize("config", [CONFIG, FUSED], ids=["two_slots", "fused"])
@pytest.mark.parametrize("prefix_lengths", [(0, 0, 0), (3, 0, 2)])
def test_cached_steps_match_the_full_forward_pass(config, prefix_lengths):
    """Rows with prefixes of different lengths, fed patch by patch and token by token, against teacher forcing."""
    model = tiny(config)
    inputs = {**batch(config), "patches": random_patches(B, T, config), "patch_lengths": torch.full((B,), T)}
    full = torch.cat(model(**inputs).logits, dim=1).view(B, T, P, -1)
    lengths = torch.tensor(prefix_lengths)
    prefix = inputs["patches"][:, : int(lengths.max())].clone()
    for row, length in enumerate(prefix_lengths):
        prefix[row, length:] = -100
    names = ("text_ids", "text_lengths", "identity", "style")
    state = model.begin(*model.encode(*(inputs[name] for name in names)), prefix, lengths)
    rows = torch.arange(B)
    for _ in range(T - int(lengths.max())):
        place = state.num_patches
        patch, past = inputs["patches"][rows, place], ()
        for position in range(P):
            token = patch[:, position - 1] if position else None
            logits, past = model.local_decoder.step(state.vectors, token, past)
            torch.testing.assert_close(logits, full[rows, place, position], atol=2e-5, rtol=1e-4)
        state = model.advance(state, patch)


def test_selected_rows_step_as_if_they_had_been_alone():
    model, inputs = tiny(), batch()
    names = ("text_ids", "text_lengths", "identity", "style")
    state = model.begin(
        *model.encode(*(inputs[name] for name in names)), inputs["patches"][:, :2], torch.tensor([2, 1, 0])
    )
    patches = random_patches(B, 1)[:, 0]
    rows = torch.tensor([2, 0])
    torch.testing.assert_close(
        model.advance(state.select(rows), patches[rows]).vectors, model.advance(state, patches).vectors[rows]
    )


def test_bfloat16_autocast_stays_near_float32():
    model, inputs = tiny(), batch()
    exact = model(**inputs, attention_layers=(1,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = model(**inputs, attention_layers=(1,))
    for a, b in zip(exact.logits, rough.logits, strict=True):
        torch.testing.assert_close(a, b.float(), atol=0.15, rtol=0.1)
    assert rough.cross_attention[0].dtype == torch.float32


def test_scored_patches_never_include_padding():
    mask = scored_patches(torch.tensor([2, 4]), 4, torch.ones(2, 4, dtype=torch.bool))
    assert mask.tolist() == [[True, True, False, False], [True] * 4]
