"""Batches of a loss on preferences with all that it compares answers with: the reference, and KTO's baseline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from mmrl.algorithms.preferences import Preference
from mmrl.algorithms.preferences.kto import baseline
from mmrl.batch import GroupBatch
from mmrl.engines.base import Actor
from mmrl.trainer.answers import AnswerBatches
from mmrl.trainer.recorder import Recorder
from mmrl.trainer.reference_logprobs import ReferenceLogprobs
from mmrl.types import Sample


class PreferenceBatches:
    """reference: None where the loss needs none."""

    def __init__(
        self,
        preference: Preference[Any],
        answers: AnswerBatches,
        *,
        actor: Actor,
        reference: ReferenceLogprobs | None,
        recorder: Recorder,
    ) -> None:
        self._preference = preference
        self._answers = answers
        self._actor = actor
        self._reference = reference
        self._recorder = recorder

    def make(self, samples: Sequence[Sample]) -> GroupBatch:
        """One update, or one portion of held-out data, under the policy as it is now."""
        batch = rows_of(self._preference, self._answers, samples)
        if self._reference is None:
            return batch
        with self._recorder.stage("reference"):
            batch = batch.with_(reference_logprobs=self._reference(batch))
        if self._preference.needs_baseline:
            with self._recorder.stage("baseline"):
                z = baseline(self._mismatched_ratios(batch, self._reference))
                batch = batch.with_(baselines=batch.response_mask.new_full((batch.num_rows,), z))
        return batch

    def _mismatched_ratios(self, batch: GroupBatch, reference: ReferenceLogprobs) -> Tensor:
        other = mismatched(batch)
        return (self._actor.logprobs(other).logprobs - reference(other)).sum(-1)


def rows_of(preference: Preference[Any], answers: AnswerBatches, samples: Sequence[Sample]) -> GroupBatch:
    return answers.pairs(samples) if preference.takes_pairs else answers.judged(samples)


def mismatched(batch: GroupBatch) -> GroupBatch:
    """Every answer behind the prompt that comes after its own; the last one's behind the first prompt."""
    return batch.with_(prompts=(*batch.prompts[1:], *batch.prompts[:1]), reference_logprobs=None)


def batches_to_compare(preference: Preference[Any], batches: Iterator[GroupBatch]) -> Iterator[GroupBatch]:
    """What the reference is asked about for `batches`."""
    for batch in batches:
        yield batch
        if preference.needs_baseline:
            yield mismatched(batch)
