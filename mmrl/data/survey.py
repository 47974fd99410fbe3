"""What is learnt while the rows of one or several splits pass by: bad rows, repeats, leaks, statistics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from mmrl.data.row_worker import ReadRow
from mmrl.data.rows import RowError
from mmrl.data.sources import Source
from mmrl.data.statistics import Statistics
from mmrl.data.unused import answer_lookalikes, image_file_columns, numbered_places
from mmrl.types import Sample

NUM_EXAMPLES = 5


class RowCheck(Protocol):
    """A check of good rows beyond what the data alone tells, such as a run's token limit."""

    def add(self, row: ReadRow, source: Source) -> Sequence[RowError]:
        """Takes a row in; what is wrong with it, or with earlier ones that had to wait."""
        ...

    def finish(self) -> Sequence[RowError]:
        """What is wrong with the rows that still wait."""
        ...

    def warnings(self) -> list[str]: ...


@dataclass
class Notices:
    """Rows of which the same is to be said: how many, and the first few."""

    count: int = 0
    rows: list[str] = field(default_factory=list)

    def add(self, row: str) -> None:
        self.count += 1
        if len(self.rows) < NUM_EXAMPLES:
            self.rows.append(row)

    def __str__(self) -> str:
        more = " …" if self.count > len(self.rows) else ""
        return f"(row{'s' if self.count > 1 else ''} {', '.join(self.rows)}{more})"


