"""The tensor functions that algorithms are made of, on numbers worked by hand."""

from __future__ import annotations

import math

import pytest
import torch

from mmrl.algorithms.advantages import group_centred_advantages, group_normalised_advantages, has_spread
from mmrl.algorithms.aggregation import UpdateCounts, token_weights
from mmrl.algorithms.kl import kl_estimate
from mmrl.algorithms.metrics import TokenMetrics
from mmrl.algorithms.policy_losses import PolicyTokens, ppo_clip_loss
from mmrl.algorithms.ratio import log_ratio

# Two responses: three sampled tokens around a tool's answer, and one token before padding.
MASK = torch.tensor([[1.0, 0.0, 1.0, 1.0], [1.0, 0.0, 0.0, 0.0]])


def tokens_with(ratios: list[list[float]], advantages: list[list[float]]) -> PolicyTokens:
    logs = torch.tensor(ratios, dtype=torch.float64).log().requires_grad_()
    return PolicyTokens(logs, logs, torch.tensor(advantages, dtype=torch.float64), torch.ones_like(logs))


def test_normalised_advantages_divide_by_the_unbiased_std() -> None:
    # mean 2, deviations -2 0 0 2, variance 8 / 3
    scores = torch.tensor([0.0, 2.0, 2.0, 4.0], dtype=torch.float64)
    advantages = group_normalised_advantages(scores, scores=scores)
    one = 2 / (math.sqrt(8 / 3) + 1e-6)
    torch.testing.assert_close(advantages, torch.tensor([-one, 0, 0, one], dtype=torch.float64))


def test_centred_advantages_are_not_divided() -> None:
    advantages = group_centred_advantages(torch.tensor([0.0, 2.0, 2.0, 4.0], dtype=torch.float64))
    assert advantages.tolist() == [-2, 0, 0, 2]


@pytest.mark.parametrize("score", [0.1, 0.0, 1.0, -3.3, 1e8 / 3])
@pytest.mark.parametrize("size", [2, 3, 8])
def test_equal_scores_give_exactly_zero(score: float, size: int) -> None:
    scores = torch.full((size,), score, dtype=torch.float64)
    assert group_normalised_advantages(scores, scores=scores).tolist() == [0.0] * size
    assert group_centred_advantages(scores).tolist() == [0.0] * size


def test_spread_is_judged_relative_to_the_size_of_the_scores() -> None:
    def spread_of(*scores: float) -> bool:
        return has_spread(torch.tensor(scores, dtype=torch.float64))

    assert not spread_of(0.0, 1e-6)
    assert spread_of(0.0, 1.1e-6)
    assert not spread_of(1e6, 1e6 + 0.9)
    assert spread_of(1e6, 1e6 + 2)
    assert not spread_of(5.0)


def test_log_ratio_is_zero_where_the_mask_is_and_clamped_elsewhere() -> None:
    logprobs = torch.tensor([[-1.0, -99.0, -50.0, -2.0], [-3.0, 9.0, 9.0, 9.0]], requires_grad=True)
    old = torch.tensor([[-1.5, 0.0, -1.0, -40.0], [-3.0, 0.0, 0.0, 0.0]])
    ratio = log_ratio(logprobs, old, MASK)
    assert ratio.tolist() == [[0.5, 0.0, -20.0, 20.0], [0.0, 0.0, 0.0, 0.0]]
    ratio.sum().backward()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [[1, 0, 0, 0], [1, 0, 0, 0]]


def test_without_old_logprobs_the_ratio_is_one_and_carries_the_gradient() -> None:
    logprobs = torch.tensor([[-1.0, 0.0, -2.0, -3.0], [-4.0, 0.0, 0.0, 0.0]], requires_grad=True)
    ratio = log_ratio(logprobs, None, MASK).exp()
    assert ratio.tolist() == [[1.0] * 4] * 2
    ratio.sum().backward()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == MASK.tolist()


def test_kl_estimators_on_worked_numbers() -> None:
    logprobs = torch.tensor([-1.0, -1.0, -2.0], dtype=torch.float64)
    reference = torch.tensor([-1.0, -1.0 - math.log(2), -2.0 + math.log(2)], dtype=torch.float64)
    log2 = math.log(2)
    for estimator, expected in {
        "k1": [0.0, log2, -log2],
        "k2": [0.0, log2**2 / 2, log2**2 / 2],
        "k3": [0.0, 0.5 + log2 - 1, 2 - log2 - 1],
    }.items():
        estimate = kl_estimate(logprobs, reference, estimator)  # type: ignore[arg-type]
        torch.testing.assert_close(estimate, torch.tensor(expected, dtype=torch.float64))


def test_k3_is_bounded_where_the_reference_finds_the_token_far_likelier() -> None:
    logprobs = torch.tensor([-500.0, -1.0])
    estimate = kl_estimate(logprobs, torch.tensor([-1.0, -500.0]), "k3")
    assert estimate.tolist() == [10.0, 10.0]
    assert kl_estimate(logprobs, torch.tensor([-1.0, -500.0]), "k1").tolist() == [-499.0, 499.0]


