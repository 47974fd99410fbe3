"""Runs that train an adapter: in one process, on two ranks, with vLLM, resumed, exported."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from learning import run_config
from safetensors.torch import load_file

from mmrl.config import RunConfig
from mmrl.runs.checkpoint_refs import resolve_model
from mmrl.runs.progress import make_progress
from mmrl.runs.reader import RunReader
from mmrl.trainer import train
from mmrl.trainer.export import export_checkpoint

LORA = {"rank": 4, "alpha": 8.0, "targets": ["language"]}
RANKS = {"executor": "ray", "pools": {"main": {"workers": 2}}}


def config(digits_home: Path, *, steps: int = 3, **changes: Any) -> RunConfig:
    """A short run with a KL term, so that the reference is asked."""
    plain = run_config(digits_home / "base", "digits-which@train", steps=steps).model_dump(mode="json")
    plain["model"]["lora"] = LORA | changes.pop("lora", {})
    plain["rollout"] |= {"prompts_per_step": 4, "max_response_tokens": 5} | changes.pop("rollout", {})
    plain["algorithm"] |= {"group_size": 4, "kl": {"coef": 0.05}}
    plain["reward"] = [{"type": "format", "pattern": ".*[a-m].*"}]  # which the untrained model meets now and then
    plain["optim"]["lr"] = 0.01
    plain["checkpoint"] = {"every": 1, "keep": 9}
    return RunConfig.model_validate(plain | changes)


def run(digits_home: Path, name: str, **changes: Any) -> Path:
    run_dir = digits_home / "runs" / name
    train(config(digits_home, **changes), run_dir=run_dir, progress=make_progress("quiet"))
    return run_dir


def adapter(run_dir: Path, step: int) -> dict[str, torch.Tensor]:
    return load_file(run_dir / f"checkpoints/step-{step:06d}/adapter/adapter_model.safetensors")


def difference(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """Norm of the difference over that of the first. Adam makes whole steps of the smallest gradients, so that single
    elements differ by more than the rounding that they come from."""
    assert one.keys() == other.keys()
    parts = [(weight - other[name]).norm() for name, weight in one.items()]
    return float(torch.stack(parts).norm() / torch.stack([weight.norm() for weight in one.values()]).norm())


@pytest.fixture(scope="module")
def finished(digits_home: Path) -> Path:
    return run(digits_home, "inline")


def metrics(run_dir: Path, name: str) -> list[float]:
    return [row.values[name] for row in RunReader(run_dir).metrics([name])]


def test_a_run_moves_its_adapter_and_nothing_else(finished: Path, digits_home: Path) -> None:
    first, last = adapter(finished, 1), adapter(finished, 3)
    assert any(not torch.equal(first[name], last[name]) for name in first)
    merged = load_file(finished / "checkpoints/step-000003/model/model.safetensors")
    base = load_file(digits_home / "base/model.safetensors")
    changed = {name for name in base if not torch.equal(base[name], merged[name])}
    assert changed
    assert all(".layers." in name and name.endswith("proj.weight") for name in changed)
    assert max(metrics(finished, "sync/logprob_gap_max")) < 1e-4
    assert metrics(finished, "actor/kl_reference")[-1] > 0


def test_a_resumed_run_is_the_run_that_was_never_stopped(finished: Path, digits_home: Path) -> None:
    broken = digits_home / "runs" / "broken"
    shutil.copytree(finished, broken)
    for step in (2, 3):
        shutil.rmtree(broken / f"checkpoints/step-{step:06d}")
    train(config(digits_home), run_dir=broken, progress=make_progress("quiet"))
    for name, weight in adapter(broken, 3).items():
        torch.testing.assert_close(weight, adapter(finished, 3)[name], rtol=1e-6, atol=1e-7)


@pytest.mark.ray
@pytest.mark.parametrize("sync", [pytest.param("merged", marks=pytest.mark.slow), "adapter"])
def test_two_ranks_train_the_same_adapter_and_keep_their_samplers_up_to_date(
    finished: Path, digits_home: Path, sync: str
) -> None:
    """The sampler of each rank is a copy that gets the weights, or the adapter, after every step; canary on."""
    ranks = run(digits_home, f"ranks-{sync}", placement=RANKS, lora={"sync": sync})
    assert max(metrics(ranks, "sync/logprob_gap_max")) < 1e-4
    assert difference(adapter(ranks, 3), adapter(finished, 3)) < 1e-3


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.parametrize("sync", ["merged", "adapter"])
def test_o05_vllm_samples_with_the_adapter_of_every_step(finished: Path, digits_home: Path, sync: str) -> None:
    """The canary holds the sampler's logprobs against the actor's at every step: an old adapter would show. Resumed
    too, where the engine begins with the base."""
    run_dir = digits_home / "runs" / f"vllm-{sync}"
    for steps in (2, 3):
        settings = config(digits_home, steps=steps, rollout={"engine": "vllm"}, lora={"sync": sync})
        train(settings, run_dir=run_dir, progress=make_progress("quiet"))
    assert max(metrics(run_dir, "sync/logprob_gap_max")) < 1e-4
    assert len(metrics(run_dir, "sync/logprob_gap_max")) == 3
    assert difference(adapter(run_dir, 3), adapter(finished, 3)) < 1e-3


def test_an_adapter_is_exported_merged_and_alone(finished: Path, tmp_path: Path) -> None:
    merged = export_checkpoint(resolve_model("inline@3"), tmp_path / "merged")
    assert json.loads((merged / "lineage.json").read_text())["verified"]["num_answers"] == 6
    alone = export_checkpoint(resolve_model("inline@3"), tmp_path / "alone", form="adapter")
    assert json.loads((alone / "adapter_config.json").read_text())["r"] == 4
    assert json.loads((alone / "lineage.json").read_text())["verified"]["num_answers"] == 6
    assert not (alone / "model.safetensors").exists()
    assert (alone / "tokenizer.json").is_file()
