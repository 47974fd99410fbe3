"""Registered data sets: immutable versions of validated samples, named by a hash of their content.

<root>/<name>/current            the version that NAME means, replaced in one step
<root>/<name>/<version>/         manifest.json, written last, and <split>.parquet for each split

A version is written under a temporary name and renamed, so that what is found under `current` is always whole.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from mmrl.config.base import home
from mmrl.data.files import NAME_PATTERN, explain_write_errors, folder_in_progress, locked, write_bytes
from mmrl.data.serialise import canonical
from mmrl.data.sources import check_split_name, nearest_hint
from mmrl.data.storage import SplitInfo, read_split, write_split
from mmrl.errors import DataError, NotFoundError
from mmrl.types import Sample

_VERSION = re.compile(r"[0-9a-f]{16}")


class DatasetInfo(BaseModel):
    """The manifest of one version. source: where its newest split was read from. skipped: bad rows left out of that."""

    model_config = ConfigDict(frozen=True)

    name: str
    version: str
    created_at: datetime
    source: str
    skipped: int = 0
    splits: dict[str, SplitInfo]

    @property
    def num_rows(self) -> int:
        return sum(split.num_rows for split in self.splits.values())

    @property
    def num_bytes(self) -> int:
        return sum(split.num_bytes for split in self.splits.values())


class DatasetRegistry:
    """The data sets under `root` (default: `datasets` in mmrl's home)."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root if root is not None else home() / "datasets"

    def all(self) -> list[DatasetInfo]:
        """The current version of every data set, by name."""
        return [self.find(name) for name in self.names()]

    def has(self, name: str) -> bool:
        return bool(NAME_PATTERN.fullmatch(name)) and (self.root / name / "current").is_file()

    def find(self, name: str, version: str | None = None) -> DatasetInfo:
        """The manifest of a version (default: the current one). Raises NotFoundError with the nearest names."""
        if not self.has(name):
            raise NotFoundError(
                f"no data set {name!r} is registered in {self.root}{nearest_hint(name, self.names())}; "
                "`mmrl dataset list` shows all, `mmrl dataset add PATH --name NAME` adds one"
            )
        wanted = version or (self.root / name / "current").read_text(encoding="utf-8").strip()
        manifest = self.root / name / wanted / "manifest.json"
        if not _VERSION.fullmatch(wanted) or not manifest.is_file():
            raise NotFoundError(f"data set {name!r} has no version {wanted!r}; it has {', '.join(self.versions(name))}")
        try:
            return DatasetInfo.model_validate_json(manifest.read_bytes())
        except ValidationError as error:
            raise DataError(f"{manifest} is damaged; add the data set {name!r} again") from error

    def versions(self, name: str) -> list[str]:
        """Every version of a data set that can still be read, in no particular order of time."""
        return sorted(path.parent.name for path in (self.root / name).glob("*/manifest.json"))

    def read(self, info: DatasetInfo, split: str, *, start: int = 0, stop: int | None = None) -> Iterator[Sample]:
        """The samples of a split, rows start up to stop."""
        return read_split(self.root / info.name / info.version / f"{split}.parquet", start=start, stop=stop)

    def register(
        self, name: str, splits: Mapping[str, Iterable[Sample]], *, source: str, keeps_splits: bool = True
    ) -> DatasetInfo:
        """Registers samples whose images are in the store already; all splits or none. keeps_splits: as for
        `Draft.commit`."""
        with self.draft(name) as draft:
            for split, samples in splits.items():
                draft.write(split, samples)
            return draft.commit(source=source, keeps_splits=keeps_splits)

    def extend(
        self, name: str, split: str, new_of: Callable[[list[Sample]], list[Sample]], *, source: str, max_rows: int
    ) -> DatasetInfo | None:
        """A version with more rows at the end of a split; of several who extend it at once nobody's rows are lost.

        new_of: given the rows so far, those to add; called while others wait. None where it adds none.
        Raises DataError where the split would have more than max_rows: it is read and written whole.
        """
        with self.draft(name) as draft, locked(self.root / name):
            earlier = self._rows_so_far(name, split, max_rows)
            new = new_of(earlier)
            if not new:
                return None
            if len(earlier) + len(new) > max_rows:
                raise _too_long(name, split, len(earlier), max_rows)
            draft.write(split, [*earlier, *new])
            return draft.commit_locked(source=source)

    @contextmanager
    def draft(self, name: str) -> Iterator[Draft]:
        """A new version to fill with splits; without `commit` nothing of it stays."""
        if not NAME_PATTERN.fullmatch(name):
            raise DataError(
                f"not a name for a data set: {name!r}; use up to 100 letters, digits, '.', '_' and '-', "
                "beginning with a letter or digit"
            )
        with folder_in_progress(self.root) as folder:
            yield Draft(self, name, folder)

    def names(self) -> list[str]:
        """The names of all data sets, sorted."""
        return sorted(path.parent.name for path in self.root.glob("*/current"))

    def _rows_so_far(self, name: str, split: str, max_rows: int) -> list[Sample]:
        found = self.find(name) if self.has(name) else None
        if found is None or split not in found.splits:
            return []
        if found.splits[split].num_rows >= max_rows:
            raise _too_long(name, split, found.splits[split].num_rows, max_rows)
        return list(self.read(found, split))


def register(name: str, splits: Mapping[str, Iterable[Sample]], *, source: str) -> DatasetInfo:
    """`DatasetRegistry.register` in mmrl's home."""
    return DatasetRegistry().register(name, splits, source=source)


class Draft:
    """A version in the making, in a folder of its own."""

    def __init__(self, registry: DatasetRegistry, name: str, folder: Path) -> None:
        self._registry = registry
        self._name = name
        self._folder = folder
        self._splits: dict[str, SplitInfo] = {}

    def write(self, split: str, samples: Iterable[Sample]) -> SplitInfo:
        """Writes one split; `samples` may be a generator."""
        check_split_name(split)
        self._splits[split] = write_split(self._folder / f"{split}.parquet", samples)
        return self._splits[split]

    def commit(self, *, source: str, skipped: int = 0, keeps_splits: bool = True) -> DatasetInfo:
        """Makes this the current version of its name. keeps_splits: with the splits of the last one that were not
        written anew; else they are no part of it.

        Content that is registered already gives its version back and changes nothing.
        """
        with locked(self._registry.root / self._name):
            return self.commit_locked(source=source, skipped=skipped, keeps_splits=keeps_splits)

    def commit_locked(self, *, source: str, skipped: int = 0, keeps_splits: bool = True) -> DatasetInfo:
        """`commit` by a caller that holds the lock of the data set's folder."""
        empty = [split for split, info in self._splits.items() if info.num_rows == 0]
        if empty or not self._splits:
            raise DataError(
                f"data set {self._name!r}: split {', '.join(empty) or 'list'} has no rows; nothing was added"
            )
        folder = self._registry.root / self._name
        splits = self._with_earlier_splits() if keeps_splits else dict(sorted(self._splits.items()))
        info = DatasetInfo(
            name=self._name,
            version=_version(splits),
            created_at=datetime.now(UTC),
            source=source,
            skipped=skipped,
            splits=splits,
        )
        if info.version not in self._registry.versions(self._name):
            self._place(folder / info.version, info)
        write_bytes(folder / "current", f"{info.version}\n".encode())
        return self._registry.find(self._name)

    def _with_earlier_splits(self) -> dict[str, SplitInfo]:
        if not self._registry.has(self._name):
            return dict(sorted(self._splits.items()))
        earlier = self._registry.find(self._name)
        for split in earlier.splits.keys() - self._splits.keys():
            file = f"{split}.parquet"
            with explain_write_errors(self._folder):
                _link_or_copy(self._registry.root / self._name / earlier.version / file, self._folder / file)
        return dict(sorted((earlier.splits | self._splits).items()))

    def _place(self, target: Path, info: DatasetInfo) -> None:
        write_bytes(self._folder / "manifest.json", info.model_dump_json(indent=2).encode())
        with explain_write_errors(target):
            shutil.rmtree(target, ignore_errors=True)
            self._folder.rename(target)


def _too_long(name: str, split: str, num_rows: int, max_rows: int) -> DataError:
    return DataError(
        f"data set {name!r} has {num_rows} rows in {split}, and rows are added one by one only up to {max_rows}; "
        "choose another name for these"
    )


def _version(splits: Mapping[str, SplitInfo]) -> str:
    """A hash of the names and content of the splits."""
    content = canonical({name: info.sha256 for name, info in splits.items()})
    return hashlib.sha256(content.encode("utf-8")).hexdigest()[:16]


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
