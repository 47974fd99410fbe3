"""Several data sets by weight, shared among ranks: exactly once an epoch whatever happens in between."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmrl.data.mixture import MixPart, Mixture
from mmrl.data.stream import PromptStream
from mmrl.errors import DataError
from mmrl.types import Message, Sample, TextPart


def samples(name: str, count: int) -> list[Sample]:
    return [Sample(f"{name}{index}", (Message("user", (TextPart(f"{name} {index}"),)),)) for index in range(count)]


def mixture(**sizes_and_weights: tuple[int, float]) -> Mixture:
    return Mixture(
        tuple(MixPart(name, samples(name, size), weight) for name, (size, weight) in sizes_and_weights.items())
    )


def ids(batch: Sequence[Sample]) -> list[str]:
    return [sample.id for sample in batch]


def test_parts_are_drawn_in_proportion_to_their_weights() -> None:
    stream = PromptStream(mixture(a=(100, 3), b=(100, 1)), batch_size=4, seed=0)
    drawn = Counter(name[0] for _ in range(10) for name in ids(stream.next_batch()))
    assert drawn == {"a": 30, "b": 10}
    assert stream.take_metrics() == {
        "data/epoch": 0.1, "data/epoch/a": 0.3, "data/epoch/b": 0.1, "data/mix/a": 0.75, "data/mix/b": 0.25,
    }  # fmt: skip


@given(weights=st.lists(st.floats(0.05, 20), min_size=2, max_size=4), steps=st.integers(1, 30))
def test_each_prefix_is_within_one_of_the_shares(weights: list[float], steps: int) -> None:
    parts = Mixture(
        tuple(MixPart(str(index), samples(f"{index}-", 50), weight) for index, weight in enumerate(weights))
    )
    stream = PromptStream(parts, batch_size=7, seed=1)
    drawn = Counter(name.split("-")[0] for _ in range(steps) for name in ids(stream.next_batch()))
    for index, share in enumerate(parts.shares):
        assert abs(drawn[str(index)] - share * 7 * steps) < 1


@pytest.mark.thorough
@given(data=st.data(), size=st.integers(4, 40), seed=st.integers(0, 2**32))
def test_every_sample_comes_once_an_epoch_across_resumes_and_changes_of_rank_count(
    data: st.DataObject, size: int, seed: int
) -> None:
    parts = mixture(a=(size, 2), b=(max(4, size // 2), 1))
    batch_size = data.draw(st.integers(1, 4))
    state, seen = None, list[str]()
    for _ in range(data.draw(st.integers(1, 6))):
        world_size = data.draw(st.integers(1, 5))
        ranks = [
            PromptStream(parts, batch_size=batch_size, seed=seed, rank=rank, world_size=world_size)
            for rank in range(world_size)
        ]
        for rank in ranks if state is not None else []:
            rank.restore(state)
        for _ in range(data.draw(st.integers(0, 20))):
            shares = [ids(rank.next_batch()) for rank in ranks]
            assert sum(map(len, shares)) == batch_size
            assert max(map(len, shares)) - min(map(len, shares)) <= 1
            seen += [one for share in shares for one in share]
        states = [rank.state() for rank in ranks]
        assert states == states[:1] * world_size
        state = json.loads(json.dumps(states[0]))
    one = PromptStream(parts, batch_size=1, seed=seed)
    assert seen == [one.next_batch()[0].id for _ in seen]
    for part in parts.parts:
        own = [name for name in seen if name.startswith(part.name)]
        for epoch in range(len(own) // len(part.samples)):
            assert len(set(own[epoch * len(part.samples) : (epoch + 1) * len(part.samples)])) == len(part.samples)


def test_c06_state_saved_at_the_end_of_an_epoch_swallows_none_of_the_next() -> None:
    first = PromptStream(samples("a", 6), batch_size=3, seed=5)
    seen = [ids(first.next_batch()) for _ in range(4)]
    second = PromptStream(samples("a", 6), batch_size=3, seed=5)
    second.restore(first.state())
    seen += [ids(second.next_batch()) for _ in range(4)]
    assert second.epoch == 4
    assert Counter(name for batch in seen for name in batch) == {f"a{index}": 4 for index in range(6)}


def test_other_content_of_the_same_name_and_size_is_refused() -> None:
    before = samples("a", 6)
    changed = [*before[:-1], replace(before[-1], answer="7")]
    stream = PromptStream(changed, batch_size=2, seed=0)
    with pytest.raises(
        DataError, match=r"data\.train: its content was [0-9a-f]{16} and is now [0-9a-f]{16}.*NAME:VERS"
    ):
        stream.restore(PromptStream(before, batch_size=2, seed=0).state())


@pytest.mark.parametrize(
    ("now", "message"),
    [
        (mixture(a=(6, 1), c=(6, 1)), "data.train was a, b and is now a, c"),
        (mixture(a=(6, 1)), "data.train was a, b and is now a"),
        (mixture(a=(6, 1), b=(6, 2)), "b: its weight was 1 and is now 2"),
        (mixture(a=(6, 1), b=(7, 1)), "b: num_samples was 6 and is now 7"),
    ],
)
def test_another_mixture_is_refused(now: Mixture, message: str) -> None:
    with pytest.raises(DataError, match=message):
        PromptStream(now, batch_size=2, seed=0).restore(
            PromptStream(mixture(a=(6, 1), b=(6, 1)), batch_size=2, seed=0).state()
        )


def test_a_state_of_no_stream_is_refused() -> None:
    stream = PromptStream(samples("a", 6), batch_size=2, seed=0)
    with pytest.raises(DataError, match=r"data\.train was unknown and is now data\.train"):
        stream.restore({"seed": 0, "shuffle": True})


def test_a_part_too_small_for_its_share_is_refused_with_both_numbers() -> None:
    with pytest.raises(DataError, match=r"b has 2 samples, and its weight gives it 4\.0 of each batch of 8"):
        PromptStream(mixture(a=(10, 1), b=(2, 1)), batch_size=8, seed=0)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((MixPart("a", samples("a", 2)), MixPart("a", samples("a", 2))), "names 'a' twice"),
        ((MixPart("a", samples("a", 2), 0.0),), r"weight of 'a' must be above 0 \(got 0\)"),
    ],
)
def test_a_mixture_that_cannot_be_meant_is_refused(parts: tuple[MixPart, ...], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Mixture(parts)


def test_a_mixture_is_a_sequence_of_all_samples() -> None:
    both = mixture(a=(2, 1), b=(3, 5))
    assert len(both) == 5
    assert ids(both) == ["a0", "a1", "b0", "b1", "b2"]
    assert (both[2].id, both[-1].id, ids(both[1:3])) == ("b0", "b2", ["a1", "b0"])
    with pytest.raises(IndexError):
        both[5]


@pytest.mark.parametrize(("rank", "world_size"), [(2, 2), (-1, 2)])
def test_a_rank_outside_the_world_is_refused(rank: int, world_size: int) -> None:
    with pytest.raises(DataError, match=r"rank must be from 0 to world_size - 1 = 1 \(got"):
        PromptStream(samples("a", 4), batch_size=2, seed=0, rank=rank, world_size=world_size)
