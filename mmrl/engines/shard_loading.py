"""Sharded models from a model folder: no rank ever holds more than its own parts.

The model is built without weights and divided; then every rank reads its rows of each weight from the safetensors
files. Weights that lie there in another form (pickled, or under names that only transformers knows to convert) are
loaded by rank 0 as a whole and sent to the others one by one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, distributed, nn
from torch.distributed.tensor import DTensor

from mmrl.config.actor import FsdpConfig
from mmrl.config.run import ImageConfig, ModelConfig
from mmrl.data.images import ImageStore
from mmrl.engines.sharding import Ranks, shard
from mmrl.errors import MmrlError, ModelError
from mmrl.models.loading import load_empty, load_hf, local_folder
from mmrl.models.lockstep import local_part, rows_of
from mmrl.models.lora import begin_adapter
from mmrl.models.policy import PolicyModel, checkpoint_names
from mmrl.models.reward_model import RewardModel, is_reward_model, load_head
from mmrl.models.value_model import ValueModel

Result = TypeVar("Result")

logger = logging.getLogger(__name__)


def load_sharded_policy(
    config: ModelConfig,
    image: ImageConfig,
    *,
    store: ImageStore,
    fsdp: FsdpConfig,
    ranks: Ranks,
    trainable: bool = True,
) -> PolicyModel:
    """`load_policy` and `shard` in one, by all ranks; raises what they raise, on every rank."""
    policy = load_empty(config, image, store=store, device=ranks.device, trainable=trainable)
    shard(policy, fsdp, ranks)
    _fill(policy, policy, config, fsdp, ranks)
    return policy


def load_sharded_value_model(
    config: ModelConfig, image: ImageConfig, *, store: ImageStore, fsdp: FsdpConfig, ranks: Ranks
) -> ValueModel:
    """A critic that begins as the model of `config`, its value head at zero."""
    model = ValueModel(load_empty(config, image, store=store, device=ranks.device))
    shard(model, fsdp, ranks)
    _fill(model, model.body, config, fsdp, ranks)
    return model


def load_sharded_reward_model(
    config: ModelConfig, image: ImageConfig, *, store: ImageStore, fsdp: FsdpConfig, ranks: Ranks
) -> RewardModel:
    """`load_reward_model` of one that is trained and `shard` in one, by all ranks."""
    model = RewardModel(load_empty(config, image, store=store, device=ranks.device))
    shard(model, fsdp, ranks)
    _fill(model, model.body, config, fsdp, ranks)
    folder = local_folder(config.path)
    head = _on_all(ranks, f"model {config.path}", lambda: _head_in(model, folder))
    with torch.no_grad():
        weight = model.head.weight
        local_part(weight).copy_(torch.zeros_like(local_part(weight)) if head is None else head[rows_of(weight)])
    return model


def _head_in(model: RewardModel, folder: Path) -> Tensor | None:
    """None in the folder of a model that is none for rewards yet."""
    return load_head(model.head, folder) if is_reward_model(str(folder)) else None


def _fill(model: nn.Module, policy: PolicyModel, config: ModelConfig, fsdp: FsdpConfig, ranks: Ranks) -> None:
    _materialise(model, ranks.device, torch.device("cpu") if fsdp.offload else ranks.device)
    names = checkpoint_names(policy.hf)
    weights = {names[name]: weight for name, weight in policy.hf.named_parameters() if name in names}
    begin_adapter(policy.hf)
    what = f"model {config.path}"
    files = _on_all(ranks, what, lambda: _files_of(local_folder(config.path)))
    missing = [name for name in weights if name not in files]
    if not missing:
        _on_all(ranks, what, lambda: _read_rows(weights, files))
        return
    if ranks.rank == 0:
        logger.warning(
            "model %s: %d of its %d weights do not lie in safetensors files under the names that it is saved with, "
            "such as %s; rank 0 loads the whole model and sends it on, which needs memory for all of it there",
            *(config.path, len(missing), len(weights), missing[0]),
        )
    _send_from_first(weights, config, ranks)


def _materialise(model: nn.Module, device: torch.device, shards: torch.device) -> None:
    """Memory for what has none yet, in `shards` for divided weights and on `device` for the rest."""

    def place(tensor: Tensor) -> Tensor:
        target = shards if isinstance(tensor, DTensor) else device
        return torch.empty_like(tensor, device=target) if tensor.device.type == "meta" else tensor.to(target)

    model._apply(place)


def _files_of(folder: Path) -> dict[str, Path]:
    """Name of each weight -> the safetensors file that holds it."""
    found: dict[str, Path] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as weights:
            found |= dict.fromkeys(weights.keys(), file)
    return found


@torch.no_grad()
def _read_rows(weights: dict[str, nn.Parameter], files: dict[str, Path]) -> None:
    for file in sorted({files[name] for name in weights}):
        with safe_open(file, framework="pt") as stored:
            for name, weight in weights.items():
                if files[name] == file:
                    found = stored.get_slice(name)
                    _check_shape(name, tuple(found.get_shape()), weight)
                    local_part(weight).copy_(found[rows_of(weight)] if weight.ndim else found[...])


@torch.no_grad()
def _send_from_first(weights: dict[str, nn.Parameter], config: ModelConfig, ranks: Ranks) -> None:
    whole = _on_all(ranks, f"model {config.path}", lambda: _whole_model(config) if ranks.rank == 0 else {})
    for name, weight in weights.items():
        full = whole.pop(name).contiguous() if ranks.rank == 0 else torch.empty(weight.shape, dtype=weight.dtype)
        distributed.broadcast(full, src=0, group=ranks.control)
        local_part(weight).copy_(full[rows_of(weight)])


def _whole_model(config: ModelConfig) -> dict[str, Tensor]:
    hf = load_hf(config)
    names = checkpoint_names(hf)
    return {names[name]: weight.detach() for name, weight in hf.named_parameters()}


def _check_shape(name: str, found: tuple[int, ...], weight: Tensor) -> None:
    if found != tuple(weight.shape):
        raise ModelError(
            f"weight {name} has shape {found} in the model's files and {tuple(weight.shape)} by its config.json; "
            "the folder holds files of different models: get it again from where it was made"
        )


def _on_all(ranks: Ranks, what: str, work: Callable[[], Result]) -> Result:
    """What `work` gives, once every rank has done it; where one could not, all raise its error."""
    result, error = None, None
    try:
        result = work()
    except (MmrlError, OSError, ValueError, RuntimeError, SafetensorError) as caught:
        error = caught
    for rank, told in enumerate(ranks.gather(None if error is None else str(error))):
        if told is not None:
            raise ModelError(f"{what}: {told} (on rank {rank})") from error
    return cast(Result, result)
