"""Metrics of responses and of speed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cache
from statistics import fmean

import torch

from mmrl.engines.actor import HfActor
from mmrl.engines.base import RolloutEngine
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


def throughput_metrics(actor: HfActor, rollout: RolloutEngine, recorder: Recorder) -> dict[str, float]:
    """Tokens a second and model FLOP utilisation (vision included): FLOPs over seconds times the matrix peak."""
    values: dict[str, float] = {}
    peak = matrix_peak(actor.policy.device.type, actor.policy.dtype)
    stats = rollout.last_stats
    seconds = recorder.seconds("rollout")
    if stats is not None and seconds > 0:
        values["perf/rollout_tokens_per_s"] = stats.response_tokens / seconds
        values["perf/rollout_mfu"] = stats.flops / seconds / peak
    seconds = recorder.seconds("update_actor")
    if seconds > 0:
        values["perf/update_mfu"] = recorder.current("actor/flops").get("actor/flops", 0.0) / seconds / peak
    if recorder.seconds("step") > 0 and stats is not None:
        values["perf/tokens_per_s"] = (stats.prompt_tokens + stats.response_tokens) / recorder.seconds("step")
    return values


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
