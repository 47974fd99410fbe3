"""The data of a run: read, and refused where no run can come of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mmrl.config import RunConfig
from mmrl.config.offline import OfflineFields
from mmrl.config.preference import KtoConfig
from mmrl.data import load_dataset
from mmrl.data.mixture import MixPart, Mixture, as_mixture
from mmrl.data.options import options_of
from mmrl.data.stream import check_shares
from mmrl.errors import DataError
from mmrl.trainer.targets import conversation, has_target, judged_of, pair_of, prompt_only
from mmrl.types import Sample


@dataclass(frozen=True)
class RunData:
    """The training samples (with targets, for SFT) and the held-out prompts; `held_out` may be empty."""

    train: Sequence[Sample]
    held_out: Sequence[Sample]


def load_data(config: RunConfig) -> RunData:
    """Reads training and held-out data. A missing data set is a NotFoundError, rows that cannot be used a DataError."""
    options = options_of(config.data)
    parts = config.data.train_parts
    names = part_names([part.name for part in parts])
    train = tuple(
        MixPart(name, _for_kind(config, load_dataset(part.name, options=options)), part.weight)
        for name, part in zip(names, parts, strict=True)
    )
    held_out: list[Sample] = []
    if config.data.eval is not None:
        rows = load_dataset(config.data.eval, limit=config.eval.max_samples, options=options)
        held_out = [prompt_only(sample) for sample in rows]
    return RunData(Mixture(train), held_out)


def part_names(refs: Sequence[str]) -> list[str]:
    """What metrics and messages call the data sets: names as they are, paths by their last part if that is enough."""
    short = [Path(ref).name if "/" in ref and "://" not in ref else ref for ref in refs]
    return short if len(set(short)) == len(short) else list(refs)


def check_data(config: RunConfig, data: RunData) -> None:
    """Refuses data that cannot fill one batch, prompts with too many images and, for SFT, rows without a target."""
    key, needed = batch_size(config)
    shown = ", ".join(part.name for part in config.data.train_parts)
    if len(data.train) < needed:
        raise DataError(
            f"data.train: {shown} has {len(data.train)} samples, fewer than one batch of {needed} ({key}); "
            f"set {key} to at most {len(data.train)} or give more data"
        )
    check_shares(as_mixture(data.train), needed)
    _check_images(config, data.train, "data.train")
    _check_images(config, data.held_out, "data.eval")
    _check_answers(config, data.train, shown)


def batch_size(config: RunConfig) -> tuple[str, int]:
    """The setting that says how many samples a step takes, and its value."""
    if config.kind == "rl":
        return "rollout.prompts_per_step", config.rollout.prompts_per_step
    return f"{config.kind}.batch_size", offline_settings(config).batch_size


def offline_settings(config: RunConfig) -> OfflineFields:
    """The settings of the config's own kind, which is not rl."""
    sections: dict[str, OfflineFields] = {
        "sft": config.sft,
        "preference": config.preference,
        "reward_model": config.reward_model,
    }
    return sections[config.kind]


def rows_a_prompt(config: RunConfig) -> int:
    """Responses that are learned from for each prompt."""
    if config.kind == "rl":
        return config.algorithm.group_size
    return 1 if config.kind == "sft" else 2


def samples_answers(config: RunConfig) -> bool:
    """Whether anything is ever sampled, by what the config says: preferences need rewards to grade held-out answers."""
    if config.kind == "preference":
        return bool(config.reward and config.data.eval)
    return config.kind == "rl" or (config.kind == "sft" and config.data.eval is not None)


def _check_answers(config: RunConfig, samples: Sequence[Sample], shown: str) -> None:
    """Refuses rows without what the kind learns from."""
    judged_singly = config.kind == "preference" and isinstance(config.preference, KtoConfig)
    needs: dict[str, tuple[Callable[[Sample], object], str]] = {
        "sft": (has_target, "no text to learn; kind 'sft' needs an assistant turn at the end or an answer"),
        "reward_model": (pair_of, "no pair; kind 'reward_model' needs the columns chosen and rejected"),
        "preference": (pair_of, "no pair; kind 'preference' needs the columns chosen and rejected"),
    }
    if judged_singly:
        needs["preference"] = (judged_of, "no judged answer; 'kto' needs completion and label, or chosen and rejected")
    if config.kind not in needs:
        return
    has_it, problem = needs[config.kind]
    what, _, advice = problem.partition("; ")
    lacking = [sample.place for sample in samples if not has_it(sample)]
    if lacking:
        raise DataError(
            f"data.train: {len(lacking)} of {len(samples)} samples of {shown} have {what} "
            f"(first: {', '.join(lacking[:3])}); {advice}"
        )
    if config.kind == "sft" and config.sft.train_on == "marked":
        for sample in samples:
            conversation(sample, "marked")
    if config.kind == "reward_model" and config.reward_model.margin is not None:
        _check_margins(config.reward_model.margin, samples)


def _check_margins(column: str, samples: Sequence[Sample]) -> None:
    for sample in samples:
        value = sample.meta.get(column)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise DataError(
                f"data.train: sample {sample.place} has no number in its column {column!r} (got {value!r}), which "
                "reward_model.margin takes margins from; fill it in every row, or set reward_model.margin: null"
            )


def _for_kind(config: RunConfig, samples: Iterable[Sample]) -> list[Sample]:
    return [prompt_only(sample) for sample in samples] if config.kind == "rl" else list(samples)


def _check_images(config: RunConfig, samples: Sequence[Sample], what: str) -> None:
    limit = config.data.max_images
    if limit is None:
        return
    too_many = [sample for sample in samples if len(sample.images) > limit]
    if too_many:
        worst = max(too_many, key=lambda sample: len(sample.images))
        raise DataError(
            f"{what}: {len(too_many)} of {len(samples)} prompts have more images than data.max_images {limit} allows; "
            f"the most, {len(worst.images)}, has sample {worst.place}; raise the limit, or leave these rows out"
        )
