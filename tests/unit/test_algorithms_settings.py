"""No setting is accepted that nothing reads: changed, it changes what an update does, or the config is refused.

This goes over every setting that an algorithm has of its own, with its own parts and with another's in their place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import algorithms_oracle as oracle
import pytest
import torch
from algorithms_checks import with_values
from pydantic import TypeAdapter, ValidationError

from mmrl.algorithms import ALGORITHMS, build_algorithm
from mmrl.config.algorithm import AlgorithmConfig, PolicyGradientConfig
from mmrl.config.policy_loss import LOSS_FIELDS
from mmrl.types import RewardPart, RewardResult

LIMIT = 6
"""That of the longest response, so that shaping by length has something to shape."""
SHARED = {*PolicyGradientConfig.model_fields, "type"}
OF_LOSSES = {name for group in LOSS_FIELDS for name in group.model_fields}
"""They matter by the signs of advantages, whoever gives them; those of pass_at_k are never negative."""
LONG = [oracle.response(1.0, [1.3] * LIMIT), oracle.response(0.0, [0.8, 1.2])]
GROUPS = with_values([*oracle.random_groups(8, drift=1.2), LONG])
FINGERPRINTS: dict[str, tuple[Any, ...]] = {}


def loaded(settings: dict[str, Any]) -> Any:
    return TypeAdapter(AlgorithmConfig).validate_python({"group_size": 4, **settings})


def fingerprint(config: Any) -> tuple[Any, ...]:
    """Advantages, returns, loss and gradient of an update whose ratios have moved; the same for the same config."""
    key = config.model_dump_json()
    if key not in FINGERPRINTS:
        algorithm = build_algorithm(config, response_limit=LIMIT)
        scored = [replace(group, greedy_reward=_reward(0.25)) for group in oracle.scored_groups(GROUPS)]
        kept = algorithm.select(scored).groups
        rows = [[GROUPS[int(one.group.sample.id)][each.index] for each in one.group.rollouts] for one in kept]
        batch = algorithm.complete(kept, oracle.group_batch(kept, rows))
        update, _ = algorithm.prepare_update(batch)
        stats = oracle.token_stats(rows, batch.response_ids.shape[1])
        output = algorithm.objective(update, response_limit=LIMIT, first_update=False)(update, stats)
        output.loss.backward()
        assert stats.logprobs.grad is not None
        assert batch.advantages is not None
        returns = [] if batch.returns is None else batch.returns.tolist()
        FINGERPRINTS[key] = (batch.advantages.tolist(), returns, output.loss.item(), stats.logprobs.grad.tolist())
    return FINGERPRINTS[key]


def other_values(config: type[PolicyGradientConfig], name: str) -> Iterator[Any]:
    """Values of a setting that are not its default."""
    field = config.model_fields[name]
    if get_origin(field.annotation) is Literal:
        yield from (value for value in get_args(field.annotation) if value != field.default)
    elif isinstance(field.default, bool):
        yield not field.default
    else:
        yield from (1.1, 1.5) if field.default is None else (field.default * factor for factor in (0.5, 2, 10, 0.1))


def unread(config: type[PolicyGradientConfig], name: str, settings: dict[str, Any]) -> bool:
    """Whether the setting is accepted, and no value of it makes a difference."""
    accepted = False
    for value in other_values(config, name):
        try:
            changed = loaded({**settings, name: value})
        except ValidationError:
            continue
        if fingerprint(changed) != fingerprint(loaded(settings)):
            return False
        accepted = True
    return accepted


def parts_of_others(file: Path) -> Iterator[dict[str, Any]]:
    yield {}
    yield {"policy_loss": "plain"}
    yield {"advantage": {"path": str(file)}}
    yield from ({"advantage": name} for name in ALGORITHMS)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mine") / "mine.py"
    path.write_text("def advantages(group):\n    return group.returns - group.returns.min()\n")
    return path


@pytest.mark.thorough
@pytest.mark.parametrize("host", ALGORITHMS)
def test_no_setting_is_accepted_that_the_chosen_parts_do_not_read(host: str, file: Path) -> None:
    config = type(loaded({"type": host}))
    idle = []
    for parts in parts_of_others(file):
        settings = {"type": host, **parts}
        try:
            loaded(settings)
        except ValidationError:
            continue
        names = (
            config.model_fields.keys() - SHARED - (OF_LOSSES if "advantage" in parts or host == "pass_at_k" else set())
        )
        idle += [(name, parts) for name in names if unread(config, name, settings)]
    assert idle == []


@pytest.mark.thorough
@pytest.mark.parametrize("source", ALGORITHMS)
def test_no_argument_is_accepted_that_the_advantages_of_another_do_not_read(source: str) -> None:
    config = type(loaded({"type": source}))
    idle = []
    for host in ("dr_grpo", "ppo", "vapo"):
        settings = {"type": host, "advantage": {"type": source}}
        try:
            loaded(settings)
        except ValidationError:
            continue
        for name in config.model_fields.keys() - {"type", "kl", "correction", "advantage"}:
            given = [value for value in other_values(config, name) if value is not None]
            accepted = [changed for value in given if (changed := _with_argument(settings, name, value)) is not None]
            if accepted and all(fingerprint(each) == fingerprint(loaded(settings)) for each in accepted):
                idle.append((host, name))
    assert idle == []


def test_the_reasons_say_whose_settings_they_are() -> None:
    for settings, reason in (
        (
            {"type": "dapo", "advantage": "rloo", "overlong_penalty": 0.5},
            r"overlong_penalty is of the advantages that algorithm 'dapo' has of its own, and those of 'rloo' stand in",
        ),
        ({"type": "reinforce_plus_plus", "advantage": "rloo", "gamma": 0.9}, r"gamma is of the advantages"),
        ({"type": "sppo", "advantage": {"path": "my.py"}, "eta": 1.0}, r"those of your function stand in their place"),
        ({"type": "vapo", "policy_lam": 0.9}, r"policy_lam: 0\.9 is for all lengths, and length_alpha 0\.05 makes one"),
        (
            {"type": "ppo", "advantage": {"type": "vapo", "arguments": {"gamma": 0.9}}},
            r"gamma is the run's own; arguments are settings that .* and algorithm 'ppo' does not: length_alpha, pol",
        ),
        (
            {"type": "ppo", "advantage": {"type": "vapo", "arguments": {"critic_lam": 0.9}}},
            r"critic_lam is read by no advantages",
        ),
    ):
        with pytest.raises(ValidationError, match=reason):
            loaded(settings)


def test_what_stands_in_for_a_part_does_not_bring_the_limits_of_that_part() -> None:
    """Each of these is refused of the algorithm's own advantages, or its own loss."""
    for settings in (
        {"type": "gpg", "advantage": "rloo", "drop_groups_without_spread": True},
        {"type": "gdpo", "advantage": "rloo", "kl": {"coef": 0.1, "where": "reward", "estimator": "k1"}},
        {"type": "sppo", "policy_loss": "clip", "correction": {"weight": "tis"}, "entropy_top_share": 0.5},
        {"type": "grpo", "advantage": "sppo", "correction": {"weight": "tis"}, "entropy_top_share": 0.5},
    ):
        assert torch.tensor(fingerprint(loaded(settings))[0]).any()


def _with_argument(settings: dict[str, Any], name: str, value: Any) -> Any:
    try:
        return loaded({**settings, "advantage": {**settings["advantage"], "arguments": {name: value}}})
    except ValidationError:
        return None


def _reward(score: float) -> RewardResult:
    return RewardResult(score, (RewardPart("task", score, 1.0),))
