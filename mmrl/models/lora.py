"""LoRA on a policy: adapters of peft beside frozen weights, taken apart again where somebody wants plain ones.

peft puts a module around each linear map that has an adapter, with the map as its `base_layer`. Names and tensors as a
plain checkpoint has them are made here; peft's own form of an adapter (a folder with `adapter_model.safetensors`) too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig as PeftConfig
from peft import inject_adapter_in_model
from peft.tuners.lora import LoraLayer
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from mmrl.config.lora import LoraConfig
from mmrl.config.optim import ModelPart
from mmrl.errors import ModelError
from mmrl.models.families import Family
from mmrl.models.lockstep import local_part, rows_of, whole

ADAPTER = "default"
"""The name that peft knows the adapter by."""
ADAPTER_FILE = "adapter_model.safetensors"
ADAPTER_CONFIG = "adapter_config.json"

_BASE = ".base_layer."
_PREFIX = "base_model.model."


def add_adapter(hf: Any, family: Family, config: LoraConfig, *, freeze: tuple[ModelPart, ...] = ()) -> None:
    """Adapters for the linear maps of `config.targets` without those in `freeze`, in place; all else is frozen.

    They begin as nothing: a policy with a new adapter is the policy without. Their first matrices follow from their
    shapes and names alone. Raises ModelError where no linear map would have one.
    """
    parts = family.parts(hf)
    missing = [part for part in config.targets if part not in parts]
    if missing:
        raise ModelError(
            f"model.lora.targets: {missing[0]!r} is no part of a {hf.config.model_type} model; it has "
            f"{', '.join(parts)}"
        )
    wanted = [module for part in config.targets if part not in freeze for module in parts[part]]
    names = _linear_maps(hf, wanted)
    if not names:
        raise ModelError(f"model.lora.targets: {', '.join(config.targets)} has no linear map that is not frozen")
    is_meta = next(hf.parameters()).device.type == "meta"
    inject_adapter_in_model(_peft_config(config, names), hf, ADAPTER, low_cpu_mem_usage=is_meta)
    hf.eval()
    for name, weight in hf.named_parameters():
        weight.requires_grad_(is_adapter_weight(name))
    if not is_meta:
        begin_adapter(hf)


@torch.no_grad()
def begin_adapter(hf: Any) -> None:
    """A drawn uniformly as peft draws it (Kaiming, a = √5), B at zero; the same on every rank and machine."""
    for name, weight in hf.named_parameters():
        if is_adapter_weight(name):
            _fill(weight, first_adapter_weight(name, tuple(weight.shape)).to(weight.dtype))


def first_adapter_weight(name: str, shape: tuple[int, ...]) -> Tensor:
    """What the adapter weight of a name begins as."""
    if ".lora_B." in name:
        return torch.zeros(shape)
    generator = torch.Generator().manual_seed(int.from_bytes(blake2b(name.encode(), digest_size=7).digest(), "big"))
    bound = 1 / math.sqrt(shape[1])
    return (torch.rand(shape, generator=generator) * 2 - 1) * bound


def has_adapter(hf: nn.Module) -> bool:
    return any(isinstance(module, LoraLayer) for module in hf.modules())


def is_adapter_weight(name: str) -> bool:
    return ".lora_A." in name or ".lora_B." in name


def plain_name(name: str) -> str:
    """The name that a weight has in the model without adapters."""
    return name.replace(_BASE, ".")


def merged_weight(modules: Mapping[str, nn.Module], name: str, weight: Tensor, device: torch.device) -> Tensor:
    """The weight (whole) of parameter `name` with what its adapter adds; where its shards are divided, by all ranks.

    modules: of the model, by name.
    """
    full = whole(weight.detach(), device)
    owner, _, last = name.rpartition(".")
    layer = modules.get(owner.removesuffix(".base_layer"))
    if last != "weight" or not isinstance(layer, LoraLayer):
        return full
    first = whole(layer.lora_A[ADAPTER].weight.detach(), device)
    second = whole(layer.lora_B[ADAPTER].weight.detach(), device)
    return full + (second @ first).to(full.dtype) * layer.scaling[ADAPTER]


def merged_state(hf: nn.Module, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state dict of the model with adapters as that of the model without, the adapters of `state` added in."""
    merged: dict[str, Tensor] = {}
    modules = dict(hf.named_modules())
    for name, tensor in state.items():
        if is_adapter_weight(name):
            continue
        merged[plain_name(name)] = tensor
        owner = name.removesuffix(f"{_BASE}weight")
        first = state.get(f"{owner}.lora_A.{ADAPTER}.weight")
        if name.endswith(f"{_BASE}weight") and first is not None:
            layer = modules[owner]
            assert isinstance(layer, LoraLayer)
            added = state[f"{owner}.lora_B.{ADAPTER}.weight"].to(tensor) @ first.to(tensor)
            merged[plain_name(name)] = tensor + added * layer.scaling[ADAPTER]
    return merged


