"""Weights by broadcast: a real group of a sender and two takers, here over gloo and in threads."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from mmrl.cluster.policy.weight_stream import Chunk, Mailbox, WeightStream
from mmrl.cluster.policy.weight_wire import WireSender, WireTaker
from mmrl.config.placement import PlacementConfig

CPU = torch.device("cpu")


class Takers:
    """A handle to rollout workers, each with a mailbox."""

    def __init__(self, num_workers: int) -> None:
        self.num_workers = num_workers
        self.boxes = [Mailbox(timeout_s=20, wire=WireTaker(rank + 1, CPU)) for rank in range(num_workers)]
        self.announced: list[int] = []

    def put(self, value: Chunk) -> Chunk:
        return value

    def call(self, method: str, chunk: Chunk) -> None:
        assert method == "deliver"
        assert not isinstance(chunk.weights, tuple), "tensors do not go through the store"
        self.announced.append(len(chunk.weights.shapes))
        for box in self.boxes:
            box.put(chunk)


def _all_of(box: Mailbox, version: int) -> list[tuple[str, Tensor]]:
    return list(box.weights(version))


def weights_of(version: int) -> list[tuple[str, Tensor]]:
    torch.manual_seed(version)
    shapes = {"a": (3, 5), "scalar": (), "b": (7,), "c": (2, 1, 4), "none": (0, 3)}
    named = [(name, torch.randn(shape, dtype=torch.float64)) for name, shape in shapes.items()]
    return [*named, ("turned", torch.randn(4, 6, dtype=torch.float64).t())]


def test_every_taker_gets_every_tensor_of_each_version() -> None:
    takers = Takers(2)
    stream = WeightStream(takers, torch.float32, by_broadcast=True, chunk_bytes=100)
    sender = WireSender(2, CPU, timeout_s=20)
    with ThreadPoolExecutor(3) as threads:
        for version in (1, 2):
            weights = weights_of(version)
            coming = [threads.submit(_all_of, box, version) for box in takers.boxes]
            threads.submit(stream.send, iter(weights), version, wire=sender).result(30)
            for future in coming:
                got = future.result(30)
                assert [name for name, _ in got] == [name for name, _ in weights]
                for (_, mine), (_, theirs) in zip(got, weights, strict=True):
                    assert torch.equal(mine, theirs.to(torch.float32))
    assert len(takers.announced) >= 4, "chunks of at most some hundred bytes"
    sender.close()
    for box in takers.boxes:
        box.close()


def test_the_group_meets_at_the_one_address_that_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    sender = WireSender(1, CPU, timeout_s=20)
    port = sender.meeting.port
    socket.create_connection(("127.0.0.1", port), timeout=5).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port), timeout=5)
    sender.close()


def test_what_was_sent_may_change_behind_it() -> None:
    takers = Takers(1)
    sender = WireSender(1, CPU, timeout_s=20)
    weight = torch.ones(4)
    with ThreadPoolExecutor(1) as threads:
        coming = threads.submit(_all_of, takers.boxes[0], 1)
        WeightStream(takers, torch.float32, by_broadcast=True).send(iter([("w", weight)]), 1, wire=sender)
        weight.zero_()
        ((_, got),) = coming.result(30)
    assert got.tolist() == [1, 1, 1, 1]
    sender.close()
    takers.boxes[0].close()


TWO = {"executor": "ray", "roles": {"rollout": "samplers"}}


@pytest.mark.parametrize(
    ("gpus", "chosen", "expected"),
    [(0, "auto", False), (1, "auto", True), (0.5, "auto", False), (1, "object_store", False), (0, "broadcast", True)],
)
def test_auto_broadcasts_where_every_worker_has_a_gpu(gpus: float, chosen: str, expected: bool) -> None:
    pools = {"main": {"gpus_per_worker": gpus}, "samplers": {"gpus_per_worker": gpus}}
    assert PlacementConfig(**TWO, pools=pools, weight_transfer=chosen).broadcasts_weights is expected


def test_ways_that_cannot_be_are_refused() -> None:
    shared = {"main": {"gpus_per_worker": 1}, "samplers": {"gpus_per_worker": 0.5}}
    with pytest.raises(ValueError, match="share a GPU, as in pool 'samplers'"):
        PlacementConfig(**TWO, pools=shared, weight_transfer="broadcast")
    for mine, theirs in ((1, 0), (0, 1), (2, 0)):
        mixed = {"main": {"gpus_per_worker": mine}, "samplers": {"gpus_per_worker": theirs}}
        with pytest.raises(ValueError, match="cannot broadcast between GPUs and CPUs"):
            PlacementConfig(**TWO, pools=mixed, weight_transfer="broadcast")
        assert not PlacementConfig(**TWO, pools=mixed).broadcasts_weights
    with pytest.raises(ValueError, match="actor and rollout are both in pool 'main'"):
        PlacementConfig(executor="ray", weight_transfer="object_store")
