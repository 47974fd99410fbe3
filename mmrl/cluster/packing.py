"""Values on their way between processes: a small pickle, and the bytes of arrays and tensors beside it as they are.

The bytes lie in Ray's shared memory, so an array arrives without a copy. Where a receiver may write to what it got (the
arguments of a call, its result) it is given copies; what was `put` is read in place.
"""

from __future__ import annotations

import io
import pickle
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cloudpickle
import numpy as np

if TYPE_CHECKING:
    import torch

BufferView = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True)
class Packed:
    """head: the pickle. buffers: one-dimensional uint8 arrays that it refers to, in order. in_place: whether the value
    is read where it lies, so that nobody may write to it."""

    head: bytes
    buffers: tuple[BufferView, ...] = ()
    in_place: bool = False

    @property
    def num_bytes(self) -> int:
        return len(self.head) + sum(buffer.nbytes for buffer in self.buffers)


def pack(value: Any, *, in_place: bool = False) -> Packed:
    """Raises TypeError where a part of the value cannot be sent to another process."""
    buffers: list[pickle.PickleBuffer] = []
    file = io.BytesIO()
    try:
        _Pickler(file, protocol=5, buffer_callback=buffers.append).dump(value)
    except (pickle.PicklingError, AttributeError, TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"a {type(value).__name__} cannot be sent to a worker: {error}") from error
    return Packed(file.getvalue(), tuple(_view(buffer) for buffer in buffers), in_place)


def unpack(packed: Packed) -> Any:
    """The value, its arrays and tensors writable unless it is read in place."""
    buffers = packed.buffers if packed.in_place else [bytearray(buffer) for buffer in packed.buffers]
    return pickle.loads(packed.head, buffers=buffers)


class _Pickler(cloudpickle.Pickler):
    """cloudpickle, with dense CPU tensors as the arrays of their bytes."""

    def reducer_override(self, obj: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is not None and type(obj) is torch.Tensor and _is_plain(obj):
            return _tensor_of, _bytes_of(obj)
        return super().reducer_override(obj)


def _is_plain(tensor: torch.Tensor) -> bool:
    import torch

    return (
        tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
        and tensor.numel() > 0
    )


def _bytes_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    import torch

    raw = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    name = str(tensor.dtype).removeprefix("torch.")
    return raw, name, tuple(tensor.shape), tensor.requires_grad and tensor.is_leaf


def _tensor_of(raw: Any, dtype: str, shape: tuple[int, ...], requires_grad: bool) -> torch.Tensor:
    import torch

    tensor = torch.from_numpy(raw).view(getattr(torch, dtype)).reshape(shape)
    return tensor.requires_grad_() if requires_grad else tensor


def _view(buffer: pickle.PickleBuffer) -> BufferView:
    raw = buffer.raw()
    return np.frombuffer(raw, dtype=np.uint8) if raw.nbytes else np.empty(0, dtype=np.uint8)
