"""The published diffusion: schedules, distributions, losses, single steps and whole seeded runs, from ours."""

from __future__ import annotations

import pytest
import torch
from mars5_golden import Golden, open_golden, read_record
from torch import Tensor

from marstts.mars5.diffusion import (
    NoiseSchedule,
    ReverseStep,
    cosine_schedule,
    gumbel_draw,
    log_onehot,
    p_posterior,
    q,
    q_one_step,
    q_posterior,
    step_loss,
)
from marstts.mars5.nar import Conditioning
from marstts.mars5.repaint import PUBLISHED, DiffusionConfig, Draws, Given, repaint, walk

pytestmark = pytest.mark.slow


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`nar_run` is every recorded run."""
    if "nar_run" in metafunc.fixturenames:
        record = read_record(metafunc.config)
        metafunc.parametrize("nar_run", [run["name"] for run in record["runs"]] if record else [])


@pytest.fixture
def golden5(request: pytest.FixtureRequest) -> Golden:
    return open_golden(request.config)


def total(losses: Tensor) -> Tensor:
    """(B, ...) -> (B,)."""
    return losses.flatten(start_dim=1).sum(dim=1)


def test_schedules(golden5: Golden) -> None:
    names = [name.split(".") for name in golden5.tensors if name.startswith("diff.T")]
    assert names
    for _, size, name in names:
        ours = getattr(cosine_schedule(int(size[1:])), name)
        # cosines in float32 differ between processors; 1 - α is small, so its logarithm differs more
        atol = 1e-3 if name.startswith("log_1_min") else 1e-5
        golden5.close(ours, f"diff.{size}.{name}", atol)


def test_walks(golden5: Golden) -> None:
    for case in golden5.record["diffusion"]["schedules"]:
        assert walk(case["T"], case["jump_len"], case["jump_n_sample"]) == case["times"], case


def test_distributions_and_losses(golden5: Golden) -> None:
    io, schedule = golden5.tensors, small_schedule(golden5)
    num_classes, t = io["diff.q_pred"].shape[-1], io["diff.t"]
    log_x0, log_xt, logits = (
        log_onehot(io["diff.x0"], num_classes), log_onehot(io["diff.xt"], num_classes), io["diff.model_log_x0"]
    )  # fmt: skip
    golden5.close(log_x0, "diff.log_onehot_x0", 1e-5)
    golden5.close(q(log_x0, t, schedule), "diff.q_pred", 1e-5)
    golden5.close(q_one_step(log_xt, t, schedule), "diff.q_pred_one_timestep", 1e-5)
    golden5.close(q_posterior(log_x0, log_xt, t, schedule), "diff.q_posterior", 1e-5)
    golden5.close(p_posterior(logits, log_xt, t, schedule), "diff.p_pred", 1e-5)
    golden5.close(total(step_loss(log_x0, logits, log_xt, t, schedule)), "diff.Lt_no_prior")


def test_draws(golden5: Golden) -> None:
    io = golden5.tensors
    assert torch.equal(gumbel_draw(io["diff.q_pred"], io["diff.uniform"]), io["diff.sample"])


def small_schedule(golden5: Golden) -> NoiseSchedule:
    """The recorded schedule of the recorded distributions."""
    return cosine_schedule(min(size for _, size in golden5.numbered(r"diff\.T(\d+)\.log_alpha")))


@torch.inference_mode()
def test_single_reverse_steps(golden5: Golden) -> None:
    io, settings, model = golden5.tensors, golden5.record["step"], golden5.models.nar
    x, mask, num_classes = io["step.x"], io["step.mask"], model.config.num_classes
    schedule, lengths = cosine_schedule(settings["T"]), torch.tensor([x.shape[1]])
    reverse = ReverseStep(
        model, schedule, conditioning(golden5), lengths, settings["guidance_w"], settings["x_0_temp"], num_classes
    )
    for name, step in golden5.numbered(r"step\.guided_x0_logits_t(\d+)"):
        logits = reverse.logits(x, step)
        golden5.close(logits[:, : io[name].shape[1]] / settings["x_0_temp"], name)
    for name, step in golden5.numbered(r"step\.out_t(\d+)"):
        known = io["step.known"]
        unknown = reverse(x, step, io["step.uniform_unknown"] / 8192)
        if step > 0:
            log_known = q(log_onehot(known, num_classes), torch.tensor([step]) - PUBLISHED.known_lag, schedule)
            known = gumbel_draw(log_known, io["step.uniform_known"] / 8192)
        assert torch.equal(torch.where(mask, known, unknown), io[name])


def test_whole_runs(nar_run: str, golden5: Golden) -> None:
    run = next(run for run in golden5.record["runs"] if run["name"] == nar_run)
    io, model = golden5.tensors, golden5.models.nar
    prompt = io["nar.codes"] if run["deep_clone"] else io["nar.codes"][:, :0]
    codes, start = torch.cat((prompt, io["run.x_init"]), dim=1), prompt.shape[1]
    held = torch.zeros_like(codes, dtype=torch.bool)
    held[..., 0] = True
    known = held.clone()
    known[:, :start] = True
    given = Given(codes, known, held, (codes.shape[1],))
    config = DiffusionConfig(
        timesteps=run["T"], nar_guidance_w=run["guidance_w"], x_0_temp=run["x_0_temp"], last_greedy=False,
        q0_override_steps=run.get("q0_override_steps", 0), jump_len=run.get("jump_len", 1),
        jump_n_sample=run.get("jump_n_sample", 1),
    )  # fmt: skip
    reverse = ReverseStep(
        model, cosine_schedule(run["T"]), conditioning(golden5), torch.tensor(given.lengths), config.nar_guidance_w,
        config.x_0_temp, model.config.num_classes,
    )  # fmt: skip
    ours = repaint(
        reverse, given, reverse.schedule, config, Draws([run["seed"]], given), num_classes=model.config.num_classes,
        starts=[start], rules=PUBLISHED,
    )  # fmt: skip
    assert torch.equal(ours[:, start:], io[f"run.{nar_run}"])


@torch.inference_mode()
def conditioning(golden5: Golden) -> Conditioning:
    text, codes, model = golden5.tensors["nar.text"], golden5.tensors["nar.codes"], golden5.models.nar
    speaker = model.encode_speaker(codes, torch.tensor([codes.shape[1]]))
    return Conditioning(text, torch.tensor([text.shape[1]]), speaker)
