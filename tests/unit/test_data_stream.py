"""The prompt stream: exactly once an epoch, whatever interrupts it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmrl.data.stream import PromptStream
from mmrl.errors import DataError
from mmrl.types import Message, Sample, TextPart


def samples(count: int) -> list[Sample]:
    return [Sample(str(index), (Message("user", (TextPart(f"question {index}"),)),)) for index in range(count)]


def ids(batch: list[Sample]) -> list[int]:
    return [int(sample.id) for sample in batch]


def test_in_file_order_a_batch_straddles_the_end_of_an_epoch() -> None:
    stream = PromptStream(samples(5), batch_size=3, seed=0, shuffle=False)
    assert [ids(stream.next_batch()) for _ in range(5)] == [[0, 1, 2], [3, 4, 0], [1, 2, 3], [4, 0, 1], [2, 3, 4]]
    assert (stream.epoch, stream.state()["parts"][0]["position"]) == (3, 0)


def test_order_depends_on_seed_and_epoch_only() -> None:
    first, second = (PromptStream(samples(50), batch_size=size, seed=3) for size in (50, 10))
    epochs = [ids(first.next_batch()) for _ in range(2)]
    again = [[index for _ in range(5) for index in ids(second.next_batch())] for _ in range(2)]
    assert epochs == again
    assert epochs[0] != epochs[1]
    assert epochs[0] != ids(PromptStream(samples(50), batch_size=50, seed=4).next_batch())


def test_order_is_pinned_for_resuming_elsewhere() -> None:
    assert ids(PromptStream(samples(10), batch_size=10, seed=0).next_batch()) == [6, 1, 0, 5, 3, 8, 7, 9, 2, 4]


@pytest.mark.thorough
@given(data=st.data(), size=st.integers(1, 40), seed=st.integers(0, 2**32), shuffle=st.booleans())
def test_every_sample_comes_exactly_once_an_epoch_across_any_resumes(
    data: st.DataObject, size: int, seed: int, shuffle: bool
) -> None:
    dataset = samples(size)
    num_epochs = 3
    batch_size = data.draw(st.integers(1, size))
    resumed_before = data.draw(st.sets(st.integers(0, num_epochs * size)))
    stream = PromptStream(dataset, batch_size=batch_size, seed=seed, shuffle=shuffle)
    seen: list[int] = []
    for step in range(-(-num_epochs * size // batch_size)):
        if step in resumed_before:
            state = json.loads(json.dumps(stream.state()))
            batch_size = data.draw(st.integers(1, batch_size))
            stream = PromptStream(dataset, batch_size=batch_size, seed=seed, shuffle=shuffle)
            stream.restore(state)
        seen += ids(stream.next_batch())
    for epoch in range(len(seen) // size):
        assert sorted(seen[epoch * size : (epoch + 1) * size]) == list(range(size))


@given(size=st.integers(2, 30), stop=st.integers(0, 20), seed=st.integers(0, 99))
def test_resumed_stream_goes_on_as_if_it_had_not_stopped(size: int, stop: int, seed: int) -> None:
    whole = PromptStream(samples(size), batch_size=2, seed=seed)
    batches = [ids(whole.next_batch()) for _ in range(stop + 10)]
    stopped = PromptStream(samples(size), batch_size=2, seed=seed)
    for _ in range(stop):
        stopped.next_batch()
    resumed = PromptStream(samples(size), batch_size=2, seed=seed)
    resumed.restore(stopped.state())
    assert [ids(resumed.next_batch()) for _ in range(10)] == batches[stop:]


def test_data_set_smaller_than_a_batch_is_refused_with_both_numbers() -> None:
    with pytest.raises(DataError, match=r"has 6 samples, fewer than one batch of 8; use a batch of at most 6, or more"):
        PromptStream(samples(6), batch_size=8, seed=0)


def test_batch_of_nothing_is_refused() -> None:
    with pytest.raises(DataError, match=r"at least 1 sample \(got 0\)"):
        PromptStream(samples(6), batch_size=0, seed=0)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (PromptStream(samples(5), batch_size=2, seed=0), "data.train: num_samples was 6 and is now 5"),
        (PromptStream(samples(6), batch_size=2, seed=1), "seed was 0 and is now 1"),
        (PromptStream(samples(6), batch_size=2, seed=0, shuffle=False), "shuffle was True and is now False"),
    ],
)
def test_state_of_another_order_is_refused(other: PromptStream, message: str) -> None:
    with pytest.raises(DataError, match=message):
        other.restore(PromptStream(samples(6), batch_size=2, seed=0).state())
