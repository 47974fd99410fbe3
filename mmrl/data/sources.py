"""What lies at a path: the splits of a file or folder, and the samples of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

from mmrl.data.files import NAME_PATTERN
from mmrl.data.formats import READERS, read_rows
from mmrl.data.normalise import ImageSink, normalise_row
from mmrl.data.rows import RowError
from mmrl.errors import DataError, NotFoundError
from mmrl.types import Sample

DEFAULT_SPLIT = "train"
COMMON_SPLITS = ("train", "validation", "test")
METADATA_NAMES = ("metadata.jsonl", "metadata.csv")

T = TypeVar("T")


@dataclass(frozen=True)
class Source:
    """One split: the file that lists its rows and the folder that its image paths are relative to."""

    split: str
    file: Path
    root: Path


def find_sources(path: Path, *, split: str | None = None) -> dict[str, Source]:
    """The splits at a path, by name.

    A file is one split: `split` if given, else its stem if that is train, validation or test, else train.
    A folder holds images with a metadata file and is then one split likewise, or a file for each split
    (`train.jsonl`), or a subfolder of images with a metadata file for each split; of several, `split` takes one.
    """
    if path.is_file():
        name = split or (path.stem if path.stem in COMMON_SPLITS else DEFAULT_SPLIT)
        return {check_split_name(name): Source(name, path, path.parent)}
    if not path.is_dir():
        raise NotFoundError(f"{path} does not exist{nearest_hint(path.name, _siblings(path))}")
    if sources := _metadata_source(path, split or DEFAULT_SPLIT):
        return sources
    sources = _split_files(path) or _metadata_subfolders(path)
    if not sources:
        raise DataError(
            f"{path} holds no data set: needs a file for each split such as train.jsonl "
            f"({', '.join(READERS)}), or images with {' or '.join(METADATA_NAMES)}"
        )
    return {split: pick_split(sources, split, of=str(path))} if split else sources


def pick_split(splits: Mapping[str, T], wanted: str | None, *, of: str) -> T:
    """The split that is wanted; if none is named, `train` or the only one."""
    if wanted is None and len(splits) > 1 and DEFAULT_SPLIT not in splits:
        raise DataError(f"{of} has the splits {', '.join(splits)} and none is named train; name one as {of}@SPLIT")
    name = wanted or (DEFAULT_SPLIT if DEFAULT_SPLIT in splits else next(iter(splits)))
    if name not in splits:
        raise NotFoundError(f"{of} has no split {name!r}; it has {', '.join(splits)}{nearest_hint(name, splits)}")
    return splits[name]


def check_split_name(name: str) -> str:
    if not NAME_PATTERN.fullmatch(name):
        raise DataError(f"not a name for a split: {name!r}; use letters, digits, '.', '_' and '-'")
    return name


def read_samples(source: Source, add_image: ImageSink) -> Iterator[Sample | RowError]:
    """Every record of the split as a Sample or as what is wrong with it, in order."""
    for row in read_rows(source.file):
        if isinstance(row, RowError):
            yield row
        else:
            yield normalise_row(row, file=source.file.name, split=source.split, root=source.root, add_image=add_image)


def nearest_hint(name: str, known: Iterable[str]) -> str:
    """`; nearest: …` with the known names that resemble `name`, or nothing."""
    near = get_close_matches(name, list(known), n=3)
    return f"; nearest: {', '.join(near)}" if near else ""


def _metadata_source(folder: Path, split: str) -> dict[str, Source]:
    files = [folder / name for name in METADATA_NAMES if (folder / name).is_file()]
    if len(files) > 1:
        raise DataError(f"{folder} has both {' and '.join(METADATA_NAMES)}; keep one of them")
    return {check_split_name(split): Source(split, file, folder) for file in files}


def _split_files(folder: Path) -> dict[str, Source]:
    sources: dict[str, Source] = {}
    for file in sorted(folder.iterdir()):
        if not file.is_file() or file.suffix.lower() not in READERS or file.name.startswith("."):
            continue
        if file.stem in sources:
            raise DataError(f"{folder} has two files for split {file.stem!r}; keep one of them")
        sources[check_split_name(file.stem)] = Source(file.stem, file, folder)
    return sources


def _metadata_subfolders(folder: Path) -> dict[str, Source]:
    sources: dict[str, Source] = {}
    for subfolder in sorted(folder.iterdir()):
        if subfolder.is_dir():
            sources |= _metadata_source(subfolder, subfolder.name)
    return sources


def _siblings(path: Path) -> list[str]:
    return [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
