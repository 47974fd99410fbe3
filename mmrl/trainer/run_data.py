"""The data of a run: read, and refused where no run can come of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mmrl.config import RunConfig
from mmrl.data import load_dataset
from mmrl.data.mixture import MixPart, Mixture, as_mixture
from mmrl.data.options import options_of
from mmrl.data.stream import check_shares
from mmrl.errors import DataError
from mmrl.trainer.targets import has_target, prompt_only
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
    lacking = [sample.id for sample in data.train if not has_target(sample)] if config.kind == "sft" else []
    if lacking:
        raise DataError(
            f"data.train: {len(lacking)} of {len(data.train)} samples of {shown} have no text to learn "
            f"(first: {', '.join(lacking[:3])}); kind 'sft' needs an assistant turn at the end or an answer"
        )


def batch_size(config: RunConfig) -> tuple[str, int]:
    """The setting that says how many samples a step takes, and its value."""
    if config.kind == "rl":
        return "rollout.prompts_per_step", config.rollout.prompts_per_step
    return "sft.batch_size", config.sft.batch_size


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
            f"the most, {len(worst.images)}, has sample {worst.id}; raise the limit, or leave these rows out"
        )
