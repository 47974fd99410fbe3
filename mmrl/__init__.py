"""mmrl trains vision-language models with reinforcement learning from rewards and from people.

`from mmrl import RunConfig, train` is the public API. Names load when first used: `import mmrl` pulls in no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mmrl.config import RunConfig
    from mmrl.data import load_dataset
    from mmrl.rewards import reward
    from mmrl.trainer import train

__version__ = "0.1.0"

_HOMES = {
    "RunConfig": "mmrl.config",
    "load_dataset": "mmrl.data",
    "reward": "mmrl.rewards",
    "train": "mmrl.trainer",
}

__all__ = ["RunConfig", "__version__", "load_dataset", "reward", "train"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mmrl' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_HOMES[name]), name)
