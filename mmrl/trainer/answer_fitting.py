"""Samples whose answers a run can learn from: not longer than it takes, with something in them to learn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from mmrl.config import RunConfig
from mmrl.data.mixture import Mixture
from mmrl.errors import DataError
from mmrl.trainer.answers import AnswerBatches
from mmrl.trainer.run_data import RunData, offline_settings
from mmrl.trainer.targets import conversation, judged_of
from mmrl.types import ImagePart, Sample


def fit_answers(
    config: RunConfig, samples: Sequence[Sample], answers: AnswerBatches, *, what: str, say: Callable[[str], None]
) -> Sequence[Sample]:
    """The samples that are learned from; a Mixture stays one. What is left out is said.

    Raises DataError where nothing is left.
    """
    limit = offline_settings(config).max_response_tokens
    if config.kind != "sft" and limit is None:
        return samples

    def keep(sample: Sample) -> bool:
        if config.kind == "sft":
            if limit is None:
                return conversation(sample, config.sft.train_on) is not None
            return 0 < answers.num_target_tokens(sample, train_on=config.sft.train_on) <= limit
        return limit is None or answers.num_response_tokens(sample, judged_of(sample)) <= limit

    def fitting(part: Sequence[Sample]) -> list[Sample]:
        kept = [sample for sample in part if keep(sample)]
        if not kept:
            raise DataError(
                f"{what}: none of {len(part)} samples has an answer to learn of at most {limit or 'any number of'} "
                f"tokens ({config.kind}.max_response_tokens); raise the limit, or look at what its rows mark"
            )
        return kept

    if isinstance(samples, Mixture):
        fitted: Sequence[Sample] = Mixture(
            tuple(replace(part, samples=fitting(part.samples)) for part in samples.parts)
        )
    else:
        fitted = fitting(samples) if samples else samples
    if len(fitted) < len(samples):
        say(
            f"{what}: {len(samples) - len(fitted)} of {len(samples)} samples have nothing to learn or answers over "
            f"{config.kind}.max_response_tokens {limit}, and are left out"
        )
    return fitted


def with_update_path(config: RunConfig, data: RunData) -> RunConfig:
    """The config with the path that SFT's samples take: packed if that is wanted, and plain in place of prefix where
    turns between answers hold images, which a prefix has none of."""
    return with_row_path(config, has_later_images=any(_has_later_images(sample, config) for sample in data.train))


def with_row_path(config: RunConfig, *, has_later_images: bool) -> RunConfig:
    """`with_update_path` of data of which it is known whether turns between answers hold images."""
    path = config.train.path
    if config.sft.packing:
        path = "packed"
    elif path == "prefix" and has_later_images:
        path = "plain"
    return config.model_copy(update={"train": config.train.model_copy(update={"path": path})})


def _has_later_images(sample: Sample, config: RunConfig) -> bool:
    part = conversation(sample, config.sft.train_on)
    return part is not None and any(isinstance(each, ImagePart) for turn in part.turns for each in turn.content)
