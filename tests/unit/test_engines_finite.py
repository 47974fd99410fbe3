"""Checks of numbers before weights move."""

from __future__ import annotations

import pytest
import torch
from actor_fakes import FakePolicy, WeightedLogprobs, copy_of_weights, make_batch
from torch import nn

from mmrl.config.optim import OptimConfig
from mmrl.config.run import TrainConfig
from mmrl.engines.actor import HfActor
from mmrl.engines.finite import NotFiniteError, check_batch, first_non_finite, weights_fault


def test_the_first_place_is_found_in_row_major_order() -> None:
    tensor = torch.zeros(2, 3)
    assert first_non_finite(tensor) is None
    tensor[1, 0], tensor[0, 2] = torch.nan, torch.inf
    assert first_non_finite(tensor) == (0, 2)


def test_a_batch_names_what_is_not_finite_and_where() -> None:
    batch = make_batch([3], [[2, 2]])
    check_batch(batch)
    assert batch.advantages is not None
    batch.advantages[1, 1] = torch.nan
    with pytest.raises(NotFiniteError, match="advantages of response 1, token 1 of the batch is nan") as caught:
        check_batch(batch)
    assert caught.value.batch is batch


@pytest.mark.parametrize("value", [torch.nan, torch.inf, 3.4e38])
def test_a_weight_that_a_step_could_lose_is_named(value: float) -> None:
    weight = nn.Parameter(torch.tensor([1.0, value]))
    assert weights_fault([("w", nn.Parameter(torch.ones(2)))], rate=1e-3, decay=0.01) is None
    fault = weights_fault([("fine", nn.Parameter(torch.ones(2))), ("w", weight)], rate=0.1, decay=0.1)
    assert fault is not None
    assert fault.startswith("weight w is as large as")


def test_a_weight_that_no_loss_depends_on_stops_the_update_too() -> None:
    """An unused row of the embedding: the loss is finite, and the weights are not numbers."""
    policy = FakePolicy()
    batch = make_batch([3], [[2, 2]])
    unused = next(i for i in range(11) if i not in batch.response_ids and i not in batch.prompts[0].token_ids)
    with torch.no_grad():
        policy.embedding.weight[unused] = torch.inf
    before = copy_of_weights(policy)
    actor = HfActor(policy, OptimConfig(lr=0.1), TrainConfig(mini_batches=3), temperature=1.0, total_steps=5)
    actor.begin_step(2)
    with pytest.raises(NotFiniteError, match=r"weight embedding\.weight is as large as inf") as caught:
        actor.train_step(batch, WeightedLogprobs(batch))
    assert (caught.value.learner, caught.value.update) == ("actor", 0)
    assert caught.value.batch is batch
    assert all(torch.equal(before[name], weight) for name, weight in policy.state_dict().items())
