"""Reading whole sources: every row is looked at, and every bad one is told of.

`validate` reports and writes nothing; `add_dataset` registers; `read_valid` is for a source that is used as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mmrl.data.images import ImageStore, inspect_image
from mmrl.data.normalise import ImageSink
from mmrl.data.registry import DatasetInfo, DatasetRegistry
from mmrl.data.rows import RowError
from mmrl.data.sources import Source, find_sources, read_samples
from mmrl.errors import DataError
from mmrl.types import Sample

NUM_SHOWN = 20


class BadRowsError(DataError):
    """Some rows cannot be used. `errors` has all of them, the message the first NUM_SHOWN."""

    def __init__(self, path: Path, errors: Sequence[RowError], num_rows: int, *, advice: str) -> None:
        shown = [f"  {error}" for error in errors[:NUM_SHOWN]]
        if len(errors) > NUM_SHOWN:
            shown.append(f"  … and {len(errors) - NUM_SHOWN} more")
        super().__init__("\n".join([f"{path}: {len(errors)} of {num_rows} rows cannot be used; {advice}", *shown]))
        self.errors = tuple(errors)
        self.num_rows = num_rows


@dataclass
class Survey:
    """What is learnt while the rows of one or several splits pass by."""

    num_rows: int = 0
    errors: list[RowError] = field(default_factory=list)
    _splits_of_id: dict[str, set[str]] = field(default_factory=dict)
    _repeats: Counter[str] = field(default_factory=Counter)
    _unanswered: Counter[str] = field(default_factory=Counter)

    @property
    def num_valid(self) -> int:
        return self.num_rows - len(self.errors)

    def watch(self, source: Source, add_image: ImageSink) -> Iterator[Sample]:
        """The good rows of a source; the bad ones are kept in `errors`."""
        for item in read_samples(source, add_image):
            self.num_rows += 1
            if isinstance(item, RowError):
                self.errors.append(item)
                continue
            splits = self._splits_of_id.setdefault(item.id, set())
            self._repeats[source.split] += source.split in splits
            self._unanswered[source.split] += item.answer is None
            splits.add(source.split)
            yield item

    def warnings(self) -> list[str]:
        """Repeated rows, rows without an answer, and rows that two splits share; a line each."""
        lines = [f"{split}: {count} row(s) repeat an earlier one" for split, count in self._repeats.items() if count]
        lines += [f"{split}: {count} row(s) have no answer" for split, count in self._unanswered.items() if count]
        shared = Counter(tuple(sorted(splits)) for splits in self._splits_of_id.values() if len(splits) > 1)
        lines += [f"{' and '.join(splits)} share {count} row(s)" for splits, count in sorted(shared.items())]
        return lines


@dataclass(frozen=True)
class Added:
    """What `add_dataset` did: the registered version, the bad rows that were left out, and warnings."""

    info: DatasetInfo
    skipped: tuple[RowError, ...]
    warnings: tuple[str, ...]


def validate(path: Path, *, split: str | None = None) -> Survey:
    """Reads every row of every split at `path`, images included, and writes nothing."""
    survey = Survey()
    for source in find_sources(path, split=split).values():
        for _ in survey.watch(source, inspect_image):
            pass
    return survey


def add_dataset(
    path: Path,
    *,
    name: str,
    split: str | None = None,
    skip_bad: bool = False,
    registry: DatasetRegistry | None = None,
    store: ImageStore | None = None,
) -> Added:
    """Registers the splits at `path` under `name`; all of them or nothing.

    Raises BadRowsError with every bad row, unless `skip_bad`: then they are left out, and counted in the manifest.
    """
    registry, store = registry or DatasetRegistry(), store or ImageStore()
    survey = Survey()
    with registry.draft(name) as draft:
        for source in find_sources(path, split=split).values():
            draft.write(source.split, survey.watch(source, store.add))
        if survey.errors and not skip_bad:
            raise BadRowsError(
                path, survey.errors, survey.num_rows, advice="mend them, or leave them out with --skip-bad"
            )
        info = draft.commit(source=str(path.resolve()), skipped=len(survey.errors))
    return Added(info, tuple(survey.errors), tuple(survey.warnings()))


def read_valid(source: Source, *, limit: int | None, store: ImageStore) -> list[Sample]:
    """The samples of a source, or of its first `limit` rows. Raises BadRowsError if one of those is bad."""
    survey = Survey()
    samples: list[Sample] = []
    rows = survey.watch(source, store.add)
    while (limit is None or survey.num_rows < limit) and (sample := next(rows, None)) is not None:
        samples.append(sample)
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
