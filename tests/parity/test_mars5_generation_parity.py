"""The published MARS5's token sequences, from our loop; and the recorded runs of its pipeline, from our profile."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from mars5_golden import Golden, open_golden, read_record
from numpy.typing import NDArray
from torch import Tensor, nn

from marstts.errors import VoiceError
from marstts.generation.loop import generate
from marstts.generation.request import Limits, SamplingConfig, StopReason
from marstts.io.config import Config
from marstts.mars5.ar import CodecLM, DecoderState, frames_before_padding
from marstts.mars5.checkpoint import Models
from marstts.mars5.engine import TokenEngine
from marstts.mars5.nar import Conditioning
from marstts.mars5.pipeline import Pipeline, speaker_vector
from marstts.mars5.profiles import CORRECTED, RELEASED, Profile
from marstts.mars5.prompt import CloneMode, Mars5Prompt, Speaker, SpeechPrompt
from marstts.mars5.repaint import DiffusionConfig
from marstts.mars5.sampling import TokenSampling

pytestmark = pytest.mark.slow

STEPS = 8


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`ar_run` is every recorded run of the AR, `tts_trace` every recorded run of the pipeline."""
    record = read_record(metafunc.config)
    if "ar_run" in metafunc.fixturenames:
        metafunc.parametrize("ar_run", [run["name"] for run in record["ar"]["generation"]] if record else [])
    if "tts_trace" in metafunc.fixturenames:
        metafunc.parametrize("tts_trace", [trace["name"] for trace in record["tts_traces"]] if record else [])


@pytest.fixture
def golden5(request: pytest.FixtureRequest) -> Golden:
    return open_golden(request.config)


class Replay:
    """A stand-in for a random generator that hands out recorded numbers, the first of the two of each token."""

    def __init__(self, numbers: list[float]) -> None:
        self.numbers = iter(numbers)

    def random(self, size: tuple[int, int]) -> NDArray[np.float64]:
        assert size == (1, 2)
        return np.array([[next(self.numbers), 0.0]])


def find_run(golden5: Golden, name: str) -> dict[str, Any]:
    return next(run for run in golden5.record["ar"]["generation"] if run["name"] == name)


def sampling_of(run: dict[str, Any]) -> TokenSampling:
    args = run["args"]
    return TokenSampling(
        temperature=args["temperature"], top_k=args["topk"], top_p=args["top_p"], typical_p=args["typical_p"],
        freq_penalty=args["alpha_frequency"], presence_penalty=args["alpha_presence"],
        rep_penalty_window=args["penalty_window"], eos_penalty_decay=args["eos_penalty_decay"],
        eos_penalty_factor=args["eos_penalty_factor"],
    )  # fmt: skip


def model_of(golden5: Golden, run: dict[str, Any]) -> CodecLM:
    """The AR, with the recorded row for the end of speech where the run asks for one."""
    if not run["name"].startswith("eos_row_override"):
        return golden5.models.ar
    model = copy.deepcopy(golden5.models.ar)
    model.output.weight.data[golden5.models.vocabulary.end] = torch.tensor(golden5.record["ar"]["eos_row_override"])
    return model


def speak(golden5: Golden, model: CodecLM, runs: list[dict[str, Any]]) -> None:
    """Generate recorded runs of equal settings in one batch, and compare their tokens."""
    vocabulary = golden5.models.vocabulary
    estimates = [run["args"]["n_phones_gen"] for run in runs]
    sampling = sampling_of(runs[0])
    if None in estimates:  # no estimate, so no penalty
        sampling = sampling.model_copy(update={"eos_penalty_factor": 0.0})
    models = replace(golden5.models, ar=model)
    engine = TokenEngine(models, "golden", sampling, legal_text_ids=RELEASED.legal_text_ids)
    speaker_codes = golden5.tensors["ar.spk_codes"]
    frames = frames_before_padding(speaker_codes, model.config.codebook_size)
    vector = speaker_vector(model, speaker_codes[0, : int(frames[0])].numpy())
    prompts = []
    for run, estimate in zip(runs, estimates, strict=True):
        speaker = Speaker(vector, vector, np.zeros((0, 8), np.int64))
        ids, nothing = np.array(run["prompt"], dtype=np.int64), np.zeros(0, np.int64)
        given = Mars5Prompt(ids, nothing, np.zeros((0, 8), np.int64), speaker, num_characters=estimate or 0)
        prompts.append(SpeechPrompt(given, nothing[:, None]))
    results = generate(
        engine, prompts, top_p=[sampling.top_p] * len(runs),
        limits=[Limits(0, max(0, run["max_len"] - len(run["prompt"]))) for run in runs],
        rngs=[Replay(run["uniforms"]) for run in runs], sampling=SamplingConfig(),  # type: ignore[misc]
    )  # fmt: skip
    for run, generated in zip(runs, results, strict=True):
        tokens = engine.numbers.joint_ids[generated.tokens[:, 0]]
        assert run["prompt"] + tokens.tolist() == run["tokens"], run["name"]
        assert generated.stop is {"eos": StopReason.EOS, "max_len": StopReason.MAX_PATCHES}[run["ended_by"]]
    assert vocabulary.end not in tokens


