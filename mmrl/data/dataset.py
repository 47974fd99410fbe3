"""`load_dataset`: from a name, file or folder to validated samples."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

from PIL import Image

from mmrl.data.formats.hub import is_hub_address
from mmrl.data.images import ImageStore
from mmrl.data.ingest import read_valid
from mmrl.data.options import PLAIN, ReadOptions
from mmrl.data.registry import DatasetRegistry
from mmrl.data.serialise import canonical, sample_to_dict
from mmrl.data.sources import find_sources, nearest_hint, pick_split, take_split
from mmrl.errors import DataError, NotFoundError
from mmrl.types import ImageRef, Sample


@dataclass(frozen=True, eq=False)
class Dataset(Sequence[Sample]):
    """The samples of one split, in order.

    version: a hash of their content; for a registered data set, of all its splits.
    store: where their images are.
    """

    name: str
    split: str
    version: str
    samples: tuple[Sample, ...]
    store: ImageStore

    def __len__(self) -> int:
        return len(self.samples)

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Sample, ...]: ...
    def __getitem__(self, index: int | slice) -> Sample | tuple[Sample, ...]:
        return self.samples[index]

    def open_images(self, sample: Sample) -> list[Image.Image]:
        """The images of a sample's prompt in order, each 8-bit RGB."""
        return [self.store.open(image) for image in sample.images]

    def open_image(self, image: ImageRef) -> Image.Image:
        return self.store.open(image)


def load_dataset(
    ref: str | Path,
    *,
    split: str | None = None,
    limit: int | None = None,
    options: ReadOptions = PLAIN,
    store: ImageStore | None = None,
    workers: int | None = None,
) -> Dataset:
    """The samples that `ref` names, all validated, their images in `store` (default: mmrl's own).

    ref: a registered NAME, NAME@SPLIT or NAME:VERSION@SPLIT; else a file, a folder, an archive or `hf://NAME`, as
        PATH or PATH@SPLIT. A registered name goes before a file of that name; `./NAME` means the file.
    split: instead of @SPLIT. Without either, `train` or the only split.
    limit: only the first so many rows.
    options: how rows are read, for what is not registered. workers: processes that read them, as for `read_all`.

    Raises NotFoundError if there is nothing of that name, DataError for rows that cannot be used.
    """
    if limit is not None and limit < 1:
        raise DataError(f"limit must be at least 1 (got {limit})")
    store = store if store is not None else ImageStore()
    target, named_split = take_split(str(ref))
    if split and named_split and split != named_split:
        raise DataError(f"{ref} names split {named_split!r}, and split={split!r} is asked for; name one of them")
    split = split or named_split
    name, _, version = target.partition(":")
    registry = DatasetRegistry()
    is_address = is_hub_address(target)
    if not is_address and registry.has(name):
        return _load_registered(registry, name, version or None, split=split, limit=limit, store=store)
    if is_address or Path(target).exists():
        source = pick_split(find_sources(target, split=split, options=options), split, of=target)
        samples = read_valid(source, limit=limit, store=store, workers=workers)
        return Dataset(target, source.split, content_hash(samples)[:16], tuple(samples), store)
    raise _not_found(target, registry)


def content_hash(samples: Iterable[Sample]) -> str:
    """SHA-256 of samples in order: of all that they hold, whatever file they came from."""
    digest = hashlib.sha256()
    for sample in samples:
        digest.update(canonical(sample_to_dict(sample)).encode("utf-8") + b"\n")
    return digest.hexdigest()


def _load_registered(
    registry: DatasetRegistry,
    name: str,
    version: str | None,
    *,
    split: str | None,
    limit: int | None,
    store: ImageStore,
) -> Dataset:
    info = registry.find(name, version)
    chosen = pick_split({name: name for name in info.splits}, split, of=name)
    samples = tuple(registry.read(info, chosen, stop=limit))
    return Dataset(name, chosen, info.version, samples, store)


def _not_found(target: str, registry: DatasetRegistry) -> NotFoundError:
    parent = Path(target).parent
    beside = [str(parent / entry.name) for entry in parent.iterdir()] if parent.is_dir() else []
    known = [info.name for info in registry.all()]
    return NotFoundError(
        f"no data set {target!r}: neither registered in {registry.root} nor a file or folder"
        f"{nearest_hint(target, known + beside)}; `mmrl dataset list` shows what is registered"
    )
