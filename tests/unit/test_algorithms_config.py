"""The config of algorithms against their registry, and combinations that are refused."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, get_args

import pytest
from pydantic import TypeAdapter, ValidationError

from mmrl.algorithms import ALGORITHMS, build_algorithm
from mmrl.config import RunConfig
from mmrl.config.algorithm import AlgorithmConfig

RUN = {
    "name": "case",
    "model": {"path": "model"},
    "data": {"train": "digits"},
    "reward": [{"type": "exact"}],
    "rollout": {"prompts_per_step": 4},
}


def config_classes() -> list[Any]:
    union, _ = get_args(AlgorithmConfig)
    return list(get_args(union))


def run_config(**algorithm: Any) -> RunConfig:
    return RunConfig.model_validate({**RUN, "algorithm": algorithm})


def test_config_tags_equal_registry_names() -> None:
    tags = [config_class.model_fields["type"].default for config_class in config_classes()]
    assert sorted(tags) == sorted(ALGORITHMS)


def test_every_algorithm_is_built_from_the_defaults_of_its_type() -> None:
    for name, algorithm_class in ALGORITHMS.items():
        config: Any = TypeAdapter(AlgorithmConfig).validate_python({"type": name})
        algorithm = build_algorithm(config)
        assert type(algorithm) is algorithm_class
        assert algorithm.config is config


def test_every_field_of_every_algorithm_says_what_it_means() -> None:
    for config_class in config_classes():
        for name, field in config_class.model_fields.items():
            assert name == "type" or field.description, f"{config_class.__name__}.{name}"


@pytest.mark.parametrize("package", ["mmrl.config", "mmrl.config.algorithm"])
def test_config_imports_no_torch(package: str) -> None:
    code = f"import {package}, sys; raise SystemExit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_k1_in_the_loss_is_refused() -> None:
    with pytest.raises(ValidationError, match="k1 has zero expected gradient in the loss"):
        run_config(type="grpo", kl={"coef": 0.1, "estimator": "k1", "where": "loss"})


@pytest.mark.parametrize("estimator", ["k2", "k3"])
def test_only_k1_is_taken_from_the_reward(estimator: str) -> None:
    with pytest.raises(ValidationError, match="in the reward only estimator k1 is right"):
        run_config(type="dr_grpo", kl={"coef": 0.1, "estimator": estimator, "where": "reward"})


def test_t03_a_group_of_one_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"needs group_size >= 2 \(got 1\)"):
        run_config(type="grpo", group_size=1)


def test_t03_a_group_larger_than_the_prompts_of_a_step_is_fine() -> None:
    # Steps count prompts, each with a whole group, so a batch can never cut a group.
    config = run_config(type="grpo", group_size=8)
    assert config.rollout.prompts_per_step * config.algorithm.group_size == 32


def test_masking_truncated_responses_does_not_go_with_kl_in_the_reward() -> None:
    kl = {"coef": 0.1, "estimator": "k1", "where": "reward"}
    with pytest.raises(ValidationError, match=r"mask_truncated: true does not go with kl\.where: reward"):
        run_config(type="grpo", mask_truncated=True, kl=kl)
    assert run_config(type="grpo", mask_truncated=True, kl={"coef": 0.1}).algorithm.mask_truncated


def test_a_function_in_remax_may_ask_for_the_gate() -> None:
    own = {"type": "remax", "group_size": 4, "advantage": {"path": "my.py"}}
    assert run_config(**own).algorithm.gate == "off"
    assert run_config(**own, outcome_gate="shaping").algorithm.gate == "shaping"
    assert run_config(**own, outcome_gate="group").algorithm.gate == "group"
    with pytest.raises(ValidationError, match="outcome_gate: shaping acts where"):
        run_config(type="remax", outcome_gate="shaping")


@pytest.mark.parametrize("name", ["ppo", "vapo", "reinforce_plus_plus", "remax"])
def test_it_does_where_a_masked_response_is_in_no_group(name: str) -> None:
    settings = {"type": name, "mask_truncated": True, "kl": {"coef": 0.1, "estimator": "k1", "where": "reward"}}
    assert run_config(**settings, **{} if name == "remax" else {"group_size": 2}).algorithm.mask_truncated
    if name == "reinforce_plus_plus":
        with pytest.raises(ValidationError, match=r"mask_truncated: true does not go with kl\.where: reward"):
            run_config(**settings, group_size=2, advantage="rloo")


@pytest.mark.parametrize(
    ("field", "value"),
    [("clip_low", 0.0), ("clip_low", 1.0), ("clip_high", 0.0), ("dual_clip", 1.0), ("loss_aggregation", "mean")],
)
def test_values_out_of_range_are_refused(field: str, value: object) -> None:
    with pytest.raises(ValidationError, match=field):
        run_config(type="grpo", **{field: value})