def test_clipped_loss_and_its_gradient_on_each_side_of_each_bound() -> None:
    tokens = tokens_with([[0.5, 1.0, 1.5], [0.5, 1.0, 1.5]], [[2.0, 2.0, 2.0], [-2.0, -2.0, -2.0]])
    result = ppo_clip_loss(tokens, clip_low=0.2, clip_high=0.28)
    # A > 0: -2r but no lower than -2 * 1.28; A < 0: 2r but no lower than 2 * 0.8
    expected = torch.tensor([[-1.0, -2.0, -2.56], [1.6, 2.0, 3.0]], dtype=torch.float64)
    torch.testing.assert_close(result.token_losses, expected)
    assert result.flags["clip_fraction_high"].tolist() == [[False, False, True], [False] * 3]
    assert result.flags["clip_fraction_low"].tolist() == [[False] * 3, [True, False, False]]
    result.token_losses.sum().backward()
    gradient = torch.tensor([[-1.0, -2.0, 0.0], [0.0, 2.0, 3.0]], dtype=torch.float64)
    torch.testing.assert_close(tokens.log_ratio.grad, gradient)


def test_dual_clip_bounds_the_loss_of_negative_advantages_only() -> None:
    tokens = tokens_with([[2.9, 4.0], [4.0, 0.5]], [[-1.0, -1.0], [1.0, -1.0]])
    result = ppo_clip_loss(tokens, clip_low=0.2, clip_high=0.2, dual_clip=3.0)
    expected = torch.tensor([[2.9, 3.0], [-1.2, 0.8]], dtype=torch.float64)
    torch.testing.assert_close(result.token_losses, expected)
    assert result.flags["dual_clip_fraction"].tolist() == [[False, True], [False, False]]
    result.token_losses.sum().backward()
    assert tokens.log_ratio.grad is not None
    assert tokens.log_ratio.grad[0, 1] == 0


@pytest.mark.parametrize(
    ("aggregation", "first", "second"),
    [
        ("token_mean", 1 / 8, 1 / 8),
        ("sequence_mean_token_sum", 1 / 5, 1 / 5),
        ("sequence_mean_token_mean", 1 / 15, 1 / 5),
        ("constant", 1 / 100, 1 / 100),
    ],
)
def test_token_weights_use_the_counts_of_the_whole_update(aggregation: str, first: float, second: float) -> None:
    # The update has 8 tokens in 5 responses; these two rows are a part of it. An empty third row has no weight.
    mask = torch.cat([MASK, torch.zeros(1, 4)])
    weights = token_weights(mask, aggregation, UpdateCounts(8, 5, response_limit=20))  # type: ignore[arg-type]
    expected = torch.tensor([[first, 0, first, first], [second, 0, 0, 0], [0, 0, 0, 0]])
    torch.testing.assert_close(weights, expected)


def test_weights_of_an_update_without_tokens_are_zero_and_finite() -> None:
    for aggregation in ("token_mean", "sequence_mean_token_sum", "sequence_mean_token_mean", "constant"):
        weights = token_weights(torch.zeros(2, 3), aggregation, UpdateCounts(0, 0, response_limit=4))  # type: ignore[arg-type]
        assert weights.tolist() == [[0.0] * 3] * 2


def test_metrics_of_micro_batches_add_up_to_those_of_the_update() -> None:
    totals = {"loss": [0.0, 0.0], "mean": [0.0, 0.0]}
    for row, part in ((0, 0.75), (1, 0.25)):
        metrics = TokenMetrics(MASK[row : row + 1], num_tokens_of_update=4)
        metrics.part("loss", torch.tensor(part))
        metrics.mean("mean", torch.full((1, 4), float(row)))
        for name, (value, count) in metrics.output(torch.tensor(part)).sums.items():
            totals[name][0] += value
            totals[name][1] += count
    assert totals["loss"] == [1.0, 1.0]
    assert totals["mean"] == [1.0, 4.0]


def test_maxima_leave_out_masked_positions_and_empty_micro_batches() -> None:
    metrics = TokenMetrics(MASK, num_tokens_of_update=4)
    metrics.maximum("largest", torch.tensor([[1.0, 99.0, 3.0, 2.0], [0.0, 99.0, 99.0, 99.0]]))
    assert metrics.output(torch.tensor(0.0)).maxima == {"largest": 3.0}
    for shape in ((1, 3), (1, 0)):
        empty = TokenMetrics(torch.zeros(shape), num_tokens_of_update=4)
        empty.maximum("largest", torch.ones(shape))
        empty.mean("mean", torch.ones(shape))
        output = empty.output(torch.tensor(0.0))
        assert output.maxima == {}
        assert output.sums == {"mean": (0.0, 0.0)}