def adapter_state(hf: nn.Module) -> dict[str, Tensor]:
    """The adapters' own tensors by module name, not copied."""
    return {name: weight.detach() for name, weight in hf.named_parameters() if is_adapter_weight(name)}


def adapter_weights(hf: nn.Module, device: torch.device) -> Iterator[tuple[str, Tensor]]:
    """Each tensor of the adapters, whole, under the name that peft saves it by."""
    for name, weight in adapter_state(hf).items():
        yield peft_name(name), whole(weight, device)


def peft_name(name: str) -> str:
    return _PREFIX + name.replace(f".{ADAPTER}.", ".")


def adapter_config(hf: nn.Module, base: str) -> dict[str, Any]:
    """The content of adapter_config.json: what peft and vLLM need to load the adapter. base: of which model it is."""
    layers = [(name, module) for name, module in hf.named_modules() if isinstance(module, LoraLayer)]
    first = layers[0][1]
    config = PeftConfig(
        r=first.r[ADAPTER],
        lora_alpha=first.lora_alpha[ADAPTER],
        target_modules=[name for name, _ in layers],
        lora_dropout=0.0,
        bias="none",
        base_model_name_or_path=base,
        inference_mode=True,
    )
    values = {key: sorted(value) if isinstance(value, set) else value for key, value in config.to_dict().items()}
    return values | {"peft_type": "LORA"}


def save_adapter(state: Mapping[str, Tensor], config: Mapping[str, Any], folder: Path) -> None:
    """state: `adapter_state`, or a copy of some time ago, or tensors under peft's own names."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        name if name.startswith(_PREFIX) else peft_name(name): tensor.detach().cpu().contiguous()
        for name, tensor in state.items()
    }
    save_file(tensors, folder / ADAPTER_FILE, metadata={"format": "pt"})
    (folder / ADAPTER_CONFIG).write_text(json.dumps(dict(config), indent=1, default=str))


def load_adapter(hf: nn.Module, folder: Path) -> None:
    """Takes the adapters of a folder. Raises ModelError naming tensors that are missing, unknown or misshapen."""
    try:
        tensors = load_file(folder / ADAPTER_FILE)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"adapter {folder}: {ADAPTER_FILE} cannot be read: {error}") from error
    take_adapter(hf, tensors, what=f"adapter {folder}")


@torch.no_grad()
def take_adapter(hf: nn.Module, tensors: Mapping[str, Tensor], *, what: str) -> None:
    """Copies tensors under peft's names into the model's adapters, each rank its part."""
    targets = {peft_name(name): weight for name, weight in hf.named_parameters() if is_adapter_weight(name)}
    shapes = {name: tuple(weight.shape) for name, weight in targets.items()}
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if shapes != found:
        wrong = sorted(name for name in shapes.keys() | found.keys() if shapes.get(name) != found.get(name))
        raise ModelError(
            f"{what}: {len(wrong)} tensors are not those of model.lora (rank, targets), such as {wrong[0]}: "
            f"{found.get(wrong[0], 'missing')} for {shapes.get(wrong[0], 'none')}; take the settings that made it"
        )
    for name, weight in targets.items():
        _fill(weight, tensors[name])


@contextmanager
def adapters_off(hf: nn.Module) -> Iterator[None]:
    """Within the block the model is the one that it was before it got adapters."""
    layers = [module for module in hf.modules() if isinstance(module, LoraLayer)]
    for layer in layers:
        layer._disable_adapters = True
    try:
        yield
    finally:
        for layer in layers:
            layer._disable_adapters = False


@contextmanager
def adapters_dropping(hf: nn.Module) -> Iterator[None]:
    """Within the block dropout on the adapters' inputs is on, where they have any."""
    drops = [
        drop
        for module in hf.modules()
        if isinstance(module, LoraLayer)
        for drop in module.lora_dropout.values()
        if isinstance(drop, nn.Dropout)
    ]
    for drop in drops:
        drop.training = True
    try:
        yield
    finally:
        for drop in drops:
            drop.training = False


def _linear_maps(hf: Any, modules: list[nn.Module]) -> list[str]:
    """Names of the linear maps within `modules`, the head over the vocabulary left out."""
    head = hf.get_output_embeddings()
    inside = {id(each) for module in modules for each in module.modules()}
    return [
        name
        for name, module in hf.named_modules()
        if id(module) in inside and isinstance(module, nn.Linear) and module is not head
    ]


def _peft_config(config: LoraConfig, names: list[str]) -> PeftConfig:
    # peft says that alpha is an integer and only ever divides by the rank.
    alpha: Any = config.alpha
    return PeftConfig(r=config.rank, lora_alpha=alpha, lora_dropout=config.dropout, target_modules=names, bias="none")


def _fill(weight: nn.Parameter, full: Tensor) -> None:
    """`full`, or this rank's rows of it, into a parameter."""
    local_part(weight).copy_(full[rows_of(weight)])
