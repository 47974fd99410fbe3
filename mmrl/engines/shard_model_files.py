"""The weights of a sharded policy as a model folder, written while they are put together.

All ranks take every weight, which its shards need; rank 0 writes them. It holds one file's weights at a time, so that
its memory does not grow with the model.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from mmrl.engines.sharding import Ranks
from mmrl.errors import CheckpointWriteError
from mmrl.models.lockstep import whole
from mmrl.models.lora import adapter_config, adapter_weights, has_adapter, save_adapter
from mmrl.models.policy import PolicyModel, checkpoint_names, named_weights
from mmrl.models.reward_model import RewardModel, save_head
from mmrl.models.saving import save_settings

FILE_BYTES = 2 << 30
"""Most bytes of weights in a file, but for a single one that is larger."""


def save_sharded_model(
    policy: PolicyModel, folder: Path, ranks: Ranks, *, dtype: torch.dtype | None = None, file_bytes: int = FILE_BYTES
) -> None:
    """Weights, under the names that they were loaded from, and configuration, into `folder`; all ranks call it.

    dtype: of the saved weights; if not given the one in which they are trained. What lies beside (tokenizer, processor)
    is `companion_files`'. Raises CheckpointWriteError, on every rank, where rank 0 cannot write.
    """
    dtype = policy.hf.dtype if dtype is None else dtype
    writer = _FileWriter(folder, _plan(policy, dtype, file_bytes)) if ranks.rank == 0 else None
    fault = None if writer is None else _fault_of(writer.begin)
    for name, weight in named_weights(policy):
        if writer is not None and fault is None:
            fault = _fault_of(partial(writer.add, name, weight.to("cpu", dtype)))
    if writer is not None and fault is None:
        fault = _fault_of(writer.finish) or _fault_of(partial(save_settings, policy, folder, dtype))
    told = ranks.gather(fault)[0]
    if told is not None:
        raise CheckpointWriteError(f"the model could not be written to {folder}: {told}")


def save_sharded_adapter(policy: PolicyModel, folder: Path, ranks: Ranks) -> None:
    """The adapter as peft loads it, put together by all ranks; nothing for a policy without one."""
    if not has_adapter(policy.hf):
        return
    state = dict(adapter_weights(policy.hf, policy.device))
    fault: str | None = None
    if ranks.rank == 0:
        config = adapter_config(policy.hf, str(policy.hf.config._name_or_path))
        fault = _fault_of(partial(save_adapter, state, config, folder))
    told = ranks.gather(fault)[0]
    if told is not None:
        raise CheckpointWriteError(f"the adapter could not be written to {folder}: {told}")


def save_sharded_reward_model(
    model: RewardModel, folder: Path, ranks: Ranks, *, dtype: torch.dtype | None = None
) -> None:
    """`save_sharded_model` of the body, and the head beside it."""
    save_sharded_model(model.body, folder, ranks, dtype=dtype)
    head = whole(model.head.weight.detach(), model.device)
    fault = _fault_of(partial(save_head, head, folder)) if ranks.rank == 0 else None
    told = ranks.gather(fault)[0]
    if told is not None:
        raise CheckpointWriteError(f"the head of the reward model could not be written to {folder}: {told}")


class _FileWriter:
    """Collects the weights of one file after another and writes each file once it is complete."""

    def __init__(self, folder: Path, plan: list[list[str]]) -> None:
        self._folder = folder
        names = [f"model-{index:05d}-of-{len(plan):05d}.safetensors" for index in range(1, len(plan) + 1)]
        self._files = ["model.safetensors"] if len(plan) == 1 else names
        self._file_of = {name: index for index, names in enumerate(plan) for name in names}
        self._sizes = [len(names) for names in plan]
        self._held: dict[str, Tensor] = {}
        self._num_bytes = 0

    def begin(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)

    def add(self, name: str, weight: Tensor) -> None:
        self._held[name] = weight.contiguous()
        self._num_bytes += weight.nbytes
        index = self._file_of[name]
        if len(self._held) == self._sizes[index]:
            save_file(self._held, self._folder / self._files[index], metadata={"format": "pt"})
            self._held = {}

    def finish(self) -> None:
        if len(self._files) == 1:
            return
        index = {
            "metadata": {"total_size": self._num_bytes},
            "weight_map": {name: self._files[number] for name, number in self._file_of.items()},
        }
        (self._folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))


def _plan(policy: PolicyModel, dtype: torch.dtype, file_bytes: int) -> list[list[str]]:
    """The names of the weights in each file, in the order in which they come."""
    names = checkpoint_names(policy.hf)
    files: list[list[str]] = [[]]
    room = file_bytes
    for name, weight in policy.hf.named_parameters():
        if name not in names:
            continue
        size = weight.numel() * dtype.itemsize
        if files[-1] and size > room:
            files.append([])
            room = file_bytes
        files[-1].append(names[name])
        room -= size
    return files


def _fault_of(write: Callable[[], Any]) -> str | None:
    """Why it failed. The other ranks wait in the next weight, so no error may leave before all have told theirs."""
    try:
        write()
    except Exception as error:
        return _reason(error)
    return None


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
    return " ".join(str(error).split()) or type(error).__name__
