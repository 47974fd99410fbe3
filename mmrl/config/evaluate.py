"""Config of kind `evaluate`: held-out prompts answered by a model that exists, graded, and nothing trained."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from mmrl.config.base import ConfigModel, PathText
from mmrl.config.data_reading import DataReadingConfig
from mmrl.config.evaluation import AnswerConfig
from mmrl.config.reward import RewardConfig
from mmrl.config.rollout import RolloutConfig
from mmrl.config.run import ImageConfig, RewardRunnerConfig, RunConfig


class EvaluatedModelConfig(ConfigModel):
    path: PathText
    """The model: a folder, a name on the hub, or a checkpoint as RUN, RUN@STEP, RUN@best or its folder."""
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    """Precision of forward passes."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the model runs; auto takes the GPU when there is one."""


class EvaluatedDataConfig(DataReadingConfig):
    eval: PathText | None = None
    """The prompts: a registered data set as NAME or NAME@SPLIT, a file, or a folder."""
    image: ImageConfig = ImageConfig()
    """Limits of image size."""


class EvaluateSettings(AnswerConfig):
    """What is asked and what it is compared with; the rest as in `eval` of a training run."""

    panel: str | None = None
    """A panel of frozen prompts and settings that was kept, in place of data.eval and of the settings here."""
    save_panel: str | None = None
    """The name under which prompts and settings are kept as a panel; null names it by its hash."""
    max_samples: int | None = Field(None, ge=1)
    """Only the first so many prompts."""
    against: PathText | None = None
    """A checkpoint that was evaluated on the same panel, or the id of an evaluation: the difference is tested prompt by
    prompt."""


class EvaluateConfig(ConfigModel):
    name: str = Field(..., min_length=1)
    """Name of the run, for people."""
    kind: Literal["evaluate"] = "evaluate"
    """Held-out prompts are answered and graded; nothing is trained."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Seed of sampled responses."""
    model: EvaluatedModelConfig
    """The model that answers."""
    data: EvaluatedDataConfig = EvaluatedDataConfig()
    """What it is asked."""
    reward: tuple[RewardConfig, ...] = Field(..., min_length=1)
    """Functions that grade the answers; the first that does not only shape says which are right."""
    reward_runner: RewardRunnerConfig = RewardRunnerConfig()
    """How reward functions are run."""
    rollout: RolloutConfig = RolloutConfig()
    """What samples the responses, and how long they may be."""
    eval: EvaluateSettings = EvaluateSettings()
    """How prompts are answered."""
    track: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = ()
    """Trackers that the metrics are sent to besides the run directory."""

    @classmethod
    def load(cls, path: str | Path, overrides: Sequence[str] = ()) -> EvaluateConfig:
        """The config in a YAML file with `key=value` overrides. Raises as `load_config` does, and ConfigError for
        another kind."""
        from mmrl.config.loading import load_config

        return load_config(path, overrides).of(cls)

    @model_validator(mode="after")
    def _has_prompts(self) -> EvaluateConfig:
        if (self.data.eval is None) == (self.eval.panel is None):
            got = "neither" if self.data.eval is None else "both"
            raise ValueError(f"data.eval: give data.eval or eval.panel, one of them (got {got})")
        return self

    def as_run(self) -> RunConfig:
        """The settings as those of a run, for engines, which take them from one."""
        data = {name: value for name, value in self.data.model_dump().items() if name != "eval"}
        answers = self.eval.model_dump(include=set(AnswerConfig.model_fields))
        return RunConfig.model_validate(
            {
                "name": self.name,
                "seed": self.seed,
                "model": self.model.model_dump(),
                "data": {**data, "train": self.data.eval or "panel", "eval": self.data.eval},
                "reward": [reward.model_dump() for reward in self.reward],
                "reward_runner": self.reward_runner.model_dump(),
                "rollout": self.rollout.model_dump(),
                "eval": {**answers, "max_samples": self.eval.max_samples},
            }
        )
