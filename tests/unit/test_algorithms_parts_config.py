"""Parts of algorithms that are chosen by themselves: what is refused at load, where, and with which reason."""

from __future__ import annotations

from typing import Any

import pytest

from mmrl.config import build_config
from mmrl.config.algorithm import AlgorithmConfig, advantage_config, algorithm_types
from mmrl.errors import ConfigError

RUN = {
    "name": "case",
    "model": {"path": "model"},
    "data": {"train": "digits"},
    "reward": [{"type": "exact"}],
    "rollout": {"prompts_per_step": 4},
}


def algorithm(*overrides: str) -> AlgorithmConfig:
    return build_config(RUN, list(overrides)).config.algorithm


REFUSED = {
    "an algorithm that does not exist": (
        ["algorithm.advantage=rlo"],
        r"algorithm\.advantage\.type: got 'rlo'; allowed: .*; did you mean 'rloo'\?",
    ),
    "two sources of advantages": (
        ["algorithm.advantage={type: rloo, path: my.py}"],
        r"type 'rloo' and path 'my\.py' name two sources of advantages",
    ),
    "a function without its file": (
        ["algorithm.advantage={name: mine}"],
        r"name 'mine' is a function, so it needs the path",
    ),
    "arguments of nothing": (["algorithm.advantage={arguments: {x: 1}}"], "give type or path too"),
    "arguments that the other algorithm does not have": (
        ["algorithm.advantage={type: rloo, arguments: {gama: 1}}"],
        r"advantage 'rloo' does not go with the other settings: gama: Extra inputs are not permitted",
    ),
    "gpg's scale with dropping": (
        ["algorithm.advantage=gpg", "algorithm.drop_groups_without_spread=true"],
        r"advantage 'gpg' does not go with the other settings: drop_groups_without_spread: true .* already scaled up",
    ),
    "gdpo's parts with KL in the reward": (
        ["algorithm.advantage=gdpo", "algorithm.kl={coef: 0.1, estimator: k1, where: reward}"],
        r"has no total to take a penalty from",
    ),
    "a critic's advantages without a critic": (
        ["algorithm.advantage=ppo"],
        r"they come from a critic, which the algorithm does not have; use type: ppo",
    ),
    "a critic that nobody asks": (
        ["algorithm={type: ppo, group_size: 4, advantage: rloo}"],
        r"its critic would be trained in vain",
    ),
    "a critic beside a function": (
        ["algorithm={type: ppo, advantage: {path: my.py}}"],
        r"advantage\.path does not go with algorithm 'ppo', whose critic would be trained in vain",
    ),
    "a greedy response that is not sampled": (["algorithm.advantage=remax"], "does not sample; use type: remax"),
    "greedy responses that nobody asks for": (
        ["algorithm={type: remax, group_size: 4, advantage: rloo}"],
        "greedy responses would be sampled in vain",
    ),
    "a group of one for a group's baseline": (
        ["algorithm={type: reinforce_plus_plus, advantage: rloo}"],
        r"they need group_size >= 2 \(got 1\)",
    ),
    "a loss that does not exist": (
        ["algorithm.policy_loss.type=gspa"],
        r"algorithm\.policy_loss\.type: got 'gspa'; allowed: clip, gspo, cispo, sapo, plain; did you mean 'gspo'\?",
    ),
    "a setting of the loss that another replaces": (
        ["algorithm.policy_loss=gspo", "algorithm.clip_high=0.3"],
        r"clip_high is of the loss that algorithm 'grpo' has of its own, and policy_loss 'gspo' stands in its place",
    ),
    "a cap that another loss replaces": (
        ["algorithm={type: cispo, cap: 3, policy_loss: clip}"],
        "cap is of the loss that algorithm 'cispo' has",
    ),
    "a cap below one": (
        ["algorithm.policy_loss={type: cispo, cap: 0.28}"],
        r"algorithm\.policy_loss\.cap: got 0\.28; must be >= 1",
    ),
    "k1 in the loss": (
        ["algorithm.kl={coef: 0.1, estimator: k1}"],
        "k1 has zero expected gradient in the loss",
    ),
    "k3 in the reward": (
        ["algorithm.kl={coef: 0.1, where: reward}"],
        "in the reward only estimator k1 is right",
    ),
    "a steered KL weight of zero": (["algorithm.kl.target=0.1"], "0 stays 0; set coef"),
    "a horizon of a fixed weight": (["algorithm.kl={coef: 0.1, horizon: 5}"], "set target too"),
    "a KL penalty of masked responses": (
        ["algorithm.mask_truncated=true", "algorithm.kl={coef: 0.1, estimator: k1, where: reward}"],
        "has no log-probabilities to take its penalty from",
    ),
    "an entropy weight beyond its bound": (
        ["algorithm.entropy_coef=1.0", "algorithm.entropy_target={entropy: 0.3}"],
        r"entropy_coef 1 is above entropy_target\.max_coef 0\.1",
    ),
    "no token at all": (["algorithm.entropy_top_share=0"], r"entropy_top_share: got 0.*must be > 0"),
    "a correction beside top_p": (
        ["algorithm.correction.weight=tis", "rollout.top_p=0.9"],
        r"algorithm\.correction: does not go with rollout\.top_p \(got 0\.9\)",
    ),
    "a sequence mask beside top_k": (
        ["algorithm.correction.sequence_mask=2", "rollout.top_k=20"],
        r"does not go with rollout\.top_k \(got 20\), which keeps the sampler from some tokens",
    ),
    "icepop's bounds for tis": (
        ["algorithm.correction={weight: tis, low: 0.3}"],
        "low has no meaning with weight tis; it belongs to icepop",
    ),
    "a cap without a weight": (["algorithm.correction.cap=3"], "cap has no meaning with weight null"),
    "bounds that keep nothing": (
        ["algorithm.correction={weight: icepop, low: 2, high: 1}"],
        r"low \(2\) is above high \(1\)",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_go_together_is_refused_with_the_reason(case: str) -> None:
    overrides, reason = REFUSED[case]
    with pytest.raises(ConfigError, match=reason):
        algorithm(*overrides)


def test_a_bare_word_names_another_algorithm_or_loss() -> None:
    config: Any = algorithm("algorithm={type: grpo, advantage: rloo, policy_loss: gspo}")
    assert config.advantage_type == "rloo"
    assert (config.policy_loss.type, config.policy_loss.clip_high) == ("gspo", 4e-4)
    assert algorithm("algorithm.type=sapo").advantage_type == "sapo"
    assert algorithm("algorithm.advantage.path=my.py").advantage_type is None


def test_the_other_algorithm_gets_what_both_share_and_its_own_arguments() -> None:
    config = algorithm(
        "algorithm={type: ppo, advantage: {type: vapo, arguments: {length_alpha: 0.5}}, "
        "kl: {coef: 0.2, where: reward, estimator: k1}}"
    )
    other: Any = advantage_config(config)
    assert (other.type, other.length_alpha, other.kl.coef, other.group_size) == ("vapo", 0.5, 0.2, 1)


def test_discount_and_whitening_are_those_of_the_run_whoever_gives_the_advantages() -> None:
    config = algorithm("algorithm={type: ppo, gamma: 0.5, whiten: false, advantage: vapo}")
    other: Any = advantage_config(config)
    assert (other.gamma, other.whiten) == (0.5, False)


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("type: ppo, lam: 0.5", "lam", 0.5),
        ("type: dapo, overlong_penalty: 5, overlong_buffer: 0", "overlong_buffer", 0),
    ],
)
def test_an_algorithm_that_names_itself_keeps_its_settings(text: str, name: str, value: float) -> None:
    kind = text.split(",")[0].removeprefix("type: ")
    config = algorithm(f"algorithm={{{text}, advantage: {kind}}}")
    assert getattr(advantage_config(config), name) == value


def test_every_algorithm_may_take_the_advantages_of_itself() -> None:
    for name in algorithm_types():
        rewards = "reward=[{type: exact}, {type: format}]"
        assert algorithm(f"algorithm={{type: {name}, advantage: {name}}}", rewards).advantage_type == name


def test_sampling_that_cuts_nothing_goes_with_every_correction() -> None:
    for correction in ("{weight: tis}", "{weight: icepop, level: sequence}", "{sequence_mask: 2}"):
        assert algorithm(f"algorithm.correction={correction}", "rollout.temperature=0.7").correction.is_on
    assert not algorithm("rollout.top_p=0.9").correction.is_on