class Survey:
    """Rows go through `watch` or `check`; what was learnt is there afterwards.

    errors: of single rows. empty: of splits without a row; both are reported alike.
    columns: names of the first rows' columns by split, where files were read.
    Memory grows by a few hundred bytes a row: 64-bit keys stand for what was seen.
    """

    def __init__(self, *, checks: Sequence[RowCheck] = (), statistics: Statistics | None = None) -> None:
        self.num_rows = 0
        self.errors: list[RowError] = []
        self.empty: list[RowError] = []
        self.columns: dict[str, tuple[str, ...]] = {}
        self.statistics = statistics
        self._checks = checks
        self._unfit: set[tuple[str, int]] = set()
        self._rows_of_key: dict[str, dict[int, int]] = {}
        self._prompts: dict[str, dict[int, int]] = {}
        self._images: dict[str, set[int]] = {}
        self._notices: dict[tuple[str, str], Notices] = {}
        self._shared: dict[tuple[str, str], Notices] = {}
        self._shared_prompts: dict[tuple[str, str], Notices] = {}

    @property
    def num_valid(self) -> int:
        return self.num_rows - len({(error.file, error.row) for error in self.errors})

    @property
    def faults(self) -> list[RowError]:
        """All that is wrong, file by file in the order of rows; checks of whole batches find theirs late."""
        files = list(dict.fromkeys(error.file for error in self.errors))
        return [*self.empty, *sorted(self.errors, key=lambda error: (files.index(error.file), error.row))]

    def watch(self, source: Source, rows: Iterable[ReadRow | RowError]) -> Iterator[Sample]:
        """The good rows of a source, which know their place in it; the bad ones are kept in `errors`."""
        before = self.num_rows
        for row in rows:
            self.num_rows += 1
            if isinstance(row, RowError):
                self.errors.append(row)
                continue
            self._note(row, source)
            for check in self._checks:
                self.errors.extend(check.add(row, source))
            yield replace(row.sample, row=row.row)
        for check in self._checks:
            self.errors.extend(check.finish())
        if self.num_rows == before:
            message = "holds no rows; a data set needs at least one"
            self.empty.append(RowError(source.file.name, 0, "", message))

    def warnings(self) -> list[str]:
        """Repeated rows, contradictions, rows without an answer, and what two splits share; a line each."""
        lines = [
            f"{split}: {notices.count} row(s) {what} {notices}" for (split, what), notices in self._notices.items()
        ]
        for (first, second), notices in sorted(self._shared.items()):
            lines.append(f"{first} and {second} share {notices.count} row(s) {notices}")
        for (first, second), notices in sorted(self._shared_prompts.items()):
            lines.append(f"{first} and {second} share {notices.count} prompt(s) with different answers {notices}")
        lines += self._shared_images()
        return lines + [line for check in self._checks for line in check.warnings()]

    def _note(self, row: ReadRow, source: Source) -> None:
        sample, split = row.sample, source.split
        if self.statistics is not None:
            self.statistics.add(sample)
        self._note_repeats(row, split)
        self._note_answer(row, split)
        if not sample.images:
            self._note_missing_images(row, split)
        if sample.meta.get("chosen") is not None and sample.meta["chosen"] == sample.meta.get("rejected"):
            self._notice(split, "prefer an answer over the same one (chosen and rejected are identical)", row.row)
        images = self._images.setdefault(split, set())
        images.update(int(image.sha256[:16], 16) for image in sample.images)

    def _note_answer(self, row: ReadRow, split: str) -> None:
        """A missing answer; rows with preferred or judged answers need none."""
        sample = row.sample
        if sample.answer is not None:
            if not sample.answer.strip():
                self._notice(split, "have an empty answer", row.row)
        elif not any(name in sample.meta for name in ("chosen", "completion")):
            self._notice(split, f"have no answer{_lookalike_hint(sample)}", row.row)

    def _note_missing_images(self, row: ReadRow, split: str) -> None:
        """What in a text-only row tells that it was meant to have an image."""
        for name in image_file_columns(row.sample.meta):
            self._notice(split, f"hold no image but name a file in {name!r}; read it with --map images={name}", row.row)
        places = numbered_places(message.text for message in row.sample.messages if message.role in ("user", "tool"))
        for number, place in places.items():
            what = f"hold no image and {place} in their text; that image is read from a column image_{number}"
            self._notice(split, what, row.row)

    def _note_repeats(self, row: ReadRow, split: str) -> None:
        """A row with the id of an earlier one repeats it; one with its prompt alone contradicts it."""
        own = self._rows_of_key.setdefault(split, {})
        prompts = self._prompts.setdefault(split, {})
        key, prompt = hash(row.sample.id), hash(row.sample.messages)
        if key in own:
            self._notice(split, "repeat an earlier one", row.row)
            return
        if prompt in prompts:
            self._notice(split, "have the prompt of an earlier one and another answer", row.row)
        own[key] = row.row
        prompts.setdefault(prompt, row.row)
        for other, rows in self._rows_of_key.items():
            if other != split and key in rows:
                first, second = sorted([(other, rows[key]), (split, row.row)])
                notices = self._shared.setdefault((first[0], second[0]), Notices())
                notices.add(f"{first[0]}:{first[1]} is {second[0]}:{second[1]}")
        for other, known in self._prompts.items():
            if other != split and prompt in known and key not in self._rows_of_key[other]:
                first, second = sorted([(other, known[prompt]), (split, row.row)])
                notices = self._shared_prompts.setdefault((first[0], second[0]), Notices())
                notices.add(f"{first[0]}:{first[1]} and {second[0]}:{second[1]}")

    def _notice(self, split: str, what: str, row: int) -> None:
        self._notices.setdefault((split, what), Notices()).add(str(row))

    def _shared_images(self) -> list[str]:
        """Images that stand in two splits, whatever is asked about them."""
        splits_of = Counter[tuple[str, str]]()
        names = sorted(self._images)
        for index, first in enumerate(names):
            for second in names[index + 1 :]:
                splits_of[first, second] = len(self._images[first] & self._images[second])
        return [f"{first} and {second} share {count} image(s)" for (first, second), count in splits_of.items() if count]


def _lookalike_hint(sample: Sample) -> str:
    """Which unused columns may hold the missing answer."""
    names = answer_lookalikes(sample.meta)
    if not names:
        return ""
    return f" (is it in {' or '.join(repr(name) for name in names)}? then read with --map answer={names[0]})"
