"""Every pair of parts: refused at load with its reason, or two steps on a recorded update as a plain version has them.

The recorded update is of a real run (`record_update.py`). The policy of these tests has one parameter a token, so that
the second step has ratios, and what bounds them, after a first one that was on policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import algorithms_oracle as oracle
import algorithms_plain as plain
import pytest
import torch
from algorithms_oracle import Groups
from algorithms_pairs import (
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
from algorithms_recorded import LIMIT, RECORDED, STEP, PlainRun, plain_estimator, recorded_groups
from pydantic import ValidationError

from mmrl.algorithms import build_algorithm
from mmrl.algorithms.value_loss import ValueObjective
from mmrl.batch import GroupBatch, TokenStats
from mmrl.config import RunConfig
from mmrl.config.critic import CriticConfig
from mmrl.types import RewardResult

VALUE_STEP = 0.7
"""How far the critic's first step moves a value: beyond every clip of the cases, and on the bound of none."""


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
