"""What is refused of critics, sampling and rewards, and with which reason."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from mmrl.config import RunConfig

RUN: dict[str, Any] = {
    "name": "case",
    "model": {"path": "model"},
    "data": {"train": "digits"},
    "reward": [{"type": "exact"}],
    "rollout": {"prompts_per_step": 4},
}


def run_config(algorithm: dict[str, Any], **more: Any) -> RunConfig:
    return RunConfig.model_validate({**RUN, "algorithm": algorithm, **more})


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a critic where none learns": ({"type": "grpo"}, {"critic": {}}, r"critic: algorithm 'grpo' has no critic to set"),
    "a critic in SFT": ({"type": "ppo"}, {"kind": "sft", "critic": {}}, r"critic: kind 'sft' has no critic to set"),
    "a warm-up of the whole run": (
        {"type": "ppo"},
        {"critic": {"warmup_steps": 5}, "train": {"steps": 5}},
        r"critic\.warmup_steps: in the first 5 steps only the critic learns",
    ),
    "vapo's own warm-up in a short run": (
        {"type": "vapo"},
        {"train": {"steps": 20}},
        r"set critic\.warmup_steps below train\.steps \(algorithm 'vapo' has 50 of its own\)",
    ),
    "t03 dapo with one response": ({"type": "dapo", "group_size": 1}, {}, r"'dapo' needs group_size >= 2 \(got 1\)"),
    "t03 gdpo with one response": ({"type": "gdpo", "group_size": 1}, {}, r"'gdpo' needs group_size >= 2 \(got 1\)"),
    "dropping single responses": (
        {"type": "ppo", "drop_groups_without_spread": True},
        {},
        r"compares the responses of a prompt, of which group_size gives 1",
    ),
    "sampling more without dropping": (
        {"type": "grpo", "sampling_rounds": 3},
        {},
        r"sampling_rounds: 3 samples more prompts in place of dropped groups",
    ),
    "length punished twice": (
        {"type": "dapo"},
        {"reward": [{"type": "exact"}, {"type": "overlong", "limit": 10, "buffer": 2}]},
        r"'overlong' would punish length twice",
    ),
    "a total where there is none": (
        {"type": "gdpo"},
        {"reward": [{"type": "exact"}, {"type": "veto", "reward": {"type": "format"}}]},
        r"'veto' sets the total of a response, and algorithm 'gdpo' learns from each reward by itself",
    ),
    "a penalty of a total in gdpo": (
        {"type": "gdpo", "kl": {"coef": 0.1, "estimator": "k1", "where": "reward"}},
        {},
        r"kl\.where: reward does not go with algorithm 'gdpo'",
    ),
    "dropping by a total in gdpo": (
        {"type": "gdpo", "drop_groups_without_spread": True},
        {},
        r"drop_groups_without_spread: true does not go with algorithm 'gdpo'",
    ),
    "a critic's advantages without a critic": (
        {"type": "grpo", "advantage": "ppo"},
        {},
        r"advantage 'ppo' does not go with algorithm 'grpo': they come from a critic",
    ),
    "greedy responses that nobody samples": (
        {"type": "rloo", "advantage": "remax"},
        {},
        r"advantage 'remax' does not go with algorithm 'rloo': they compare with the greedy response",
    ),
    "k3 in the reward": (
        {"type": "ppo", "kl": {"coef": 0.1, "estimator": "k3"}},
        {},
        r"in the reward only estimator k1 is right \(got k3\)",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_with_its_reason(case: str) -> None:
    algorithm, more, reason = REFUSED[case]
    with pytest.raises(ValidationError, match=reason):
        run_config(algorithm, **more)


def test_a_critic_needs_no_section_of_its_own() -> None:
    assert run_config({"type": "ppo"}).critic is None
    assert run_config({"type": "ppo"}).critic_warmup_steps == 0
    assert run_config({"type": "vapo"}).critic_warmup_steps == 50
    assert run_config({"type": "vapo"}, critic={"warmup_steps": 3}).critic_warmup_steps == 3
    assert run_config({"type": "vapo"}, critic={"value_clip": None}).critic_warmup_steps == 50
    assert run_config({"type": "grpo"}).critic_warmup_steps == 0


def test_a_kl_of_ppo_that_is_given_only_its_weight_is_taken_from_the_reward() -> None:
    kl = run_config({"type": "ppo", "kl": {"coef": 0.05}}).algorithm.kl
    assert (kl.coef, kl.estimator, kl.where) == (0.05, "k1", "reward")
    assert run_config({"type": "grpo", "kl": {"coef": 0.05}}).algorithm.kl.where == "loss"
