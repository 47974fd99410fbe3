"""The canary: do sampler and actor speak of one distribution?

Before any weight moves, the sampler's log-probabilities of the tokens it sampled are compared with the actor's of the
same tokens. Both are taken after temperature and bans. top_p and top_k do not enter: the sampler reports its
log-probabilities before it truncates, so they equal the actor's with those settings too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.config.run import CanaryConfig
from mmrl.errors import RunFailedError


@dataclass(frozen=True)
class GapStats:
    """Disagreement over `num_tokens` sampled tokens, with gap = |sampler − actor| in nats.

    kl: mean of k3, an estimate of KL(sampler ‖ actor) from the sampler's tokens.
    share_beyond_gap: share of tokens whose gap is beyond the config's `gap`.
    effective_sample_size: (Σw)² / (n·Σw²) with w = actor / sampler probability of a token; 1 when they agree.
    worst: the sampler's and the actor's log-probability of the token with the largest gap.
    slope, correlation: of the sampler's log-probabilities over the actor's; both 1 when they agree, 0 where all of the
        actor's are equal.
    """

    num_tokens: int
    logprob_gap_max: float
    logprob_gap_mean: float
    kl: float
    share_beyond_gap: float
    effective_sample_size: float
    worst: tuple[float, float]
    slope: float
    correlation: float

    def metrics(self, prefix: str) -> dict[str, float]:
        names = ("logprob_gap_max", "logprob_gap_mean", "kl", "share_beyond_gap", "effective_sample_size")
        return {f"{prefix}/{name}": getattr(self, name) for name in names}


@dataclass(frozen=True)
class SyncGap:
    """The disagreement over all sampled tokens, and over those of text-only prompts and of prompts with images.

    A part without sampled tokens is None and leaves no metrics.
    """

    overall: GapStats | None
    text: GapStats | None
    image: GapStats | None

    def metrics(self) -> dict[str, float]:
        """`sync/…`, `sync/text/…` and `sync/image/…` of the parts that have tokens."""
        parts = {"sync": self.overall, "sync/text": self.text, "sync/image": self.image}
        return {
            name: value
            for prefix, part in parts.items()
            if part is not None
            for name, value in part.metrics(prefix).items()
        }


def compare(sampler: Tensor, actor: Tensor, mask: Tensor, has_image: Tensor, *, gap: float) -> SyncGap:
    """Sampler against actor on the tokens where `mask` is 1.

    sampler, actor, mask: (B, T), or (tokens,); log-probabilities in nats after temperature and bans.
    has_image: (B,) bool, whether the row's prompt holds an image; (tokens,) where the others are.
    gap: a token whose log-probabilities differ by more counts in `share_beyond_gap`.
    """
    counted = mask > 0
    has_image = has_image.to(mask.device).bool()
    with_image = has_image.reshape(-1, *[1] * (mask.ndim - 1)).expand_as(counted)
    return SyncGap(
        overall=_gap_stats(sampler, actor, counted, gap),
        text=_gap_stats(sampler, actor, counted & ~with_image, gap),
        image=_gap_stats(sampler, actor, counted & with_image, gap),
    )


def check(sync_gap: SyncGap, config: CanaryConfig, dtype: str | torch.dtype) -> None:
    """Raise RunFailedError, with what may be wrong, if a bound is passed.

    dtype: precision of the model's passes; in float32 the largest gap of a single token is bounded too, since
    rounding explains only a small one there. Comparisons are such that NaN passes no bound unnoticed.
    """
    overall = sync_gap.overall
    if overall is None:
        return
    bounds = [
        ("sync/kl", overall.kl, "canary.max_kl", config.max_kl),
        ("sync/share_beyond_gap", overall.share_beyond_gap, "canary.max_share", config.max_share),
    ]
    if str(dtype).removeprefix("torch.") in ("float32", "float64"):
        bounds.append(
            ("sync/logprob_gap_max", overall.logprob_gap_max, "canary.max_gap_float32", config.max_gap_float32)
        )
    passed = [
        f"{metric} is {value:.4g} (bound {key} = {bound:g})"
        for metric, value, key, bound in bounds
        if not value <= bound
    ]
    if passed:
        raise RunFailedError(_explanation(sync_gap, overall, passed))


def _gap_stats(sampler: Tensor, actor: Tensor, counted: Tensor, gap: float) -> GapStats | None:
    """k3 = exp(−d) + d − 1 with d = log sampler − log actor, d clamped to ±20 and the result to 10.

    (Schulman, 'Approximating KL divergence'; the tokens come from the sampler, so its mean is KL(sampler ‖ actor).)
    A log-probability that is not a number counts as an infinite gap.
    """
    if not counted.any():
        return None
    ours, theirs = actor[counted].double(), sampler[counted].double()
    difference = torch.nan_to_num(theirs - ours, nan=math.inf, posinf=math.inf, neginf=-math.inf)
    distance = difference.abs()
    clamped = difference.clamp(-20, 20)
    weights = torch.exp(-clamped)
    worst = int(distance.argmax())
    slope, correlation = _line_through(ours, theirs)
    return GapStats(
        num_tokens=len(ours),
        logprob_gap_max=float(distance.max()),
        logprob_gap_mean=float(distance.mean()),
        kl=float((weights + clamped - 1).clamp(max=10).mean()),
        share_beyond_gap=float((distance > gap).double().mean()),
        effective_sample_size=float(weights.sum() ** 2 / (len(ours) * weights.square().sum())),
        worst=(float(theirs[worst]), float(ours[worst])),
        slope=slope,
        correlation=correlation,
    )


def _line_through(ours: Tensor, theirs: Tensor) -> tuple[float, float]:
    x, y = ours - ours.mean(), theirs - theirs.mean()
    spread = float(x.square().sum())
    if not (spread > 0 and math.isfinite(spread)):
        return 0.0, 0.0
    product = float((x * y).sum())
    return product / spread, product / math.sqrt(spread * max(float(y.square().sum()), 1e-300))


_CAUSES_EVERYWHERE = (
    "weights that did not reach the sampler, or a tensor that an update skipped; "
    "an old prefix or key-value cache after a sync; "
    "a tied output head that still multiplies by the old embedding; "
    "a temperature, or the ban on vision and control ids, on one side only; "
    "log-probabilities taken after top_p or top_k truncation; "
    "a different chat template or re-encoded response ids"
)
_CAUSES_WITH_IMAGES = (
    "an old cache of image features after the vision tower was trained; "
    "weights of the vision tower or projector that an update skipped; "
    "different pixel limits or image processing on the two sides; "
    "positions of image tokens that differ"
)
_TEMPERATURE = (
    "first of all a temperature that is left out on one side, since the sampler's log-probabilities go with the "
    "actor's, {slope:.2f} times as steeply; "
)
_OTHER_SLOPE = 0.15
"""Further from 1 than what small changes of the weights make of the slope."""


def _explanation(sync_gap: SyncGap, overall: GapStats, passed: list[str]) -> str:
    text, image = sync_gap.text, sync_gap.image
    only_images = image is not None and text is not None and image.kl > 10 * max(text.kl, 1e-9)
    causes = _CAUSES_WITH_IMAGES if only_images else _CAUSES_EVERYWHERE
    if not only_images and overall.correlation > 0.9 and abs(overall.slope - 1) > _OTHER_SLOPE:
        causes = _TEMPERATURE.format(slope=overall.slope) + causes
    where = "prompts with images" if only_images else "the sampled tokens"
    parts = [
        f"{name} prompts: kl {part.kl:.3g}, largest gap {part.logprob_gap_max:.3g} over {part.num_tokens} tokens"
        for name, part in (("text", text), ("image", image))
        if part is not None
    ]
    theirs, ours = overall.worst
    return (
        f"sampler and actor disagree on {where} before any weight moved: {'; '.join(passed)}. {'; '.join(parts)}. "
        f"The largest gap is of a token with logprob {theirs:.4f} in the sampler and {ours:.4f} in the actor. "
        f"What may be wrong: {causes}. Training on would optimise another policy than the one that was sampled; "
        "mend the cause, or raise the bound if the gap is only the rounding of a low precision."
    )
