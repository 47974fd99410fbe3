"""What a check of data found, in the order in which a person wants to know it: what is wrong, where, what to do."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from console.services.datasets import Catalogued
from console.services.processes import Processes, Task
from console.services.uploads import Upload, Uploads

DEADLINE_S = 3600.0
_UNPACKED = re.compile(r"/\S*mmrl-(?:unpacked|fetched)-\w+/(?:archive|fetched)")
"""Where archives are unpacked meanwhile, of which nobody knows."""
NO_RULE = "mend this row in the file, or keep only the good rows"


@dataclass(frozen=True)
class BadRow:
    """file and row (counted from 1) as the person knows them; mend: how to put it right."""

    file: str
    row: int
    field: str
    wrong: str
    mend: str


@dataclass(frozen=True)
class Report:
    """sentence: what is wrong, or that nothing is. bad: every row that cannot be used. columns: that files have.

    failure: why nothing could be read at all; then there are no rows.
    """

    sentence: str
    num_rows: int = 0
    num_valid: int = 0
    bad: tuple[BadRow, ...] = ()
    warnings: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    statistics: Mapping[str, Any] = field(default_factory=dict)
    failure: str | None = None

    @property
    def is_sound(self) -> bool:
        return self.failure is None and not self.bad

    @property
    def can_keep_good_rows(self) -> bool:
        return bool(self.bad) and self.num_valid > 0


class Checking:
    """Checks uploads and registers them; both run as processes, which a page asks about again and again."""

    def __init__(self, uploads: Uploads, processes: Processes, catalogued: Catalogued) -> None:
        self._uploads, self._processes, self._catalogued = uploads, processes, catalogued

    def check(self, upload: Upload) -> Task:
        """The check of the upload as it is to be read now; started where there is none."""
        key = f"check-{upload.id}"
        task = self._processes.get(key)
        if task is not None and task.stamp == upload.stamp:
            return task
        words = ["dataset", "validate", *upload.words, "--stats", "--json"]
        return self._processes.start(key, words, deadline_s=DEADLINE_S, stamp=upload.stamp)

    def check_again(self, upload: Upload) -> Task:
        self._processes.stop(f"check-{upload.id}")
        return self.check(upload)

    def register(self, upload: Upload, *, skip_bad: bool) -> Task:
        """Begins to register it. What was begun already goes on: a second click changes nothing."""
        self._uploads.change(upload)
        key, stamp = f"add-{upload.id}", f"{upload.stamp}-{upload.name}-{skip_bad}"
        task = self._processes.get(key)
        if task is not None and task.stamp == stamp and task.state != "failed":
            return task
        words = ["dataset", "add", *upload.words, "--name", upload.name, "--source", upload.shown, "--json"]
        words += ["--skip-bad"] if skip_bad else []
        return self._processes.start(key, words, deadline_s=DEADLINE_S, stamp=stamp)

    def registering(self, upload: Upload) -> Task | None:
        return self._processes.get(f"add-{upload.id}")

    def finish(self, upload: Upload, task: Task) -> str:
        """Notes who owns what was registered, and throws the upload away. Gives the data set's name."""
        name, version = str(task.data["name"]), str(task.data["version"])
        self._catalogued.own(name, version)
        self.forget(upload)
        return name

    def forget(self, upload: Upload) -> None:
        self._uploads.remove(upload)
        for key in (f"check-{upload.id}", f"add-{upload.id}"):
            self._processes.stop(key)

    def report(self, upload: Upload, task: Task) -> Report:
        """What a check that is over found."""
        if task.data is None:
            failure = as_shown(task.error or "nothing was found", upload, self._uploads)
            what, _, _ = failure.partition("; ")
            return Report(sentence=f"This cannot be read: {what}", failure=failure)
        return report_of(task.data, upload.shown)


def as_shown(text: str, upload: Upload, uploads: Uploads) -> str:
    """A message with the person's own name for the data in place of where the server keeps it."""
    text = _UNPACKED.sub(upload.shown, text).replace(upload.source, upload.shown)
    return text.replace(f"{uploads.folder(upload)}/files/", "").replace(str(uploads.folder(upload)), upload.shown)


def report_of(data: Mapping[str, Any], shown: str) -> Report:
    """The JSON of `mmrl dataset validate` as a report."""
    bad = tuple(_bad_row(error, shown) for error in data["errors"])
    columns = dict.fromkeys(name for names in data.get("columns", {}).values() for name in names)
    return Report(
        sentence=_sentence(data["rows"], data["valid"], bad),
        num_rows=data["rows"],
        num_valid=data["valid"],
        bad=bad,
        warnings=tuple(data["warnings"]),
        columns=tuple(columns),
        statistics=data.get("stats") or {},
    )


def _bad_row(error: Mapping[str, Any], shown: str) -> BadRow:
    wrong, _, mend = _UNPACKED.sub(shown, str(error["message"])).partition("; ")
    file = str(error["file"])
    is_ours = file.startswith("data.") or file == "data"
    return BadRow(shown if is_ours else file, int(error["row"]), str(error["field"]), wrong, mend or NO_RULE)


def _sentence(num_rows: int, num_valid: int, bad: tuple[BadRow, ...]) -> str:
    if not bad:
        return f"All {num_rows:,} rows can be used." if num_rows != 1 else "The one row can be used."
    if num_rows == 0:
        return f"There are no rows: {bad[0].file} {bad[0].wrong}."
    head = f"{num_rows - num_valid:,} of {num_rows:,} row{'s' if num_rows != 1 else ''} cannot be used"
    reasons = Counter(f"{row.wrong}{f' in {row.field!r}' if row.field else ''}" for row in bad)
    if len(reasons) > 1:
        return f"{head}, for {len(reasons):,} different reasons, which the table tells."
    return f"{head}: {next(iter(reasons))}."
