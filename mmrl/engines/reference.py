"""The reference: the policy that a run began with, frozen. The trainer builds one only where a KL term needs it."""

from __future__ import annotations

import copy

from torch import Tensor

from mmrl.batch import GroupBatch
from mmrl.calls import logged_call
from mmrl.config.run import TrainConfig
from mmrl.engines.passes import logprobs_without_gradient
from mmrl.models.policy import PolicyModel


class Reference:
    """Log-probabilities under frozen weights.

    policy: is made untrainable; nothing else may train it.
    temperature: the sampling temperature, so that reference and actor speak of one distribution.
    """

    def __init__(self, policy: PolicyModel, train: TrainConfig, *, temperature: float) -> None:
        self.policy = policy.requires_grad_(False).eval()
        self._train = train
        self._temperature = temperature

    @classmethod
    def copy_of(cls, policy: PolicyModel, train: TrainConfig, *, temperature: float) -> Reference:
        """A reference with the weights that `policy` has now; call it before the first update and before resuming.

        Only what can change is copied: frozen parameters, processor and adapter are shared with the policy.
        """
        shared = [
            policy.prompts,
            policy.family,
            *(weight for weight in policy.parameters() if not weight.requires_grad),
        ]
        return cls(copy.deepcopy(policy, {id(item): item for item in shared}), train, temperature=temperature)

    @logged_call
    def logprobs(self, batch: GroupBatch) -> Tensor:
        """(B, T) float32, zero where response_mask is 0."""
        return logprobs_without_gradient(self.policy, batch, self._train, temperature=self._temperature).logprobs


class AdapterOffReference:
    """The policy with its adapter off: the reference of a run that trains one, without a second copy of weights.

    policy: the actor's own, with adapters.
    """

    def __init__(self, policy: PolicyModel, train: TrainConfig, *, temperature: float) -> None:
        self._policy = policy
        self._train = train
        self._temperature = temperature

    @logged_call
    def logprobs(self, batch: GroupBatch) -> Tensor:
        """(B, T) float32, zero where response_mask is 0."""
        with self._policy.adapter_off():
            return logprobs_without_gradient(self._policy, batch, self._train, temperature=self._temperature).logprobs
