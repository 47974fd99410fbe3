"""Named weights into a policy, every one accounted for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from mmrl.engines.base import NamedWeights
from mmrl.errors import ModelError
from mmrl.models.lora import has_adapter, take_adapter
from mmrl.models.policy import PolicyModel, checkpoint_names

_SHOWN = 5


class WeightFaults:
    """Compares the weights that come with those that should, by checkpoint name and shape."""

    def __init__(self, expected: Mapping[str, Sequence[int]]) -> None:
        self._expected = {name: tuple(shape) for name, shape in expected.items()}
        self._missing = dict.fromkeys(self._expected)
        self._unknown: list[str] = []
        self._misshapen: list[str] = []

    def fits(self, name: str, shape: Sequence[int]) -> bool:
        """Notes that this weight came; whether it can be taken."""
        expected = self._expected.get(name)
        if expected is None:
            self._unknown.append(name)
            return False
        self._missing.pop(name, None)
        if expected != tuple(shape):
            self._misshapen.append(f"{name} {tuple(shape)} for {expected}")
            return False
        return True

    def raise_if_any(self) -> None:
        """Raises ModelError naming weights that did not come, or came unknown or in another shape."""
        faults = {"missing": list(self._missing), "unknown": self._unknown, "of another shape": self._misshapen}
        found = [f"{len(names)} {fault} ({_some(names)})" for fault, names in faults.items() if names]
        if found:
            raise ModelError(
                f"weight update: {'; '.join(found)}; the sender's model must have the architecture of the engine's"
            )


@torch.no_grad()
def load_named_weights(policy: PolicyModel, weights: NamedWeights) -> None:
    """Copies each weight, by its checkpoint name, into the policy's own tensor, whatever the precision it comes in. A
    policy with an adapter takes the weights of that, by peft's names.

    Raises ModelError naming weights that are missing, unknown or of another shape. Those that fit are copied by then.
    """
    if has_adapter(policy.hf):
        take_adapter(policy.hf, dict(weights), what="weight update")
        return
    names = checkpoint_names(policy.hf)
    targets = {names[name]: parameter for name, parameter in policy.hf.named_parameters() if name in names}
    faults = WeightFaults({name: target.shape for name, target in targets.items()})
    for name, weight in weights:
        if faults.fits(name, weight.shape):
            targets[name].copy_(weight)
    faults.raise_if_any()


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
