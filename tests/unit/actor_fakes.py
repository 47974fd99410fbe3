"""A policy of a few dozen weights with the face of `PolicyModel`, and batches for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from mmrl.batch import GroupBatch, LossOutput, PreparedPrompt, TokenStats
from mmrl.models.kept_prompts import KeptPrompts
from mmrl.models.kept_responses import KeptResponses

VOCABULARY = 11


class FakePolicy(nn.Module):
    """Logits of a response token from the mean of its prompt's embeddings and the embedding of the token before it."""

    prompts = None
    family = None
    lockstep = None

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embedding = nn.Embedding(VOCABULARY, 4)
        self.scale = nn.Parameter(torch.ones(4))
        self.head = nn.Linear(4, VOCABULARY)
        self.kept_prompts = KeptPrompts(self)
        self.kept_responses = KeptResponses(self)
        self.num_rows_of_passes: list[int] = []

    @property
    def hf(self) -> FakePolicy:
        """The module with the weights, which it is itself."""
        return self

    @property
    def device(self) -> torch.device:
        return self.scale.device

    def finish_backward(self) -> None:
        self.kept_prompts.backward()

    def drop_kept(self) -> None:
        self.kept_prompts.drop()

    def forward(
        self,
        batch: GroupBatch,
        *,
        temperature: float = 1.0,
        path: Literal["prefix", "plain"] = "prefix",
        with_entropy: bool = False,
    ) -> TokenStats:
        self.num_rows_of_passes.append(batch.num_rows)
        prompts = torch.stack([self.embedding(torch.tensor(prompt.token_ids)).mean(0) for prompt in batch.prompts])
        before = self.embedding(batch.response_ids).roll(1, dims=1)
        before = torch.cat([torch.zeros_like(before[:, :1]), before[:, 1:]], dim=1)
        hidden = (prompts[batch.prompt_of_row][:, None] + before) * self.scale
        logprobs = (self.head(hidden) / temperature).log_softmax(-1)
        picked = logprobs.gather(-1, batch.response_ids[..., None])[..., 0] * batch.response_mask
        entropy = -(logprobs.exp() * logprobs).sum(-1) * batch.response_mask
        return TokenStats(picked, entropy if with_entropy else None)


class WeightedLogprobs:
    """Minimises -Σ advantages · logprobs / N, with N the sampled tokens of the whole update."""

    needs_entropy = False

    def __init__(self, batch: GroupBatch) -> None:
        self.count = max(batch.num_sampled_tokens, 1)

    def __call__(self, micro_batch: GroupBatch, stats: TokenStats) -> LossOutput:
        assert micro_batch.advantages is not None
        loss = -(stats.logprobs * micro_batch.advantages).sum() / self.count
        return LossOutput(
            loss=loss,
            sums={"logprob": (float(stats.logprobs.detach().sum()), float(micro_batch.response_mask.sum()))},
            maxima={"advantage_max": float(micro_batch.advantages.max())},
        )


def make_batch(
    prompt_lengths: Sequence[int],
    response_lengths: Sequence[Sequence[int]],
    *,
    seed: int = 0,
    tool_tokens: bool = False,
) -> GroupBatch:
    """Random ids; `response_lengths[i]` are the responses of prompt i. `tool_tokens` masks every second token."""
    random = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([length for group in response_lengths for length in group], dtype=torch.int64)
    width = int(lengths.max()) if len(lengths) else 0
    real = (torch.arange(width) < lengths[:, None]).float()
    mask = real * (torch.arange(width) % 2 == 0) if tool_tokens else real
    ids = torch.randint(1, VOCABULARY, (len(lengths), width), generator=random)
    return GroupBatch(
        prompts=tuple(
            PreparedPrompt(tuple(torch.randint(1, VOCABULARY, (length,), generator=random).tolist()), ())
            for length in prompt_lengths
        ),
        prompt_of_row=torch.tensor([index for index, group in enumerate(response_lengths) for _ in group]),
        response_ids=ids * real.long(),
        response_mask=mask,
        response_lengths=lengths,
        advantages=torch.randn(len(lengths), width, generator=random) * mask,
    )


def masked_out(batch: GroupBatch) -> GroupBatch:
    """The same batch with no token left to learn from."""
    zeros = torch.zeros_like(batch.response_mask)
    return batch.with_(response_mask=zeros, advantages=zeros)


def copy_of_weights(policy: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in policy.state_dict().items()}
