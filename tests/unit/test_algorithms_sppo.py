"""SPPO: numbers worked by hand, a plain float64 version, and invariance to how a batch is cut up."""

from __future__ import annotations

import math
from typing import Any

import algorithms_oracle as oracle
import pytest
import torch
from algorithms_checks import WORKED, check_invariance, check_random_batches, prepared, run, shared_settings

from mmrl.config.algorithm import KlConfig, SppoConfig


def plain_advantages(groups: oracle.Groups, config: Any) -> list[list[float]]:
    def wins(mine: float, other: float) -> float:
        if config.comparison == "sigmoid":
            return 1 / (1 + math.exp(other - mine))
        return 0.5 if mine == other else float(mine > other)

    found = []
    for group in groups:
        returns = oracle.penalised_returns(group, config)
        found.append([config.eta * (sum(wins(r, o) for o in returns) / len(returns) - 0.5) for r in returns])
    return found


def plain_loss(token: oracle.Token, config: Any) -> oracle.Dual:
    """A token's even share of the response's loss; its slope is that of the whole response's loss."""
    row = token.response
    moved = sum((new - old) * bit for new, old, bit in zip(row.logprobs, row.old, row.mask, strict=True))
    gap = moved - token.advantage
    return oracle.Dual(gap**2 / row.num_sampled, 2 * gap)


def test_a_response_is_drawn_towards_how_often_it_wins() -> None:
    groups = [[oracle.response(score, [1.0, None, 1.0]) for score in (3.0, 1.0, 1.0, 0.0)]]
    batch, _ = prepared(SppoConfig(eta=8.0), groups)
    assert batch.advantages is not None
    # Wins, itself as one half: 3.5, 2, 2 and 0.5 of 4; less one half and times 8.
    assert batch.advantages[:, 0].tolist() == [3.0, 0.0, 0.0, -3.0]
    assert batch.advantages[:, 1].tolist() == [0.0] * 4, "the tool's turn"


def test_scores_of_a_bradley_terry_model_are_compared_by_their_difference() -> None:
    groups = [[oracle.response(score, [1.0]) for score in (2.0, 1.0)]]
    batch, _ = prepared(SppoConfig(eta=1.0, comparison="sigmoid"), groups)
    assert batch.advantages is not None
    assert batch.advantages[:, 0].tolist() == pytest.approx([0.2310586 / 2, -0.2310586 / 2], abs=1e-6)


def test_loss_and_gradient_on_worked_numbers() -> None:
    """eta 2: A = 0.5, -0.5, 0.5, -0.5. The ratios of the responses are 1.35, 1, 1.43 and 1."""
    output, gradient = run(SppoConfig(eta=2.0), WORKED)
    moved = [math.log(1.5 * 0.9), math.log(0.5 * 2.0), math.log(1.1 * 1.3), 0.0]
    gaps = [value - target for value, target in zip(moved, (0.5, -0.5, 0.5, -0.5), strict=True)]
    assert output.loss.item() == pytest.approx(sum(gap**2 for gap in gaps) / 4, rel=1e-6)
    slopes = [2 * gap / 4 for gap in gaps]
    masks = torch.tensor([[1, 0, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 0, 0]], dtype=torch.float64)
    torch.testing.assert_close(
        gradient, torch.tensor(slopes, dtype=torch.float64)[:, None] * masks, rtol=1e-6, atol=1e-9
    )


@pytest.mark.thorough
def test_loss_and_gradient_equal_the_plain_float64_version_on_random_batches() -> None:
    check_random_batches(
        lambda draw: SppoConfig(
            **shared_settings(draw), eta=draw.choice([0.5, 3.0]), comparison=draw.choice(["sign", "sigmoid"])
        ),
        plain_advantages,
        plain_loss,
    )


def test_nothing_depends_on_micro_batches_padding_or_order() -> None:
    check_invariance(SppoConfig(eta=2.0, kl=KlConfig(coef=0.1), entropy_coef=0.01))
