"""GSPO: numbers worked by hand, a plain float64 version, and invariance to how a batch is cut up."""

from __future__ import annotations

import math
import random
from typing import Any

import algorithms_oracle as oracle
import algorithms_plain as plain
import pytest
import torch
from algorithms_checks import (
    AGGREGATIONS,
    WORKED,
    check_invariance,
    check_random_batches,
    means,
    run,
    shared_settings,
)

from mmrl.algorithms.ratio import sequence_log_ratio
from mmrl.config.algorithm import GspoConfig, KlConfig


def random_config(draw: random.Random) -> GspoConfig:
    clip = {
        "clip_low": draw.choice([3e-4, 0.05]),
        "clip_high": draw.choice([4e-4, 0.05]),
        "dual_clip": draw.choice([None, 1.2]),
    }
    return GspoConfig(**shared_settings(draw), **clip)


def test_sequence_ratio_is_the_mean_over_sampled_tokens_and_its_gradient_goes_to_each() -> None:
    logprobs = torch.tensor([[0.3, 0.0, 0.6], [0.5, 0.0, 0.0], [0.0, 0.0, 0.0]], requires_grad=True)
    mask = torch.tensor([[1.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    ratio = sequence_log_ratio(logprobs * mask, logprobs, mask)
    torch.testing.assert_close(ratio * mask, torch.tensor([[0.45, 0, 0.45], [0.5, 0, 0], [0, 0, 0]]))
    (ratio * mask).sum().backward()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == mask.tolist()


def test_loss_and_gradient_on_worked_numbers() -> None:
    # s = (1.5 * 1 * 0.9)^(1/3) = 1.105, (0.5 * 2)^(1/2) = 1, (1 * 1.1 * 1.3)^(1/3) = 1.127 clipped to 1.12, 1
    first, second = 0.5 / (math.sqrt(0.5) + 1e-6), 1 / (math.sqrt(2) + 1e-6)
    ratio = 1.35 ** (1 / 3)
    output, gradient = run(GspoConfig(clip_low=0.2, clip_high=0.12), WORKED)
    assert output.loss.item() == pytest.approx((first * (1 - ratio) + second * (1 - 1.12)) / 4, rel=1e-5)
    a, b, c = -first * ratio / 3, first / 2, second
    expected = torch.tensor([[a, 0, a, a], [b, b, 0, 0], [0, 0, 0, 0], [c, 0, 0, 0]], dtype=torch.float64)
    torch.testing.assert_close(gradient, expected / 4, rtol=1e-6, atol=1e-9)
    # All three tokens of the clipped response are clipped together.
    assert means(output)["actor/clip_fraction_high"] == pytest.approx(3 / 9)
    assert means(output)["actor/clip_fraction_low"] == 0


def test_the_gradient_is_that_of_the_sequence_ratio_itself() -> None:
    logprobs = torch.tensor([[-1.0, -2.0, -0.5]], dtype=torch.float64, requires_grad=True)
    old = torch.tensor([[-1.1, -1.8, -0.9]], dtype=torch.float64)
    mask = torch.ones(1, 3, dtype=torch.float64)
    direct = torch.autograd.grad((logprobs - old).mean(-1).exp().sum(), logprobs)[0]
    tokens = sequence_log_ratio(logprobs - old, logprobs, mask).exp()
    torch.testing.assert_close(torch.autograd.grad(tokens.mean(-1).sum(), logprobs)[0], direct)


@pytest.mark.thorough
def test_loss_and_gradient_equal_the_plain_float64_version_on_random_batches() -> None:
    totals = check_random_batches(random_config, oracle.grpo_advantages, plain.sequence_clipped_loss)
    assert totals["actor/clip_fraction_low"] > 20
    assert totals["actor/clip_fraction_high"] > 20


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_nothing_depends_on_micro_batches_padding_or_order(aggregation: Any) -> None:
    check_invariance(GspoConfig(loss_aggregation=aggregation, clip_high=0.1, kl=KlConfig(coef=0.1), entropy_coef=0.01))
