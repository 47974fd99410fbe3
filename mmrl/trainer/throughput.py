"""Metrics of responses and of speed."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from mmrl.engines.base import Actor, RolloutStats
from mmrl.trainer.recorder import Recorder
from mmrl.types import RolloutGroup


def response_metrics(groups: Sequence[RolloutGroup]) -> dict[str, float]:
    """Lengths in sampled tokens, the share cut at the limit, the share that ended at once."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    if not rollouts:
        return {}
    lengths = [sum(rollout.response_mask) for rollout in rollouts]
    return {
        "response/length_mean": fmean(lengths),
        "response/length_min": float(min(lengths)),
        "response/length_max": float(max(lengths)),
        "response/truncated_share": fmean(float(rollout.is_truncated) for rollout in rollouts),
        "response/empty_share": fmean(float(not rollout.text.strip()) for rollout in rollouts),
        "response/num_sequences": float(len(rollouts)),
        "response/num_tokens": float(sum(lengths)),
    }


def throughput_metrics(actor: Actor, stats: RolloutStats | None, recorder: Recorder) -> dict[str, float]:
    """Tokens a second, and model FLOP utilisation: FLOPs (vision included) over seconds times the matrix peak.

    stats: of the step's sampling, not of an evaluation that came after it.
    """
    values = update_throughput(actor, recorder)
    if stats is None:
        return values
    seconds, step_seconds = recorder.seconds("rollout"), recorder.seconds("step")
    if seconds > 0:
        peak = actor.peak_flops_per_s
        values["perf/rollout_tokens_per_s"] = stats.response_tokens / seconds
        values["perf/rollout_mfu"] = stats.flops / seconds / peak
    if step_seconds > 0:
        values["perf/tokens_per_s"] = (stats.prompt_tokens + stats.response_tokens) / step_seconds
    return values


def update_throughput(actor: Actor, recorder: Recorder) -> dict[str, float]:
    """`perf/update_mfu` of the step's optimiser steps together, and `perf/critic_mfu` of those of a critic, which works
    where the actor does; nothing where there was none."""
    values: dict[str, float] = {}
    for learner, name in (("actor", "perf/update_mfu"), ("critic", "perf/critic_mfu")):
        seconds = recorder.seconds(f"update_{learner}")
        flops = recorder.current(f"{learner}/flops").get(f"{learner}/flops")
        if seconds and flops is not None:
            values[name] = flops / seconds / actor.peak_flops_per_s
    return values
