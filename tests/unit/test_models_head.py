import math

import pytest
import torch
from torch import nn

from mmrl.models import head as head_module
from mmrl.models.head import Predictions, chosen_stats, log_probs


def make_head(rows):
    head = nn.Linear(len(rows[0]), len(rows), bias=False)
    head.weight = nn.Parameter(torch.tensor(rows, dtype=torch.float32))
    return head


def no_ids():
    return torch.zeros(0, dtype=torch.int64)


def test_log_probs_are_of_temperature_and_without_banned_ids():
    # logits of the state 1 are log 1, log 2, log 4, log 9; without id 3 and at temperature 1/2 they square
    head = make_head([[0.0], [math.log(2)], [math.log(4)], [math.log(9)]])
    found = log_probs(head, torch.ones(1, 1), torch.tensor([3]), temperature=0.5)[0]
    assert found[:3].exp().tolist() == pytest.approx([1 / 21, 4 / 21, 16 / 21], abs=1e-6)
    assert found[3] == -torch.inf


def test_temperature_zero_counts_as_one():
    head = make_head([[0.0], [math.log(3)]])
    found = log_probs(head, torch.ones(1, 1), no_ids(), temperature=0.0)[0]
    assert found.exp().tolist() == pytest.approx([0.25, 0.75])


def test_chosen_stats_worked_by_hand():
    head = make_head([[0.0], [math.log(3)], [math.log(100)]])
    predictions = Predictions(torch.ones(1, 1), torch.tensor([0, 0]))
    found = chosen_stats(head, predictions, torch.tensor([1, 0]), torch.tensor([2]), 1.0, with_entropy=True)
    assert found.logprobs.exp().tolist() == pytest.approx([0.75, 0.25])
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert found.entropy.tolist() == pytest.approx([entropy, entropy])


def test_entropy_is_left_out_unless_asked_for():
    found = chosen_stats(
        make_head([[0.0], [1.0]]), Predictions(torch.ones(1, 1), torch.tensor([0])), torch.tensor([1]), no_ids(), 1.0
    )
    assert found.entropy is None


@pytest.mark.parametrize("rows", [[0, 0, 1, 2, 2, 5, 6], [4, 4, 4], list(range(7))])
def test_chunks_give_what_one_piece_gives_and_the_same_gradients(monkeypatch, rows):
    torch.manual_seed(0)
    head, hidden = nn.Linear(4, 10, bias=False), torch.randn(7, 4)
    ids = torch.randint(0, 8, (len(rows),))
    results = []
    for elements in (1 << 20, 20):
        monkeypatch.setattr(head_module, "CHUNK_ELEMENTS", elements)
        head.zero_grad()
        states = hidden.clone().requires_grad_(True)
        stats = chosen_stats(
            head, Predictions(states, torch.tensor(rows)), ids, torch.tensor([8, 9]), 0.6, with_entropy=True
        )
        (stats.logprobs.sum() + stats.entropy.square().sum()).backward()
        results.append((stats.logprobs, stats.entropy, states.grad, head.weight.grad.clone()))
    for whole, chunked in zip(*results, strict=True):
        assert torch.allclose(whole, chunked, atol=1e-6)


def test_gradients_of_a_certain_ban_are_finite():
    head = make_head([[0.0], [1.0], [2.0]])
    states = torch.ones(1, 1, requires_grad=True)
    stats = chosen_stats(
        head, Predictions(states, torch.tensor([0])), torch.tensor([0]), torch.tensor([1, 2]), 1.0, with_entropy=True
    )
    (stats.logprobs + stats.entropy).sum().backward()
    assert stats.logprobs.tolist() == [0.0]
    assert stats.entropy.tolist() == [0.0]
    assert torch.equal(states.grad, torch.zeros(1, 1))
