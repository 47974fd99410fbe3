"""The registered data sets: lists, rows, images, statistics, and what can be made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from console.services.processes import Processes, Task
from mmrl.config.base import home
from mmrl.data.layout import DEFAULT_SPLIT
from mmrl.data.registry import DatasetInfo, DatasetRegistry
from mmrl.data.thumbnails import thumbnail
from mmrl.errors import DataError, MmrlError, NotFoundError
from mmrl.jobs.catalogue import Catalogue
from mmrl.jobs.records import DatasetRow, User
from mmrl.jobs.roles import check_allowed
from mmrl.jobs.users import Users
from mmrl.types import ImagePart, ImageRef, Sample

STATISTICS_S = 1800.0
DIVIDE_S = 1800.0
EXPORT_S = 3600.0


@dataclass(frozen=True)
class Split:
    name: str
    num_rows: int
    num_images: int


@dataclass(frozen=True)
class DatasetSummary:
    """A version of a data set. num_images: how often rows name an image. num_bytes: of its files of rows.

    state: valid, missing where its files are gone, or damaged where they cannot be read. skipped: bad rows left out.
    owner: their name; empty where it was added from a shell.
    """

    name: str
    version: str
    splits: tuple[Split, ...]
    num_bytes: int
    owner: str
    created_at: datetime
    state: str
    is_current: bool
    skipped: int
    source: str

    @property
    def num_rows(self) -> int:
        return sum(split.num_rows for split in self.splits)

    @property
    def num_images(self) -> int:
        return sum(split.num_images for split in self.splits)

    @property
    def ref(self) -> str:
        """Names this very version."""
        return f"{self.name}:{self.version}"

    def split(self, name: str | None) -> Split:
        """The split of a name; the training split, or the first one, where it has none of that name."""
        named = {split.name: split for split in self.splits}
        return named.get(name or "") or named.get(DEFAULT_SPLIT) or self.splits[0]


@dataclass(frozen=True)
class Picture:
    """An image of a row. thumbnail: a small file of it, None where the image is gone."""

    image: ImageRef
    row: int
    thumbnail: Path | None


@dataclass(frozen=True)
class RowView:
    """A row as people read it. turns: (role, text) with [image N] where an image stands. answer: None without one."""

    number: int
    id: str
    turns: tuple[tuple[str, str], ...]
    pictures: tuple[Picture, ...]
    answer: str | None
    meta: Mapping[str, Any]


class Catalogued:
    """The data sets as the catalogue lists them, kept in step with what the registry holds."""

    def __init__(self, catalogue: Catalogue, actor: User) -> None:
        self._catalogue, self._actor = catalogue, actor

    def all(self, *, words: str = "") -> list[DatasetSummary]:
        """The current version of each name, or the last one where its files are gone; by name.

        words: only those whose name holds it.
        """
        self._bring_in_step()
        users = self._names_of_users()
        shown: dict[str, DatasetRow] = {}
        for row in self._catalogue.all(only_current=False):
            if words.lower() in row.name.lower() and (row.is_current or row.name not in shown):
                shown[row.name] = row
        return [_summary(row, users) for row in shown.values()]

    def versions(self, name: str) -> list[DatasetSummary]:
        """Newest first. Raises NotFoundError for a name that there never was."""
        self._bring_in_step()
        names = self._names_of_users()
        found = [row for row in self._catalogue.all(only_current=False) if row.name == name]
        if not found:
            self._catalogue.registry.find(name)  # says which names resemble it
            raise NotFoundError(f"{name} is registered, but not listed yet: the job database takes no writes just now")
        return [_summary(row, names) for row in found]

    def own(self, name: str, version: str) -> None:
        """Notes the viewer as owner of a version that they registered just now."""
        self._catalogue.note(self._catalogue.registry.find(name, version), owner_id=self._actor.id)

    def _bring_in_step(self) -> None:
        """Files are added from shells too; rows follow where they differ, and where the database takes writes."""
        registry = self._catalogue.registry
        there = {(name, current) for name in registry.names() if (current := _current(registry, name))}
        known = {(row.name, row.version) for row in self._catalogue.all() if row.validation_state == "valid"}
        if there != known:
            self._catalogue.try_to_sync()

    def _names_of_users(self) -> dict[str, str]:
        return {user.id: user.name for user in Users(self._catalogue.database).all()}


class DatasetReads:
    """The rows of one version. Only what is asked for is read."""

    def __init__(self, registry: DatasetRegistry, summary: DatasetSummary) -> None:
        self._registry = registry
        self._info: DatasetInfo = registry.find(summary.name, summary.version)

    def rows(self, split: str, *, start: int, count: int, side: int = 256) -> list[RowView]:
        """Rows from `start` (counted from 0), with thumbnails of at most `side` pixels."""
        samples = self._registry.read(self._info, split, start=start, stop=start + count)
        return [_row_view(number, sample, side) for number, sample in enumerate(samples, start=start)]

    def pictures(self, split: str, *, start: int, count: int, side: int = 128) -> list[Picture]:
        """The images of rows from `start` on, in order."""
        return [picture for row in self.rows(split, start=start, count=count, side=side) for picture in row.pictures]


class DatasetWork:
    """What takes longer than a page may: statistics, splits, exports. Each is a process that is asked about again."""

    def __init__(self, processes: Processes, catalogue: Catalogue, actor: User) -> None:
        self._processes, self._catalogue, self._actor = processes, catalogue, actor

    def statistics(self, summary: DatasetSummary) -> Task:
        """Lengths, images and answers as `mmrl dataset validate --stats` counts them; a version's never change."""
        key = f"stats-{summary.name}-{summary.version}"
        task = self._processes.get(key)
        if task is not None:
            return task
        words = ["dataset", "validate", summary.ref, "--stats", "--json"]
        return self._processes.start(key, words, deadline_s=STATISTICS_S)

    def statistics_again(self, summary: DatasetSummary) -> Task:
        self._processes.stop(f"stats-{summary.name}-{summary.version}")
        return self.statistics(summary)

    def divide(self, summary: DatasetSummary, *, split: str, share: float, seed: int, into: tuple[str, str]) -> Task:
        """Begins to divide a split in two new data sets; asked again for the same it gives the same."""
        self._check()
        if not summary.is_current:
            raise DataError(f"version {summary.version} is not the current one of {summary.name}; split that one")
        stamp = f"{summary.version}-{split}-{share:g}-{seed}-{'-'.join(into)}"
        key = f"split-{summary.name}"
        task = self._processes.get(key)
        if task is not None and task.stamp == stamp and task.state != "failed":
            return task
        words = ["dataset", "split", f"{summary.name}@{split}", "--share", f"{share:g}", "--seed", str(seed)]
        words += ["--into", *into, "--json"]
        return self._processes.start(key, words, deadline_s=DIVIDE_S, stamp=stamp)

    def divided(self, summary: DatasetSummary) -> Task | None:
        """The last split that was asked for; the two new data sets belong to who looks when it is done."""
        task = self._processes.get(f"split-{summary.name}")
        if task is not None and task.data is not None:
            for info in task.data.values():
                self._note(str(info["name"]), str(info["version"]))
        return task

    def export(self, summary: DatasetSummary) -> Task:
        """Writes the version's rows and images to `home()/exports`; an export that is there already stays."""
        self._check()
        if not summary.is_current:
            raise DataError(f"version {summary.version} is not the current one of {summary.name}; export that one")
        key, out = f"export-{summary.name}-{summary.version}", export_folder(summary)
        task = self._processes.get(key)
        if task is not None and not (task.is_over and (task.state == "failed" or not out.exists())):
            return task
        out.parent.mkdir(parents=True, exist_ok=True)
        return self._processes.start(key, ["dataset", "export", summary.name, str(out), "--json"], deadline_s=EXPORT_S)

    def exported(self, summary: DatasetSummary) -> Task | None:
        return self._processes.get(f"export-{summary.name}-{summary.version}")

    def _note(self, name: str, version: str) -> None:
        try:
            if self._catalogue.get(name, version).owner_id is not None:
                return
        except NotFoundError:
            pass
        self._catalogue.note(self._catalogue.registry.find(name, version), owner_id=self._actor.id)

    def _check(self) -> None:
        check_allowed(self._actor, "data", settings=self._catalogue.database.settings)


