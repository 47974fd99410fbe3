"""Evaluations and comparisons as text and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from mmrl.cli.output import print_table
from mmrl.evaluation.comparison import Comparison
from mmrl.evaluation.intervals import CONFIDENCE, Estimate
from mmrl.evaluation.paired import PairedResult
from mmrl.evaluation.records import Evaluation
from mmrl.evaluation.summary import Summary

_METHODS = {"wilson": "Wilson", "t": "t over prompts", "none": "-"}


def as_json(evaluation: Evaluation) -> dict[str, Any]:
    """metrics: plain numbers by name; estimates: the same with interval, number of prompts and method."""
    return {
        "id": evaluation.id,
        "path": evaluation.folder,
        "panel": {"name": evaluation.panel, "hash": evaluation.panel_hash, "settings": asdict(evaluation.settings)},
        "data": evaluation.data,
        "model": asdict(evaluation.model),
        "versions": asdict(evaluation.versions),
        "correct": {"part": evaluation.part, "at_least": evaluation.at_least},
        "metrics": evaluation.summary.flat(),
        "estimates": {name: asdict(each) for name, each in evaluation.summary.metrics.items()},
        "sources": {
            source: {name: asdict(each) for name, each in metrics.items()}
            for source, metrics in evaluation.summary.sources.items()
        },
        "greedy": None if evaluation.greedy is None else evaluation.greedy.flat(),
        "missing": evaluation.summary.missing,
    }


def print_evaluation(evaluation: Evaluation) -> None:
    summary = evaluation.summary
    rows = _rows(summary, "")
    if evaluation.greedy is not None:
        rows += _rows(evaluation.greedy, "greedy ")
    for source, metrics in summary.sources.items():
        rows += [_row(f"{source}: {name}", each) for name, each in metrics.items() if name in ("accuracy", "reward")]
    print_table(rows, ("metric", "value", f"{CONFIDENCE:.0%} interval", "prompts", "method"))
    if summary.missing:
        print(f"{summary.missing} of {summary.num_responses} responses could not be graded and count in nothing")
    print(f"evaluation {evaluation.id} in {evaluation.folder}")


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    base, *others = comparison.evaluations
    return {
        "base": as_json(base),
        "others": [
            {
                "evaluation": as_json(other),
                "flags": flags,
                "results": {
                    name: {**asdict(result), "is_different": result.is_different} for name, result in results.items()
                },
            }
            for other, flags, results in zip(others, comparison.flags, comparison.results, strict=True)
        ],
    }


def print_comparison(comparison: Comparison) -> None:
    base, *others = comparison.evaluations
    print(f"base: {base.model.label} on panel {base.panel} ({base.id})")
    rows: list[tuple[Any, ...]] = []
    for other, flags, results in zip(others, comparison.flags, comparison.results, strict=True):
        rows += [_paired_row(other.model.label, result) for result in results.values()]
        for flag in flags:
            print(f"warning: {other.model.label}: {flag}")
    columns = (
        "checkpoint",
        "metric",
        "base",
        "here",
        "difference",
        f"{CONFIDENCE:.0%} interval",
        "p",
        "better/worse/same",
    )
    print_table(rows, columns)
    for other, results in zip(others, comparison.results, strict=True):
        for result in results.values():
            print(f"{other.model.label}: {result.metric}: {result.verdict}")


def _rows(summary: Summary, prefix: str) -> list[tuple[Any, ...]]:
    return [_row(prefix + name, each) for name, each in summary.metrics.items()]


def _row(name: str, each: Estimate) -> tuple[Any, ...]:
    return (name, each.value, _interval(each.low, each.high), each.num, _METHODS[each.method])


def _paired_row(label: str, result: PairedResult) -> tuple[Any, ...]:
    counts = f"{result.better}/{result.worse}/{result.same}"
    interval = _interval(result.low, result.high)
    return (label, result.metric, result.first, result.second, result.difference, interval, result.p_value, counts)


def _interval(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"{low:.4g} to {high:.4g}"
