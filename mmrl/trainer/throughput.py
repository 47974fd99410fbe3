"""Metrics of responses and of speed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cache
from statistics import fmean

import torch

from mmrl.engines.actor import HfActor
from mmrl.engines.base import RolloutStats
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


def throughput_metrics(actor: HfActor, stats: RolloutStats | None, recorder: Recorder) -> dict[str, float]:
    """Tokens a second, and model FLOP utilisation: FLOPs (vision included) over seconds times the matrix peak.

    stats: of the step's sampling, not of an evaluation that came after it.
    """
    values = update_throughput(actor, recorder)
    if stats is None:
        return values
    seconds, step_seconds = recorder.seconds("rollout"), recorder.seconds("step")
    if seconds > 0:
        peak = matrix_peak(actor.policy.device.type, actor.policy.dtype)
        values["perf/rollout_tokens_per_s"] = stats.response_tokens / seconds
        values["perf/rollout_mfu"] = stats.flops / seconds / peak
    if step_seconds > 0:
        values["perf/tokens_per_s"] = (stats.prompt_tokens + stats.response_tokens) / step_seconds
    return values


def update_throughput(actor: HfActor, recorder: Recorder) -> dict[str, float]:
    """`perf/update_mfu` of the step's optimiser steps together; nothing where there was none."""
    seconds = recorder.seconds("update_actor")
    flops = recorder.current("actor/flops").get("actor/flops")
    if not seconds or flops is None:
        return {}
    return {"perf/update_mfu": flops / seconds / matrix_peak(actor.policy.device.type, actor.policy.dtype)}


@cache
def matrix_peak(device: str, dtype: torch.dtype) -> float:
    """FLOP/s of a large square matrix product on this device, the best of a few tries: what 100 % MFU means here."""
    size = 1024 if device == "cpu" else 8192
    left = torch.randn(size, size, device=device).to(dtype)
    right = torch.randn(size, size, device=device).to(dtype)
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        product = left @ right
        product.flatten()[0].item()
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best
