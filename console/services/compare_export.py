"""A comparison as records to take along: a row for each response, with its prompt and what changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from console.services.checkpoint_compare import CHANGES, Compared, ComparedRow, label_of
from console.services.exports import Export, Record
from console.services.formats import number_text
from console.services.response_export import response_values
from mmrl.evaluation.paired import PairedResult
from mmrl.types import Sample


def export_comparison(compared: Compared, rows: Sequence[ComparedRow], *, only: str | None) -> Export:
    """rows: those that the page shows. only: the change that they were chosen by."""
    evaluations = compared.comparison.evaluations
    base = evaluations[0]
    return Export(
        name=f"compare-{base.panel}",
        title="Compared: " + ", ".join(map(label_of, evaluations)),
        records=lambda: _records(compared, rows),
        total=sum(len(responses) for row in rows for responses in row.row.responses),
        about={
            "panel": f"{base.panel} ({base.panel_hash})",
            "prompts": f"{len(rows):,} of {len(compared.rows):,}" + (f", {CHANGES[only]}" if only in CHANGES else ""),
            **_figures(compared),
        },
        shared=("prompt_id", "prompt", "answer", "images"),
    )


def result_words(result: PairedResult) -> str:
    """The difference with all that says how sure it is, in one line."""
    return (
        f"{number_text(result.first)} → {number_text(result.second)}, difference "
        f"{number_text(result.difference, plus=True)}{interval_words(result)}, p = {result.p_value:.3g}; "
        f"{result.better} wins, {result.same} ties, {result.worse} losses on {result.num_prompts} prompts"
    )


def interval_words(result: PairedResult) -> str:
    """The interval of the difference, after a space; nothing where there is none."""
    if result.low is None or result.high is None:
        return ""
    return f" [{number_text(result.low, 3, plus=True)}, {number_text(result.high, 3, plus=True)}]"


def _figures(compared: Compared) -> dict[str, str]:
    _, *others = compared.comparison.evaluations
    found = {}
    for other, results, flags in zip(others, compared.comparison.results, compared.comparison.flags, strict=True):
        for metric in compared.metrics:
            found[f"{metric} of {label_of(other)}"] = result_words(results[metric])
        if flags:
            found[f"mind, of {label_of(other)}"] = "; ".join(flags)
    return found


def _records(compared: Compared, rows: Sequence[ComparedRow]) -> Iterator[Record]:
    evaluations = compared.comparison.evaluations
    for each in rows:
        row = each.row
        images = Sample(row.prompt_id, row.prompt).images
        shared = {
            "prompt_id": row.prompt_id,
            "prompt": "\n\n".join(f"{turn.role}: {turn.text}" for turn in row.prompt),
            "answer": row.answer,
            "images": " ".join(image.sha256 for image in images) or None,
        }
        paths = tuple(path for image in images if (path := evaluations[0].image(image.sha256)) is not None)
        section = " ".join(row.prompt[-1].text.split())[:120] if row.prompt else row.prompt_id
        for number, (evaluation, responses) in enumerate(zip(evaluations, row.responses, strict=True)):
            change = CHANGES[each.changes[number - 1]] if number else "base"
            for response in responses:
                values = {**shared, "checkpoint": label_of(evaluation), "change": change, **response_values(response)}
                yield Record(values, f"{section} ({row.prompt_id[:12]})", paths)