def test_generated_tokens(ar_run: str, golden5: Golden) -> None:
    run = find_run(golden5, ar_run)
    speak(golden5, model_of(golden5, run), [run])


def test_generated_tokens_side_by_side(golden5: Golden) -> None:
    """Runs of equal settings, prompts of different lengths and different limits, in one batch."""
    runs = [run for run in golden5.record["ar"]["generation"] if run["name"].startswith("default")]
    assert len({run["args"]["n_phones_gen"] is None for run in runs}) == 1 and len(runs) > 1
    speak(golden5, golden5.models.ar, runs)


class ScriptedAR(nn.Module):
    """An AR that generates recorded tokens, whatever the prompt is, and stores the prompt."""

    def __init__(self, golden5: Golden, spoken: list[int]) -> None:
        super().__init__()
        self.config, self.script = golden5.models.ar.config, [*spoken, golden5.models.vocabulary.end]
        self.nothing = nn.Parameter(torch.zeros(1))
        self.prompts: list[list[int]] = []

    def encode_speaker(self, codes: Tensor, lengths: Tensor) -> Tensor:
        self.speaker_codes = codes
        return torch.zeros(len(codes), self.config.width)

    def begin(self, tokens: Tensor, lengths: Tensor, speaker: Tensor | None) -> DecoderState:
        self.prompts = tokens.tolist()
        return self.state(0)

    def advance(self, state: DecoderState, tokens: Tensor) -> DecoderState:
        return self.state(int(state.lengths[0]) + 1)

    def state(self, place: int) -> DecoderState:
        logits = torch.zeros(1, self.config.vocab_size)
        logits[0, self.script[place]] = 1000.0
        return DecoderState(logits, torch.tensor([place]), torch.zeros(1, 0), ())


class ScriptedNAR(nn.Module):
    """Finds all codes equally probable, and remembers what it was asked."""

    def __init__(self, golden5: Golden) -> None:
        super().__init__()
        self.config = golden5.models.nar.config
        self.nothing = nn.Parameter(torch.zeros(1))
        self.asked: list[tuple[Tensor, int]] = []

    def encode_speaker(self, codes: Tensor, lengths: Tensor) -> Tensor:
        return torch.zeros(len(codes), self.config.width)

    def null_speaker(self, batch: int) -> Tensor:
        return torch.zeros(batch, self.config.width)

    def forward(self, codes: Tensor, lengths: Tensor, timesteps: Tensor, given: Conditioning) -> Tensor:
        self.given = given
        self.asked.append((codes, int(timesteps[0])))
        return torch.zeros(*codes.shape, self.config.num_classes)


def settings_of(kind: type[Config], trace: dict[str, Any]) -> Any:
    """The part of the recorded settings that a configuration has."""
    return kind(**{name: value for name, value in trace["config"].items() if name in kind.model_fields})


def start_pipeline(golden5: Golden, trace: dict[str, Any], profile: Profile) -> tuple[Pipeline, Mars5Prompt]:
    """A pipeline of scripted models with the recorded settings, and its prompt for the recorded texts.

    Its diffusion has fewer steps than recorded, the first and the last among them.
    """
    effective = profile.effective_config
    profile = replace(
        profile, effective_config=lambda config: effective(config).model_copy(update={"timesteps": STEPS})
    )
    any_speech = [golden5.models.vocabulary.offset] * 2
    spoken = trace["ar_output"][len(trace["ar_prompt"]) :] if trace["error"] is None else any_speech
    models = Models(ScriptedAR(golden5, spoken), ScriptedNAR(golden5), golden5.models.vocabulary)  # type: ignore[arg-type]
    pipeline = Pipeline(models, settings_of(DiffusionConfig, trace), profile)
    reference = np.repeat(np.array(trace["ref_l0"], dtype=np.int64)[:, None], models.nar.config.levels, axis=1)
    mode = CloneMode.DEEP if trace["config"]["deep_clone"] else CloneMode.SHALLOW
    return pipeline, pipeline.prompt(trace["text"], pipeline.speaker(reference, trace["ref_transcript"]), mode)


