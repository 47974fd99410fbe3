"""The parts that algorithms are made of, as factors with values, and cases that hold every pair of values together.

A value is the settings that it stands for. Two values that no config may hold together are refused at load; all others
stand side by side in at least one case.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Case = dict[str, str]
Pair = frozenset[tuple[str, str]]

ESTIMATORS = (
    *("dapo", "dr_grpo", "file", "gdpo", "gpg", "grpo", "opo", "pass_at_k", "ppo", "reinforce_plus_plus"),
    *("reinforce_plus_plus_baseline", "remax", "rloo", "vapo"),
)
"""The algorithms that have an estimator of their own (cispo, gspo and sapo take grpo's), and the user's function."""
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
    },
    "tokens": {"all": {}, "of high entropy": {"entropy_top_share": 0.4}},
    "groups": {
        "as they are": {"outcome_gate": "off", "drop_groups_without_spread": False},
        "shaping left out": {"drop_groups_without_spread": False},
        "failing ones levelled": {"outcome_gate": "group", "drop_groups_without_spread": False},
        "dropped without spread": {"drop_groups_without_spread": True},
        "truncated masked": {"mask_truncated": True, "drop_groups_without_spread": False},
    },
}


def settings_of(case: Mapping[str, str]) -> dict[str, Any]:
    """The settings of an algorithm that hold all values of the case; one that a case lacks is as in the first value."""
    chosen = {factor: case.get(factor, next(iter(values))) for factor, values in FACTORS.items()}
    estimator = chosen["estimator"]
    own = "sapo" if estimator == "file" else estimator
    host = own if chosen["host"] == "its own" else OTHER_HOSTS.get(estimator, "grpo")
    settings: dict[str, Any] = {"type": host, "group_size": 4}
    for factor, value in chosen.items():
        settings |= FACTORS[factor][value]
    if settings["type"] == "dapo" and not settings["drop_groups_without_spread"]:
        settings["sampling_rounds"] = 1
    if settings["type"] == "vapo":
        settings["imitation_coef"] = 0.0
    return settings


def all_pairs() -> Iterator[Pair]:
    for first, second in itertools.combinations(FACTORS, 2):
        for pair in itertools.product(FACTORS[first], FACTORS[second]):
            yield frozenset(zip((first, second), pair, strict=True))


def pairwise_cases(pairs: set[Pair], is_valid: Callable[[Case], bool], *, seed: int = 0) -> list[Case]:
    """Cases that hold every one of `pairs`: each is built around a pair that is still missing, with the values for the
    other factors that hold most of the missing ones and, so far, none of the pairs that are not in `pairs`."""
    draw, missing, cases = random.Random(seed), set(pairs), []
    for pair in sorted(pairs, key=sorted):
        if pair not in missing:
            continue
        case: Case = dict(sorted(pair))
        for factor in draw.sample(list(FACTORS), len(FACTORS)):
            if factor not in case:
                choices = {value: _joined(case, factor, value) for value in FACTORS[factor]}
                fitting = {value: joined for value, joined in choices.items() if joined <= pairs}
                case[factor] = max(fitting, key=lambda value: (len(fitting[value] & missing), draw.random()))
        assert is_valid(case), f"no pair of {case} is refused, but the whole is"
        missing -= held(case)
        cases.append({factor: case[factor] for factor in FACTORS})
    return cases


def held(case: Mapping[str, str]) -> set[Pair]:
    return {frozenset(pair) for pair in itertools.combinations(case.items(), 2)}


def _joined(case: Case, factor: str, value: str) -> set[Pair]:
    """The pairs that the case gets with one more value."""
    return {frozenset({(factor, value), item}) for item in case.items()}
