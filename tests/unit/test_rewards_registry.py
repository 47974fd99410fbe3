from __future__ import annotations

import subprocess
import sys
from typing import get_args

from mmrl.config.reward import ExactRewardConfig, RewardConfig
from mmrl.rewards.base import Reward
from mmrl.rewards.registry import REWARDS, build_reward, reward_class


def test_the_tags_of_the_config_union_equal_the_registry_names() -> None:
    members = get_args(get_args(RewardConfig)[0])
    tags = {member.model_fields["type"].default for member in members}
    assert tags == set(REWARDS)
    assert len(members) == len(tags)


def test_every_config_class_says_what_its_reward_and_fields_mean() -> None:
    for member in get_args(get_args(RewardConfig)[0]):
        assert member.__doc__, member
        for name, field in member.model_fields.items():
            assert field.description, f"{member.__name__}.{name}"


def test_rewards_that_run_in_processes_have_a_deadline() -> None:
    members = {member.model_fields["type"].default: member for member in get_args(get_args(RewardConfig)[0])}
    for name in REWARDS:
        reward = reward_class(name)
        assert issubclass(reward, Reward)
        if reward.isolated:
            assert "timeout_s" in members[name].model_fields


def test_a_config_becomes_its_reward() -> None:
    assert type(build_reward(ExactRewardConfig())) is reward_class("exact")


def test_importing_rewards_loads_no_torch_and_no_sympy() -> None:
    names = "('torch', 'transformers', 'sympy', 'scipy')"
    code = f"import sys, mmrl.rewards.runner.server; print([name for name in {names} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
