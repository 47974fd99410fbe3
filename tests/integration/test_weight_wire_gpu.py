"""Weights from GPU to GPU by NCCL. The CPU twins, over gloo, are in test_weight_wire and test_hybrid_runs."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection

import pytest
import torch

from mmrl.cluster.policy.weight_wire import Announcement, WireSender, WireTaker

pytestmark = pytest.mark.gpu


def take(connection: Connection) -> None:
    """The other process: each announced chunk is taken on the second GPU, and its sums are told."""
    device = torch.device("cuda", 1)
    torch.cuda.set_device(device)
    taker = WireTaker(1, device)
    while (announced := connection.recv()) is not None:
        assert isinstance(announced, Announcement)
        connection.send([(name, weight.double().sum().item()) for name, weight in taker.take(announced)])
    taker.close()


def test_tensors_arrive_on_another_gpu() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("NCCL needs a GPU for each rank, and there is one")
    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    mine, theirs = multiprocessing.Pipe()
    other = multiprocessing.get_context("spawn").Process(target=take, args=(theirs,))
    other.start()
    sender = WireSender(1, device, timeout_s=60)
    for seed in (1, 2):
        torch.manual_seed(seed)
        weights = [("a", torch.randn(300, 200, device=device)), ("b", torch.randn(7, device=device))]
        mine.send(sender.announce(weights, torch.float32))
        sender.send(weights, torch.float32)
        for (name, total), (own, weight) in zip(mine.recv(), weights, strict=True):
            assert (name, total) == (own, pytest.approx(weight.double().sum().item(), rel=1e-9))
    mine.send(None)
    sender.close()
    other.join(60)
    assert other.exitcode == 0
