"""`RunConfig`: everything that decides a run, as one frozen tree."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from mmrl.config.actor import ActorConfig
from mmrl.config.algorithm import AlgorithmConfig, GrpoConfig
from mmrl.config.base import ConfigModel, PathText, default_type
from mmrl.config.checkpoint import CheckpointConfig
from mmrl.config.critic import CriticConfig
from mmrl.config.data_reading import DataReadingConfig
from mmrl.config.evaluation import EvalConfig
from mmrl.config.lora import LoraConfig
from mmrl.config.offline import RewardModelTraining, SftConfig
from mmrl.config.optim import ModelPart, OptimConfig
from mmrl.config.placement import PlacementConfig
from mmrl.config.preference import DpoConfig, PreferenceConfig
from mmrl.config.record import RecordConfig
from mmrl.config.reward import RewardConfig
from mmrl.config.rollout import RolloutConfig

StageName = Literal["rollout", "reward", "filter", "reference", "old_logprobs", "values", "advantages"]


class ModelConfig(ConfigModel):
    path: PathText
    """Folder or hub name of the model that is trained."""
    dtype: Literal["float32", "bfloat16", "float64"] = "bfloat16"
    """Precision of forward and backward passes. The optimiser keeps float32 master weights; float64, which is for
    checks of exactness, keeps float64 ones."""
    freeze: tuple[ModelPart, ...] = ()
    """Parts that are not trained: vision (the tower), projector (the merger), language."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the model runs; auto takes the GPU when there is one."""
    lora: LoraConfig | None = None
    """Train an adapter beside the frozen weights, such as {rank: 16, alpha: 32, targets: [language]}; null trains the
    weights themselves."""


class ImageConfig(ConfigModel):
    min_pixels: int = Field(3136, ge=1)
    """Smaller images are enlarged to this many pixels."""
    max_pixels: int = Field(1003520, ge=1)
    """Larger images are shrunk to this many pixels."""

    @model_validator(mode="after")
    def _ordered(self) -> ImageConfig:
        if self.min_pixels > self.max_pixels:
            raise ValueError(
                f"min_pixels ({self.min_pixels}) is above max_pixels ({self.max_pixels}); swap or raise one"
            )
        return self


class DataPartConfig(ConfigModel):
    """One of several data sets that a run trains on."""

    name: PathText
    """A data set, in the forms of data.train."""
    weight: float = Field(1.0, gt=0)
    """How often its samples are drawn, against the weights of the others; each set has epochs of its own."""


def _one_or_several(value: object) -> str:
    return "several" if isinstance(value, list | tuple | dict) else "one"


def _not_empty(parts: tuple[DataPartConfig, ...]) -> tuple[DataPartConfig, ...]:
    if not parts:
        raise ValueError("is an empty list; name a data set, or several as [{name: a, weight: 3}, {name: b}]")
    return parts


OneOrSeveral = Annotated[
    Annotated[PathText, Tag("one")] | Annotated[tuple[DataPartConfig, ...], AfterValidator(_not_empty), Tag("several")],
    Discriminator(_one_or_several),
]


class DataConfig(DataReadingConfig):
    train: OneOrSeveral
    """Training data: a registered data set as NAME or NAME@SPLIT, a file, or a folder. Several are mixed by weight:
    [{name: a, weight: 3}, {name: b}]."""
    eval: PathText | None = None
    """Held-out data for evaluation, in the same forms."""
    max_prompt_tokens: int = Field(2048, ge=1)
    """Longest prompt, counted after images are expanded."""
    on_overlong: Literal["drop", "error", "resize"] = "drop"
    """What happens to a longer prompt: left out, refused, or its images shrunk until it fits."""
    max_images: int | None = Field(None, ge=1)
    """Most images in a prompt; a run with a prompt that has more is refused before it starts. Null sets no limit."""
    image: ImageConfig = ImageConfig()
    """Limits of image size."""
    shuffle: bool = True
    """Draw the samples in a new random order each epoch."""

    @property
    def train_parts(self) -> tuple[DataPartConfig, ...]:
        """The data sets of `train` with their weights; one alone has weight 1."""
        return (DataPartConfig(name=self.train),) if isinstance(self.train, str) else self.train


class TrainConfig(ConfigModel):
    steps: int = Field(500, ge=1)
    """Steps of the loop."""
    mini_batches: int = Field(1, ge=1)
    """Optimiser steps that each step's rollouts are divided into."""
    epochs: int = Field(1, ge=1)
    """Passes over each step's rollouts."""
    micro_batch_tokens: int = Field(16384, ge=1)
    """Most tokens (prompts once a group, plus responses) in one forward and backward pass."""
    gradient_checkpointing: bool = False
    """Keep only the inputs of layers and vision blocks, and compute them again going backward: less memory, about a
    third more work."""
    kept_responses_mb: int = Field(512, ge=0)
    """Memory in MiB for what the engine `hf` has computed of responses while it sampled them and the update of the same
    weights need not compute again, in float32 on the CPU. Room is made for responses of the full length; 0 keeps
    nothing."""
    path: Literal["prefix", "plain", "packed"] = "prefix"
    """prefix forwards a group's prompt and images once; plain forwards them with every response; packed does too, but
    puts them one behind the other in one row without padding, for samples of a single answer."""


