"""Rewards tried on answers of known quality before anything is trained on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmrl.rewards.probes import ProbeSummary, find_problems, summarise, try_rewards
from mmrl.rewards.runner import RewardRunner
from mmrl.types import Sample


@dataclass(frozen=True)
class TryOut:
    """summaries: a line of figures for each kind of answer. problems: what the rewards get wrong, a sentence each."""

    summaries: tuple[ProbeSummary, ...]
    problems: tuple[str, ...]


NO_TRY_OUT = TryOut((), ())


def try_out(rewards: RewardRunner, samples: Sequence[Sample], *, num_rows: int) -> TryOut:
    """Tries `num_rows` rows spread evenly over the samples."""
    if not num_rows or not samples:
        return NO_TRY_OUT
    stride = max(1, len(samples) // num_rows)
    trials = try_rewards(rewards, list(samples[::stride])[:num_rows])
    return TryOut(tuple(summarise(trials)), tuple(find_problems(trials)))
