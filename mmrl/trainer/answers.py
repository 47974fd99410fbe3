"""From samples with answers to batches: each prompt once, and the answers that are learned from as its rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mmrl.batch import GroupBatch, PreparedImage, build_group_batch
from mmrl.models.processing import EncodedTurns
from mmrl.trainer.engines import PromptMaker
from mmrl.trainer.targets import Judged, TrainOn, conversation, judged_of, pair_of, prompt_only
from mmrl.types import Rollout, Sample


class AnswerBatches:
    """processor: makes the prompts, and encodes answers as the model's template writes them."""

    def __init__(self, processor: PromptMaker) -> None:
        self._processor = processor

    def targets(self, samples: Sequence[Sample], *, train_on: TrainOn) -> GroupBatch:
        """For SFT: what is learned of each sample, its turns behind the prompt as one row."""
        found = [conversation(sample, train_on) for sample in samples]
        parts = [part for part in found if part is not None]
        encoded = [self._processor.encode_turns(part.prompt, part.turns, part.is_learned) for part in parts]
        rows = [[_row(part.prompt, 0, turns)] for part, turns in zip(parts, encoded, strict=True)]
        batch = build_group_batch([self._processor.prepare(part.prompt) for part in parts], rows)
        return batch.with_(response_images=self._images(encoded))

    def pairs(self, samples: Sequence[Sample], *, margin: str | None = None) -> GroupBatch:
        """Of samples that are all pairs, the chosen and the rejected answer to each prompt, which stay together.

        margin: key of `Sample.meta` that says by how much the chosen one is better.
        """
        pairs = [pair_of(sample) for sample in samples]
        batch = self._judged(samples, [pair for pair in pairs if pair is not None])
        if margin is None:
            return batch
        margins = torch.tensor([float(sample.meta[margin]) for sample in samples])
        return batch.with_(margins=margins[batch.prompt_of_row])

    def judged(self, samples: Sequence[Sample]) -> GroupBatch:
        """The answers to each prompt that were judged good or bad, one or more."""
        return self._judged(samples, [judged_of(sample) for sample in samples])

    def num_response_tokens(self, sample: Sample, answers: Sequence[Judged]) -> int:
        """Of the longest of the answers, all of its turns."""
        return max(len(self._encode(prompt_only(sample), answer).ids) for answer in answers)

    def num_target_tokens(self, sample: Sample, *, train_on: TrainOn) -> int:
        """Of what SFT puts behind the prompt; 0 where nothing of the sample is learned."""
        part = conversation(sample, train_on)
        return 0 if part is None else len(self._processor.encode_turns(part.prompt, part.turns, part.is_learned).ids)

    def _judged(self, samples: Sequence[Sample], answers: Sequence[Sequence[Judged]]) -> GroupBatch:
        prompts = [prompt_only(sample) for sample in samples]
        rows = [
            [_row(prompt, index, self._encode(prompt, answer)) for index, answer in enumerate(own)]
            for prompt, own in zip(prompts, answers, strict=True)
        ]
        batch = build_group_batch([self._processor.prepare(prompt) for prompt in prompts], rows)
        preferred = torch.tensor([float(answer.is_good) for own in answers for answer in own])
        return batch.with_(preferred=preferred, whole_groups=True)

    def _encode(self, prompt: Sample, answer: Judged) -> EncodedTurns:
        """Every turn of the assistant in an answer is learned from."""
        learned = [True for turn in answer.turns if turn.role == "assistant"]
        return self._processor.encode_turns(prompt, answer.turns, learned)

    def _images(self, encoded: Sequence[EncodedTurns]) -> tuple[tuple[PreparedImage, ...], ...] | None:
        if not any(turns.images for turns in encoded):
            return None
        return tuple(self._processor.ready_images(turns.images) for turns in encoded)


def _row(prompt: Sample, index: int, turns: EncodedTurns) -> Rollout:
    return Rollout(
        sample_id=prompt.id,
        index=index,
        token_ids=tuple(turns.ids),
        response_mask=tuple(turns.mask),
        logprobs=(0.0,) * len(turns.ids),
        finish_reason="stop",
        text="",
        policy_version=0,
        seed=0,
    )