def run_pipeline(pipeline: Pipeline, prompt: Mars5Prompt, trace: dict[str, Any]) -> tuple[list[int], list[int]]:
    """Level 0 as the AR generated it, and that of the NAR's new codes."""
    rng, profile = np.random.default_rng(1), pipeline.profile
    engine = TokenEngine(pipeline.models, "golden", settings_of(TokenSampling, trace), profile.legal_text_ids)
    given = SpeechPrompt(prompt, engine.numbers.of(prompt.speech_ids)[:, None])
    [generated] = generate(
        engine, [given], top_p=[engine.sampling.top_p], limits=[Limits(0, 2000)], rngs=[rng], sampling=SamplingConfig()
    )
    tokens = engine.numbers.joint_ids[generated.tokens[:, 0]]
    [codes] = pipeline.codes([prompt], [tokens], [rng])
    assert codes.shape[1] == pipeline.models.nar.config.levels
    return pipeline.level0(prompt, tokens).tolist(), codes[:, 0].tolist()


def trace_of(golden5: Golden, name: str) -> dict[str, Any]:
    return next(trace for trace in golden5.record["tts_traces"] if trace["name"] == name)


def test_pipeline(tts_trace: str, golden5: Golden) -> None:
    trace = trace_of(golden5, tts_trace)
    if trace["error"] is not None and trace["config"]["deep_clone"]:
        with pytest.raises(VoiceError, match="transcript"):
            start_pipeline(golden5, trace, RELEASED)
        return
    pipeline, prompt = start_pipeline(golden5, trace, RELEASED)
    level0, drawn = run_pipeline(pipeline, prompt, trace)
    ar: Any = pipeline.models.ar
    nar: Any = pipeline.models.nar
    if trace["error"] is not None:  # a shallow clone needs no transcript: the published code stumbles over None
        assert nar.asked
        return
    assert ar.prompts == [trace["ar_prompt"]]
    assert list(ar.speaker_codes.shape[1:]) == trace["ar_spk_shape"]
    assert level0 == trace["returned_codes"]
    assert drawn == trace["vocode_l0"]
    assert nar.given.text_ids[:1].tolist() == trace["nar_text"]
    assert nar.given.text_lengths[0] == trace["nar_lengths"][0]
    start = len(trace["ref_l0"]) if trace["config"]["deep_clone"] else 0
    first, timestep = nar.asked[0]
    assert first[0, start:, 0].tolist() == trace["nar_x_l0"]
    assert timestep == trace["nar_T"] - 1
    assert len(nar.asked) == STEPS


def test_settings_reach_the_models_as_recorded(tts_trace: str, golden5: Golden) -> None:
    trace = trace_of(golden5, tts_trace)
    if trace["error"] is not None:
        pytest.skip("recorded as an error")
    pipeline, prompt = start_pipeline(golden5, trace, RELEASED)
    sampling, args = settings_of(TokenSampling, trace), trace["ar_kwargs"]
    assert round(sampling.eos_estimated_gen_length_factor * prompt.num_characters) == args["n_phones_gen"]
    first_code = len(prompt.tokens) - len(prompt.speech_ids) + pipeline.profile.skipped_tokens
    assert first_code == trace["first_codec_idx"]
    assert sampling_of({"args": args}) == sampling.model_copy(update={"eos_estimated_gen_length_factor": 1.0})
    settled, recorded = RELEASED.effective_config(pipeline.diffusion), trace["nar_dsh"]
    names = {"x_0_temp": "x_0_temp", "guidance_w": "nar_guidance_w", "q0_override_steps": "q0_override_steps"}
    names |= {"jump_len": "jump_len", "jump_n_sample": "jump_n_sample"}
    assert {theirs: getattr(settled, ours) for theirs, ours in names.items()} == {key: recorded[key] for key in names}
    assert settled.timesteps == trace["nar_T"]


def test_our_own_profile_loses_no_token_and_shows_the_reference_once(golden5: Golden) -> None:
    for trace in golden5.record["tts_traces"]:
        if trace["error"] is not None:
            continue
        pipeline, prompt = start_pipeline(golden5, trace, CORRECTED)
        ar: Any = pipeline.models.ar
        nar: Any = pipeline.models.nar
        if any(token < golden5.models.vocabulary.offset for token in ar.script):
            continue  # a text token: ours is not drawn
        level0, drawn = run_pipeline(pipeline, prompt, trace)
        spoken = golden5.models.vocabulary.decode_speech(np.array(ar.script[:-1])).tolist()
        assert level0 == spoken == drawn
        start = len(trace["ref_l0"]) if trace["config"]["deep_clone"] else 0
        first, _ = nar.asked[0]
        assert first.shape[1] == start + len(spoken)
