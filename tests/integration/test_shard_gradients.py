"""Divided among ranks (FSDP2), actor, critic and reference compute what they compute in one piece."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from shard_alone import check_files, gap_after_resume, resume_alone, world_alone, write_whole_checkpoint
from shard_runs import run_ranks

Report = dict[str, dict[str, Any]]

IMAGES_ON_ONE = {"edges": [0, 1, 4]}
"""Rank 0 has the one prompt without an image."""

FAST: list[dict[str, Any]] = [
    {"name": "equal shares, clipped", "optim": {"grad_clip": 1e-3}},
    {"name": "images on one rank", **IMAGES_ON_ONE},
    {
        "name": "images in responses alone",
        "images_in_responses": True,
        "prompts": [0, 2],
        "edges": [0, 1, 2],
        "train": {"path": "packed"},
    },
    {"name": "logits in chunks, as of large vocabularies", **IMAGES_ON_ONE, "chunk_elements": 3000},
    {"name": "text only", "prompts": [0, 1], "edges": [0, 1, 1]},
    {"name": "a rank without rows", "edges": [0, 4, 4]},
    {"name": "responses of one token on one rank", "single_tokens": True},
    {"name": "frozen vision", **IMAGES_ON_ONE, "model": {"freeze": ["vision"]}},
    {
        "name": "gradient checkpointing and offload",
        **IMAGES_ON_ONE,
        "train": {"gradient_checkpointing": True},
        "fsdp": {"offload": True},
    },
    {"name": "hybrid", **IMAGES_ON_ONE, "fsdp": {"shard_size": 1}},
    {"name": "qwen2_vl", **IMAGES_ON_ONE, "family": "qwen2_vl"},
    {"name": "qwen3_vl", **IMAGES_ON_ONE, "family": "qwen3_vl"},
    {"name": "qwen2", "prompts": [0, 3], "edges": [0, 1, 3], "family": "qwen2"},
    {"name": "tied weights", "kind": "weights", "family": "tied"},
    {"name": "weights in a pickle", "kind": "weights", "family": "pickled"},
    {"name": "critic", "kind": "critic", **IMAGES_ON_ONE},
    {"name": "reference", "kind": "reference", "edges": [0, 4, 4]},
    {"name": "faults", "kind": "faults"},
    {"name": "disks", "kind": "disk"},
    {"name": "save", "kind": "save"},
    {"name": "resume", "kind": "resume", "folder": "whole"},
]
SLOW: list[dict[str, Any]] = [
    {"name": "unequal shares", "edges": [0, 3, 4]},
    {"name": "frozen projector", **IMAGES_ON_ONE, "model": {"freeze": ["projector"]}},
    {"name": "frozen vision and projector", **IMAGES_ON_ONE, "model": {"freeze": ["vision", "projector"]}},
    {"name": "frozen language", "edges": [0, 3, 4], "model": {"freeze": ["language"]}},
    {"name": "weights kept whole", **IMAGES_ON_ONE, "fsdp": {"reshard_after_forward": False}},
    {"name": "tied embeddings", **IMAGES_ON_ONE, "family": "tied"},
    {"name": "plain path", **IMAGES_ON_ONE, "train": {"path": "plain"}},
    {"name": "plain path, checkpointing", "train": {"path": "plain", "gradient_checkpointing": True}},
    {"name": "qwen3_vl, checkpointing", "family": "qwen3_vl", "train": {"gradient_checkpointing": True}},
    {"name": "critic without rows on a rank", "kind": "critic", "edges": [0, 4, 4], "fsdp": {"offload": True}},
]
ON_FOUR: list[dict[str, Any]] = [
    {"name": "two by two", "edges": [0, 1, 2, 3, 4], "fsdp": {"shard_size": 2}},
    {"name": "two idle ranks", **IMAGES_ON_ONE},
    {"name": "critic, two by two", "kind": "critic", "edges": [0, 2, 4], "fsdp": {"shard_size": 2}},
]
LIMITS = {"logprobs": 5e-6, "pass_logprobs": 5e-6, "values": 5e-6, "gradient": 1e-5, "weights": 1e-5, "metrics": 1e-4}


@pytest.fixture
def models(tiny_model: Callable[..., Path], tmp_path: Path) -> dict[str, Path]:
    families = {name: tiny_model(name, seed=1) for name in ("qwen2_5_vl", "qwen2_vl", "qwen3_vl", "qwen2")}
    tied = tiny_model("qwen2_5_vl", seed=1, tie_embeddings=True)
    return {**families, "tied": tied, "pickled": with_pickled_weights(families["qwen2"], tmp_path / "pickled")}


def with_pickled_weights(model: Path, folder: Path) -> Path:
    """A copy of the model as older versions of transformers wrote it."""
    shutil.copytree(model, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    torch.save(load_file(model / "model.safetensors"), folder / "pytorch_model.bin")
    return folder


def test_t05_t07_c03_c04_two_ranks_compute_what_one_process_does(models: dict[str, Path], tmp_path: Path) -> None:
    """One run for all cases, since starting it is what takes long. T05: ranks without images complete; T07: frozen
    parts are divided or stay whole; C03: ranks that do not share a disk write no checkpoint; C04: from one process to
    two ranks and from two ranks to one process the next update is the same."""
    alone = world_alone(tmp_path, models)
    write_whole_checkpoint(alone, tmp_path / "whole")
    report = run_ranks(2, models=models, scratch=tmp_path, cases=FAST)
    resume_alone(alone, tmp_path / "checkpoint")

    assert gap_after_resume(tmp_path / "whole", "2") < 1e-6
    assert gap_after_resume(tmp_path / "checkpoint", "alone") < 1e-6
    check_files(tmp_path / "checkpoint" / "checkpoint")
    faults, disks = report.pop("faults"), report.pop("disks")
    assert_all_close(report)
    assert "on rank 1: loss is nan" in faults["loss_message"]
    assert "not finite already: advantages" in faults["loss_message"]
    assert "grad_norm is inf" in faults["gradient_message"]
    assert (faults["loss_differ"], faults["gradient_differ"]) == (0, 0), "every rank raises the same error"
    assert faults["moved"] == 0, "no weight has moved on any rank"
    assert faults["stuck"] == 0, "the next update of good numbers is made"
    seen = "checkpoint FOLDER/shards: 1 of 2 ranks (1) do not see what rank 0 writes there"
    assert disks["message"].startswith(seen)
    assert disks["blocked"].startswith("the model could not be written to FOLDER/model: Not a directory")


@pytest.mark.slow
def test_one_rank_computes_what_one_process_does(models: dict[str, Path], tmp_path: Path) -> None:
    cases = [{"name": "actor"}, {"name": "critic", "kind": "critic"}]
    assert_all_close(run_ranks(1, models=models, scratch=tmp_path, cases=cases))


@pytest.mark.slow
def test_two_ranks_compute_what_one_process_does_whatever_is_frozen(models: dict[str, Path], tmp_path: Path) -> None:
    assert_all_close(run_ranks(2, models=models, scratch=tmp_path, cases=SLOW))


@pytest.mark.slow
def test_four_ranks_compute_what_one_process_does(models: dict[str, Path], tmp_path: Path) -> None:
    assert_all_close(run_ranks(4, models=models, scratch=tmp_path, cases=ON_FOUR))


@pytest.mark.slow
def test_in_bfloat16_two_ranks_stay_near_one_process(models: dict[str, Path], tmp_path: Path) -> None:
    """Whole weights are rounded before they are gathered, so norms are rounded too; the rest is as with autocast."""
    cases = [
        {"name": family, "family": family, "model": {"dtype": "bfloat16"}, **IMAGES_ON_ONE}
        for family in ("qwen2_5_vl", "qwen2_vl", "qwen3_vl")
    ]
    for report in run_ranks(2, models=models, scratch=tmp_path, cases=cases).values():
        assert report["logprobs"] < 0.05
        assert report["gradient"] < 0.05


def assert_all_close(report: Report) -> None:
    far = {
        f"{case}: {name}": value
        for case, differences in report.items()
        for name, value in differences.items()
        if not value <= LIMITS.get(name, 0.0)
    }
    assert not far
