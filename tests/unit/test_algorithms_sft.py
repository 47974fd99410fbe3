"""The objective of supervised fine-tuning, on numbers worked by hand."""

from __future__ import annotations

import algorithms_oracle as oracle
import pytest
import torch

from mmrl.algorithms import SftObjective
from mmrl.batch import TokenStats


def test_loss_is_the_mean_over_all_target_tokens_of_the_update() -> None:
    groups = [[oracle.response(0.0, [1.0, None, 1.0, 1.0])], [oracle.response(0.0, [1.0])]]
    batch = oracle.group_batch(oracle.scored_groups(groups), groups)
    logprobs = torch.tensor([[-1.0, 0.0, -2.0, -3.0], [-4.0, 0.0, 0.0, 0.0]], requires_grad=True)
    objective = SftObjective(batch)
    assert not objective.needs_entropy
    output = objective(batch, TokenStats(logprobs))
    assert output.loss.item() == 2.5
    output.loss.backward()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [[-0.25, 0.0, -0.25, -0.25], [-0.25, 0.0, 0.0, 0.0]]
    assert output.sums == {"sft/loss": (2.5, 1.0)}


def test_micro_batches_add_up_to_the_update() -> None:
    groups = oracle.random_groups(3)
    batch = oracle.group_batch(oracle.scored_groups(groups), groups)
    logprobs = oracle.token_stats(groups, batch.response_ids.shape[1]).logprobs.detach()
    objective = SftObjective(batch)
    whole = objective(batch, TokenStats(logprobs))
    plain = -sum(sum(row.logprobs) for group in groups for row in group) / batch.num_sampled_tokens
    assert whole.loss.item() == pytest.approx(plain, rel=1e-6)
    parts = []
    for row in range(batch.num_rows):
        part = batch.select_rows(torch.tensor([row]))
        parts.append(objective(part, TokenStats(logprobs[row : row + 1, : part.response_ids.shape[1]])))
    assert sum(part.loss.item() for part in parts) == pytest.approx(plain, rel=1e-6)
    assert sum(part.sums["sft/loss"][1] for part in parts) == pytest.approx(1.0)
