"""The recorded update as plain Python: what a config learns from it, and two steps of it.

The update is of a real run (`record_update.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import Any

import algorithms_oracle as oracle
import algorithms_plain as plain
import torch
from algorithms_oracle import Groups, Response
from algorithms_pairs import COMPARED_ELSEWHERE

from mmrl.config.algorithm import advantage_config

RECORDED = json.loads((Path(__file__).parent / "recorded" / "update.json").read_text())
LIMIT = RECORDED["response_limit"]
STEP = 0.5
"""How far the first step moves the token with the largest gradient."""


def recorded_groups() -> Groups:
    return [
        [
            Response(
                score=sum(value * weight for _, value, weight in row["parts"]),
                mask=row["mask"],
                logprobs=list(row["old"]),
                old=row["old"],
                reference=row["reference"],
                entropy=row["entropy"],
                truncated=row["truncated"],
                sampler=row["sampler"],
                values=row["values"],
                parts=[(name, value, weight) for name, value, weight in row["parts"]],
            )
            for row in group
        ]
        for group in RECORDED["groups"]
    ]


def learned(groups: Groups, config: Any) -> Groups:
    """What the update learns from: the outcome gate, dropping and masking as plain Python."""
    gated = [_gated(group, _gate_of(config)) for group in groups]
    if config.drop_groups_without_spread:
        gated = [group for group in gated if not oracle.without_spread([row.score for row in group])]
    if config.mask_truncated:
        gated = [[_without(row) if row.truncated else row for row in group] for group in gated]
    return [group for group in gated if any(row.num_sampled for row in group)]


def _gate_of(config: Any) -> str:
    return config.outcome_gate or ("off" if config.advantage_type in COMPARED_ELSEWHERE else "shaping")


def plain_estimator(name: str) -> Callable[[Groups, Any], plain.Advantages]:
    if name in plain.ESTIMATORS:
        return plain.ESTIMATORS[name]
    return import_module(f"test_algorithms_{name}").plain_advantages  # type: ignore[no-any-return]


def plain_loss(config: Any) -> Callable[[oracle.Token], oracle.Dual]:
    if config.policy_loss is None:
        return lambda token: import_module(f"test_algorithms_{config.type}").plain_loss(token, config)
    return lambda token: plain.LOSSES[config.policy_loss.type](token, config.policy_loss)


def _gated(group: list[Response], gate: str) -> list[Response]:
    if gate == "off" or any(row.parts[0][1] > 0 for row in group):
        return group
    if gate == "group":
        means = [fmean(row.parts[index][1] for row in group) for index in range(len(group[0].parts))]
        score = fmean(row.score for row in group)
        return [
            replace(
                row,
                score=score,
                parts=[(name, mean, weight) for (name, _, weight), mean in zip(row.parts, means, strict=True)],
            )
            for row in group
        ]
    kept = [[(n, 0.0 if n == "length" else value, weight) for n, value, weight in row.parts] for row in group]
    return [
        replace(row, parts=parts, score=sum(value * weight for _, value, weight in parts))
        for row, parts in zip(group, kept, strict=True)
    ]


def _without(row: Response) -> Response:
    zeros = [0.0] * len(row.mask)
    columns = dict.fromkeys(("logprobs", "old", "reference", "sampler", "values"), zeros)
    return replace(row, mask=[0] * len(row.mask), entropy=zeros, **columns)


class PlainRun:
    """The update of a case as plain Python: weighed advantages, then a step at a time."""

    def __init__(self, config: Any) -> None:
        self.config = config
        groups = learned(recorded_groups(), config)
        self.learned = groups
        advantages = plain_estimator(config.advantage_type or "file")(groups, advantage_config(config))
        weighed, kept = self._weighed(groups, advantages)
        threshold = None
        if config.entropy_top_share is not None:
            threshold = plain.tokens_of_highest_entropy(kept, config.entropy_top_share)
        self.groups = kept
        self.advantages = [
            [
                [
                    0.0 if threshold is not None and entropy < threshold else value
                    for value, entropy in zip(values, row.entropy, strict=True)
                ]
                for row, values in zip(group, of_group, strict=True)
            ]
            for group, of_group in zip(kept, weighed, strict=True)
        ]

    def _weighed(self, groups: Groups, advantages: plain.Advantages) -> tuple[plain.Advantages, Groups]:
        weighed, kept = [], []
        for group, of_group in zip(groups, advantages, strict=True):
            weighed.append([])
            kept.append([])
            for row, value in zip(group, of_group, strict=True):
                weights, keep = plain.correction_weights(row, self.config.correction)
                values = [oracle.at(value, position) for position in range(len(row.mask))]
                weighed[-1].append([weight * one for weight, one in zip(weights, values, strict=True)])
                kept[-1].append(row if keep else replace(row, mask=[0] * len(row.mask)))
        return weighed, kept

    def step(self, *, first: bool, kl_coef: float, entropy_coef: float) -> tuple[float, torch.Tensor]:
        """Loss and gradient at the current logprobs; the step is then made."""
        config = SteppedConfig(self.config, kl_coef, entropy_coef)
        loss, gradient = oracle.update(
            self.groups,
            self.advantages,
            config,
            lambda token, _: plain_loss(self.config)(token),
            response_limit=LIMIT,
            first_update=first,
        )
        largest = max((abs(slope) for row in gradient for slope in row), default=0.0) or 1.0
        rows = [row for group in self.groups for row in group]
        for row, slopes in zip(rows, gradient, strict=True):
            row.logprobs = [value - STEP * slope / largest for value, slope in zip(row.logprobs, slopes, strict=True)]
        return loss, oracle.padded(gradient, max(map(len, gradient), default=0))


class SteppedConfig:
    """The config with the weights that a step is made with."""

    def __init__(self, config: Any, kl_coef: float, entropy_coef: float) -> None:
        self.kl = config.kl.model_copy(update={"coef": kl_coef})
        self.entropy_coef = entropy_coef
        self.loss_aggregation = config.loss_aggregation
