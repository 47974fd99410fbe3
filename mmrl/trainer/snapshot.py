"""A snapshot of a run after a step: copied in memory in one go, then written at leisure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from mmrl.checkpoint_files import ADAPTER_FOLDER, MODEL_FOLDER, STATE_FILE, TRAINER_FILE
from mmrl.models.lora import adapter_config, adapter_state, has_adapter, save_adapter
from mmrl.models.policy import PolicyModel, companion_files, save_weights
from mmrl.runs.layout import CONFIG_FILE
from mmrl.trainer.checkpoint_folder import seal
from mmrl.trainer.state import MemoryCopy, Stateful


@dataclass(frozen=True, eq=False)
class Snapshot:
    """weights: of the model, by module name. parts: part -> its state. state: JSON values. num_bytes: of all tensors.

    metrics: of the step, for the manifest.
    """

    step: int
    weights: Mapping[str, Tensor]
    parts: Mapping[str, Any]
    state: Mapping[str, Any]
    metrics: Mapping[str, float]
    num_bytes: int


class SnapshotTaker(Protocol):
    """Takes snapshots of one run and writes them as checkpoint folders."""

    def take(self, step: int, *, state: Mapping[str, Any], metrics: Mapping[str, float]) -> Snapshot:
        """Copies what changes, so that the run may go on."""
        ...

    def write(self, snapshot: Snapshot, folder: Path) -> int:
        """Writes into `folder`, which must be new or empty, the manifest last. Returns the bytes written."""
        ...


class Snapshots:
    """Takes snapshots of one run and writes them as checkpoint folders.

    What never changes (tokenizer, processor, template) is kept as bytes from the start: the tokenizer may not be asked
    by two threads at once.
    config_yaml: the config as the run directory holds it.
    """

    def __init__(self, policy: PolicyModel, parts: Mapping[str, Stateful], *, config_yaml: bytes) -> None:
        self._policy = policy
        self._parts = dict(parts)
        self._config_yaml = config_yaml
        self._companions = companion_files(policy)
        self._base = str(policy.hf.config._name_or_path)

    def take(self, step: int, *, state: Mapping[str, Any], metrics: Mapping[str, float]) -> Snapshot:
        """Copies what changes: the weights and the states of all parts."""
        memory = MemoryCopy()
        hf = self._policy.hf
        weights = memory.of(adapter_state(hf) if has_adapter(hf) else hf.state_dict(), place="the model")
        return self._take(step, weights, memory, state, metrics)

    def take_parts(self, step: int, *, state: Mapping[str, Any], metrics: Mapping[str, float]) -> Snapshot:
        """The same without the weights, which somebody else writes."""
        return self._take(step, {}, MemoryCopy(), state, metrics)

    def write(self, snapshot: Snapshot, folder: Path) -> int:
        """Writes into `folder`, which must be new or empty, the manifest last. Returns the bytes written."""
        model = folder / MODEL_FOLDER
        model.mkdir(parents=True)
        hf = self._policy.hf
        if has_adapter(hf):
            save_weights(self._policy, model, {**hf.state_dict(), **snapshot.weights})
            save_adapter(snapshot.weights, adapter_config(hf, self._base), folder / ADAPTER_FOLDER)
        else:
            save_weights(self._policy, model, snapshot.weights)
        return self.write_parts(snapshot, folder)

    def write_parts(self, snapshot: Snapshot, folder: Path) -> int:
        """All but the weights and their configuration, which lie in the folder already."""
        model = folder / MODEL_FOLDER
        for name, content in self._companions.items():
            (model / name).parent.mkdir(parents=True, exist_ok=True)
            (model / name).write_bytes(content)
        with (folder / TRAINER_FILE).open("wb") as file:
            torch.save(dict(snapshot.parts), file)
        (folder / STATE_FILE).write_text(json.dumps({"step": snapshot.step, **snapshot.state}))
        (folder / CONFIG_FILE).write_bytes(self._config_yaml)
        return seal(folder, step=snapshot.step, metrics=snapshot.metrics)

    def _take(
        self,
        step: int,
        weights: Mapping[str, Tensor],
        memory: MemoryCopy,
        state: Mapping[str, Any],
        metrics: Mapping[str, float],
    ) -> Snapshot:
        parts = {name: memory.of(part.state_dict(), place=name) for name, part in self._parts.items()}
        return Snapshot(step, weights, parts, dict(state), dict(metrics), memory.num_bytes)
