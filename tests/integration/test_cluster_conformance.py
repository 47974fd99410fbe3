"""What every executor does: the same test for inline and Ray."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from cluster_workers import Mailbox, OddRowError, Sender, Worker

from mmrl.cluster import Executor, build_executor
from mmrl.config.placement import PlacementConfig, PoolConfig
from mmrl.errors import ConfigError, ConflictError

PLACEMENTS = {
    "inline": PlacementConfig(),
    "ray": PlacementConfig(executor="ray", pools={"main": PoolConfig(workers=2)}, object_store_mb=100, deadline_s=60),
}


@pytest.fixture(scope="module", params=["inline", pytest.param("ray", marks=pytest.mark.ray)])
def executor(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executor]:
    log_dir = tmp_path_factory.mktemp("logs")
    with build_executor(PLACEMENTS[request.param], log_dir=log_dir) as executor:
        yield executor


def test_each_worker_is_constructed_with_its_context_and_the_arguments(executor: Executor):
    group = executor.create("constructed", Worker, 10, step=5, pool="main")

    count = executor.pools["main"]
    assert group.num_workers == count
    assert group.add(times=2) == [20] * count
    assert group.add() == [25] * count


def test_broadcast_rank_zero_and_shard_do_what_their_names_say(executor: Executor):
    group = executor.create("named", Worker)

    assert group.rank() == 0
    assert group.greet("ada") == "hello ada, from 0"
    assert group.square(list(range(7))) == [0, 1, 4, 9, 16, 25, 36]
    assert group.square([3]) == [9]
    assert group.square([]) == []


def test_a_call_that_was_started_gives_its_result_later_and_again(executor: Executor):
    pending = executor.create("started", Worker).start("square", [1, 2, 3], deadline_s=30)

    assert pending.result() == [1, 4, 9]
    assert pending.done()
    assert pending.result(timeout_s=1) == [1, 4, 9]


def test_a_reference_stands_for_its_value_in_any_argument(executor: Executor):
    group = executor.create("references", Worker)
    reference = executor.put(np.full(200_000, 2.0))

    sums = [total for total, *_ in group.look_at(reference)]
    by_name = [total for total, *_ in group.look_at(array=reference)]

    assert sums == by_name == [400_000.0] * executor.pools["main"]


def test_an_error_of_mmrl_comes_back_as_itself_and_leaves_the_workers_usable(executor: Executor):
    group = executor.create("refusing", Worker)

    with pytest.raises(OddRowError, match="row 3 is odd") as raised:
        group.refuse_odd([2, 3, 4, 6])

    assert raised.value.row == 3
    assert group.square([2]) == [4]
    with pytest.raises(OddRowError):
        group.refuse()
    assert group.square([2]) == [4]


def test_methods_that_are_not_marked_cannot_be_called(executor: Executor):
    group = executor.create("unmarked", Worker)

    with pytest.raises(AttributeError, match="did you mean 'square'"):
        group.sqare([1])
    with pytest.raises(AttributeError, match="not marked with @dispatch"):
        group.unmarked()
    with pytest.raises(ValueError, match=r"unmarked.square: a 'shard' method needs a list"):
        group.square(3)


def test_groups_need_a_name_of_their_own_and_a_pool_that_there_is(executor: Executor):
    executor.create("taken", Worker)

    with pytest.raises(ConflictError, match="a worker group 'taken' already"):
        executor.create("taken", Worker)
    with pytest.raises(ConfigError, match="there is no pool 'mian'; did you mean 'main'"):
        executor.create("lost", Worker, pool="mian")


def test_a_handle_calls_the_group_from_within_a_worker(executor: Executor):
    mailbox = executor.create("mailbox", Mailbox)
    sender = executor.create("sender", Sender)

    sender.send(mailbox.remote().only(0), [10, 300_000])

    assert mailbox.receive(2) == [10.0, 300_000.0]


def test_what_a_worker_does_is_timed(executor: Executor, caplog: pytest.LogCaptureFixture):
    with caplog.at_level("DEBUG", logger="mmrl.calls"):
        executor.create("timed", Worker).add()
    assert any(message.startswith("timed.add") and message.endswith(" s") for message in caplog.messages)
