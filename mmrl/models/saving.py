"""A policy as a model folder that transformers and serving engines load, and its weights under checkpoint names."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from transformers.core_model_loading import revert_weight_conversion

from mmrl.models.lora import has_adapter, is_adapter_weight, merged_state, merged_weight, plain_name
from mmrl.models.policy_model import PolicyModel
from mmrl.models.quiet import without_progress_bars


def save_policy(policy: PolicyModel, folder: Path, *, dtype: torch.dtype | None = None) -> None:
    """Weights under the names that they were loaded from, configuration, tokenizer, template and image processor.

    dtype: of the saved weights; if not given the one in which they are trained, which loses nothing.
    """
    save_weights(policy, folder, policy.hf.state_dict(), dtype=dtype)
    _save_companions(policy, folder)


def save_weights(
    policy: PolicyModel, folder: Path, state: Mapping[str, Tensor], *, dtype: torch.dtype | None = None
) -> None:
    """The weights of `state`, which may be a copy of the model's own of some time ago, and the configuration."""
    dtype = policy.hf.dtype if dtype is None else dtype
    plain = merged_state(policy.hf, state) if has_adapter(policy.hf) else state
    weights = {name: tensor.detach().to(dtype) for name, tensor in plain.items()}
    with without_progress_bars():
        policy.hf.save_pretrained(folder, state_dict=weights)
    save_settings(policy, folder, dtype)


def save_settings(policy: PolicyModel, folder: Path, dtype: torch.dtype) -> None:
    """The configuration, for weights of `dtype`, and the special ids of sampling."""
    with without_progress_bars():
        _config_in(dtype, policy.hf.config).save_pretrained(folder)
        policy.hf.generation_config.save_pretrained(folder)


def companion_files(policy: PolicyModel) -> dict[str, bytes]:
    """Path in the folder -> content of what lies beside weights and configuration: tokenizer, template, processor."""
    return files_saved_by(lambda folder: _save_companions(policy, folder))


def files_saved_by(save: Callable[[Path], Any]) -> dict[str, bytes]:
    """Path in the folder -> content of what `save` writes into a folder."""
    with TemporaryDirectory(prefix="mmrl-model-") as folder:
        root = Path(folder)
        save(root)
        files = (path for path in root.rglob("*") if path.is_file())
        return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


def _save_companions(policy: PolicyModel, folder: Path) -> None:
    with without_progress_bars():
        _forget_origin(policy.prompts.tokenizer)
        policy.prompts.processor.save_pretrained(folder)


def _config_in(dtype: torch.dtype, config: Any) -> Any:
    """A copy that names `dtype`; transformers would name that of the weights in memory."""
    config = copy.deepcopy(config)
    for part in (config, *(getattr(config, name) for name in config.sub_configs)):
        part.dtype = dtype
    return config


def _forget_origin(tokenizer: Any) -> None:
    """transformers keeps how a tokenizer was loaded among its settings, and would save that with them."""
    for name in ("is_local", "local_files_only"):
        tokenizer.init_kwargs.pop(name, None)


def named_weights(policy: PolicyModel) -> Iterator[tuple[str, Tensor]]:
    """Checkpoint name and tensor (detached, not copied) of each weight, tied ones once.

    A weight that is divided among ranks is put together when it comes, so all ranks must take every one; each is freed
    as soon as its taker lets go of it. Adapters are added in.
    """
    names = checkpoint_names(policy.hf)
    modules = dict(policy.hf.named_modules())
    for name, weight in policy.hf.named_parameters():
        if name in names:
            yield names[name], merged_weight(modules, name, weight, policy.device)


def checkpoint_names(hf: Any) -> dict[str, str]:
    """The name of each parameter in a saved checkpoint, by its name in the module; adapters have none there."""
    own = [name for name, _ in hf.named_parameters() if not is_adapter_weight(name)]
    numbered = {plain_name(name): torch.tensor(index) for index, name in enumerate(own)}
    return {own[int(number)]: saved for saved, number in revert_weight_conversion(hf, numbered).items()}
