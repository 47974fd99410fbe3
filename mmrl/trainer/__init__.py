"""The loops. `online.py` (RL) and `offline.py` (SFT) are read first; the other files hold what both stand on.

Names load when first used: `noop.py` needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mmrl.trainer.ending import TrainResult
    from mmrl.trainer.launch import train

_HOMES = {"TrainResult": "mmrl.trainer.ending", "train": "mmrl.trainer.launch"}

__all__ = ["TrainResult", "train"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mmrl.trainer' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_HOMES[name]), name)
