"""What is told of a placement that asks for more than this machine has."""

from __future__ import annotations

import pytest

from mmrl.config.placement import PlacementConfig
from mmrl.trainer import machine_notes as module
from mmrl.trainer.machine_notes import machine_notes


@pytest.fixture(autouse=True)
def two_cores_and_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(module.torch.cuda, "device_count", lambda: 0)


def notes(**placement: object) -> list[str]:
    return machine_notes(PlacementConfig.model_validate(placement))


def test_what_fits_needs_no_note() -> None:
    assert notes() == []
    assert notes(executor="ray", pools={"main": {"workers": 2}}) == []


def test_more_threads_than_cores_are_told() -> None:
    (note,) = notes(executor="ray", pools={"main": {"workers": 20}})
    assert "20 threads on 2 cores" in note


def test_gpus_that_are_not_there_are_told_with_both_numbers() -> None:
    (note,) = notes(executor="ray", pools={"main": {"workers": 2, "gpus_per_worker": 1}})
    assert "ask for 2 GPUs and this machine has 0" in note


def test_of_another_cluster_nothing_is_claimed() -> None:
    (note,) = notes(executor="ray", address="10.0.0.1:6379", pools={"main": {"workers": 20, "gpus_per_worker": 1}})
    assert "is found out when the run starts" in note
