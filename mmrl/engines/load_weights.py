"""Named weights into a policy, every one accounted for."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mmrl.engines.base import NamedWeights
from mmrl.errors import ModelError
from mmrl.models.policy import PolicyModel, checkpoint_names

_SHOWN = 5


@torch.no_grad()
def load_named_weights(policy: PolicyModel, weights: NamedWeights) -> None:
    """Copies each weight, by its checkpoint name, into the policy's own tensor, whatever the precision it comes in.

    Raises ModelError naming weights that are missing, unknown or of another shape. Those that fit are copied by then.
    """
    names = checkpoint_names(policy.hf)
    targets = {names[name]: parameter for name, parameter in policy.hf.named_parameters()}
    missing, unknown, misshapen = dict.fromkeys(targets), [], []
    for name, weight in weights:
        target = targets.get(name)
        if target is None:
            unknown.append(name)
            continue
        missing.pop(name, None)
        if target.shape == weight.shape:
            target.copy_(weight)
        else:
            misshapen.append(f"{name} {tuple(weight.shape)} for {tuple(target.shape)}")
    faults = {"missing": list(missing), "unknown": unknown, "of another shape": misshapen}
    found = [f"{len(names)} {fault} ({_some(names)})" for fault, names in faults.items() if names]
    if found:
        raise ModelError(
            f"weight update: {'; '.join(found)}; the sender's model must have the architecture of the engine's"
        )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
