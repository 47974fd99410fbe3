"""The parts that algorithms are made of, as factors with values, and cases that hold every pair of values together.

A value is the settings that it stands for. Values that no config may hold together are refused at load, see `REFUSED`;
of all others each pair stands side by side in at least one case.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from mmrl.algorithms import ALGORITHMS

Case = dict[str, str]
Pair = frozenset[tuple[str, str]]

ESTIMATORS = (*sorted(ALGORITHMS), "file")
"""The advantages of every algorithm that there is, and the user's function."""
WITH_CRITIC = ("ppo", "vapo")
COMPARED_ELSEWHERE = ("ppo", "reinforce_plus_plus", "remax", "vapo")
"""Estimators that do not compare the responses of a prompt with each other."""
OF_TOKENS = ("ppo", "reinforce_plus_plus", "vapo")
OTHER_HOSTS = {"ppo": "vapo", "vapo": "ppo", "file": "gspo", "grpo": "rloo"}
"""The algorithm that takes an estimator which is not its own; grpo where nothing is said."""
FACTORS: dict[str, dict[str, dict[str, Any]]] = {
    "estimator": {name: {"advantage": {"path": "FILE"} if name == "file" else name} for name in ESTIMATORS},
    "host": {"its own": {}, "another": {}},
    "loss": {
        "clip": {"policy_loss": "clip"},
        "clip higher, dual": {"policy_loss": {"type": "clip", "clip_high": 0.28, "dual_clip": 1.3}},
        "gspo": {"policy_loss": {"type": "gspo", "clip_low": 0.05, "clip_high": 0.05}},
        "cispo": {"policy_loss": {"type": "cispo", "cap": 1.2}},
        "sapo": {"policy_loss": "sapo"},
        "plain": {"policy_loss": "plain"},
        "of sppo": {"type": "sppo"},
    },
    "aggregation": {
        name: {"loss_aggregation": name}
        for name in ("token_mean", "sequence_mean_token_sum", "sequence_mean_token_mean", "constant")
    },
    "correction": {
        "none": {"correction": {}},
        "tis": {"correction": {"weight": "tis", "cap": 1.1}},
        "tis of sequences": {"correction": {"weight": "tis", "level": "sequence"}},
        "icepop": {"correction": {"weight": "icepop", "low": 0.9, "high": 1.2}},
        "icepop of sequences": {"correction": {"weight": "icepop", "level": "sequence"}},
        "sequence mask": {"correction": {"sequence_mask": 1.3}},
        "tis and sequence mask": {"correction": {"weight": "tis", "sequence_mask": 1.5}},
    },
    "kl": {
        "none": {"kl": {"coef": 0}},
        "k2 in the loss": {"kl": {"coef": 0.1, "estimator": "k2", "where": "loss"}},
        "k3 in the loss": {"kl": {"coef": 0.2, "estimator": "k3", "where": "loss"}},
        "k1 in the reward": {"kl": {"coef": 0.3, "estimator": "k1", "where": "reward"}},
        "k3 steered": {"kl": {"coef": 0.2, "estimator": "k3", "where": "loss", "target": 0.001, "horizon": 10}},
        "k1 steered": {"kl": {"coef": 0.2, "estimator": "k1", "where": "reward", "target": 0.1}},
        "k1 in the loss": {"kl": {"coef": 0.1, "estimator": "k1", "where": "loss"}},
        "k3 in the reward": {"kl": {"coef": 0.1, "estimator": "k3", "where": "reward"}},
    },
    "entropy": {
        "none": {},
        "fixed": {"entropy_coef": 0.05},
        "steered": {"entropy_target": {"entropy": 9.0, "step": 0.02}},
        "steered, held back": {"entropy_coef": 0.05, "entropy_target": {"entropy": 1e-3, "step": 0.02}},
    },
    "tokens": {"all": {}, "of high entropy": {"entropy_top_share": 0.4}},
    "groups": {
        "as they are": {"outcome_gate": "off", "drop_groups_without_spread": False},
        "gated as by default": {"drop_groups_without_spread": False},
        "failing ones levelled": {"outcome_gate": "group", "drop_groups_without_spread": False},
        "dropped without spread": {"drop_groups_without_spread": True},
        "truncated masked": {"mask_truncated": True, "drop_groups_without_spread": False},
    },
    "critic": {
        "none": {},
        "clipped": {"critic": {"value_clip": 0.05}},
        "not clipped": {"critic": {"value_clip": None}},
    },
}

