"""Every pair of parts: refused at load with its reason, or two steps on a recorded update as a plain version has them.

The recorded update is of a real run (`record_update.py`). The policy of these tests has one parameter a token, so that
the second step has ratios, and what bounds them, after a first one that was on policy.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import Any

import algorithms_oracle as oracle
import algorithms_plain as plain
import pytest
import torch
from algorithms_oracle import Groups, Response
from algorithms_pairs import (
    COMPARED_ELSEWHERE,
    ESTIMATORS,
    FACTORS,
    REFUSED,
    Case,
    all_pairs,
    allowed_pairs,
    completed,
    held,
    pairwise_cases,
    reasons_against,
    settings_of,
)
from pydantic import ValidationError

from mmrl.algorithms import build_algorithm
from mmrl.algorithms.value_loss import ValueObjective
from mmrl.batch import GroupBatch, TokenStats
from mmrl.config import RunConfig
from mmrl.config.algorithm import advantage_config
from mmrl.config.critic import CriticConfig
from mmrl.types import RewardResult

RECORDED = json.loads((Path(__file__).parent / "recorded" / "update.json").read_text())
LIMIT = RECORDED["response_limit"]
STEP = 0.5
"""How far the first step moves the token with the largest gradient."""
VALUE_STEP = 0.7
"""The same of values: beyond every clip of the cases, and on the bound of none."""


def load(case: Mapping[str, str], file: str = "mine.py") -> RunConfig:
    settings = settings_of(case)
    if settings.get("advantage") == {"path": "FILE"}:
        settings["advantage"] = {"path": file}
    critic = settings.pop("critic", None)
    data = {
        **({} if critic is None else {"critic": critic}),
        "name": "case",
        "model": {"path": "model"},
        "data": {"train": "digits"},
        "reward": [{"type": "exact"}, {"type": "format"}],
        "algorithm": settings,
    }
    return RunConfig.model_validate(data)


def test_parts_that_do_not_go_together_are_refused_with_the_reason_and_no_others() -> None:
    pairs: list[Mapping[str, str]] = [completed(dict(pair)) for pair in all_pairs()]
    masked = [
        {"estimator": name, "kl": kl, "groups": "truncated masked"} for name in ESTIMATORS for kl in FACTORS["kl"]
    ]
    found = set()
    for case in (*pairs, *masked):
        reasons = reasons_against(case)
        found |= set(reasons)
        if not reasons:
            load(case)
        else:
            with pytest.raises(ValidationError, match="|".join(reasons)):
                load(case)
    assert found == set(REFUSED.values())


CASES = pairwise_cases(lambda case: load(case) is not None)


def test_every_pair_of_parts_is_in_a_case_or_refused() -> None:
    covered = set().union(*map(held, CASES))
    assert covered == allowed_pairs()
    assert {value for case in CASES for value in case.items()} == {
        (factor, value)
        for factor, values in FACTORS.items()
        for value in values
        if not reasons_against({factor: value})
    }


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if not reasons_against({"estimator": name})])
def test_every_algorithm_has_a_plain_version_to_be_compared_with(name: str) -> None:
    """A new one brings `plain_advantages(groups, config)` in its own test."""
    advantages = plain_estimator(name)(recorded_groups(), load({"estimator": name}).algorithm)
    assert [len(group) for group in advantages] == [len(group) for group in RECORDED["groups"]]


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


def test_the_recorded_update_has_what_the_parts_act_on() -> None:
    rows = [row for group in recorded_groups() for row in group]
    assert LIMIT == 9, "the plain dapo counts on it"
    assert any(0 in row.mask for row in rows)
    assert any(row.truncated for row in rows)
    assert not all(row.truncated for row in rows)
    totals = [abs(sum(row.old) - sum(row.sampler)) for row in rows]
    assert min(totals) < 0.26 < max(totals)
    failing = [group for group in recorded_groups() if all(row.parts[0][1] <= 0 for row in group)]
    assert 0 < len(failing) < len(RECORDED["groups"])


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES, ids=lambda case: ", ".join(case.values()))
def test_two_steps_of_each_case_are_those_of_the_plain_version(case: Case, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "def advantages(group):\n    return group.returns - (group.returns.max() + group.returns.min()) / 2\n"
    )
    loaded = load(case, str(file))
    config = loaded.algorithm
    algorithm = build_algorithm(config, response_limit=LIMIT, shaping_parts=["length"])
    groups = recorded_groups()
    greedy = RewardResult(plain.GREEDY_SCORE, ())
    scored = [replace(one, greedy_reward=greedy) for one in oracle.scored_groups(groups)]
    kept = algorithm.select(scored).groups
    batch = oracle.group_batch(kept, [groups[int(one.group.sample.id)] for one in kept])
    completed_batch = algorithm.complete(kept, batch)
    run = PlainRun(config)
    if config.needs_critic:
        check_two_steps_of_the_critic(completed_batch, run.learned, loaded)
    batch, _ = algorithm.prepare_update(completed_batch)
    assert batch.old_logprobs is not None
    logprobs = batch.old_logprobs.clone()
    for first in (True, False):
        weights = {"kl_coef": algorithm.kl_weight.value, "entropy_coef": algorithm.entropy_weight.value}
        current = logprobs.clone().requires_grad_()
        objective = algorithm.objective(batch, response_limit=LIMIT, first_update=first)
        output = objective(batch, TokenStats(current, batch.old_entropy))
        output.loss.backward()
        assert current.grad is not None
        loss, gradient = run.step(first=first, **weights)
        assert output.loss.item() == pytest.approx(loss, rel=1e-5, abs=1e-6)
        torch.testing.assert_close(current.grad, gradient, rtol=1e-4, atol=1e-6)
        logprobs -= STEP * gradient / (float(gradient.abs().max()) or 1.0)
        means = {name: total / count for name, (total, count) in output.sums.items() if count}
        steered = algorithm.observe(means, num_responses=batch.num_rows)
        assert set(steered) == {
            *(["actor/kl_coef"] if config.kl.target else []),
            *(["actor/entropy_coef"] if config.entropy_target else []),
        }


def check_two_steps_of_the_critic(batch: GroupBatch, groups: Groups, config: RunConfig) -> None:
    value_clip = (config.critic or CriticConfig()).value_clip
    objective = ValueObjective(batch, value_clip=value_clip)
    assert batch.values is not None
    values = batch.values.clone()
    for _ in range(2):
        current = values.clone().requires_grad_()
        output = objective(batch, current)
        output.loss.backward()
        responses = [row for group in groups for row in group]
        rows = [row[: len(each.mask)] for row, each in zip(values.tolist(), responses, strict=True)]
        loss, gradient = plain.value_update(groups, rows, config.algorithm, value_clip=value_clip)
        assert output.loss.item() == pytest.approx(loss, rel=1e-5, abs=1e-6)
        assert current.grad is not None
        expected = oracle.padded(gradient, current.shape[1])
        torch.testing.assert_close(current.grad, expected, rtol=1e-4, atol=1e-6)
        values -= VALUE_STEP * expected / (float(expected.abs().max()) or 1.0)


def test_a_policy_loss_by_name_has_the_defaults_of_the_algorithm_that_it_is_from() -> None:
    run = {"name": "case", "model": {"path": "model"}, "data": {"train": "digits"}}
    for name in ("gspo", "cispo", "sapo"):
        own = RunConfig.model_validate({**run, "algorithm": {"type": name}}).algorithm
        other = RunConfig.model_validate({**run, "algorithm": {"type": "grpo", "policy_loss": name}}).algorithm
        assert other.policy_loss is not None
        settings = other.policy_loss.model_dump(exclude={"type"})
        assert settings == {key: getattr(own, key) for key in settings}
