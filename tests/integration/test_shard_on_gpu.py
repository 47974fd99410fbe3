"""Divided models on GPUs, over NCCL. Their CPU twins are in test_shard_gradients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from shard_runs import run_ranks

pytestmark = pytest.mark.gpu

CASES = [
    {"name": "images on one rank", "edges": [0, 1, 4]},
    {"name": "a rank without rows", "edges": [0, 4, 4]},
    {"name": "offload", "fsdp": {"offload": True}},
    {"name": "weights", "kind": "weights"},
    {"name": "critic", "kind": "critic", "edges": [0, 1, 4]},
]


def test_ranks_on_gpus_compute_what_one_process_does(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    import torch

    models = {"qwen2_5_vl": tiny_model(seed=1)}
    num_ranks = min(2, torch.cuda.device_count())
    report = run_ranks(num_ranks, models=models, scratch=tmp_path, cases=CASES, device="cuda")
    for case, differences in report.items():
        assert max(differences.values()) < 1e-4, case
