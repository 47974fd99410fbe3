"""A dry run of a model of which only its configuration is at hand: sizes and placement, and no count of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mmrl.config import RunConfig
from mmrl.trainer.estimate import Estimate
from mmrl.trainer.estimates import estimate_steps
from mmrl.trainer.memory import estimate_memory, num_parameters
from mmrl.trainer.run_data import RunData, batch_size, rows_a_prompt


@dataclass(frozen=True)
class SizesReport:
    """Facts of a run before it starts, as far as they follow from the config.json of its model.

    skipped: what was not looked at, and why. placement: where each part of the run is. notes: what was set by itself.
    """

    train_samples: int
    eval_samples: int
    samples_per_step: int
    responses_per_step: int
    max_prompt_tokens: int
    parameters: int
    trainable_parameters: int
    estimates: tuple[Estimate, ...]
    skipped: str
    placement: dict[str, str]
    notes: tuple[str, ...]

    @property
    def lines(self) -> list[str]:
        return [
            f"data: {self.train_samples} training samples, {self.eval_samples} held out",
            f"prompts: {self.skipped}",
            f"batch: {self.samples_per_step} prompts and {self.responses_per_step} responses a step",
            f"model: {self.parameters:,} parameters, {self.trainable_parameters:,} trained",
            *(f"note: {note}" for note in self.notes),
            *(f"estimate: {estimate.line}" for estimate in self.estimates),
            "placement: " + ", ".join(f"{role} on {where}" for role, where in self.placement.items()),
        ]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def sizes_report(config: RunConfig, data: RunData, *, placement: dict[str, str], notes: Sequence[str]) -> SizesReport:
    from mmrl.models.loading import load_sizes

    policy = load_sizes(config.model)
    size = batch_size(config)[1]
    total, trained = num_parameters(policy)
    limit = config.data.max_prompt_tokens
    return SizesReport(
        train_samples=len(data.train),
        eval_samples=len(data.held_out),
        samples_per_step=size,
        responses_per_step=size * rows_a_prompt(config),
        max_prompt_tokens=limit,
        parameters=total,
        trainable_parameters=trained,
        estimates=(*estimate_steps(config, len(data.train)), *estimate_memory(config, policy, limit)),
        skipped=(
            f"token counts are skipped, since {config.model.path} has a config.json and no tokenizer; every prompt is "
            f"taken to be as long as data.max_prompt_tokens {limit} allows. A run needs the model's other files too"
        ),
        placement=placement,
        notes=tuple(notes),
    )


def classifier_report(
    config: RunConfig, data: RunData, *, placement: dict[str, str], notes: Sequence[str]
) -> SizesReport:
    """Of a text classifier that is trained as a reward model."""
    from mmrl.models.classifier import load_classifier_sizes

    size = batch_size(config)[1]
    num_weights = load_classifier_sizes(config.model.path)
    return SizesReport(
        train_samples=len(data.train),
        eval_samples=len(data.held_out),
        samples_per_step=size,
        responses_per_step=size * rows_a_prompt(config),
        max_prompt_tokens=config.data.max_prompt_tokens,
        parameters=num_weights,
        trainable_parameters=num_weights,
        estimates=tuple(estimate_steps(config, len(data.train))),
        skipped="those of a text classifier are counted when the run begins",
        placement=placement,
        notes=tuple(notes),
    )
