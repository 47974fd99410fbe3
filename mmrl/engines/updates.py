"""Optimiser steps of one module: what actor and critic do to learn.

One optimiser step takes a mini-batch this way: micro-batches of one token budget (`micro_batches`) -> forward ->
objective -> backward (`gradients`), with metrics added up over all of them (`metric_sums`); then clipping and AdamW
(`optimizer`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from mmrl.batch import GroupBatch
from mmrl.config.optim import OptimConfig
from mmrl.config.run import TrainConfig
from mmrl.engines.finite import Learner, NotFiniteError, first_fault, weights_fault
from mmrl.engines.gradients import GradientAccumulator, GradientPass
from mmrl.engines.optimizer import (
    build_optimizer,
    clip_gradients,
    learning_rate,
    load_optimizer_state,
    optimizer_state,
    set_learning_rate,
)
from mmrl.models.freed_memory import keep_freed_memory
from mmrl.models.lockstep import Lockstep, everyones

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class _Pending:
    """A step that was computed and not yet applied. gradients: None where there is nothing to learn from."""

    batch: GroupBatch
    rate: float
    gradients: GradientPass | None


class Updates:
    """The optimiser of a module's trainable parameters, and the count of the updates that it has made.

    forward, finish_backward, lockstep: see `GradientAccumulator`.
    total_steps: run steps, over which the learning rate takes its course.
    updates_per_step: optimiser steps in a run step; mini_batches · epochs of `train` if not given. Updates are counted
        by it; `begin_step` sets the count where a run step had another number of them.
    idle_steps: first run steps without an update of this module; the course of the rate begins behind them.
    rate_key: the config key of the learning rate, for what an error advises. learner: whose updates these are.
    """

    def __init__(
        self,
        module: nn.Module,
        forward: Callable[[GroupBatch, Any], Any],
        optim: OptimConfig,
        train: TrainConfig,
        *,
        total_steps: int,
        updates_per_step: int | None = None,
        idle_steps: int = 0,
        rate_key: str = "optim.lr",
        learner: Learner = "actor",
        finish_backward: Callable[[], None] = lambda: None,
        lockstep: Lockstep | None = None,
    ) -> None:
        keep_freed_memory()
        self.optimizer = build_optimizer(module, optim)
        self._module = module
        self._gradients = GradientAccumulator(module, train, forward, finish_backward, lockstep)
        self._lockstep = lockstep
        self._optim = optim
        self._total_steps = total_steps
        self._updates_per_step = updates_per_step or train.mini_batches * train.epochs
        self._idle_steps = idle_steps
        self._rate_key = rate_key
        self._learner = learner
        self._num_updates = 0
        self._first_of_step = 0
        self._pending: _Pending | None = None

    @property
    def step(self) -> int:
        """The run step, counted from 1, that the next update belongs to."""
        return self._num_updates // self._updates_per_step + 1

    def begin_step(self, step: int) -> None:
        """The next update is the first one of run step `step`, counted from 1."""
        self._num_updates = self._first_of_step = (step - 1) * self._updates_per_step

    def update(self, batch: GroupBatch, objective: Any) -> dict[str, float]:
        """One optimiser step over `batch`: `compute`, then `apply`."""
        try:
            self.compute(batch, objective)
            return self.apply()
        finally:
            self.discard()

    def compute(self, batch: GroupBatch, objective: Any) -> Tensor | None:
        """The gradients of one optimiser step over `batch`; no weight moves before `apply`, and `discard` forgets them.

        Returns the (B, T) log-probabilities of the passes; None where no token was sampled at all, so that there is
        nothing to learn from.
        Raises NotFiniteError, without any gradient left, if a loss, the gradient or a weight is not finite.
        """
        idle = self._idle_steps
        rate = learning_rate(max(self.step - idle, 1), self._optim, total_steps=self._total_steps - idle)
        has_tokens = any(everyones(self._lockstep, batch.num_sampled_tokens > 0))
        gradients = self._gradients_of(batch, objective, rate) if has_tokens else None
        self._pending = _Pending(batch, rate, gradients)
        return None if gradients is None else gradients.logprobs

    def apply(self) -> dict[str, float]:
        """The optimiser step for what `compute` left.

        Returns the objective's metrics, `grad_norm` (before clipping), `lr`, `num_micro_batches`, `num_tokens` (each
        prompt once, and the responses), `padding_share` of the tokens forwarded, and `skipped_steps`: 1 where no token
        was sampled at all; then the objective's metrics and the norm are missing.
        """
        assert self._pending is not None, "apply() follows compute()"
        batch, rate, gradients = self._pending.batch, self._pending.rate, self._pending.gradients
        if gradients is None:
            return self._skip(batch, rate)
        clip_gradients(self._module.parameters(), gradients.norm, largest=self._optim.grad_clip)
        set_learning_rate(self.optimizer, rate)
        self.optimizer.step()
        self.discard()
        self._num_updates += 1
        return gradients.metrics | {
            "grad_norm": float(gradients.norm),
            "lr": rate,
            "num_micro_batches": float(gradients.num_micro_batches),
            "num_tokens": float(gradients.num_tokens),
            "padding_share": gradients.padding_share,
            "skipped_steps": 0.0,
        }

    def discard(self) -> None:
        """Forgets gradients that were computed and not applied."""
        self._pending = None
        self.optimizer.zero_grad()

    def state_dict(self) -> dict[str, Any]:
        """Optimiser moments by parameter name and the count of updates."""
        return {"optimizer": optimizer_state(self.optimizer), "num_updates": self._num_updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`; rates, betas and decay stay as they were built.

        Raises ModelError if the state is of other parameters than are trained here.
        """
        load_optimizer_state(self.optimizer, state["optimizer"])
        self._num_updates = int(state["num_updates"])

    def _gradients_of(self, batch: GroupBatch, objective: Any, rate: float) -> GradientPass:
        self.optimizer.zero_grad()
        try:
            gradients = self._gradients.accumulate(batch, objective)
            mine = weights_fault(self._trained(), rate=rate, decay=self._optim.weight_decay)
            fault = first_fault(everyones(self._lockstep, mine))
            if fault is not None:
                raise NotFiniteError(fault)
        except BaseException as error:
            self.discard()
            if not isinstance(error, NotFiniteError):
                raise
            raise NotFiniteError(
                f"step {self.step}, update {self._num_updates + 1}: {error}. The weights were not changed. A lower "
                f"{self._rate_key}, a longer warm-up or model.dtype float32 may help; rewards that are not finite will "
                "not",
                batch=batch,
                learner=self._learner,
                update=self._num_updates - self._first_of_step,
            ) from error
        return gradients

    def _trained(self) -> list[tuple[str, nn.Parameter]]:
        return [(name, weight) for name, weight in self._module.named_parameters() if weight.requires_grad]

    def _skip(self, batch: GroupBatch, rate: float) -> dict[str, float]:
        logger.warning(
            "step %d: none of the %d responses has a sampled token to learn from (all empty, failed or masked); "
            "the update is skipped and the weights stay as they are",
            self.step,
            batch.num_rows,
        )
        self.discard()
        self._num_updates += 1
        return {"lr": rate, "num_micro_batches": 0.0, "num_tokens": 0.0, "skipped_steps": 1.0}
