from __future__ import annotations

import pytest
import torch
from actor_fakes import make_batch
from hypothesis import given, settings
from hypothesis import strategies as st

from mmrl.engines.micro_batches import (
    num_forwarded_tokens,
    num_real_tokens,
    plan_micro_batches,
    split_by_tokens,
)

GROUPS = st.lists(
    st.tuples(st.integers(1, 60), st.lists(st.integers(0, 40), min_size=1, max_size=6)), min_size=1, max_size=8
)


def plan_as_lists(*args, **options):
    return [rows.tolist() for rows in plan_micro_batches(*args, **options)]


@pytest.mark.thorough
@settings(max_examples=150, deadline=None)
@given(groups=GROUPS, budget=st.integers(1, 400), path=st.sampled_from(["prefix", "plain"]))
def test_every_row_is_in_one_micro_batch_and_only_single_rows_pass_the_budget(groups, budget, path):
    batch = make_batch([prompt for prompt, _ in groups], [responses for _, responses in groups])
    plan = plan_micro_batches(batch, budget, path=path)
    assert sorted(row for rows in plan for row in rows.tolist()) == list(range(batch.num_rows))
    for rows in plan:
        part = batch.select_rows(rows)
        assert rows.tolist() == sorted(rows.tolist())
        assert part.num_rows == 1 or num_forwarded_tokens(part, path=path) <= budget
    assert plan_as_lists(batch, budget, path=path) == [rows.tolist() for rows in plan]


@settings(max_examples=50, deadline=None)
@given(groups=GROUPS, budget=st.integers(1, 400))
def test_micro_batches_keep_each_rows_prompt_and_response(groups, budget):
    batch = make_batch([prompt for prompt, _ in groups], [responses for _, responses in groups])
    seen = []
    for part in split_by_tokens(batch, budget):
        for row in range(part.num_rows):
            length = int(part.response_lengths[row])
            prompt = part.prompts[int(part.prompt_of_row[row])]
            seen.append((prompt.token_ids, tuple(part.response_ids[row, :length].tolist())))
    expected = [
        (
            batch.prompts[int(batch.prompt_of_row[row])].token_ids,
            tuple(batch.response_ids[row, : int(batch.response_lengths[row])].tolist()),
        )
        for row in range(batch.num_rows)
    ]
    assert sorted(seen) == sorted(expected)


def test_prefix_cost_counts_a_prompt_once_with_its_padding():
    batch = make_batch([10, 4], [[3, 5], [1]])
    # two prompts padded to 10, three responses padded to 5
    assert num_forwarded_tokens(batch) == 2 * 10 + 3 * 5
    assert num_real_tokens(batch) == 10 + 4 + 3 + 5 + 1


def test_plain_cost_counts_the_prompt_with_every_row():
    batch = make_batch([10, 4], [[3, 5], [1]])
    # rows of 13, 15 and 5 tokens, padded to 15
    assert num_forwarded_tokens(batch, path="plain") == 3 * 15
    assert num_real_tokens(batch, path="plain") == 13 + 15 + 5


def test_a_budget_that_fits_everything_gives_one_micro_batch():
    batch = make_batch([10, 4], [[3, 5], [1]])
    assert plan_as_lists(batch, 35) == [[0, 1, 2]]


def test_one_token_less_than_needed_gives_two_micro_batches_by_whole_groups():
    batch = make_batch([10, 4], [[3, 5], [1]])
    assert plan_as_lists(batch, 34) == [[0, 1], [2]]


def test_a_group_over_the_budget_is_divided_by_length_and_pays_for_its_prompt_again():
    batch = make_batch([10], [[2, 9, 1, 8]])
    # whole: 10 + 4*9 = 46. Divided by length: 10 + 2*9 = 28 and 10 + 2*2 = 14
    assert plan_as_lists(batch, 45) == [[1, 3], [0, 2]]
    assert [num_forwarded_tokens(part) for part in split_by_tokens(batch, 45)] == [28, 14]


def test_a_single_row_over_the_budget_is_alone():
    batch = make_batch([100, 4, 4], [[50], [1], [1]])
    assert plan_as_lists(batch, 20) == [[0], [1, 2]]


def test_prompts_of_like_length_come_together():
    batch = make_batch([30, 5, 30, 5], [[4], [4], [4], [4]])
    assert sorted(plan_as_lists(batch, 68)) == [[0, 2], [1, 3]]


def test_where_responses_differ_more_than_prompts_their_lengths_decide():
    batch = make_batch([10, 11, 10, 11], [[40], [1], [1], [40]])
    assert sorted(plan_as_lists(batch, 102)) == [[0, 3], [1, 2]]


def test_micro_batches_are_even_rather_than_full_with_a_tiny_tail():
    batch = make_batch([5] * 7, [[5]] * 7)
    # 10 tokens each; a budget of 60 would fit 6 and leave 1
    assert [len(rows) for rows in plan_as_lists(batch, 60)] == [4, 3]


def test_the_costliest_micro_batch_comes_first():
    batch = make_batch([5, 80, 20], [[5], [5], [5]])
    assert plan_as_lists(batch, 85) == [[1], [0, 2]]


def test_empty_responses_cost_only_their_prompt():
    batch = make_batch([6, 6], [[0], [0]])
    assert num_forwarded_tokens(batch) == 12
    assert plan_as_lists(batch, 12) == [[0, 1]]


def test_a_batch_without_rows_has_no_micro_batches():
    batch = make_batch([3], [[]])
    assert plan_micro_batches(batch, 10) == []


def test_a_large_batch_is_planned_quickly():
    random = torch.Generator().manual_seed(0)
    prompts = torch.randint(50, 1500, (256,), generator=random).tolist()
    responses = torch.randint(1, 2048, (256, 8), generator=random).tolist()
    batch = make_batch(prompts, responses)
    parts = split_by_tokens(batch, 16384)
    assert sum(part.num_rows for part in parts) == 2048
    padded = sum(num_forwarded_tokens(part) for part in parts)
    assert padded < 1.8 * num_real_tokens(batch)
