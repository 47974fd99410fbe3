"""AdamW, the course of its learning rate, and the norm of the gradient.

The learning rate follows run steps, not optimiser steps: all mini-batches and epochs over one step's rollouts use
the same rate, so that dividing the rollouts differently leaves the schedule as it was.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.optim import AdamW

from mmrl.config.run import OptimConfig
from mmrl.errors import ConfigError, ModelError
from mmrl.models.lockstep import local_part


def build_optimizer(model: nn.Module, config: OptimConfig) -> AdamW:
    """AdamW (arXiv 1711.05101) over the trainable parameters; only matrices and larger tensors are decayed.

    Raises ConfigError if no parameter is trainable.
    """
    trainable = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    if not trainable:
        raise ConfigError(
            f"model.freeze: none of the model's {sum(1 for _ in model.parameters())} parameter tensors is trainable; "
            "take at least one of vision, projector, language out of model.freeze"
        )
    decayed = [named for named in trainable if named[1].ndim >= 2]
    not_decayed = [named for named in trainable if named[1].ndim < 2]
    groups = [
        {"params": decayed, "weight_decay": config.weight_decay},
        {"params": not_decayed, "weight_decay": 0.0},
    ]
    return AdamW(
        [group for group in groups if group["params"]],
        lr=config.lr,
        betas=config.betas,
        eps=config.eps,
        fused=all(parameter.device.type in ("cpu", "cuda") for _, parameter in trainable),
    )


def learning_rate(step: int, config: OptimConfig, *, total_steps: int) -> float:
    """The learning rate of run step `step`, counted from 1, in a run of `total_steps`.

    Warm-up: lr · step / warmup_steps up to step `warmup_steps`, which has the full rate. From there (from step 1
    without warm-up) x rises from 0 to 1 in the last step, and the rate is lr · (m + (1 − m)·h), m = `min_lr_ratio`,
    with h = 1 − x for linear and (1 + cos πx)/2 for cosine (arXiv 1608.03983); constant stays at lr.
    """
    if step < config.warmup_steps:
        return config.lr * step / config.warmup_steps
    if config.schedule == "constant":
        return config.lr
    start = max(config.warmup_steps, 1)
    progress = min(1.0, (step - start) / (total_steps - start)) if total_steps > start else 0.0
    height = 1.0 - progress if config.schedule == "linear" else (1.0 + math.cos(math.pi * progress)) / 2
    return config.lr * (config.min_lr_ratio + (1.0 - config.min_lr_ratio) * height)


def set_learning_rate(optimizer: AdamW, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def optimizer_state(optimizer: AdamW) -> dict[str, dict[str, Any]]:
    """Parameter name -> its moments and step count, not copied; parameters that never had a gradient have none."""
    names = _parameter_names(optimizer)
    return {names[index]: state for index, state in optimizer.state_dict()["state"].items()}


def load_optimizer_state(optimizer: AdamW, state: Mapping[str, Mapping[str, Any]]) -> None:
    """Take over moments by parameter name, without a copy. Rates, betas and decay stay as they were built.

    Raises ModelError if a parameter of the state is not trained here or has another shape.
    """
    names = _parameter_names(optimizer)
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    shapes = {name: tuple(parameter.shape) for name, parameter in zip(names, parameters, strict=True)}
    for name, moments in state.items():
        saved = tuple(moments["exp_avg"].shape)
        if shapes.get(name) != saved:
            here = f"has shape {shapes[name]}" if name in shapes else "is not trained"
            raise ModelError(
                f"the optimiser state has moments of shape {saved} for {name}, which {here} in this run; resume with "
                "the model and the model.freeze that the checkpoint was written with"
            )
    index_of = {name: index for index, name in enumerate(names)}
    packed = {index_of[name]: dict(moments) for name, moments in state.items()}
    optimizer.load_state_dict({"state": packed, "param_groups": optimizer.state_dict()["param_groups"]})


def gradient_norm(parameters: Iterable[nn.Parameter]) -> Tensor:
    """The 2-norm over all gradients together, a scalar; 0 where there is no gradient at all. Of gradients that are
    divided among ranks, over this rank's parts."""
    return nn.utils.get_total_norm([local_part(weight.grad) for weight in parameters if weight.grad is not None])


def clip_gradients(parameters: Iterable[nn.Parameter], norm: Tensor, *, largest: float) -> None:
    """Scale all gradients by `largest / norm`, the norm of all of them together, where it is above `largest`."""
    scale = (largest / (norm + 1e-6)).clamp(max=1.0)
    for parameter in parameters:
        if parameter.grad is not None:
            mine = local_part(parameter.grad)
            mine.mul_(scale.to(mine.device))


def _parameter_names(optimizer: AdamW) -> list[str]:
    return [name for group in optimizer.param_groups for name in group["param_names"]]