_NO_PENALTY = "has no log-probabilities to take its penalty from"
_NO_CRITIC = "has no critic to set"
REFUSED: dict[tuple[str, ...], str] = {
    ("kl: k1 in the loss",): "estimator k1 has zero expected gradient in the loss",
    ("kl: k3 in the reward",): "in the reward only estimator k1 is right",
    ("estimator: online_dpo",): "learns from pairs and has no|which holds the policy to the reference by beta",
    ("estimator: remax", "host: another"): "does not sample; use type: remax",
    ("estimator: gpg", "groups: dropped without spread"): "scaled up for groups without spread",
    ("estimator: gdpo", "groups: dropped without spread"): "responses with the same total may differ in every reward",
    ("estimator: gdpo", "kl: k1 in the reward"): "has no total to take a penalty from",
    ("estimator: gdpo", "kl: k1 steered"): "has no total to take a penalty from",
    ("estimator: gdpo", "kl: k3 in the reward"): "has no total to take a penalty from",
    ("loss: of sppo", "tokens: of high entropy"): "the target of a whole response",
    **{
        ("loss: of sppo", f"correction: {name}"): "the target of a whole response"
        for name in FACTORS["correction"]
        if "tis" in name or "icepop" in name
    },
    **{("estimator: " + name, "loss: of sppo"): "they come from a critic" for name in WITH_CRITIC},
    ("estimator: reinforce_plus_plus", "loss: of sppo"): "they differ from token to token",
    ("estimator: remax", "loss: of sppo"): "does not sample; use type: remax",
    **{
        ("estimator: " + name, f"kl: {kl}", "groups: truncated masked"): _NO_PENALTY
        for name in ESTIMATORS
        if name not in COMPARED_ELSEWHERE
        for kl in ("k1 in the reward", "k1 steered", "k3 in the reward")
    },
    **{
        ("estimator: " + name, "groups: failing ones levelled"): "compared with each other"
        for name in COMPARED_ELSEWHERE
    },
    **{
        (part, f"critic: {critic}"): _NO_CRITIC
        for critic in ("clipped", "not clipped")
        for part in ("loss: of sppo", *("estimator: " + name for name in ESTIMATORS if name not in WITH_CRITIC))
    },
}
"""Parts that no run may hold together, by factor and value, and what the refusal says."""
_RULES = {frozenset(tuple(word.split(": ")) for word in words): reason for words, reason in REFUSED.items()}


def reasons_against(case: Mapping[str, str]) -> list[str]:
    """Why the case is refused; empty if it is not."""
    items = set(case.items())
    return [reason for rule, reason in _RULES.items() if rule <= items]


def completed(case: Mapping[str, str]) -> Case:
    """The case with an estimator that goes with its parts, if there is any."""
    if "estimator" in case:
        return dict(case)
    choices = [{"estimator": name, **case} for name in ("grpo", *ESTIMATORS)]
    return next((choice for choice in choices if not reasons_against(choice)), choices[0])


def settings_of(case: Mapping[str, str]) -> dict[str, Any]:
    """The settings of an algorithm (and `critic`) that hold all values of the case; what it lacks is as in the first
    value, but for the estimator, see `completed`."""
    chosen = {factor: next(iter(values)) for factor, values in FACTORS.items()} | completed(case)
    estimator = chosen["estimator"]
    own = "sapo" if estimator == "file" else estimator
    host = own if chosen["host"] == "its own" else OTHER_HOSTS.get(estimator, "grpo")
    settings: dict[str, Any] = {"type": host, "group_size": 4}
    for factor, value in chosen.items():
        settings |= FACTORS[factor][value]
    if settings["type"] == "dapo" and not settings["drop_groups_without_spread"]:
        settings["sampling_rounds"] = 1
    if settings["type"] == "online_dpo":
        settings["drop_groups_without_spread"] = True
    if settings["type"] == "vapo":
        settings["imitation_coef"] = 0.0
    return settings


def all_pairs() -> Iterator[Pair]:
    for first, second in itertools.combinations(FACTORS, 2):
        for pair in itertools.product(FACTORS[first], FACTORS[second]):
            yield frozenset(zip((first, second), pair, strict=True))


@cache
def allowed_pairs() -> frozenset[Pair]:
    return frozenset(pair for pair in all_pairs() if not reasons_against(completed(dict(pair))))


def pairwise_cases(is_valid: Callable[[Case], bool], *, seed: int = 0) -> list[Case]:
    """Cases that hold every allowed pair: each is built around a pair that is still missing, with the values for the
    other factors that hold most of the missing ones and nothing that is refused. The estimator comes first: each goes
    with the first value of every other factor, so that none is built into a corner."""
    draw, missing, cases = random.Random(seed), set(allowed_pairs()), []
    for pair in sorted(allowed_pairs(), key=sorted):
        if pair not in missing:
            continue
        case: Case = dict(sorted(pair))
        for factor in ("estimator", *draw.sample(list(FACTORS), len(FACTORS))):
            if factor not in case:
                fitting = [value for value in FACTORS[factor] if not reasons_against({**case, factor: value})]
                gains = {value: len(_joined(case, factor, value) & missing) for value in fitting}
                case[factor] = max(fitting, key=lambda value: (gains[value], draw.random()))
        assert is_valid(case), f"no part of {case} is refused, but the whole is"
        missing -= held(case)
        cases.append({factor: case[factor] for factor in FACTORS})
    return cases


def held(case: Mapping[str, str]) -> set[Pair]:
    return {frozenset(pair) for pair in itertools.combinations(case.items(), 2)}


def _joined(case: Case, factor: str, value: str) -> set[Pair]:
    """The pairs that the case gets with one more value."""
    return {frozenset({(factor, value), item}) for item in case.items()}
