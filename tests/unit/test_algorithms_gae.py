"""Advantages of single tokens, returns and the value loss, on numbers worked by hand."""

from __future__ import annotations

import pytest
import torch

from mmrl.algorithms.gae import (
    discounted_returns,
    generalised_advantages,
    length_adaptive_lambda,
    rewards_at_last_token,
)
from mmrl.algorithms.value_loss import ValueObjective, value_metrics
from mmrl.batch import GroupBatch, PreparedPrompt

# The first response has a tool's answer in its middle; the second is padded; of the third nothing was sampled.
MASK = torch.tensor([[1, 0, 1], [1, 0, 0], [0, 0, 0]], dtype=torch.float64)


def tensor(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def batch_of(mask: torch.Tensor, **tensors: torch.Tensor) -> GroupBatch:
    num_rows, width = mask.shape
    return GroupBatch(
        prompts=tuple(PreparedPrompt((1,), ()) for _ in range(num_rows)),
        prompt_of_row=torch.arange(num_rows),
        response_ids=torch.ones(num_rows, width, dtype=torch.int64),
        response_mask=mask,
        response_lengths=torch.full((num_rows,), width),
        **tensors,
    )


def test_the_score_lies_on_the_last_sampled_token() -> None:
    rewards = rewards_at_last_token(torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64), MASK)
    assert rewards.tolist() == [[0, 0, 1], [2, 0, 0], [0, 0, 0]]


def test_a_tools_answer_is_stepped_over() -> None:
    values = tensor([0.5, 9.0, 0.2], [0.4, 9.0, 9.0], [9.0, 9.0, 9.0])
    rewards = tensor([0, 0, 1], [0, 0, 0], [0, 0, 0])
    # Last token: 1 - 0.2 = 0.8. First: 0.9 * 0.2 - 0.5 = -0.32, and 0.9 * 0.5 * 0.8 = 0.36 besides.
    advantages = generalised_advantages(rewards, values, MASK, gamma=0.9, lam=torch.tensor(0.5, dtype=torch.float64))
    torch.testing.assert_close(advantages, tensor([0.04, 0, 0.8], [-0.4, 0, 0], [0, 0, 0]))


def test_lambda_may_differ_from_response_to_response() -> None:
    mask, values = torch.ones(2, 2, dtype=torch.float64), tensor([0.5, 0.2], [0.5, 0.2])
    rewards = tensor([0, 1], [0, 1])
    advantages = generalised_advantages(
        rewards, values, mask, gamma=1.0, lam=torch.tensor([0.0, 1.0], dtype=torch.float64)
    )
    # lambda 0: 0.2 - 0.5; lambda 1: 1 - 0.5.
    torch.testing.assert_close(advantages, tensor([-0.3, 0.8], [0.5, 0.8]))


def test_returns_without_values_are_discounted_sums() -> None:
    returns = discounted_returns(tensor([-0.5, 0, 1], [2, 0, 0], [0, 0, 0]), MASK, gamma=0.5)
    assert returns.tolist() == [[0, 0, 1], [2, 0, 0], [0, 0, 0]]


def test_lambda_grows_with_length_and_stays_between_nought_and_one() -> None:
    lengths = torch.tensor([0.0, 10.0, 20.0, 30.0, 100.0])
    assert length_adaptive_lambda(lengths, alpha=0.05).tolist() == pytest.approx([0, 0, 0, 1 / 3, 0.8])


def test_no_column_at_all_is_no_advantage_at_all() -> None:
    nothing = torch.zeros(2, 0, dtype=torch.float64)
    assert discounted_returns(nothing, nothing, gamma=1.0).shape == (2, 0)


def test_the_value_loss_takes_the_worse_of_value_and_clipped_value() -> None:
    mask = torch.tensor([[1.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    batch = batch_of(mask, values=torch.zeros(2, 3), returns=torch.tensor([[0.2, 9.0, 2.0], [1.0, 9.0, 9.0]]))
    values = torch.tensor([[1.0, 5.0, 1.0], [0.25, 5.0, 5.0]], requires_grad=True)
    output = ValueObjective(batch, value_clip=0.5)(batch, values)
    # 0.8^2 / 2 against 0.3^2 / 2; 1 / 2 against 1.5^2 / 2, the clipped one; 0.75^2 / 2 within the bound.
    assert output.loss.item() == pytest.approx((0.32 + 1.125 + 0.28125) / 3)
    output.loss.backward()
    expected = torch.tensor([[0.8, 0, 0], [-0.75, 0, 0]]) / 3
    torch.testing.assert_close(values.grad, expected)
    assert output.sums["critic/clip_fraction"] == (1.0, 3.0)
    assert output.sums["critic/return_mean"] == (pytest.approx(3.2), 3.0)
    without = ValueObjective(batch, value_clip=None)(batch, values.detach())
    assert without.loss.item() == pytest.approx((0.32 + 0.5 + 0.28125) / 3)


def test_the_value_loss_does_not_depend_on_how_the_update_is_cut_up() -> None:
    draw = torch.Generator().manual_seed(0)
    mask = (torch.rand(6, 5, generator=draw) < 0.7).float()
    columns = [torch.randn(6, 5, generator=draw) * mask for _ in range(3)]
    batch = batch_of(mask, values=columns[0], returns=columns[1])
    objective = ValueObjective(batch, value_clip=0.5)
    whole = columns[2].clone().requires_grad_()
    objective(batch, whole).loss.backward()
    parts = columns[2].clone().requires_grad_()
    for rows in torch.tensor([4, 1, 0, 5, 2, 3]).split(2):
        objective(batch.select_rows(rows.sort().values), parts[rows.sort().values]).loss.backward()
    torch.testing.assert_close(parts.grad, whole.grad)


def test_explained_variance_is_of_the_values_before_the_update() -> None:
    mask = torch.tensor([[1.0, 1.0], [1.0, 0.0]])
    returns = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    exact = batch_of(mask, values=returns + 3.0 * mask, returns=returns)
    assert value_metrics(exact) == {"critic/explained_variance": pytest.approx(1.0)}
    constant = batch_of(mask, values=0.5 * mask, returns=returns)
    assert value_metrics(constant) == {"critic/explained_variance": pytest.approx(0.0)}
    assert value_metrics(batch_of(mask, values=returns, returns=mask)) == {}, "nothing to explain"
