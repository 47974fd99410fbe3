"""Evaluations side by side: the same prompts with everyone's responses, paired tests, and what else differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mmrl.errors import DataError
from mmrl.evaluation.outcomes import PromptOutcome
from mmrl.evaluation.paired import PairedResult, compare_outcomes
from mmrl.evaluation.records import Evaluation, outcome_of_record
from mmrl.evaluation.summary import value_of
from mmrl.evaluation.versions import differences
from mmrl.runs.records import GroupRecord, ResponseRecord
from mmrl.types import Message


@dataclass(frozen=True)
class PromptRow:
    """A prompt and what each evaluation has for it, in their order: its responses, none where it lacks the prompt."""

    prompt_id: str
    prompt: tuple[Message, ...]
    answer: str | None
    meta: Mapping[str, Any]
    responses: tuple[tuple[ResponseRecord, ...], ...]


@dataclass(frozen=True)
class Comparison:
    """The first evaluation is the base. flags: for each other one, what makes it less comparable with the base.

    results: for each other one, the paired result of each metric.
    """

    evaluations: tuple[Evaluation, ...]
    flags: tuple[tuple[str, ...], ...]
    results: tuple[Mapping[str, PairedResult], ...]
    rows: tuple[PromptRow, ...]
    outcomes: tuple[Mapping[str, PromptOutcome], ...] = ()
    """Of each evaluation what came of each prompt, by its id."""


def compare_evaluations(
    evaluations: Sequence[Evaluation], *, metrics: Sequence[str] = ("accuracy",), if_shared: bool = False
) -> Comparison:
    """metrics: of `paired.compare_outcomes`. if_shared: leaves out metrics that no prompt has in the base and in each
    other one, where some metric is left.

    Raises DataError for fewer than two evaluations, or where no prompt is in both.
    """
    if len(evaluations) < 2:
        raise DataError(f"a comparison needs at least two evaluations (got {len(evaluations)})")
    base, *others = evaluations
    groups = [evaluation.groups() for evaluation in evaluations]
    first, *rest = [
        [outcome_of_record(group, part=each.part, at_least=each.at_least) for group in own]
        for each, own in zip(evaluations, groups, strict=True)
    ]
    shared = [metric for metric in metrics if all(_share(first, after, metric) for after in rest)] if if_shared else []
    return Comparison(
        evaluations=tuple(evaluations),
        flags=tuple(tuple(flags_of(base, other)) for other in others),
        results=tuple(
            {metric: compare_outcomes(first, after, metric=metric) for metric in shared or metrics} for after in rest
        ),
        rows=tuple(side_by_side(groups)),
        outcomes=tuple({outcome.prompt_id: outcome for outcome in own} for own in (first, *rest)),
    )


def flags_of(base: Evaluation, other: Evaluation) -> list[str]:
    """What differs besides the weights, in words; nothing where all is alike."""
    flags = []
    if base.panel_hash != other.panel_hash:
        flags.append(f"not the same: the panel ({base.panel} {base.panel_hash} and {other.panel} {other.panel_hash})")
    if (base.part, base.at_least) != (other.part, other.at_least):
        flags.append(
            f"not the same: when a response is right ({base.part} >= {base.at_least:g} and {other.part} >= "
            f"{other.at_least:g})"
        )
    flags += differences(base.versions, other.versions)
    if (base.engine, base.dtype) != (other.engine, other.dtype):
        flags.append(
            f"not the same: what sampled ({base.engine} in {base.dtype} and {other.engine} in {other.dtype}); ties may "
            "have fallen otherwise"
        )
    return flags


def _share(first: Sequence[PromptOutcome], second: Sequence[PromptOutcome], metric: str) -> bool:
    """Whether some prompt has the metric in both."""
    having = {outcome.prompt_id for outcome in first if value_of(outcome, metric) is not None}
    return any(outcome.prompt_id in having and value_of(outcome, metric) is not None for outcome in second)


def side_by_side(evaluations: Sequence[Sequence[GroupRecord]]) -> list[PromptRow]:
    """The prompts of all, in the order of the first, then those that it lacks."""
    found: list[dict[str, GroupRecord]] = [{group.prompt_id: group for group in groups} for groups in evaluations]
    order = dict.fromkeys(prompt for groups in found for prompt in groups)
    rows = []
    for prompt in order:
        groups = [own.get(prompt) for own in found]
        known = next(group for group in groups if group is not None)
        rows.append(
            PromptRow(
                prompt_id=prompt,
                prompt=known.prompt or (),
                answer=known.answer,
                meta=known.meta or {},
                responses=tuple(group.responses if group is not None else () for group in groups),
            )
        )
    return rows
