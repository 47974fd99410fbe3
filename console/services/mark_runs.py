"""The run that learns from a data set of marks: DPO, or a reward model, from the policy that made the answers."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from pathlib import Path
from typing import Any

from mmrl.data.registry import DatasetInfo, DatasetRegistry
from mmrl.errors import ConfigError, MmrlError
from mmrl.runs.checkpoint_refs import resolve_model
from mmrl.runs.reader import RunReader

GOALS: Mapping[str, str] = {"preference": "dpo", "reward_model": "reward-model"}
"""Kinds of runs that learn from pairs, and what their names end in."""
_KEPT = ("model", "rollout", "actor", "placement", "reward", "reward_runner")
_KEPT_OF_DATA = ("max_prompt_tokens", "on_overlong", "max_images", "image")
_SLOWER = 0.1
_BATCH = 32
_PASSES = 3
_LEAST_STEPS = 5


def base_text(label: str, model: Path) -> str:
    """How an address names a model: RUN@STEP where that finds it, else its folder."""
    try:
        return label if resolve_model(label).model.resolve() == model.resolve() else str(model)
    except MmrlError:
        return str(model)


def marks_config(name: str, base: str, goal: str = "preference") -> dict[str, Any]:
    """A whole config that needs no further setting. name: of the data set, or NAME:VERSION; base: see `base_text`.

    The config names the version, so that marks which come later change nothing of the run.

    Model, limits, rewards and placement are those of the run that the base is of. The learning rate is a tenth of that
    run's and falls to 0, over three passes: some ten pairs are learned in a few steps, and more of them cost accuracy
    elsewhere. Raises NotFoundError, ConfigError for a goal that learns from no pairs.
    """
    if goal not in GOALS:
        raise ConfigError(f"marks are learned from by {' and '.join(GOALS)} (got {goal!r})")
    ref = resolve_model(base)
    parent = {} if ref.run_dir is None else RunReader(ref.run_dir).config()
    dataset, _, version = name.partition(":")
    return config_like(parent, DatasetRegistry().find(dataset, version or None), ref.model, goal)


def config_like(parent: Mapping[str, Any], info: DatasetInfo, model: Path, goal: str) -> dict[str, Any]:
    """parent: the config of the run that made the model, as plain data; empty for a model that no run made."""
    num_pairs = info.splits["train"].num_rows
    batch_size = min(_BATCH, num_pairs)
    steps = max(_LEAST_STEPS, ceil(_PASSES * num_pairs / batch_size))
    config: dict[str, Any] = {"name": f"{info.name}-{GOALS[goal]}", "kind": goal}
    config |= {part: parent[part] for part in _KEPT if parent.get(part)}
    config["model"] = {**(parent.get("model") or {}), "path": str(model)}
    config["data"] = _data(info, parent)
    config[goal] = {"type": "dpo", "batch_size": batch_size} if goal == "preference" else {"batch_size": batch_size}
    if goal == "reward_model":
        config.pop("reward", None)
        config.pop("rollout", None)
    config["optim"] = _optim(parent)
    config["train"] = {"steps": steps}
    config["eval"] = {"every": max(1, steps // 4), "at_start": True}
    config["checkpoint"] = {"every": max(1, steps // 2), "keep": 2, "best": None}
    return config


def _data(info: DatasetInfo, parent: Mapping[str, Any]) -> dict[str, Any]:
    """Held-out pairs decide where there are some; else what the base's run was evaluated on."""
    given = parent.get("data") or {}
    data: dict[str, Any] = {"train": f"{info.name}:{info.version}@train"}
    if "test" in info.splits:
        data["eval"] = f"{info.name}:{info.version}@test"
    elif given.get("eval"):
        data["eval"] = given["eval"]
    return data | {name: given[name] for name in _KEPT_OF_DATA if name in given}


def _optim(parent: Mapping[str, Any]) -> dict[str, Any]:
    given = parent.get("optim") or {}
    rate = given.get("lr")
    found: dict[str, Any] = {"schedule": "linear", "warmup_steps": 1}
    return found | {"lr": rate * _SLOWER} if isinstance(rate, int | float) else found
