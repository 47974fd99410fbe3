"""From any accepted file to validated samples with content-addressed images. Imports no torch.

A path is looked through for splits (`sources`), each read as rows (`formats`), each row made a Sample or an error
(`normalise`, which asks `turns` and `image_forms`), each image stored once (`pixels`, `images`). `reading` does this
for whole sources, in several processes (`row_pool`, `row_worker`); `ingest` validates and registers, `registry` keeps
the result, `dataset` loads it, `stream` hands it out in batches.

What is named here loads when first used, so that a process that reads rows imports no more than it needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mmrl.data.dataset import Dataset, load_dataset
    from mmrl.data.images import ImageStore

_HOMES = {"Dataset": "mmrl.data.dataset", "ImageStore": "mmrl.data.images", "load_dataset": "mmrl.data.dataset"}

__all__ = ["Dataset", "ImageStore", "load_dataset"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mmrl.data' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_HOMES[name]), name)
