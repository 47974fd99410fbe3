"""Reads what torch.distributed.checkpoint wrote without running code that a file may hold.

Its list of tensors is a pickle. Only the classes that such a list is made of are let through; tensors themselves torch
reads as weights only.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import FileSystemReader, filesystem, metadata
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta

from mmrl.errors import DataError

_CLASSES = {
    metadata.__name__: {
        "BytesStorageMetadata",
        "ChunkStorageMetadata",
        "Metadata",
        "MetadataIndex",
        "StorageMeta",
        "TensorProperties",
        "TensorStorageMetadata",
        "_MEM_FORMAT_ENCODING",
    },
    filesystem.__name__: {"_StorageInfo"},
    "torch": {"Size"},
    "torch.serialization": {"_get_layout"},
    "pathlib": {"PosixPath", "PurePosixPath", "WindowsPath", "PureWindowsPath"},
    "pathlib._local": {"PosixPath", "PurePosixPath", "WindowsPath", "PureWindowsPath"},
    "collections": {"OrderedDict"},
}


class ShardReader(FileSystemReader):
    """Raises DataError for a list of tensors that holds anything else."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        path = Path(self.path) / ".metadata"
        try:
            found: Metadata = _Unpickler(io.BytesIO(path.read_bytes())).load()
        except (pickle.UnpicklingError, EOFError, AttributeError, IndexError, KeyError, TypeError) as error:
            raise DataError(
                f"{path}: no list of tensors that can be read ({error}); take an earlier checkpoint"
            ) from error
        if getattr(found, "storage_meta", None) is None:
            found.storage_meta = StorageMeta()
        assert found.storage_meta is not None
        found.storage_meta.load_id = self.load_id
        return found


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name in _CLASSES.get(module, ()):
            return super().find_class(module, name)
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype | torch.layout):
            return getattr(torch, name)
        raise pickle.UnpicklingError(f"it holds {module}.{name}, which could run code")
