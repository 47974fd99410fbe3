"""What lies at a path: its splits, and the samples of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import TypeVar

from mmrl.data.archives import UnpackedFolder, is_archive, unpack
from mmrl.data.files import NAME_PATTERN
from mmrl.data.formats import RowsAt, read_rows
from mmrl.data.formats.hub import HubSplit, find_hub_splits, is_hub_address
from mmrl.data.layout import DEFAULT_SPLIT, SplitFiles, find_layout, name_of_file_split
from mmrl.data.normalise import ImageSink, normalise_row
from mmrl.data.options import PLAIN, ReadOptions
from mmrl.data.remote import fetch, is_remote_address
from mmrl.data.rows import RawRow, RowError
from mmrl.errors import DataError, NotFoundError
from mmrl.types import Sample

T = TypeVar("T")
COLUMN_ROWS = 20
"""Rows that are looked at for the names of columns."""


@dataclass(frozen=True)
class Source:
    """One split: where its rows are, and how they are to be read. It can be sent to other processes.

    file: the file or folder that messages name; the first where there are several.
    root: the folder that its image paths are relative to.
    parts: where its rows are, in order: files, folders of images by class, or a split of the hub.
    unpacked: keeps the temporary folder of an archive as long as one of its sources is in use.
    """

    split: str
    file: Path
    root: Path
    parts: tuple[RowsAt, ...] = ()
    options: ReadOptions = PLAIN
    unpacked: UnpackedFolder | None = field(default=None, compare=False, repr=False)


def find_sources(path: str | Path, *, split: str | None = None, options: ReadOptions = PLAIN) -> dict[str, Source]:
    """The splits at a path, by name.

    A file is one split: `split` if given, else its stem if that is train, validation or test, else train.
    A folder is looked through as `layout` says; an archive is unpacked to a temporary folder and taken as that;
    `hf://NAME` is read through the `datasets` library; an address in an object store, `s3://bucket/data.zip`, is
    fetched first. Of several splits, `split` takes one.
    """
    if is_remote_address(str(path)):
        local, fetched = fetch(str(path))
        sources = find_sources(local, split=split, options=options)
        return {name: replace(source, unpacked=source.unpacked or fetched) for name, source in sources.items()}
    if is_hub_address(str(path)):
        return {name: _hub_source(part, options) for name, part in find_hub_splits(str(path), split).items()}
    path = Path(path)
    if not path.exists():
        raise NotFoundError(f"{path} does not exist{nearest_hint(path.name, _siblings(path))}")
    if path.is_file() and is_archive(path):
        folder = unpack(path)
        wanted = split or name_of_file_split(path)
        return _of_layout(find_layout(folder.path, split=split, only_name=wanted, shown=path), options, folder)
    if path.is_file():
        name = check_split_name(split or name_of_file_split(path))
        return _of_layout({name: SplitFiles((path,), path.parent)}, options)
    found = find_layout(path, split=split, only_name=split or DEFAULT_SPLIT, shown=path)
    return _of_layout({split: pick_split(found, split, of=str(path))} if split else found, options)


def pick_split(splits: Mapping[str, T], wanted: str | None, *, of: str) -> T:
    """The split that is wanted; if none is named, `train` or the only one."""
    if wanted is None and len(splits) > 1 and DEFAULT_SPLIT not in splits:
        raise DataError(f"{of} has the splits {', '.join(splits)} and none is named train; name one as {of}@SPLIT")
    name = wanted or (DEFAULT_SPLIT if DEFAULT_SPLIT in splits else next(iter(splits)))
    if name not in splits:
        raise NotFoundError(f"{of} has no split {name!r}; it has {', '.join(splits)}{nearest_hint(name, splits)}")
    return splits[name]


def take_split(ref: str) -> tuple[str, str | None]:
    """A reference as its target and the split that `@SPLIT` names, if it does."""
    target, at, split = ref.rpartition("@")
    if not at or not target or not NAME_PATTERN.fullmatch(split) or Path(ref).exists():
        return ref, None
    return target, split


def check_split_name(name: str) -> str:
    if not NAME_PATTERN.fullmatch(name):
        raise DataError(f"not a name for a split: {name!r}; use letters, digits, '.', '_' and '-'")
    return name


def read_samples(source: Source, add_image: ImageSink) -> Iterator[Sample | RowError]:
    """Every record of the split as a Sample or as what is wrong with it, in order."""
    return (to_sample(row, source, add_image) for row in read_raw(source))


def read_raw(source: Source) -> Iterator[RawRow | RowError]:
    """Every record of the split as its file holds it, or what is wrong with it; no image is decoded."""
    for part in source.parts or (source.file,):
        yield from read_rows(part)


def first_columns(source: Source) -> tuple[str, ...]:
    """The columns of the first rows, as their file names them, in the order in which they come."""
    rows = islice(read_raw(source), COLUMN_ROWS)
    return tuple(dict.fromkeys(str(name) for row in rows if isinstance(row, RawRow) for name in row.values))


def to_sample(row: RawRow | RowError, source: Source, add_image: ImageSink) -> Sample | RowError:
    """The record as a Sample, or what is wrong with it. Needs only the row and the source: any process may do it."""
    if isinstance(row, RowError):
        return row
    file = row.file or source.file.name
    options = source.options
    root = options.image_root or source.root
    return normalise_row(row, file=file, split=source.split, root=root, add_image=add_image, options=options)


def nearest_hint(name: str, known: Iterable[str]) -> str:
    """`; nearest: …` with the known names that resemble `name`, or nothing."""
    near = get_close_matches(name, list(dict.fromkeys(known)), n=3)
    return f"; nearest: {', '.join(near)}" if near else ""


def _of_layout(
    found: Mapping[str, SplitFiles], options: ReadOptions, unpacked: UnpackedFolder | None = None
) -> dict[str, Source]:
    return {
        check_split_name(name): Source(name, files.paths[0], files.root, tuple(files.paths), options, unpacked)
        for name, files in found.items()
    }


def _hub_source(part: HubSplit, options: ReadOptions) -> Source:
    """`datasets` names images of a local folder by absolute paths, so that folder is allowed."""
    if part.folder is not None:
        options = replace(options, roots=(*options.roots, part.folder))
    root = part.folder or Path.cwd()
    return Source(check_split_name(part.split), Path(part.name), root, (part,), options)


def _siblings(path: Path) -> list[str]:
    return [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
