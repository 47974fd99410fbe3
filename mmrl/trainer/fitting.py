"""Prompts that are longer than a run takes: counted exactly, then dropped, refused or fitted. Never cut.

The counts come from the run's own PromptProcessor, images expanded. A prompt stays whole or goes whole, so that ids,
images and positions always belong together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from mmrl.config.run import DataConfig
from mmrl.data.mixture import Mixture
from mmrl.errors import DataError
from mmrl.models.processing import PromptProcessor
from mmrl.trainer.targets import prompt_only
from mmrl.types import Sample

OverlongPolicy = Literal["drop", "error", "resize"]


@dataclass(frozen=True)
class Fitted:
    """kept: the samples that fit, some with smaller images. lengths: tokens of every prompt as it was, in order."""

    kept: Sequence[Sample]
    lengths: tuple[int, ...]
    num_long: int
    num_dropped: int

    @property
    def num_resized(self) -> int:
        return self.num_long - self.num_dropped


def fit_prompts(
    samples: Sequence[Sample],
    processor: PromptProcessor,
    config: DataConfig,
    *,
    what: str,
    say: Callable[[str], None] = lambda text: None,
) -> Sequence[Sample]:
    """The samples whose prompts fit `max_prompt_tokens`; longer ones are treated as `on_overlong` says.

    A Mixture stays one. Raises DataError where the policy is `error`, or where nothing is left (of a part).
    """
    return fit(samples, processor, config, what=what, say=say).kept


def fit(
    samples: Sequence[Sample],
    processor: PromptProcessor,
    config: DataConfig,
    *,
    what: str,
    say: Callable[[str], None] = lambda text: None,
) -> Fitted:
    """`fit_prompts` with what was found out."""
    if not isinstance(samples, Mixture):
        return _fit_one(samples, processor, config, what=what, say=say)
    several = len(samples.parts) > 1
    fitted = [
        _fit_one(part.samples, processor, config, what=f"{what} ({part.name})" if several else what, say=say)
        for part in samples.parts
    ]
    parts = tuple(replace(part, samples=one.kept) for part, one in zip(samples.parts, fitted, strict=True))
    lengths = tuple(length for one in fitted for length in one.lengths)
    return Fitted(Mixture(parts), lengths, sum(one.num_long for one in fitted), sum(one.num_dropped for one in fitted))


def count_tokens(processor: PromptProcessor, sample: Sample, what: str) -> int:
    """Exact length of a sample's prompt. Raises DataError that names the sample."""
    try:
        return processor.num_tokens(prompt_only(sample))
    except DataError as error:
        raise DataError(f"{what}: sample {sample.place}: {error}") from error


def overlong_policy(policy: OverlongPolicy) -> str:
    """What happens to prompts over the limit, in words."""
    return {
        "drop": "are left out",
        "error": "stop the run before it starts",
        "resize": "get smaller images until they fit, and are left out where even that is too long",
    }[policy]


def _fit_one(
    samples: Sequence[Sample],
    processor: PromptProcessor,
    config: DataConfig,
    *,
    what: str,
    say: Callable[[str], None],
) -> Fitted:
    limit = config.max_prompt_tokens
    lengths = tuple(count_tokens(processor, sample, what) for sample in samples)
    num_long = sum(length > limit for length in lengths)
    if not num_long:
        return Fitted(list(samples), lengths, 0, 0)
    longest = max(lengths)
    if config.on_overlong == "error":
        worst = samples[lengths.index(longest)]
        raise DataError(
            f"{what}: {num_long} of {len(samples)} prompts are longer than data.max_prompt_tokens {limit} with their "
            f"images expanded; the longest has {longest} tokens (sample {worst.place}); raise the limit, lower "
            "data.image.max_pixels, or set data.on_overlong to drop or resize"
        )
    resize = config.on_overlong == "resize"
    fitted = [
        sample if length <= limit else processor.fit(sample, limit) if resize else None
        for sample, length in zip(samples, lengths, strict=True)
    ]
    kept = [sample for sample in fitted if sample is not None]
    if not kept:
        raise DataError(
            f"{what}: all {len(samples)} prompts are longer than data.max_prompt_tokens {limit} with their images "
            f"expanded (the shortest has {min(lengths)} tokens); raise the limit or lower data.image.max_pixels"
        )
    num_dropped = len(samples) - len(kept)
    say(
        f"{what}: {num_long} of {len(samples)} prompts are over {limit} tokens (longest {longest}): "
        f"{num_long - num_dropped} with smaller images, {num_dropped} left out"
    )
    return Fitted(kept, lengths, num_long, num_dropped)
