"""The configuration of MARS6 training, which `marstts train mars6 --config` reads.

Upstream: TOML files such as those of `recipes/`.  Downstream: `task.PretrainTask`, `run_folder`.
MARS6 (arXiv:2501.05787), Sec. III-D and V-A.  Deviations: attention guidance, input token noise and guidance
distillation are ours; all can be turned off.
"""

from __future__ import annotations

from pydantic import ConfigDict, Field

from marstts.io.config import Config
from marstts.io.precision import Precision
from marstts.mars6.config import Mars6Config
from marstts.mars6.objective import ObjectiveConfig
from marstts_lab.data.batching import BatchingConfig
from marstts_lab.training.attention_guidance import AttentionGuidanceConfig
from marstts_lab.training.loop import LoopConfig
from marstts_lab.training.optim import OptimizerConfig


class LettersDistillationConfig(Config):
    """Distillation of a model that reads letters into one that reads phones.

    The teacher has the initial weights and reads each text in letters; the model reads it with words in phones
    (`batching.phones`), and is trained on the teacher's distribution. So it keeps what earlier stages taught: guidance
    distillation, preference tuning, and how letters are read.
    """

    not_distilled: tuple[str, ...] = ()
    """Prefixes of the names of speakers whose recordings are the targets: the teacher misreads their texts."""

    hidden_state_weight: float = Field(0.0, ge=0.0)
    """Weight of the hidden-state loss, `letters_distillation.hidden_state_loss`; 0 = none."""

    train_local_decoder: bool = True
    """False: the local decoder stays the teacher's. Recordings that are not distilled would move it away from the
    teacher's distribution, which the global decoder's hidden states still fit."""

    train_global_decoder: bool = True
    """False: the global decoder stays the teacher's, and what it attends to must be what letters gave it."""

    scored_ratio: float = Field(1.0, gt=0.0, le=1.0)
    """Ratio of the patches of distilled rows, drawn at random, whose codes are scored.

    The local decoder costs most of a step; hidden states teach every patch without it.
    """


class PretrainConfig(Config):
    """Configuration of training MARS6 on shards."""

    model: Mars6Config
    loop: LoopConfig
    batching: BatchingConfig = BatchingConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    attention_guidance: AttentionGuidanceConfig = AttentionGuidanceConfig()

    precision: Precision = Precision.BF16
    device: str = "auto"
    """A PyTorch device, or `auto`: the first GPU if there is one."""

    compile: bool = False
    """Compile the layers first (`torch.compile`): minutes of waiting for faster steps. On a CPU it needs g++."""

    accumulation_batches: int = Field(0, ge=0)
    """Batches of one update over all processes (gradient accumulation); each process accumulates its share.

    A step is then trained on the same batches whatever the number of processes. 0 = one batch for each process.
    """

    prefetch: bool = True
    """Collate the next batch on another thread during a step."""

    full_bandwidth_hz: int = Field(24_000, gt=0)
    """Recordings with at least this true sample rate (Hz) get the highest quality prefix: the codec has no more."""

    input_token_noise: float = Field(0.0, ge=0.0, lt=1.0)
    """Ratio of input codes that are replaced by random codes of their level; targets stay.

    In generation a model continues from its own errors, which do not occur in teacher-forced training.
    """

    guidance_distillation_scale: float = Field(1.0, ge=1.0, le=100.0)
    """Scale of the classifier-free guidance that is distilled from the initial weights (`guidance_distillation`).

    The model is then trained on the teacher's distribution instead of the recordings. 1 = no distillation.
    """

    phone_embedding_lr_scale: float = Field(1.0, gt=0.0)
    """Learning rate of the embeddings of phones, relative to that of all other weights, where the tokenizer has phones.
    New embeddings need a far larger rate than weights that are trained already. The embeddings of letters do not change
    where it is not 1.
    """

    letters_distillation: LettersDistillationConfig | None = None
    """None = the recordings are the targets, whatever the text."""

    validation_patches: int = Field(20_000, gt=0)
    """Approximate number of patches of the validation split that are scored."""


class TrainedConfig(Config):
    """The part of `config.json` that every run folder with a MARS6 has, whatever the training was."""

    model_config = ConfigDict(extra="ignore")

    model: Mars6Config
