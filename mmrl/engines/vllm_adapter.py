"""An adapter in vLLM: each version under an id and a name of its own, and nothing cached of the one before.

vLLM knows an adapter by its id and takes it from a folder once. The same id or name again would give the old one, so
every update is a new request; the old one is removed, and all caches with it.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from torch import Tensor

from mmrl.config.lora import LoraConfig
from mmrl.engines.base import NamedWeights
from mmrl.engines.load_weights import WeightFaults
from mmrl.engines.vllm_weights import drop_caches
from mmrl.errors import ModelError
from mmrl.models.lora import adapter_config, is_adapter_weight, peft_name, save_adapter
from mmrl.models.policy import PolicyModel

_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""What vLLM takes as `max_lora_rank`."""


def adapter_arguments(lora: LoraConfig) -> dict[str, Any]:
    """Of `vllm.LLM`, for an engine that takes adapters."""
    rank = next(rank for rank in _RANKS if rank >= lora.rank)
    return {"enable_lora": True, "max_lora_rank": rank, "max_loras": 1, "max_cpu_loras": 1}


class VllmAdapter:
    """The adapter of one engine. skeleton: the policy with adapters and without weights, which knows their shapes.

    request: what vLLM's requests carry; None while the adapter is that of a begin, which adds nothing.
    """

    def __init__(self, skeleton: PolicyModel) -> None:
        self._config = adapter_config(skeleton.hf, str(skeleton.hf.config._name_or_path))
        self._shapes = {
            peft_name(name): tuple(weight.shape)
            for name, weight in skeleton.hf.named_parameters()
            if is_adapter_weight(name)
        }
        self._folder = Path(mkdtemp(prefix="mmrl-adapter-"))
        self._next_id = 1
        self.request: Any = None

    def update(self, llm: Any, weights: NamedWeights, version: int) -> None:
        """Takes every tensor of the adapter, as `version`, and drops what came from the one before.

        Raises ModelError for tensors that are missing, unknown or misshapen, and where vLLM does not take them.
        """
        from vllm.lora.request import LoRARequest

        faults, state = WeightFaults(self._shapes), dict[str, Tensor]()
        for name, weight in weights:
            if faults.fits(name, weight.shape):
                state[name] = weight
        faults.raise_if_any()
        folder = self._folder / f"{self._next_id}"
        save_adapter(state, self._config, folder)
        request = LoRARequest(f"policy-{version}-{self._next_id}", self._next_id, str(folder))
        self._next_id += 1
        engine, before = llm.llm_engine, self.request
        if before is not None:
            engine.remove_lora(before.lora_int_id)
        self.request = None
        if not engine.add_lora(request) or request.lora_int_id not in engine.list_loras():
            raise ModelError(f"vllm did not take the adapter of version {version}; its log says why")
        drop_caches(llm)
        self.request = request
        if before is not None:
            shutil.rmtree(before.lora_path, ignore_errors=True)

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
