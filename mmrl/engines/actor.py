"""The actor of one process: a policy with its optimiser (`updates`).

The policy stays in eval mode throughout. Dropout would make the actor another distribution than the sampler, and none
of the supported families has modules that must be in training mode to learn.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from mmrl.batch import GroupBatch, TokenStats
from mmrl.calls import logged_call
from mmrl.config.run import OptimConfig, TrainConfig
from mmrl.engines.base import BeforeStep, NamedWeights, Objective
from mmrl.engines.passes import logprobs_without_gradient
from mmrl.engines.updates import Updates
from mmrl.models.flops import step_flops
from mmrl.models.lockstep import everyones
from mmrl.models.lora import adapter_weights, adapters_dropping, has_adapter
from mmrl.models.matrix_peak import matrix_peak
from mmrl.models.policy import PolicyModel, named_weights


class HfActor:
    """Meets `engines.base.Actor` on one device.

    policy: the model that is trained; the optimiser takes its trainable parameters.
    temperature: the sampling temperature; log-probabilities are taken at it.
    total_steps: run steps, over which the learning rate takes its course.
    updates_per_step: optimiser steps in a run step; mini_batches · epochs of `train` if not given.
    idle_steps: first run steps in which this policy is not updated; the rate's course begins behind them.
    sends_adapter: whether `weights` gives the adapter alone.
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
        idle_steps: int = 0,
        sends_adapter: bool = False,
    ) -> None:
        self.policy = policy.eval()
        self._sends_adapter = sends_adapter
        self._train = train
        self._temperature = temperature
        if train.gradient_checkpointing:
            policy.checkpoint_gradients()
        # The graph of kept prompts would need whole weights between sampling and update.
        keeps_prompts = train.path == "prefix" and policy.lockstep is None
        policy.kept_prompts.max_tokens = train.micro_batch_tokens if keeps_prompts else 0
        keeps_responses = keeps_prompts and not train.gradient_checkpointing and not has_adapter(policy.hf)
        policy.kept_responses.max_bytes = train.kept_responses_mb << 20 if keeps_responses else 0
        self._updates = Updates(
            policy,
            self._forward,
            optim,
            train,
            total_steps=total_steps,
            updates_per_step=updates_per_step,
            idle_steps=idle_steps,
            finish_backward=policy.finish_backward,
            lockstep=policy.lockstep,
        )
        self._costs: dict[str, float] = {}

    @property
    def step(self) -> int:
        """The run step, counted from 1, that the next update belongs to."""
        return self._updates.step

    @property
    def peak_flops_per_s(self) -> float:
        return matrix_peak(self.policy.device.type, self.policy.dtype)

    def begin_step(self, step: int) -> None:
        """The next update is the first one of run step `step`, counted from 1."""
        self._updates.begin_step(step)

    @logged_call
    def logprobs(self, batch: GroupBatch, *, with_entropy: bool = False) -> TokenStats:
        """(B, T) in the rows' own order, on the batch's device; without gradients."""
        return logprobs_without_gradient(
            self.policy, batch, self._train, temperature=self._temperature, with_entropy=with_entropy
        )

    @logged_call
    def train_step(
        self, batch: GroupBatch, objective: Objective, *, before_step: BeforeStep | None = None
    ) -> dict[str, float]:
        """One optimiser step: `compute_gradients`, `before_step` with their logprobs, `apply_gradients`."""
        try:
            logprobs = self.compute_gradients(batch, objective)
            if before_step is not None and logprobs is not None:
                before_step(logprobs)
            return self.apply_gradients()
        finally:
            self.discard_gradients()

    def compute_gradients(self, batch: GroupBatch, objective: Objective) -> Tensor | None:
        """The gradients of one optimiser step, and the logprobs of their passes; see `Updates.compute`."""
        kept = self.policy.kept_prompts.of(batch.prompts)
        kept_rows = [row for part in self.policy.kept_responses.find(batch) for row in part.rows.tolist()]
        try:
            logprobs = self._updates.compute(batch, objective)
        finally:
            self.policy.drop_kept()
        flops = 0.0
        if logprobs is not None:
            mine = step_flops(
                self.policy, batch, path=self._train.path, forwarded_before=kept, rows_forwarded_before=kept_rows
            )
            flops = sum(everyones(self.policy.lockstep, mine))
        self._costs = {
            "flops": flops,
            "prompts_kept": len(kept) / max(len(batch.prompts), 1),
            "responses_kept": len(kept_rows) / max(batch.num_rows, 1),
        }
        return logprobs

    def apply_gradients(self) -> dict[str, float]:
        """The optimiser step for them; see `Updates.apply`. `flops` as in `step_flops`; a prompt forwarded again for
        another part of its group counts once. `prompts_kept`: share of prompts that sampling had forwarded.
        `responses_kept`: share of responses of which sampling had kept what their linear maps made."""
        return self._updates.apply() | self._costs

    def discard_gradients(self) -> None:
        """Forgets gradients that were computed and not applied."""
        self._updates.discard()

    def weights(self) -> NamedWeights:
        """Name as in a saved checkpoint and full tensor of each weight, tied ones once, adapters added in; detached,
        not copied. Of an actor that sends its adapter, that alone, by the names that peft gives."""
        if self._sends_adapter:
            return adapter_weights(self.policy.hf, self.policy.device)
        return named_weights(self.policy)

    def state_dict(self) -> dict[str, Any]:
        """Optimiser moments by parameter name and the count of updates; the weights are saved with the policy."""
        return self._updates.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`; rates, betas and decay stay those of this actor's config.

        Raises ModelError if the state is of other parameters than this actor trains.
        """
        self._updates.load_state_dict(state)

    def _forward(self, micro_batch: GroupBatch, objective: Objective) -> TokenStats:
        with adapters_dropping(self.policy.hf):
            return self.policy(
                micro_batch,
                temperature=self._temperature,
                path=self._train.path,
                with_entropy=objective.needs_entropy,
            )
