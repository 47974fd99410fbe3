"""The metrics of an evaluation, from what came of each prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from mmrl.errors import ConfigError
from mmrl.evaluation.intervals import Estimate, estimate
from mmrl.evaluation.outcomes import PromptOutcome
from mmrl.evaluation.scores import majority_at_k, pass_at_k

_SHARE = (0.0, 1.0)


@dataclass(frozen=True)
class Summary:
    """metrics: by name (`accuracy`, `reward`, `pass@4`, `maj@4`, `length`, `truncated`). sources: the same of the
    prompts of each source, where there are several. missing: responses that could not be graded."""

    metrics: Mapping[str, Estimate]
    sources: Mapping[str, Mapping[str, Estimate]]
    num_prompts: int
    num_responses: int
    missing: int

    def flat(self, prefix: str = "") -> dict[str, float]:
        """Metrics by name as plain numbers, with `NAME_low` and `NAME_high` beside accuracies, sources as
        `source/SOURCE/NAME`."""
        values = {f"{prefix}{name}": each.value for name, each in self.metrics.items()}
        for name, each in self.metrics.items():
            if name == "accuracy" and each.low is not None and each.high is not None:
                values |= {f"{prefix}{name}_low": each.low, f"{prefix}{name}_high": each.high}
        for source, metrics in self.sources.items():
            for name in ("accuracy", "reward"):
                if name in metrics:
                    values[f"{prefix}source/{source}/{name}"] = metrics[name].value
        return values


def summarise(outcomes: Sequence[PromptOutcome], *, ks: Sequence[int] = ()) -> Summary:
    """ks: of pass@k and maj@k; one that is larger than the number of responses is left out."""
    sources = sorted({outcome.source for outcome in outcomes})
    by_source = {
        source: metrics_of([outcome for outcome in outcomes if outcome.source == source], ks=ks) for source in sources
    }
    return Summary(
        metrics=metrics_of(outcomes, ks=ks),
        sources=by_source if len(sources) > 1 else {},
        num_prompts=len(outcomes),
        num_responses=sum(len(outcome.lengths) for outcome in outcomes),
        missing=sum(value is None for outcome in outcomes for value in outcome.correct),
    )


def metrics_of(outcomes: Sequence[PromptOutcome], *, ks: Sequence[int]) -> dict[str, Estimate]:
    """Each over the prompts that have it."""
    found: dict[str, Estimate] = {}

    def add(name: str, values: Sequence[float | None], bounds: tuple[float, float] | None = None) -> None:
        known = [value for value in values if value is not None]
        if known:
            found[name] = estimate(known, bounds=bounds)

    for name in ("accuracy", "reward"):
        add(name, [value_of(outcome, name) for outcome in outcomes], _SHARE if name == "accuracy" else None)
    votes = any(answer is not None for outcome in outcomes for answer in outcome.answers)
    for k in ks:
        add(f"pass@{k}", [value_of(outcome, f"pass@{k}") for outcome in outcomes], _SHARE)
        if votes and k > 1:
            add(f"maj@{k}", [value_of(outcome, f"maj@{k}") for outcome in outcomes], _SHARE)
    add("length", [fmean(outcome.lengths) for outcome in outcomes])
    add("truncated", [fmean(map(float, outcome.truncated)) for outcome in outcomes], _SHARE)
    return found


def value_of(outcome: PromptOutcome, metric: str) -> float | None:
    """A metric of one prompt; None where too few of its responses were graded. Raises ConfigError for no metric."""
    if metric == "reward":
        totals = [total for total in outcome.rewards if total is not None]
        return fmean(totals) if totals else None
    graded = outcome.graded
    if metric == "accuracy":
        return fmean(map(float, graded)) if graded else None
    kind, _, number = metric.partition("@")
    if kind not in ("pass", "maj") or not number.isdecimal() or int(number) < 1:
        raise ConfigError(f"metric: got {metric!r}; allowed: accuracy, reward, pass@K and maj@K with K of at least 1")
    if len(graded) < int(number):
        return None
    if kind == "pass":
        return pass_at_k(len(graded), sum(graded), int(number))
    pairs = [
        (answer, right) for answer, right in zip(outcome.answers, outcome.correct, strict=True) if right is not None
    ]
    return majority_at_k([answer for answer, _ in pairs], [right for _, right in pairs], int(number))
