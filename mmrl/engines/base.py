"""The protocols of the engines. A new implementation must pass the shared conformance test of its protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from mmrl.batch import GroupBatch, LossOutput, TokenStats
from mmrl.types import RolloutGroup, Sample

OnGroup = Callable[[RolloutGroup], None]
"""Is handed a group as soon as all of its responses are there, while others are still sampled."""

BeforeStep = Callable[[Tensor], None]
"""Sees the log-probabilities of an update before its weights move; raising keeps them where they are."""

NamedWeights = Iterator[tuple[str, Tensor]]
"""Checkpoint name (as `save_pretrained` writes it) and full tensor of each weight, tied ones once."""


@dataclass(frozen=True)
class SamplingParams:
    """temperature 0 is greedy; top_p 1 and top_k 0 are off. Lengths count tokens."""

    max_response_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class RolloutStats:
    """What one `generate` did.

    prompt_tokens: tokens prefilled, images expanded, each prompt once. response_tokens: tokens kept of all responses.
    decode_steps: forward passes after the prefills. decoded_rows: their rows in all, finished ones that had not left
        their batch yet included.
    prepare_s: seconds in templates and images; prefill_s, decode_s: in the model. flops: of prefill and decoding.
    """

    prompt_tokens: int
    response_tokens: int
    decode_steps: int
    decoded_rows: int
    prepare_s: float
    prefill_s: float
    decode_s: float
    flops: float


class Sampler(Protocol):
    """What a loop asks for responses, under one version of the weights."""

    @property
    def policy_version(self) -> int: ...

    @property
    def last_stats(self) -> RolloutStats | None:
        """Of the last `generate`; None before the first."""
        ...

    def generate(
        self,
        samples: Sequence[Sample],
        params: SamplingParams,
        *,
        num_responses: int,
        seed: int,
        step: int,
        on_group: OnGroup | None = None,
        for_update: bool = False,
    ) -> list[RolloutGroup]:
        """`num_responses` rollouts for each sample, in order.

        A response depends only on the weights, its sample, its params and (seed, step, sample id, index): never on
        what it is batched with. For a sample that comes again in one call the index counts on (`group_seeds`).

        on_group: called once with each of the groups that are returned, the very objects, as they are finished; an
            engine that cannot tell earlier calls it at the end.
        for_update: whether an update on these samples under the same weights follows. An engine that samples with the
            actor's own model may keep the prompts' forward pass for it.
        """
        ...

    def sleep(self) -> None:
        """Give device memory back until the next `update_weights`, `generate` or `wake`. Nothing happens where an
        engine or a device has no such memory."""
        ...

    def close(self) -> None: ...


class RolloutEngine(Sampler, Protocol):
    """A sampler that holds weights of its own, or the actor's very model."""

    def update_weights(self, weights: NamedWeights, version: int) -> None:
        """Take every weight and drop every cache that came from the old ones."""
        ...

    @property
    def needs_weights(self) -> bool:
        """Whether nothing can be sampled before the next `update_weights`: the last one failed half-way, or `sleep`
        gave the weights away."""
        ...

    def wake(self) -> None:
        """Take the memory again now. What `needs_weights` says stays as it is."""
        ...


class Objective(Protocol):
    """What one optimiser step minimises; built by an algorithm for one mini-batch, so it knows the global counts.

    The stats lie on the policy's device, the micro-batch where the mini-batch lies.
    """

    needs_entropy: bool

    def __call__(self, micro_batch: GroupBatch, stats: TokenStats) -> LossOutput: ...


class Actor(Protocol):
    """The trained policy."""

    @property
    def peak_flops_per_s(self) -> float:
        """What the devices that it runs on reach together in matrix products."""
        ...

    def logprobs(self, batch: GroupBatch, *, with_entropy: bool = False) -> TokenStats:
        """Without gradients, at the sampling temperature and under the same bans as the sampler."""
        ...

    def begin_step(self, step: int) -> None:
        """The updates that follow belong to run step `step`, counted from 1; the learning rate goes by it."""
        ...

    def train_step(
        self, batch: GroupBatch, objective: Objective, *, before_step: BeforeStep | None = None
    ) -> dict[str, float]:
        """One optimiser step over `batch` in micro-batches. Returns the objective's metrics (means and maxima),
        `grad_norm`, `lr`, `num_micro_batches` and the FLOPs spent.

        before_step: called when all gradients are there and no weight has moved; if it raises, none will. It takes the
            (B, T) log-probabilities that the update's own passes computed, zero where response_mask is 0.
        """
        ...


class RewardTrainer(Protocol):
    """A reward model that is trained."""

    @property
    def peak_flops_per_s(self) -> float:
        """What the devices that it runs on reach together in matrix products."""
        ...

    def scores(self, batch: GroupBatch) -> Tensor:
        """(B,) float32, the score of each response, without gradients."""
        ...

    def begin_step(self, step: int) -> None:
        """The updates that follow belong to run step `step`, counted from 1; the learning rate goes by it."""
        ...

    def train_step(self, batch: GroupBatch, objective: Any) -> dict[str, float]:
        """One optimiser step over `batch` in micro-batches; metrics as for an actor. objective: is called with a
        micro-batch and the scores of its rows."""
        ...


class ReferencePolicy(Protocol):
    """The policy that a run began with."""

    def logprobs(self, batch: GroupBatch) -> Tensor:
        """(B, T) float32, zero where response_mask is 0."""
        ...


class Critic(Protocol):
    """What says of every sampled token how much reward is still to come."""

    def values(self, batch: GroupBatch) -> Tensor:
        """(B, T) float32 before each sampled token, without gradients, zero where response_mask is 0."""
        ...

    def begin_step(self, step: int) -> None:
        """The updates that follow belong to run step `step`, counted from 1; the learning rate goes by it."""
        ...

    def train_step(self, batch: GroupBatch) -> dict[str, float]:
        """One optimiser step over `batch`, which has values and returns, in micro-batches; metrics as for an actor."""
        ...
