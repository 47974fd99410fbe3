"""Config of kind `mark`: responses of a model compared by a reward, as by people, and kept as pairs to learn from."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from mmrl.config.base import ConfigModel
from mmrl.config.evaluate import EvaluateConfig, EvaluatedDataConfig, EvaluatedModelConfig
from mmrl.config.reward import RewardConfig
from mmrl.config.rollout import RolloutConfig
from mmrl.config.run import RewardRunnerConfig


class MarkSettings(ConfigModel):
    """What is compared, and what becomes of it."""

    dataset: str = Field(..., min_length=1)
    """Name of the data set that the pairs are registered under, with the splits `train` and `test`."""
    responses: int = Field(4, ge=2)
    """Responses that are sampled for each prompt."""
    pairs_per_prompt: int = Field(1, ge=1)
    """Most pairs of a prompt: its best response with each that is worse, the worst first."""
    margin: float = Field(0.0, ge=0)
    """The rewards of a pair must differ by more than this; prompts without such a pair are left out."""
    test_share: float = Field(0.1, ge=0, lt=1)
    """Share of the prompts whose pairs are held out as split `test`."""
    max_samples: int | None = Field(None, ge=1)
    """Only the first so many prompts."""
    margin_column: str | None = None
    """Column of the pairs in which by how much the chosen one is better is kept; null keeps none."""


class MarkConfig(ConfigModel):
    name: str = Field(..., min_length=1)
    """Name of the run, for people."""
    kind: Literal["mark"] = "mark"
    """Sampled responses are compared and kept as pairs; nothing is trained."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Seed of the responses and of which pairs are held out."""
    model: EvaluatedModelConfig
    """The model whose responses are compared."""
    data: EvaluatedDataConfig
    """What it is asked: data.eval."""
    reward: tuple[RewardConfig, ...] = Field(..., min_length=1)
    """Functions whose weighted sum says which response is better."""
    reward_runner: RewardRunnerConfig = RewardRunnerConfig()
    """How reward functions are run."""
    rollout: RolloutConfig = RolloutConfig()
    """What samples the responses, at which temperature, and how long they may be."""
    mark: MarkSettings
    """What is compared, and what becomes of it."""

    @model_validator(mode="after")
    def _fits_together(self) -> MarkConfig:
        if self.data.eval is None:
            raise ValueError("data.eval: name the prompts whose responses are compared")
        if self.rollout.temperature == 0:
            raise ValueError("rollout.temperature: at 0 all responses are the same; set it above 0")
        return self

    def as_evaluation(self) -> EvaluateConfig:
        """The sampling and grading of it."""
        answers = {"samples_per_prompt": self.mark.responses, "temperature": self.rollout.temperature}
        shared = {"name", "seed", "model", "data", "reward", "reward_runner", "rollout"}
        return EvaluateConfig.model_validate(
            self.model_dump(include=shared) | {"eval": answers | {"max_samples": self.mark.max_samples}}
        )
