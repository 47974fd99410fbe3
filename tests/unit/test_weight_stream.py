"""Weights on their way to another pool: chunks of a bounded size, and a mailbox that takes one version in order."""

from __future__ import annotations

import pytest
import torch

from mmrl.cluster.policy.weight_stream import Chunk, Mailbox, WeightStream
from mmrl.errors import RunFailedError

WEIGHTS = [(name, torch.full((4,), float(index))) for index, name in enumerate("abcde")]


class Workers:
    """A handle whose `deliver` puts into a list."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []

    def put(self, value: Chunk) -> Chunk:
        return value

    def call(self, method: str, chunk: Chunk) -> None:
        assert method == "deliver"
        self.chunks.append(chunk)


def sent(*, chunk_bytes: int, dtype: torch.dtype = torch.float32) -> list[Chunk]:
    workers = Workers()
    WeightStream(workers, dtype, chunk_bytes=chunk_bytes).send(iter(WEIGHTS), 7)
    return workers.chunks


def test_a_chunk_ends_with_the_tensor_that_fills_it_and_the_last_one_says_so() -> None:
    """Tensors of 16 bytes, chunks of 32."""
    chunks = sent(chunk_bytes=32)
    assert [[name for name, _ in chunk.weights] for chunk in chunks] == [["a", "b"], ["c", "d"], ["e"]]
    assert [(chunk.version, chunk.index, chunk.is_last) for chunk in chunks] == [
        (7, 0, False),
        (7, 1, False),
        (7, 2, True),
    ]


def test_weights_travel_in_the_precision_of_the_engine() -> None:
    (chunk,) = sent(chunk_bytes=1000, dtype=torch.bfloat16)
    assert {weight.dtype for _, weight in chunk.weights} == {torch.bfloat16}


def test_what_is_put_in_comes_out_whole_and_in_order() -> None:
    mailbox = Mailbox(timeout_s=1)
    for chunk in sent(chunk_bytes=64):
        mailbox.put(chunk)
    assert [(name, float(weight[0])) for name, weight in mailbox.weights(7)] == list(
        zip("abcde", range(5), strict=True)
    )


def test_a_chunk_of_another_version_is_refused() -> None:
    mailbox = Mailbox(timeout_s=1)
    mailbox.put(sent(chunk_bytes=1000)[0])
    with pytest.raises(RunFailedError, match="part 0 of version 7 came in place of part 0 of version 8"):
        list(mailbox.weights(8))


def test_weights_that_do_not_come_end_the_wait() -> None:
    with pytest.raises(RunFailedError, match="part 0 of version 7 did not come"):
        list(Mailbox(timeout_s=0.05).weights(7))


def test_nobody_waits_for_ever_for_room() -> None:
    mailbox = Mailbox(timeout_s=0.05)
    chunks = sent(chunk_bytes=16)
    mailbox.put(chunks[0])
    mailbox.put(chunks[1])
    with pytest.raises(RunFailedError, match="nobody has taken the weights of version 7"):
        mailbox.put(chunks[2])
