"""The state of a run in memory: what its parts give and take, and a copy that does not change while they go on.

A part is anything with `state_dict` and `load_state_dict`: the actor, an algorithm or a user's stage that remembers
something, a critic, the random numbers. What it gives may hold tensors, numbers, text, bytes, None, and lists, tuples
and mappings of these, so that it is read again without running code.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from mmrl.errors import RunFailedError


@runtime_checkable
class Stateful(Protocol):
    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> Any: ...


def stateful(parts: Mapping[str, object]) -> dict[str, Stateful]:
    """Those of `parts` that have a state to keep."""
    return {name: part for name, part in parts.items() if isinstance(part, Stateful)}


class RandomState:
    """The generators that torch, numpy and Python share over the whole process, which a user's code may draw from."""

    def state_dict(self) -> dict[str, Any]:
        name, keys, position, has_gauss, gauss = cast(tuple[Any, ...], np.random.get_state(legacy=True))
        return {
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
            "numpy": [str(name), torch.from_numpy(keys.astype(np.int64)), int(position), int(has_gauss), float(gauss)],
            "python": random.getstate(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Devices of another number than before keep the state that they have."""
        torch.set_rng_state(state["torch"])
        if state["cuda"] and len(state["cuda"]) == torch.cuda.device_count():
            torch.cuda.set_rng_state_all(state["cuda"])
        name, keys, *rest = state["numpy"]
        np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
        random.setstate(state["python"])


class MemoryCopy:
    """Copies trees of tensors into memory of their own on the CPU; tensors that share memory share it in the copy.

    num_bytes: of the tensors copied so far.
    """

    def __init__(self) -> None:
        self.num_bytes = 0
        self._copies: dict[tuple[Any, ...], Tensor] = {}

    def of(self, value: Any, *, place: str) -> Any:
        """place: how errors name `value`. Raises RunFailedError for what a checkpoint cannot hold."""
        if isinstance(value, Tensor):
            return self._tensor(value)
        if value is None or isinstance(value, bool | int | float | str | bytes):
            return value
        if isinstance(value, Mapping):
            return {self.of(key, place=place): self.of(entry, place=f"{place}.{key}") for key, entry in value.items()}
        if isinstance(value, list | tuple):
            entries = [self.of(entry, place=f"{place}.{index}") for index, entry in enumerate(value)]
            return tuple(entries) if isinstance(value, tuple) else entries
        raise RunFailedError(
            f"{place} is a {type(value).__name__}, which a checkpoint does not hold; let state_dict give tensors, "
            "numbers, text, bytes, None, and lists, tuples and mappings of these"
        )

    def _tensor(self, tensor: Tensor) -> Tensor:
        key = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        copied = self._copies.get(key)
        if copied is None:
            copied = tensor.detach().to("cpu", copy=True)
            self.num_bytes += copied.nbytes
            if tensor.numel():
                self._copies[key] = copied
        return copied
