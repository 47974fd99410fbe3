"""Reading whole sources: every row is looked at, and every bad one is told of.

`validate` reports and writes nothing; `add_dataset` registers; `read_valid` is for a source that is used as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path

from mmrl.data.images import ImageStore, inspect_image
from mmrl.data.options import PLAIN, ReadOptions
from mmrl.data.reading import read_all
from mmrl.data.registry import DatasetInfo, DatasetRegistry
from mmrl.data.row_worker import ReadRow
from mmrl.data.rows import RowError
from mmrl.data.sources import Source, find_sources, first_columns, pick_split
from mmrl.data.statistics import Statistics
from mmrl.data.survey import RowCheck, Survey
from mmrl.errors import DataError
from mmrl.types import Sample

NUM_SHOWN = 20


class BadRowsError(DataError):
    """Some rows cannot be used. `errors` has all of them, the message the first NUM_SHOWN."""

    def __init__(self, path: str | Path, errors: Sequence[RowError], num_rows: int, *, advice: str) -> None:
        shown = [f"  {error}" for error in errors[:NUM_SHOWN]]
        if len(errors) > NUM_SHOWN:
            shown.append(f"  … and {len(errors) - NUM_SHOWN} more; `mmrl dataset validate PATH --json` lists all")
        super().__init__("\n".join([f"{path}: {len(errors)} of {num_rows} rows cannot be used; {advice}", *shown]))
        self.errors = tuple(errors)
        self.num_rows = num_rows


@dataclass(frozen=True)
class Added:
    """What `add_dataset` did: the registered version, the bad rows that were left out, and warnings."""

    info: DatasetInfo
    skipped: tuple[RowError, ...]
    warnings: tuple[str, ...]


def validate(
    path: str | Path,
    *,
    split: str | None = None,
    options: ReadOptions = PLAIN,
    checks: Sequence[RowCheck] = (),
    statistics: bool = False,
    workers: int | None = None,
) -> Survey:
    """Reads every row of every split at `path`, images included, and writes nothing.

    A registered data set is taken by its NAME, NAME@SPLIT or NAME:VERSION@SPLIT: its rows are sound, and are checked by
    the rest alone.
    checks: what good rows are to pass besides. statistics: gather distributions too. workers: as for `read_all`.
    """
    survey = Survey(checks=checks, statistics=Statistics() if statistics else None)
    for source, samples in _registered(str(path), split):
        for _ in survey.watch(source, starmap(ReadRow, enumerate(samples, start=1))):
            pass
    if survey.num_rows:
        return survey
    for source in find_sources(path, split=split, options=options).values():
        survey.columns[source.split] = first_columns(source)
        with closing(read_all(source, inspect_image, workers=workers)) as rows:
            for _ in survey.watch(source, rows):
                pass
    return survey


def add_dataset(
    path: str | Path,
    *,
    name: str,
    split: str | None = None,
    skip_bad: bool = False,
    options: ReadOptions = PLAIN,
    registry: DatasetRegistry | None = None,
    store: ImageStore | None = None,
    workers: int | None = None,
    source: str | None = None,
) -> Added:
    """Registers the splits at `path` under `name`; all of them or nothing. source: written down in place of the path.

    Raises BadRowsError with every bad row, unless `skip_bad`: then they are left out, and counted in the manifest.
    """
    registry, store = registry or DatasetRegistry(), store or ImageStore()
    survey = Survey()
    with registry.draft(name) as draft:
        for each in find_sources(path, split=split, options=options).values():
            with closing(read_all(each, store.add, workers=workers)) as rows:
                draft.write(each.split, survey.watch(each, rows))
        if survey.errors and not skip_bad:
            raise BadRowsError(
                path, survey.errors, survey.num_rows, advice="mend them, or leave them out with --skip-bad"
            )
        info = draft.commit(source=source or _origin(path), skipped=len(survey.errors))
    return Added(info, tuple(survey.errors), tuple(survey.warnings()))


def read_valid(source: Source, *, limit: int | None, store: ImageStore, workers: int | None = None) -> list[Sample]:
    """The samples of a source, or of its first `limit` rows. Raises BadRowsError if one of those is bad."""
    survey = Survey()
    with closing(read_all(source, store.add, limit=limit, workers=workers)) as rows:
        samples = list(survey.watch(source, rows))
    if survey.errors:
        raise BadRowsError(
            source.file,
            survey.errors,
            survey.num_rows,
            advice="mend them, or register the good ones: `mmrl dataset add PATH --name NAME --skip-bad`",
        )
    if not samples:
        raise DataError(f"{source.file} has no rows")
    return samples


def _registered(ref: str, split: str | None) -> Iterator[tuple[Source, Iterator[Sample]]]:
    """The splits of a registered data set; none where `ref` names no such set."""
    target, _, named_split = ref.partition("@")
    name, _, version = target.partition(":")
    registry = DatasetRegistry()
    if not registry.has(name):
        return
    info = registry.find(name, version or None)
    wanted = split or named_split
    for each in [pick_split({one: one for one in info.splits}, wanted, of=name)] if wanted else info.splits:
        yield Source(each, Path(name), Path(name)), registry.read(info, each)


def _origin(path: str | Path) -> str:
    return str(path) if "://" in str(path) else str(Path(path).resolve())
