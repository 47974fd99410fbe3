"""`hf://NAME[:CONFIG][@SPLIT]`: a data set of the Hugging Face hub, or a local folder, read by `datasets`.

Rows are streamed, images stay encoded bytes, and nothing of the data set's own code is run: `datasets` runs none since
version 4. A name that begins with '.', '/' or '~' is a folder here, and then no network is asked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from mmrl.data.rows import RawRow, RowError, RowProblem
from mmrl.errors import DataError, MmrlError, NotFoundError

PREFIX = "hf://"
MAX_DOWNLOAD_BYTES = 64 * 2**20
_PARTS = re.compile(r"(?P<name>[^@:]+)(:(?P<config>[^@:/]+))?(@(?P<split>[A-Za-z0-9._-]+))?")


@dataclass(frozen=True)
class HubSplit:
    """One split that `datasets` reads. name: as a user writes it, without the split."""

    name: str
    repository: str
    config: str | None
    split: str

    @property
    def is_local(self) -> bool:
        return self.repository.startswith((".", "/", "~"))

    @property
    def folder(self) -> Path | None:
        """The folder of a local one."""
        return Path(self.repository).expanduser().absolute() if self.is_local else None


def is_hub_address(text: str) -> bool:
    return text.startswith(PREFIX)


def find_hub_splits(address: str, wanted: str | None) -> dict[str, HubSplit]:
    """The splits at an address by name; with a split in the address, or `wanted`, that one alone."""
    match = _PARTS.fullmatch(address.removeprefix(PREFIX))
    if match is None:
        raise DataError(
            f"{address}: not an address of the hub; write it as hf://OWNER/NAME@SPLIT or hf://./FOLDER@SPLIT"
        )
    repository, config, split = match["name"], match["config"], match["split"]
    if split and wanted and split != wanted:
        raise DataError(f"{address} names split {split!r}, and split {wanted!r} is asked for; name one of them")
    shown = f"hf://{repository}" + (f":{config}" if config else "")
    at = HubSplit(shown, repository, config, split or wanted or "")
    names = _split_names(at)
    if at.split and at.split not in names:
        raise NotFoundError(f"{shown} has no split {at.split!r}; it has {', '.join(names)}")
    return {name: HubSplit(shown, repository, config, name) for name in ([at.split] if at.split else names)}


def read(at: HubSplit) -> Iterator[RawRow | RowError]:
    from mmrl.data.formats.arrow_rows import names_of_features, with_class_names

    rows = _ask(at, _load, at)
    names = names_of_features(rows.features.to_dict() if rows.features else {})
    iterator = iter(rows)
    number = 0
    while (values := _ask(at, next, iterator, None)) is not None:
        number += 1
        try:
            filled = {column: _ask(at, _with_bytes, value, at) for column, value in values.items()}
            yield RawRow(number, with_class_names(filled, names), at.name)
        except RowProblem as problem:
            yield RowError(at.name, number, problem.field, problem.message)


def _with_bytes(value: Any, at: HubSplit) -> Any:
    """An image that `datasets` names by an address inside the data set itself gets its bytes; all else stays."""
    if isinstance(value, list):
        return [_with_bytes(item, at) for item in value]
    path = value.get("path") if isinstance(value, dict) and value.get("bytes", "") is None else None
    if not isinstance(path, str) or not _is_own_address(path, at):
        return value
    import fsspec

    with fsspec.open(path, "rb") as file:
        return {"bytes": file.read(MAX_DOWNLOAD_BYTES + 1), "path": None}


def _is_own_address(path: str, at: HubSplit) -> bool:
    home = f"{at.folder}/" if at.folder else f"{PREFIX}datasets/{at.repository}@"
    inner = path.rpartition("::")[2]
    return "://" in path and inner.startswith(home) and ".." not in path


def _split_names(at: HubSplit) -> list[str]:
    if at.folder and not at.folder.is_dir():
        raise NotFoundError(f"{at.name}: no such folder {at.folder}")
    if saved := _saved_folder(at):
        return list(saved)
    library = _library()
    return list(_ask(at, library.get_dataset_split_names, _path(at), at.config))


def _load(at: HubSplit) -> Any:
    library = _library()
    if saved := _saved_folder(at):
        rows = saved[at.split]
        return rows.to_iterable_dataset().decode(False)
    return library.load_dataset(_path(at), at.config, split=at.split, streaming=True).decode(False)


def _saved_folder(at: HubSplit) -> Any:
    """The splits of a folder that was written by save_to_disk, else None."""
    if not at.is_local:
        return None
    folder = _path(at)
    library = _library()
    if os.path.isfile(os.path.join(folder, "dataset_dict.json")):
        return _ask(at, library.load_from_disk, folder)
    if os.path.isfile(os.path.join(folder, "state.json")):
        return {at.split or "train": _ask(at, library.load_from_disk, folder)}
    return None


def _path(at: HubSplit) -> str:
    return str(at.folder or at.repository)


def _library() -> Any:
    try:
        library = import_module("datasets")
    except ImportError as error:
        raise MmrlError("hf:// needs the `datasets` library; install it with `pip install datasets`") from error
    library.disable_progress_bars()
    return library


def _ask(at: HubSplit, call: Any, *arguments: Any) -> Any:
    """What `datasets` says, its errors turned into one that tells what to do."""
    try:
        return call(*arguments)
    except MmrlError:
        raise
    except Exception as error:  # the library and its file systems raise almost any type
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
        if at.is_local:
            raise DataError(f"{at.name}: `datasets` cannot read this folder: {reason}") from error
        is_offline = os.environ.get("HF_HUB_OFFLINE", "") not in ("", "0")
        hint = (
            "HF_HUB_OFFLINE is set, so the hub is not asked; unset it, or download the data set and give its folder "
            "as hf://./FOLDER"
            if is_offline
            else "check the name and the network; a private one needs HF_TOKEN"
        )
        raise NotFoundError(f"{at.name}: not available from the hub ({hint}): {reason}") from error
