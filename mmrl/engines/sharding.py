"""Models in shards: each rank of a torch.distributed group keeps a part of every weight (FSDP2).

`init_ranks` joins the group, `shard` divides a model in place. Actor, critic and reference are then built on it as on a
whole one, on every rank, and called with that rank's share of a batch. An objective that was built with the counts of
all shares makes the sum over ranks the gradient, so gradients are added up and never averaged.

Layers of the language model, the blocks of a trained vision tower and the rest as one are gathered each by itself, when
they run. A frozen tower stays whole on every rank: its passes then need nobody else, and its features are kept by
content on each rank alone.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard

from mmrl.config.actor import FsdpConfig
from mmrl.errors import ConfigError
from mmrl.models.lockstep import Lockstep, filler_batch
from mmrl.models.policy import PolicyModel
from mmrl.models.reward_model import RewardModel
from mmrl.models.value_model import ValueModel


@dataclass(frozen=True, eq=False)
class Ranks:
    """This process among the others of its group.

    device: where this rank computes. control: a group of all ranks that speaks in CPU memory, beside the one that
    moves weights and gradients.
    """

    rank: int
    world_size: int
    device: torch.device
    control: Any

    def barrier(self) -> None:
        """Until every rank has come here."""
        distributed.barrier(group=self.control)

    def gather(self, mine: Any) -> list[Any]:
        """What every rank tells, in order of ranks."""
        told: list[Any] = [None] * self.world_size
        distributed.all_gather_object(told, mine, group=self.control)
        return told


def init_ranks(device_type: str, *, timeout_s: float) -> Ranks:
    """Joins the group that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT of the environment tell of; LOCAL_RANK chooses
    the GPU where a process sees several. A group that exists already is taken as it is.

    device_type: cpu or cuda. timeout_s: how long a rank waits for the others in any call.
    Raises ConfigError where the environment does not say which rank this is.
    """
    if not distributed.is_initialized():
        missing = [name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
        if missing:
            raise ConfigError(
                f"{', '.join(missing)} is not set in the environment of this process, so it is no rank of a group; "
                "start it through placement.executor: ray, or under torchrun"
            )
    device = torch.device("cpu")
    if device_type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    timeout = timedelta(seconds=timeout_s)
    if not distributed.is_initialized():
        distributed.init_process_group("gloo" if device_type == "cpu" else "cpu:gloo,cuda:nccl", timeout=timeout)
    control = distributed.new_group(backend="gloo", timeout=timeout)
    return Ranks(distributed.get_rank(), distributed.get_world_size(), device, control)


def shard(model: PolicyModel | ValueModel | RewardModel, fsdp: FsdpConfig, ranks: Ranks) -> None:
    """Divides the weights of `model` among the ranks, in place; all of them call it.

    What is trained must be decided before (`apply_freeze`), an optimiser built behind. Weights on the meta device stay
    there, in their shards; see `shard_loading`.
    Raises ConfigError for a shard_size that does not divide the number of ranks.
    """
    policy = model if isinstance(model, PolicyModel) else model.body
    mesh = _mesh(fsdp, ranks)
    kept_whole = whole_weights(policy)
    settings: dict[str, Any] = {
        "mesh": mesh,
        "reshard_after_forward": fsdp.reshard_after_forward,
        "offload_policy": CPUOffloadPolicy(pin_memory=ranks.device.type == "cuda") if fsdp.offload else OffloadPolicy(),
        "ignored_params": kept_whole,
    }
    passes = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if policy.dtype == torch.bfloat16 else None,
        reduce_dtype=torch.float32 if policy.dtype == torch.bfloat16 else None,
        cast_forward_inputs=False,
    )
    for module in sharded_modules(policy):
        fully_shard(module, mp_policy=passes, **settings)
    if not isinstance(model, PolicyModel):
        fully_shard(model.head, mp_policy=MixedPrecisionPolicy(cast_forward_inputs=False), **settings)
    fully_shard(model, mp_policy=passes, **settings)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            _add_up_gradients(module)
    policy.lockstep = _lockstep(model, policy, kept_whole, mesh, ranks)


def sharded_modules(policy: PolicyModel) -> list[nn.Module]:
    """The modules that are gathered each by itself; what is left is gathered with the model."""
    kept_whole = whole_weights(policy)
    return [
        module
        for module in policy.family.wrap_points(policy.hf)
        if any(weight not in kept_whole for weight in module.parameters())
    ]


def whole_weights(policy: PolicyModel) -> set[nn.Parameter]:
    """Those of a frozen vision tower, and of its projectors where they are frozen too: every rank has all of them."""
    parts = policy.family.parts(policy.hf)
    kept: set[nn.Parameter] = set()
    for name in ("vision", "projector"):
        weights = {weight for module in parts.get(name, ()) for weight in module.parameters()}
        if any(weight.requires_grad for weight in weights):
            break
        kept |= weights
    return kept


def num_replicas(fsdp: FsdpConfig, num_ranks: int) -> int:
    """Whole copies of the weights on all ranks together. Raises ConfigError where the ranks cannot be divided so."""
    size = fsdp.shard_size or num_ranks
    if num_ranks % size:
        fitting = [number for number in range(1, num_ranks + 1) if num_ranks % number == 0]
        raise ConfigError(
            f"actor.fsdp.shard_size: {num_ranks} ranks cannot be divided into groups of {size}; take one of "
            f"{', '.join(map(str, fitting))}, or leave it out"
        )
    return num_ranks // size


def _mesh(fsdp: FsdpConfig, ranks: Ranks) -> DeviceMesh:
    copies = num_replicas(fsdp, ranks.world_size)
    if copies == 1:
        return init_device_mesh(ranks.device.type, (ranks.world_size,), mesh_dim_names=("shard",))
    shape = (copies, ranks.world_size // copies)
    return init_device_mesh(ranks.device.type, shape, mesh_dim_names=("replicate", "shard"))


def _add_up_gradients(module: FSDPModule) -> None:
    """The sum over ranks, also of weights that only some of them used."""
    module.set_gradient_divide_factor(1.0)
    # A factor would otherwise be applied by an operation that only NCCL has.
    module.set_force_sum_reduction_for_comms(True)
    module.set_reduce_scatter_unused_params(True, recurse=False)


def _lockstep(
    model: nn.Module, policy: PolicyModel, kept_whole: set[nn.Parameter], mesh: DeviceMesh, ranks: Ranks
) -> Lockstep:
    parts = policy.family.parts(policy.hf)
    seeing = [module for name in ("vision", "projector") for module in parts.get(name, ())]
    tower = [weight for module in parts.get("vision", ()) for weight in module.parameters()]
    return Lockstep(
        group=ranks.control,
        num_ranks=ranks.world_size,
        num_replicas=ranks.world_size // mesh.size(-1),
        root=model,
        runs_tower=bool(tower) and not kept_whole.issuperset(tower),
        image_weights=tuple(weight for module in seeing for weight in module.parameters() if weight.requires_grad),
        filler=filler_batch(policy.prompts.pad_token_id),
    )
