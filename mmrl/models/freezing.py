"""Which parts of a policy are trained."""

from __future__ import annotations

from collections.abc import Sequence

from mmrl.config.run import ModelPart
from mmrl.errors import ModelError
from mmrl.models.policy_model import PolicyModel


def apply_freeze(policy: PolicyModel, freeze: Sequence[ModelPart]) -> None:
    """Makes every parameter trainable but those of the named parts.

    A weight that a frozen part shares with a trained one (tied embeddings) is frozen. Raises ModelError for a part that
    the model has not, and where nothing would be left to train.
    """
    parts = policy.family.parts(policy.hf)
    missing = [part for part in freeze if part not in parts]
    if missing:
        raise ModelError(
            f"model.freeze: {missing[0]!r} is no part of a {policy.hf.config.model_type} model; "
            f"it has {', '.join(parts)}"
        )
    policy.hf.requires_grad_(True)
    for part in freeze:
        for module in parts[part]:
            module.requires_grad_(False)
    if not any(weight.requires_grad for weight in policy.hf.parameters()):
        raise ModelError(f"model.freeze: {', '.join(freeze)} is all that the model has; leave one part to be trained")
