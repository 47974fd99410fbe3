"""How a step's batch and samples are divided over ranks."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from mmrl.batch import GroupBatch, PreparedPrompt, build_group_batch
from mmrl.cluster.policy.shares import joined_rows, row_shares, sample_shares
from mmrl.types import Message, Rollout, Sample, TextPart


def rollout(index: int, length: int) -> Rollout:
    return Rollout("s", index, (1,) * length, (1,) * length, (0.0,) * length, "stop", "", 0, index)


def batch_of(*groups: tuple[int, list[int]]) -> GroupBatch:
    """A group is the length of its prompt, and of each response."""
    prompts = [PreparedPrompt((1,) * length, ()) for length, _ in groups]
    return build_group_batch(prompts, [[rollout(i, n) for i, n in enumerate(lengths)] for _, lengths in groups])


def sample(name: str) -> Sample:
    return Sample(name, (Message("user", (TextPart(name),)),))


def rows_of(batch: GroupBatch, num_ranks: int) -> list[list[int]]:
    return [rows.tolist() for rows in row_shares(batch, num_ranks)]


def test_groups_stay_whole_and_costs_are_even():
    """Costs 30, 20, 10 and 4: the dearest goes first, each next one to whom has least."""
    batch = batch_of((10, [10, 10]), (10, [5, 5]), (4, [3, 3]), (2, [1, 1]))
    assert rows_of(batch, 2) == [[0, 1, 6, 7], [2, 3, 4, 5]]


def test_a_group_is_divided_only_where_there_are_fewer_groups_than_ranks():
    batch = batch_of((4, [2, 2, 2, 2]), (4, [1, 1]))
    assert rows_of(batch, 2) == [[0, 1, 2, 3], [4, 5]]
    assert sorted(map(tuple, rows_of(batch, 3))) == [(0, 1), (2, 3), (4, 5)]


def test_only_ranks_beyond_the_rows_have_none():
    assert [len(rows) for rows in rows_of(batch_of((3, [1]), (3, [1])), 4)] == [1, 1, 0, 0]


@given(
    st.lists(st.tuples(st.integers(1, 9), st.lists(st.integers(0, 9), min_size=1, max_size=5)), min_size=1, max_size=6),
    st.integers(1, 5),
)
def test_every_row_has_one_rank_and_what_ranks_compute_comes_back_in_place(groups, num_ranks):
    batch = batch_of(*groups)
    rows = row_shares(batch, num_ranks)
    assert sorted(row for own in rows for row in own.tolist()) == list(range(batch.num_rows))
    numbered = batch.response_mask * (1 + torch.arange(batch.response_mask.numel()).view_as(batch.response_mask))
    shares = [batch.with_(sampler_logprobs=numbered).select_rows(own) for own in rows]
    assert torch.equal(joined_rows([share.sampler_logprobs for share in shares], rows, numbered), numbered)


def test_t01_a_batch_that_the_ranks_do_not_divide_is_shared_out_all_the_same():
    """Case T01: 512 prompts over 6 ranks; no size is refused, no row is padded or left out."""
    shares = rows_of(batch_of(*[(3, [2])] * 512), 6)
    assert sorted(row for own in shares for row in own) == list(range(512))
    assert sorted(map(len, shares)) == [85, 85, 85, 85, 86, 86]


def test_t02_uneven_tails_are_sampled_once_each():
    """Case T02: 124 rows over 15 engines."""
    places = sample_shares([sample(str(index)) for index in range(124)], 15)
    assert sorted(place for own in places for place in own) == list(range(124))
    assert {len(own) for own in places} == {8, 9}


def test_a_sample_that_occurs_twice_goes_to_one_engine():
    """An engine counts a sample's occurrences, so that they get different seeds."""
    samples = [sample(name) for name in ("a", "b", "a", "c", "b", "a")]
    owners = {place: engine for engine, own in enumerate(sample_shares(samples, 2)) for place in own}
    assert owners[0] == owners[2] == owners[5]
    assert owners[1] == owners[4]
