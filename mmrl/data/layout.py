"""How the splits of a folder are found. The first of these that fits is taken:

1. a folder that `datasets` saved with `save_to_disk` (dataset_dict.json or state.json);
2. images with a metadata file: one split;
3. a file for each split, in one piece (train.jsonl) or in shards (train-00000-of-00004.parquet), here or in `data/`;
4. a subfolder for each split, with a metadata file;
5. a subfolder for each class with nothing but images in it, here or in a subfolder for each split.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmrl.data.formats import READERS
from mmrl.data.formats.image_folder import is_class_folder
from mmrl.errors import DataError

DEFAULT_SPLIT = "train"
COMMON_SPLITS = ("train", "validation", "test")
METADATA_NAMES = ("metadata.jsonl", "metadata.csv", "metadata.parquet")

_NOT_DATA = ("dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json")
_SHARD = re.compile(r"(.+)-\d{5}-of-\d{5}")
_PACKED = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".zst", ".7z", ".rar")
_JUNK = ("__MACOSX", ".DS_Store")


@dataclass(frozen=True)
class SplitFiles:
    """paths: the files of a split in order, or one folder of images by class. root: where image paths start."""

    paths: tuple[Path, ...]
    root: Path


def name_of_file_split(file: Path) -> str:
    """The split that a file by itself is: its stem if that is a common name, shards and endings left out."""
    stem = file.name.partition(".")[0]
    shard = _SHARD.fullmatch(stem)
    name = shard[1] if shard else stem
    return name if name in COMMON_SPLITS else DEFAULT_SPLIT


def find_layout(folder: Path, *, split: str | None, only_name: str, shown: Path) -> dict[str, SplitFiles]:
    """The splits in a folder by name.

    only_name: the name of what is one split and has none of its own. shown: the path that messages name.
    """
    folder = _without_wrapping(folder) if shown != folder else folder
    saved = _saved_to_disk(folder, only_name)
    if saved:
        return saved
    if alone := _metadata(folder, shown):
        return {only_name: alone}
    found = _split_files(folder, shown) or _data_subfolder(folder, shown) or _metadata_subfolders(folder, shown)
    found = found or _class_folders(folder, only_name)
    if not found:
        packed = [file.name for file in sorted(folder.iterdir()) if file.suffix.lower() in _PACKED]
        hint = f"; it holds {', '.join(packed[:3])}: unpack it and give the file or folder that comes out"
        raise DataError(
            f"{shown} holds no data set: needs a file for each split such as train.jsonl "
            f"({', '.join(READERS)}), or images with {' or '.join(METADATA_NAMES)}, "
            f"or a subfolder of images for each class{hint if packed else ''}"
        )
    return found


def _without_wrapping(folder: Path) -> Path:
    """Archives are often made of one folder; what is meant is inside."""
    entries = [entry for entry in folder.iterdir() if entry.name not in _JUNK]
    return _without_wrapping(entries[0]) if len(entries) == 1 and entries[0].is_dir() else folder


def _saved_to_disk(folder: Path, only_name: str) -> dict[str, SplitFiles]:
    listing = folder / "dataset_dict.json"
    if listing.is_file():
        names = _json_object(listing).get("splits")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise DataError(f"{listing}: has no list `splits`; save the data set again with save_to_disk")
        return {name: _saved_split(_inside(folder, name, listing)) for name in names}
    if (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file():
        return {only_name: _saved_split(folder)}
    return {}


def _saved_split(folder: Path) -> SplitFiles:
    state = folder / "state.json"
    files = _json_object(state).get("_data_files") if state.is_file() else None
    names = [item.get("filename") if isinstance(item, Mapping) else None for item in files or []]
    if not names or not all(isinstance(name, str) for name in names):
        raise DataError(f"{state}: does not list the data files; save the data set again with save_to_disk")
    return SplitFiles(tuple(_inside(folder, str(name), state) for name in names), folder)


def _inside(folder: Path, name: str, named_by: Path) -> Path:
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise DataError(f"{named_by}: names {name!r}, which leads out of {folder}; only files inside are read")
    return path


def _json_object(file: Path) -> dict[str, Any]:
    try:
        values = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file}: not valid JSON: {error}") from error
    if not isinstance(values, dict):
        raise DataError(f"{file}: must hold one JSON object")
    return values


def _metadata(folder: Path, shown: Path) -> SplitFiles | None:
    files = [folder / name for name in METADATA_NAMES if (folder / name).is_file()]
    if len(files) > 1:
        both = " and ".join(file.name for file in files)
        raise DataError(f"{shown if folder != shown else folder} has both {both}; keep one of them")
    return SplitFiles((files[0],), folder) if files else None


def _split_files(folder: Path, shown: Path) -> dict[str, SplitFiles]:
    whole: dict[str, list[Path]] = {}
    shards: dict[str, list[Path]] = {}
    for file in sorted(folder.iterdir()):
        if not file.is_file() or file.suffix.lower() not in READERS or file.name.startswith("."):
            continue
        if file.name in _NOT_DATA:
            continue
        shard = _SHARD.fullmatch(file.stem)
        (shards if shard else whole).setdefault(shard[1] if shard else file.stem, []).append(file)
    twice = next((name for name, files in whole.items() if len(files) > 1 or name in shards), None)
    if twice:
        names = ", ".join(file.name for file in [*whole[twice], *shards.get(twice, [])][:5])
        raise DataError(f"{shown} has several files for split {twice!r} ({names}); keep one of them")
    return {name: SplitFiles(tuple(files), folder) for name, files in sorted((whole | shards).items())}


def _data_subfolder(folder: Path, shown: Path) -> dict[str, SplitFiles]:
    data = folder / "data"
    return _split_files(data, shown) if data.is_dir() else {}


def _metadata_subfolders(folder: Path, shown: Path) -> dict[str, SplitFiles]:
    found = {sub.name: _metadata(sub, sub) for sub in sorted(folder.iterdir()) if sub.is_dir()}
    return {name: files for name, files in found.items() if files}


def _class_folders(folder: Path, only_name: str) -> dict[str, SplitFiles]:
    if is_class_folder(folder):
        return {only_name: SplitFiles((folder,), folder)}
    splits = [sub for sub in sorted(folder.iterdir()) if sub.is_dir() and not sub.name.startswith(".")]
    return {sub.name: SplitFiles((sub,), sub) for sub in splits if is_class_folder(sub)}