def export_folder(summary: DatasetSummary) -> Path:
    return home() / "exports" / f"{summary.name}-{summary.version}"


def _current(registry: DatasetRegistry, name: str) -> str | None:
    try:
        return registry.find(name).version
    except MmrlError:
        return None


def _summary(row: DatasetRow, users: Mapping[str, str]) -> DatasetSummary:
    splits: Mapping[str, Any] = row.report.get("splits") or {}
    return DatasetSummary(
        name=row.name,
        version=row.version,
        splits=tuple(Split(name, each["num_rows"], each["num_images"]) for name, each in splits.items()),
        num_bytes=row.num_bytes,
        owner=users.get(row.owner_id or "", ""),
        created_at=row.created_at,
        state=row.validation_state,
        is_current=row.is_current,
        skipped=int(row.report.get("skipped") or 0),
        source=str(row.report.get("source") or ""),
    )


def _row_view(number: int, sample: Sample, side: int) -> RowView:
    numbers: dict[str, int] = {}
    for image in sample.images:
        numbers.setdefault(image.sha256, len(numbers) + 1)
    turns = []
    for message in sample.messages:
        parts = (
            f"[image {numbers[part.image.sha256]}]" if isinstance(part, ImagePart) else part.text
            for part in message.content
        )
        turns.append((message.role, " ".join(part.strip() for part in parts)))
    pictures = tuple(
        _picture(image, number, side) for image in {image.sha256: image for image in sample.images}.values()
    )
    return RowView(number, sample.id, tuple(turns), pictures, sample.answer, dict(sample.meta))


def _picture(image: ImageRef, row: int, side: int) -> Picture:
    try:
        return Picture(image, row, thumbnail(image, side=side))
    except (MmrlError, OSError):
        return Picture(image, row, None)
