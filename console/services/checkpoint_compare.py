"""What the page Compare asks: which evaluations share a panel, how they differ, and on which prompts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Literal

import pyarrow as pa

from console.services.kept_reads import KeptReads, responses_bytes
from mmrl.errors import DataError
from mmrl.evaluation.comparison import Comparison, PromptRow, compare_evaluations
from mmrl.evaluation.outcomes import PromptOutcome
from mmrl.evaluation.records import Evaluation
from mmrl.evaluation.summary import value_of

Change = Literal["solved", "lost", "oftener", "rarer", "better", "worse", "same", "missing"]
CHANGES: dict[Change, str] = {
    "solved": "newly solved",
    "lost": "regressed",
    "oftener": "more often right",
    "rarer": "less often right",
    "better": "higher reward",
    "worse": "lower reward",
    "same": "the same",
    "missing": "asked of one only",
}
CHANGES_TOLD = (
    "Newly solved: no answer of the base was right, and one or more are now. Regressed: one or more were, and none is. "
    "Between, where several answers were sampled, more or fewer of them are right. Where as many are right, "
    "the rewards are compared."
)
METRICS = ("accuracy", "reward")
MAX_COMPARED = 5
_WORD = re.compile(r"\s+|\w+|[^\w\s]")
_MAX_WORDS = 2_000
_MAX_PAIRS = 100_000
"""Of equal words, one in either text: what a comparison looks at, a tenth of a second's worth."""


@dataclass(frozen=True)
class PanelGroup:
    """Evaluations of one panel, oldest first. name: of the panel; hash: of its prompts and settings."""

    name: str
    hash: str
    evaluations: tuple[Evaluation, ...]


@dataclass(frozen=True)
class ComparedRow:
    """A prompt with everyone's responses. changes: against the base, one for each other evaluation."""

    row: PromptRow
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class Compared:
    """What was asked for. metrics: those of METRICS that all have; rows: every prompt."""

    comparison: Comparison
    metrics: tuple[str, ...]
    rows: tuple[ComparedRow, ...]

    def count(self, other: int, change: Change) -> int:
        """How many prompts changed so for evaluation number `other`, the base being none of them."""
        return sum(row.changes[other] == change for row in self.rows)


_COMPARED: KeptReads[Compared] = KeptReads(64_000_000)


def by_panel(evaluations: Sequence[Evaluation]) -> list[PanelGroup]:
    """Those with most evaluations first, so that what can be compared comes first."""
    groups: dict[str, list[Evaluation]] = {}
    for evaluation in evaluations:
        groups.setdefault(evaluation.panel_hash, []).append(evaluation)
    found = [PanelGroup(own[-1].panel, panel_hash, tuple(own)) for panel_hash, own in groups.items()]
    return sorted(found, key=lambda group: (-len(group.evaluations), group.name))


def chosen(group: PanelGroup, ids: Sequence[str]) -> list[Evaluation]:
    """Those of the panel that are named, in that order, the first being the base; where none is named the earliest and
    the latest by step, a model that no run made before all steps."""
    known = {evaluation.id: evaluation for evaluation in group.evaluations}
    named = [known[each] for each in dict.fromkeys(ids) if each in known][:MAX_COMPARED]
    by_step = sorted(group.evaluations, key=lambda evaluation: evaluation.model.step or 0)
    return named or [by_step[place] for place in sorted({0, len(by_step) - 1})]


def label_of(evaluation: Evaluation) -> str:
    """As columns are headed: RUN@STEP, or the name of a model that no run made."""
    if evaluation.model.run is not None and evaluation.model.step == 0:
        return f"{evaluation.model.label}, before training"
    return evaluation.model.label


def compare(evaluations: Sequence[Evaluation]) -> Compared:
    """Kept for the next look, since evaluations never change. Raises DataError where files are gone or damaged, or
    nothing can be compared."""
    return _COMPARED.get(
        tuple(str(evaluation.folder) for evaluation in evaluations), lambda: _compare(evaluations), _num_bytes
    )


def _compare(evaluations: Sequence[Evaluation]) -> Compared:
    try:
        comparison = compare_evaluations(evaluations, metrics=METRICS, if_shared=True)
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise DataError(f"an evaluation cannot be read: {' '.join(str(error).split())[:200]}") from error
    base, *others = comparison.outcomes
    rows = tuple(
        ComparedRow(row, tuple(_change(base.get(row.prompt_id), other.get(row.prompt_id)) for other in others))
        for row in comparison.rows
    )
    return Compared(comparison, tuple(comparison.results[0]), rows)


def _num_bytes(compared: Compared) -> int:
    return sum(
        2_000 + sum(2 * len(turn.text) for turn in each.row.prompt) + sum(map(responses_bytes, each.row.responses))
        for each in compared.rows
    )


@lru_cache(maxsize=512)
def word_differences(base: str, other: str) -> tuple[tuple[str, bool], ...]:
    """The other text in pieces, each with whether it is not in the base; word by word.

    Texts that repeat themselves so often that a comparison would take seconds have one piece that differs, from the
    first difference to the last. Kept for the next look.
    """
    before, after = _WORD.findall(base)[:_MAX_WORDS], _WORD.findall(other)[:_MAX_WORDS]
    pieces = [("".join(after[start:end]), is_new) for start, end, is_new in _differing(before, after) if end > start]
    rest = other[sum(map(len, after)) :]
    return (*pieces, *([(rest, True)] if rest else []))


def _differing(before: list[str], after: list[str]) -> list[tuple[int, int, bool]]:
    """Ranges of words of `after`, each with whether it is new."""
    most = min(len(before), len(after))
    same = [one == other for one, other in zip(before, after, strict=False)]
    start = same.index(False) if False in same else most
    same = [one == other for one, other in zip(before[::-1], after[::-1], strict=False)][: most - start]
    end = len(after) - (same.index(False) if False in same else most - start)
    middle_before, middle = before[start : len(before) - (len(after) - end)], after[start:end]
    repeats = Counter(middle_before)
    if sum(repeats[word] for word in middle) > _MAX_PAIRS:
        found = [(start, end, True)]
    else:
        matcher = SequenceMatcher(None, middle_before, middle, autojunk=False)
        found = [(start + one, start + two, tag != "equal") for tag, _, _, one, two in matcher.get_opcodes()]
    return [(0, start, False), *found, (end, len(after), False)]


def _change(before: PromptOutcome | None, after: PromptOutcome | None) -> Change:
    if before is None or after is None:
        return "missing"
    first, second = value_of(before, "accuracy"), value_of(after, "accuracy")
    if first is not None and second is not None and first != second:
        if first == 0 or second == 0:
            return "solved" if first == 0 else "lost"
        return "oftener" if second > first else "rarer"
    first, second = value_of(before, "reward"), value_of(after, "reward")
    if first is None or second is None or first == second:
        return "same"
    return "better" if second > first else "worse"
