"""How calls are divided and their results joined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmrl.cluster import Dispatch, Shard, dispatch
from mmrl.cluster.dispatch import Plan, marked_methods
from mmrl.cluster.group import callable_methods, find_method
from mmrl.cluster.sharding import chunk_sizes, shares


def run(plan: Plan, method: Any) -> Any:
    """What a group does with a plan."""
    return plan.join([method(*call[0], **call[1]) for call in plan.calls if call is not None])


class Worker:
    @dispatch("broadcast")
    def all(self) -> None: ...

    @dispatch("broadcast_rank_zero", concurrent=True)
    def first_of_all(self) -> None: ...

    @dispatch("rank_zero")
    def zero(self) -> None: ...

    @dispatch("shard")
    def score(self, rows: list[int]) -> list[int]:
        return rows

    def unmarked(self) -> None: ...


def named(method: str) -> Dispatch:
    return marked_methods(Worker)[method].dispatch


def test_t02_124_rows_over_15_workers_are_each_scored_once_and_come_back_in_order():
    plan = Shard().plan(15, (list(range(124)),), {})

    counts = [len(call[0][0]) for call in plan.calls if call is not None]

    assert counts == [9, 9, 9, 9, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8]
    assert run(plan, lambda rows: [row * 10 for row in rows]) == [row * 10 for row in range(124)]


def test_fewer_items_than_workers_leave_some_workers_with_empty_lists_but_call_them():
    plan = Shard().plan(4, (["a", "b"],), {"scale": 2})

    assert plan.calls == [
        ((["a"],), {"scale": 2}),
        ((["b"],), {"scale": 2}),
        (([],), {"scale": 2}),
        (([],), {"scale": 2}),
    ]
    assert run(plan, lambda rows, scale: [row * scale for row in rows]) == ["aa", "bb"]


def test_nothing_at_all_is_divided_into_empty_shares():
    plan = Shard().plan(3, ([],), {})
    assert [call[0] for call in plan.calls if call] == [([],), ([],), ([],)]
    assert run(plan, lambda rows: rows) == []


def test_items_of_unequal_length_are_balanced_and_come_back_in_the_order_of_the_items():
    rows = ["x" * length for length in (9, 1, 8, 2, 7, 3)]

    plan = Shard().plan(3, (rows,), {})

    loads = [sum(map(len, call[0][0])) for call in plan.calls if call is not None]
    assert loads == [10, 10, 10]
    assert run(plan, lambda part: [len(row) for row in part]) == [9, 1, 8, 2, 7, 3]


def test_the_attribute_cost_of_items_and_a_cost_of_the_users_own_decide_before_their_length():
    @dataclass(frozen=True)
    class Job:
        cost: float

    jobs = [Job(5.0), Job(1.0), Job(1.0), Job(3.0)]
    plan = Shard().plan(2, (jobs,), {})
    assert [[job.cost for job in call[0][0]] for call in plan.calls if call] == [[5.0], [1.0, 1.0, 3.0]]

    plan = Shard(cost=lambda text: -text.count("a") + 10).plan(2, (["aaaaaaaaa", "bb", "b"],), {})
    assert [call[0][0] for call in plan.calls if call] == [["aaaaaaaaa", "bb"], ["b"]]


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 9))
def test_every_item_is_in_one_share_and_the_largest_share_is_within_4_thirds_of_the_bound(costs: list[int], n: int):
    parts = shares(costs, n)

    assert sorted(index for part in parts for index in part) == list(range(len(costs)))
    assert all(part == sorted(part) for part in parts)
    if costs and len(set(costs)) > 1:
        # Graham's bound: the last item that a fullest worker got came when it had no more than the mean of the rest.
        assert max(sum(costs[index] for index in part) for part in parts) <= sum(costs) / n + max(costs)


def test_shares_of_equal_cost_differ_by_one_item_at_most():
    assert chunk_sizes(124, 15) == [9] * 4 + [8] * 11
    assert shares([1.0] * 5, 2) == [[0, 1, 2], [3, 4]]


def test_lists_of_different_lengths_cannot_be_divided_alike():
    with pytest.raises(ValueError, match=r"of one length \(argument 0 has 3, names has 2 items\)"):
        Shard().plan(2, ([1, 2, 3],), {"names": ["a", "b"]})
    with pytest.raises(ValueError, match="needs a list or tuple among its arguments"):
        Shard().plan(2, (1,), {})


def test_results_that_are_not_one_an_item_are_refused_with_the_rank():
    plan = Shard().plan(2, ([1, 2, 3],), {})
    with pytest.raises(ValueError, match="returned 1 results on rank 0 for 2 items"):
        plan.join([[1], [2]])
    with pytest.raises(ValueError, match="returned a int on rank 1 for 1 items"):
        plan.join([[1, 2], 3])
    assert plan.join([None, None]) is None


def test_broadcast_gives_all_results_broadcast_rank_zero_the_first_and_rank_zero_calls_one_worker():
    ranks = iter(range(100))
    everyone = named("all").plan(3, (7,), {"a": 1})
    assert everyone.calls == [((7,), {"a": 1})] * 3
    assert run(everyone, lambda value, a: next(ranks)) == [0, 1, 2]
    assert run(named("first_of_all").plan(3, (), {}), lambda: next(ranks)) == 3
    alone = named("zero").plan(3, (7,), {})
    assert alone.calls == [((7,), {}), None, None]
    assert run(alone, lambda value: value) == 7


def test_a_dispatch_of_the_users_own_splits_and_joins():
    halves = Dispatch(
        split=lambda num_workers, text: [((text[rank::num_workers],), {}) for rank in range(num_workers)],
        join="".join,
    )
    assert run(halves.plan(2, ("abcd",), {}), str.upper) == "ACBD"


def test_a_dispatch_that_splits_for_another_number_of_workers_is_refused():
    one = Dispatch(split=lambda num_workers, value: [((value,), {})], join=list)
    with pytest.raises(ValueError, match="split the call into 1 for 2 workers"):
        one.plan(2, (1,), {})


def test_an_unknown_dispatch_is_named_with_the_nearest():
    with pytest.raises(ValueError, match="no dispatch 'boadcast'; did you mean 'broadcast'"):
        dispatch("boadcast")
    with pytest.raises(ValueError, match="known: broadcast, broadcast_rank_zero, rank_zero, shard"):
        dispatch("xyz")


def test_a_method_that_overrides_a_marked_one_keeps_the_mark():
    class Child(Worker):
        def score(self, rows: list[int]) -> list[int]:
            return [row + 1 for row in rows]

    assert marked_methods(Child)["score"].dispatch == Shard()
    assert marked_methods(Child)["first_of_all"].concurrent


def test_a_method_that_is_not_marked_is_an_error_with_the_nearest_names():
    methods = callable_methods(Worker)
    with pytest.raises(AttributeError, match=r"Worker.unmarked is not marked with @dispatch"):
        find_method(Worker, methods, "unmarked")
    with pytest.raises(AttributeError, match=r"no method 'scores' marked with @dispatch; did you mean 'score'\?"):
        find_method(Worker, methods, "scores")


def test_names_that_a_group_has_itself_cannot_be_marked():
    class Taken:
        @dispatch("broadcast")
        def start(self) -> None: ...

    class Deadline:
        @dispatch("broadcast")
        def run(self, deadline_s: float) -> None: ...

    with pytest.raises(TypeError, match=r"Taken.start is marked with @dispatch, but a worker group has"):
        callable_methods(Taken)
    with pytest.raises(TypeError, match=r"Deadline.run has a parameter 'deadline_s'"):
        callable_methods(Deadline)
