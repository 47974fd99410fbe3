"""The settings of rollout engines, and what does not go together."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from mmrl.config.rollout import RolloutConfig
from mmrl.config.run import RunConfig


def run_config(**parts: Any) -> RunConfig:
    model = {"path": "m", "dtype": "float32"} | parts.pop("model", {})
    return RunConfig.model_validate({"name": "r", "model": model, "data": {"train": "t"}, **parts})


@pytest.mark.parametrize(
    ("setting", "value"), [("tensor_parallel", 2), ("kv_cache_gib", 1.0), ("sleep", "never"), ("enforce_eager", True)]
)
def test_settings_of_vllm_are_refused_with_another_engine(setting: str, value: object) -> None:
    with pytest.raises(
        ValidationError, match=rf"{setting} is a setting of engine 'vllm' .* or set rollout.engine: vllm"
    ):
        RolloutConfig.model_validate({setting: value})
    assert getattr(RolloutConfig.model_validate({"engine": "vllm", setting: value}), setting) == value


def test_a_dump_with_every_default_of_vllm_is_still_a_config_of_hf() -> None:
    config = RolloutConfig()
    assert RolloutConfig.model_validate(config.model_dump()) == config


def test_vllm_does_not_compute_in_float64() -> None:
    with pytest.raises(ValidationError, match=r"engine 'vllm' computes in float32 or bfloat16 .got float64."):
        run_config(model={"dtype": "float64"}, rollout={"engine": "vllm"})
    assert run_config(model={"dtype": "float64"}).rollout.engine == "hf"
