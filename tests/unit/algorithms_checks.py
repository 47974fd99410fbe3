"""What every algorithm is checked for: agreement with its plain version, and invariance to how a batch is cut up."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import algorithms_oracle as oracle
import pytest
import torch

from mmrl.algorithms import build_algorithm
from mmrl.batch import GroupBatch, LossOutput, TokenStats
from mmrl.config.algorithm import KlConfig

AGGREGATIONS = ("token_mean", "sequence_mean_token_sum", "sequence_mean_token_mean", "constant")
KL_FORMS = (
    KlConfig(),
    KlConfig(coef=0.1, estimator="k2"),
    KlConfig(coef=0.2, estimator="k3"),
    KlConfig(coef=0.3, estimator="k1", where="reward"),
)

# Two groups. The first response has a tool's answer in its middle; all but the first are padded.
WORKED: oracle.Groups = [
    [oracle.response(1.0, [1.5, None, 1.0, 0.9]), oracle.response(0.0, [0.5, 2.0])],
    [oracle.response(3.0, [1.0, 1.1, 1.3]), oracle.response(1.0, [1.0])],
]


def prepared(config: Any, groups: oracle.Groups) -> tuple[GroupBatch, TokenStats]:
    """The batch with its advantages, and what the actor would give. The response limit is 10."""
    scored = oracle.scored_groups(groups)
    batch = build_algorithm(config, response_limit=10).complete(scored, oracle.group_batch(scored, groups))
    return batch, oracle.token_stats(groups, batch.response_ids.shape[1])


def run(config: Any, groups: oracle.Groups, *, first_update: bool = False) -> tuple[LossOutput, torch.Tensor]:
    """The output of the whole batch as one micro-batch, and the gradient by the logprobs. The response limit is 10."""
    batch, stats = prepared(config, groups)
    objective = build_algorithm(config).objective(batch, response_limit=10, first_update=first_update)
    output = objective(batch, stats)
    output.loss.backward()
    assert stats.logprobs.grad is not None
    return output, stats.logprobs.grad


def means(output: LossOutput) -> dict[str, float]:
    return {name: total / count for name, (total, count) in output.sums.items()}


def shared_settings(draw: random.Random) -> dict[str, Any]:
    """A random choice of what all algorithms share."""
    return {
        "loss_aggregation": draw.choice(AGGREGATIONS),
        "kl": draw.choice(KL_FORMS),
        "entropy_coef": draw.choice([0.0, 0.05]),
    }


def clip_settings(draw: random.Random) -> dict[str, Any]:
    return {
        "clip_low": draw.choice([0.1, 0.2]),
        "clip_high": draw.choice([0.2, 0.28]),
        "dual_clip": draw.choice([None, 1.5, 3.0]),
    }


def check_random_batches(
    make_config: Callable[[random.Random], Any],
    plain_advantages: Callable[[oracle.Groups, Any], list[list[float]]],
    plain_loss: Callable[[oracle.Token, Any], oracle.Dual],
    *,
    num_batches: int = 200,
    change_groups: Callable[[oracle.Groups], oracle.Groups] = lambda groups: groups,
) -> dict[str, float]:
    """Loss and gradient of each batch equal the plain float64 version's. Returns the sums of all metrics.

    change_groups: gives the random groups what an algorithm needs besides.
    """
    totals: dict[str, float] = {}
    for seed in range(num_batches):
        config, groups = make_config(random.Random(seed)), change_groups(oracle.random_groups(seed))
        first_update = seed % 5 == 0
        loss, gradient = oracle.update(
            groups,
            plain_advantages(groups, config),
            config,
            plain_loss,
            response_limit=10,
            first_update=first_update,
        )
        output, actual = run(config, groups, first_update=first_update)
        assert output.loss.item() == pytest.approx(loss, rel=1e-5, abs=1e-6), (seed, config)
        expected = oracle.padded(gradient, actual.shape[1])
        assert torch.allclose(actual, expected, rtol=1e-5, atol=1e-6), (seed, config, actual, expected)
        for name, (total, _) in output.sums.items():
            totals[name] = totals.get(name, 0.0) + total
    return totals


def check_invariance(
    config: Any, *, change_groups: Callable[[oracle.Groups], oracle.Groups] = lambda groups: groups
) -> None:
    """Loss, gradient and metrics do not depend on micro-batches, padding or the order of rows."""
    groups = change_groups(oracle.random_groups(7) + oracle.random_groups(8))
    batch, stats = prepared(config, groups)
    whole, gradient = run(config, groups)
    assert gradient.any()
    objective = build_algorithm(config).objective(batch, response_limit=10, first_update=False)
    for parts, padding in ((1, 3), (2, 0), (batch.num_rows, 2)):
        order = torch.randperm(batch.num_rows, generator=torch.Generator().manual_seed(parts))
        loss, largest = 0.0, 0.0
        sums: dict[str, tuple[float, float]] = {}
        regained = torch.zeros_like(gradient)
        for rows in order.chunk(parts):
            logprobs = widened(stats.logprobs.detach()[rows], padding).requires_grad_()
            assert stats.entropy is not None
            entropy = widened(stats.entropy[rows], padding)
            output = objective(rows_of(batch, rows, padding), TokenStats(logprobs, entropy))
            output.loss.backward()
            assert logprobs.grad is not None
            regained[rows] = logprobs.grad[:, : gradient.shape[1]]
            assert not logprobs.grad[:, gradient.shape[1] :].any()
            loss += output.loss.item()
            largest = max(largest, output.maxima.get("actor/ratio_max", 0.0))
            for name, (total, count) in output.sums.items():
                before = sums.get(name, (0.0, 0.0))
                sums[name] = (before[0] + total, before[1] + count)
        assert loss == pytest.approx(whole.loss.item(), rel=1e-5, abs=1e-7)
        torch.testing.assert_close(regained, gradient, rtol=1e-6, atol=1e-9)
        assert largest == whole.maxima["actor/ratio_max"]
        for name, pair in whole.sums.items():
            assert sums[name] == pytest.approx(pair, rel=1e-5, abs=1e-7), name


def with_values(groups: oracle.Groups, seed: int = 0) -> oracle.Groups:
    """The groups with a critic's values, drawn at random."""
    draw = random.Random(seed)
    return [
        [replace(row, values=[sampled * draw.uniform(-1, 1) for sampled in row.mask]) for row in group]
        for group in groups
    ]


def widened(tensor: torch.Tensor, padding: int) -> torch.Tensor:
    return torch.nn.functional.pad(tensor, (0, padding))


def rows_of(batch: GroupBatch, rows: torch.Tensor, padding: int) -> GroupBatch:
    """The rows in the order given, with columns of padding after them."""
    names = ("response_ids", "response_mask", "old_logprobs", "reference_logprobs", "sampler_logprobs", "advantages")
    optional = ("old_entropy", "values", "returns")
    present = [*names, *(name for name in optional if getattr(batch, name) is not None)]
    tensors = {name: widened(getattr(batch, name)[rows], padding) for name in present}
    if batch.succeeded is not None:
        tensors["succeeded"] = batch.succeeded[rows]
    return batch.with_(
        prompt_of_row=batch.prompt_of_row[rows], response_lengths=batch.response_lengths[rows], **tensors
    )
