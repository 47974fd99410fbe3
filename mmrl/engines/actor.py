"""The actor of one process: a policy with its optimiser.

One optimiser step takes a mini-batch this way: micro-batches of one token budget (`micro_batches`) -> policy forward
-> objective -> backward (`gradients`), with metrics added up over all of them (`metric_sums`); then clipping and
AdamW (`optimizer`).

The policy stays in eval mode throughout. Dropout would make the actor another distribution than the sampler, and none
of the supported families has modules that must be in training mode to learn.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from mmrl.batch import GroupBatch, TokenStats
from mmrl.calls import logged_call
from mmrl.config.run import OptimConfig, TrainConfig
from mmrl.engines.base import NamedWeights, Objective
from mmrl.engines.gradients import GradientAccumulator, GradientPass, NotFiniteError
from mmrl.engines.micro_batches import num_real_tokens
from mmrl.engines.optimizer import (
    build_optimizer,
    clip_gradients,
    learning_rate,
    load_optimizer_state,
    optimizer_state,
    set_learning_rate,
)
from mmrl.engines.passes import logprobs_without_gradient
from mmrl.errors import RunFailedError
from mmrl.models.flops import step_flops
from mmrl.models.policy import PolicyModel, named_weights

logger = logging.getLogger(__name__)


class HfActor:
    """Meets `engines.base.Actor` on one device.

    policy: the model that is trained; the optimiser takes its trainable parameters.
    temperature: the sampling temperature; log-probabilities are taken at it.
    total_steps: run steps, over which the learning rate takes its course.
    updates_per_step: optimiser steps in a run step; mini_batches · epochs of `train` if not given. The actor counts
        its own updates by it; `begin_step` sets the count where a run step had another number of them.
    """

    def __init__(
        self,
        policy: PolicyModel,
        optim: OptimConfig,
        train: TrainConfig,
        *,
        temperature: float,
        total_steps: int,
        updates_per_step: int | None = None,
    ) -> None:
        self.policy = policy.eval()
        self.optimizer = build_optimizer(policy, optim)
        self._gradients = GradientAccumulator(policy, train, temperature)
        self._optim = optim
        self._train = train
        self._temperature = temperature
        self._total_steps = total_steps
        self._updates_per_step = updates_per_step or train.mini_batches * train.epochs
        self._num_updates = 0

    @property
    def step(self) -> int:
        """The run step, counted from 1, that the next update belongs to."""
        return self._num_updates // self._updates_per_step + 1

    def begin_step(self, step: int) -> None:
        """The next update is the first one of run step `step`, counted from 1."""
        self._num_updates = (step - 1) * self._updates_per_step

    @logged_call
    def logprobs(self, batch: GroupBatch, *, with_entropy: bool = False) -> TokenStats:
        """(B, T) in the rows' own order, on the batch's device; without gradients."""
        return logprobs_without_gradient(
            self.policy, batch, self._train, temperature=self._temperature, with_entropy=with_entropy
        )

    @logged_call
    def train_step(
        self, batch: GroupBatch, objective: Objective, *, before_step: Callable[[], None] | None = None
    ) -> dict[str, float]:
        """One optimiser step over `batch`.

        before_step: called between the backward passes and the optimiser; if it raises, the weights stay as they are.
        Returns the objective's metrics, `grad_norm` (before clipping), `lr`, `num_micro_batches`, `num_tokens` (each
        prompt once, and the responses), `padding_share` of the tokens forwarded, `flops` (see `step_flops`; a prompt
        forwarded again for another part of its group counts once), and `skipped_steps`: 1 where no token was sampled
        at all, so that there was nothing to learn from; then the objective's metrics and the norm are missing.
        Raises RunFailedError, with the weights unchanged, if a loss or the gradient is not finite.
        """
        rate = learning_rate(self.step, self._optim, total_steps=self._total_steps)
        if batch.num_sampled_tokens == 0:
            return self._skip(batch, rate)
        gradients = self._update(batch, objective, rate, before_step)
        self._num_updates += 1
        return gradients.metrics | {
            "grad_norm": float(gradients.norm),
            "lr": rate,
            "num_micro_batches": float(gradients.num_micro_batches),
            "num_tokens": float(num_real_tokens(batch)),
            "padding_share": gradients.padding_share,
            "flops": step_flops(self.policy, batch, path=self._train.path),
            "skipped_steps": 0.0,
        }

    def weights(self) -> NamedWeights:
        """Name as in a saved checkpoint and full tensor of each weight, tied ones once; detached, not copied."""
        return named_weights(self.policy)

    def state_dict(self) -> dict[str, Any]:
        """Optimiser moments by parameter name and the count of updates; the weights are saved with the policy."""
        return {"optimizer": optimizer_state(self.optimizer), "num_updates": self._num_updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`; rates, betas and decay stay those of this actor's config.

        Raises ModelError if the state is of other parameters than this actor trains.
        """
        load_optimizer_state(self.optimizer, state["optimizer"])
        self._num_updates = int(state["num_updates"])

    def _update(
        self, batch: GroupBatch, objective: Objective, rate: float, before_step: Callable[[], None] | None
    ) -> GradientPass:
        """Gradients never outlive the call, whether it returns or raises."""
        self.optimizer.zero_grad()
        try:
            gradients = self._gradients.accumulate(batch, objective)
            if before_step is not None:
                before_step()
            clip_gradients(self.policy.parameters(), gradients.norm, largest=self._optim.grad_clip)
            set_learning_rate(self.optimizer, rate)
            self.optimizer.step()
        except NotFiniteError as error:
            raise RunFailedError(
                f"step {self.step}, update {self._num_updates + 1}: {error}. The weights were not changed. A lower "
                "optim.lr, a longer warm-up or model.dtype float32 may help; rewards that are not finite will not"
            ) from error
        finally:
            self.optimizer.zero_grad()
        return gradients

    def _skip(self, batch: GroupBatch, rate: float) -> dict[str, float]:
        logger.warning(
            "step %d: none of the %d responses has a sampled token to learn from (all empty, failed or masked); "
            "the update is skipped and the weights stay as they are",
            self.step,
            batch.num_rows,
        )
        self._num_updates += 1
        return {"lr": rate, "num_micro_batches": 0.0, "num_tokens": 0.0, "flops": 0.0, "skipped_steps": 1.0}
