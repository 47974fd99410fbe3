"""The tensor forms that pass between models, algorithms and engines.

`PreparedPrompt` is a sample once a model can take it; `GroupBatch` is prompts with their responses, what actor,
reference and critic take; `TokenStats` is what they give back; `LossOutput` is what an objective makes of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from mmrl.types import ImageRef, Rollout


@dataclass(frozen=True, eq=False)
class PreparedImage:
    """One image as the vision tower takes it.

    reference: the image in the store; with processed_size it decides pixel_values.
    pixel_values: (patches, patch_dim) float32; None in a sketch, which is what travels between processes: whoever
        forwards it takes the pixels from the store (`PromptProcessor.fill`).
    grid_thw: frames, rows and columns of patches before merging.
    num_tokens: placeholder tokens that it takes in the prompt.
    """

    reference: ImageRef
    pixel_values: Tensor | None
    grid_thw: tuple[int, int, int]
    num_tokens: int
    processed_size: tuple[int, int]

    @property
    def sha256(self) -> str:
        return self.reference.sha256


def pixels_of(image: PreparedImage) -> Tensor:
    """(patches, patch_dim) of an image that is no sketch."""
    assert image.pixel_values is not None, f"image {image.sha256[:12]} has no pixels here; fill its prompt first"
    return image.pixel_values


@dataclass(frozen=True, eq=False)
class PreparedPrompt:
    """token_ids: (length,) with every image expanded to its placeholders; images in order of appearance."""

    token_ids: tuple[int, ...]
    images: tuple[PreparedImage, ...]

    def __len__(self) -> int:
        return len(self.token_ids)

    def sketch(self) -> PreparedPrompt:
        """The same without pixels."""
        return replace(self, images=tuple(replace(image, pixel_values=None) for image in self.images))


@dataclass(frozen=True)
class GroupBatch:
    """P prompts and B responses of up to T tokens; the rows of one prompt are adjacent.

    prompts: P prompts, images processed and placeholders expanded.
    prompt_of_row: (B,) int64, non-decreasing index into `prompts`.
    response_ids: (B, T) int64, right-padded with 0.
    response_mask: (B, T) float32, 1 on tokens that the policy sampled, 0 on padding and on tool answers.
    response_lengths: (B,) int64, tokens of each response, tool answers included; may be 0.
    sampler_logprobs, old_logprobs, reference_logprobs, advantages: (B, T) float32, zero where response_mask is 0;
        None where not computed.
    old_entropy: the same, in nats; of each token under the policy at the start of the update.
    values, returns: the same of a critic: what it expected before each token, and what it should have.
    succeeded: (B,) float32, 1 where the response did its task; None where no loss asks for it.
    preferred: (B,) float32, 1 for the chosen answer of a pair or one that was judged good, 0 for the other, -1 for one
        in no pair; None where no answers are compared.
    margins: (B,) float32, by how much a pair's chosen answer is better, the same in both rows. baselines: (B,) float32,
        what a loss compares the row with, the same in all rows.
    whole_groups: the rows of a prompt stay in one pass on one rank, since their losses depend on each other.
    response_images: for each row the images in its response, in turns that the policy did not write; None where no
        response has any. Such a batch does not take the prefix path.
    sample_ids: (P,) ids of the samples that the prompts are of, and row_numbers: (B,) int64, the place of each row in
        the batch that it was selected from; both None for a batch that was not built from rollouts.
    """

    prompts: tuple[PreparedPrompt, ...]
    prompt_of_row: Tensor
    response_ids: Tensor
    response_mask: Tensor
    response_lengths: Tensor
    sampler_logprobs: Tensor | None = None
    old_logprobs: Tensor | None = None
    old_entropy: Tensor | None = None
    reference_logprobs: Tensor | None = None
    advantages: Tensor | None = None
    values: Tensor | None = None
    returns: Tensor | None = None
    succeeded: Tensor | None = None
    preferred: Tensor | None = None
    margins: Tensor | None = None
    baselines: Tensor | None = None
    whole_groups: bool = False
    response_images: tuple[tuple[PreparedImage, ...], ...] | None = None
    sample_ids: tuple[str, ...] | None = None
    row_numbers: Tensor | None = None

    @property
    def num_rows(self) -> int:
        return self.response_ids.shape[0]

    @property
    def has_images(self) -> bool:
        return any(prompt.images for prompt in self.prompts) or any(self.response_images or ())

    @property
    def num_sampled_tokens(self) -> int:
        return int(self.response_mask.sum())

    @property
    def num_sequences(self) -> int:
        """Responses with at least one sampled token: an empty one can count in no mean."""
        return int((self.response_mask.sum(-1) > 0).sum())

    def with_(self, **tensors: Any) -> GroupBatch:
        return replace(self, **tensors)

    def select_rows(self, rows: Tensor) -> GroupBatch:
        """The given rows (sorted) with only the prompts that they use and only the columns that they need."""
        kept_prompts, prompt_of_row = torch.unique(self.prompt_of_row[rows], return_inverse=True)
        width = int(self.response_lengths[rows].max()) if len(rows) else 0

        def cut(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else tensor[rows, :width]

        def take(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else tensor[rows]

        return GroupBatch(
            prompts=tuple(self.prompts[index] for index in kept_prompts.tolist()),
            prompt_of_row=prompt_of_row,
            response_ids=self.response_ids[rows, :width],
            response_mask=self.response_mask[rows, :width],
            response_lengths=self.response_lengths[rows],
            sampler_logprobs=cut(self.sampler_logprobs),
            old_logprobs=cut(self.old_logprobs),
            old_entropy=cut(self.old_entropy),
            reference_logprobs=cut(self.reference_logprobs),
            advantages=cut(self.advantages),
            values=cut(self.values),
            returns=cut(self.returns),
            succeeded=take(self.succeeded),
            preferred=take(self.preferred),
            margins=take(self.margins),
            baselines=take(self.baselines),
            whole_groups=self.whole_groups,
            response_images=(
                None if self.response_images is None else tuple(self.response_images[row] for row in rows.tolist())
            ),
            sample_ids=None if self.sample_ids is None else tuple(self.sample_ids[i] for i in kept_prompts.tolist()),
            row_numbers=take(self.row_numbers),
        )

    def select_prompts(self, first: int, last: int) -> GroupBatch:
        """The prompts first..last-1 with all of their rows."""
        rows = torch.nonzero((self.prompt_of_row >= first) & (self.prompt_of_row < last)).flatten()
        return self.select_rows(rows)


def build_group_batch(prompts: Sequence[PreparedPrompt], responses: Sequence[Sequence[Rollout]]) -> GroupBatch:
    """One prompt and its responses for each entry; `responses[i]` may have any length."""
    rows = [rollout for group in responses for rollout in group]
    prompt_of_row = [index for index, group in enumerate(responses) for _ in group]
    width = max((len(row.token_ids) for row in rows), default=0)
    batch = GroupBatch(
        prompts=tuple(prompts),
        prompt_of_row=torch.tensor(prompt_of_row, dtype=torch.int64),
        response_ids=torch.zeros(len(rows), width, dtype=torch.int64),
        response_mask=torch.zeros(len(rows), width),
        response_lengths=torch.tensor([len(row.token_ids) for row in rows], dtype=torch.int64),
        sampler_logprobs=torch.zeros(len(rows), width),
        sample_ids=tuple(group[0].sample_id if group else "" for group in responses),
        row_numbers=torch.arange(len(rows)),
    )
    for index, row in enumerate(rows):
        length = len(row.token_ids)
        batch.response_ids[index, :length] = torch.tensor(row.token_ids, dtype=torch.int64)
        batch.response_mask[index, :length] = torch.tensor(row.response_mask, dtype=torch.float32)
        batch.sampler_logprobs[index, :length] = torch.tensor(row.logprobs)  # type: ignore[index]
    return batch


@dataclass(frozen=True)
class TokenStats:
    """logprobs and, where asked for, entropy of each response token: (B, T) float32, zero where response_mask is 0."""

    logprobs: Tensor
    entropy: Tensor | None = None


@dataclass(frozen=True)
class LossOutput:
    """loss: scalar, already divided by the counts of the whole update, so that micro-batches add up.

    sums: name -> (sum over this micro-batch, count); the actor adds them up over micro-batches and divides at the end.
    maxima: name -> largest value.
    """

    loss: Tensor
    sums: Mapping[str, tuple[float, float]]
    maxima: Mapping[str, float]