class CanaryConfig(ConfigModel):
    """Bounds on the disagreement of sampler and actor, checked at every step before weights move."""

    max_kl: float = Field(0.05, gt=0)
    """Largest mean KL (k3) between sampler and actor."""
    gap: float = Field(0.2, gt=0)
    """A token whose logprobs differ by more counts as disagreeing."""
    max_share: float = Field(0.05, gt=0, le=1)
    """Largest share of disagreeing tokens."""
    max_gap_float32: float = Field(1e-3, gt=0)
    """Largest gap of any token when the model runs in float32."""


class RewardRunnerConfig(ConfigModel):
    workers: int = Field(2, ge=1)
    """Processes for rewards that may hang or crash."""
    max_failure_rate: float = Field(0.5, gt=0, le=1)
    """A step in which a reward fails on a larger share of the responses stops the run."""
    try_rows: int = Field(4, ge=0)
    """Rows of the data whose answers, and empty, wrong and malformed ones, are scored before a run starts, to warn of
    rewards that cannot tell them apart; 0 tries none."""
    memory_mb: int = Field(4096, ge=256)
    """Memory that each of these processes may take, in MiB; a response whose reward needs more counts as failed."""


class StageConfig(ConfigModel):
    """A stage of the user's own in the loop."""

    after: StageName
    """The stage that it follows."""
    path: PathText
    """The Python file that holds the class."""
    name: str
    """The class."""
    arguments: dict[str, object] = {}
    """Keyword arguments of its constructor."""
    pool: str | None = None
    """The pool whose workers it runs on, as the @dispatch of its `__call__` says; null runs it in the process of the
    trainer."""


class RunConfig(ConfigModel):
    name: str = Field(..., min_length=1)
    """Name of the run, for people."""
    kind: Literal["rl", "sft", "preference", "reward_model"] = "rl"
    """rl trains on rewards of sampled responses; sft on the reference answers; preference on pairs of a chosen and a
    rejected answer, or answers judged good or bad; reward_model trains a model that scores answers, on pairs."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Everything random in the run follows from it."""
    model: ModelConfig
    """The model that is trained."""
    data: DataConfig
    """What it is trained and evaluated on."""
    algorithm: Annotated[AlgorithmConfig, default_type("grpo")] = GrpoConfig()
    """How rewards become updates (kind rl)."""
    critic: CriticConfig | None = None
    """The critic of ppo and vapo, which have one with its defaults where this is not given; null for the others."""
    reward: tuple[RewardConfig, ...] = ()
    """Functions whose weighted sum is the reward; evaluation uses them too."""
    reward_runner: RewardRunnerConfig = RewardRunnerConfig()
    """How reward functions are run."""
    rollout: RolloutConfig = RolloutConfig()
    """How responses are sampled."""
    sft: SftConfig = SftConfig()
    """Settings of kind sft."""
    preference: Annotated[PreferenceConfig, default_type("dpo")] = DpoConfig()
    """How preferences become updates (kind preference)."""
    reward_model: RewardModelTraining = RewardModelTraining()
    """Settings of kind reward_model."""
    optim: OptimConfig = OptimConfig()
    """The optimiser."""
    train: TrainConfig = TrainConfig()
    """How long, and in what portions."""
    eval: EvalConfig = EvalConfig()
    """When and how the held-out data is answered."""
    checkpoint: CheckpointConfig = CheckpointConfig()
    """When checkpoints are written and which are kept."""
    canary: CanaryConfig = CanaryConfig()
    """When sampler and actor disagree too much to go on."""
    record: RecordConfig = RecordConfig()
    """What is kept of the samples."""
    actor: ActorConfig = ActorConfig()
    """How the models lie on the ranks that train them."""
    placement: PlacementConfig = PlacementConfig()
    """Which processes there are and what lives in them."""
    stages: tuple[StageConfig, ...] = ()
    """Stages of the user's own."""
    track: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = ()
    """Trackers that metrics are sent to besides the run directory."""

    @classmethod
    def load(cls, path: str | Path, overrides: Sequence[str] = ()) -> RunConfig:
        """The config in a YAML file with `key=value` overrides; `mmrl.config.load_config` tells origins too.

        Raises NotFoundError if there is no such file, and ConfigError that lists all that is wrong with it or names
        another kind.
        """
        from mmrl.config.loading import load_config

        return load_config(path, overrides).of(cls)

    @property
    def critic_warmup_steps(self) -> int:
        """First steps in which only the critic learns; 0 without one."""
        if self.kind != "rl" or not self.algorithm.needs_critic:
            return 0
        own = None if self.critic is None else self.critic.warmup_steps
        return self.algorithm.critic_warmup_steps if own is None else own

    @model_validator(mode="after")
    def _fits_together(self) -> RunConfig:
        from mmrl.config.run_checks import check_run

        check_run(self)
        return self
