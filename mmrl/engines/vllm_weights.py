"""New weights into vLLM, tensor by tensor, every one accounted for on both sides.

Names and shapes are checked against the checkpoint's on the way in, and vLLM's own list of what it loaded against its
parameters: vLLM only warns of a parameter that kept its old value. No second copy of the model is made. vLLM holds the
tensors of a layer until it has them all, so the extra memory is that of its largest layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from mmrl.engines.base import NamedWeights
from mmrl.engines.load_weights import WeightFaults
from mmrl.errors import ModelError

_SHOWN = 5


def update_engine(llm: Any, weights: NamedWeights, expected: Mapping[str, torch.Size], dtype: torch.dtype) -> None:
    """Every weight under its checkpoint name into the engine, then all caches of the old ones dropped.

    expected: names and shapes of all. dtype: the engine's. Raises ModelError naming weights that are missing, unknown
    or of another shape, and parameters of the engine that no weight reached; some weights are new by then.
    """
    faults = WeightFaults(expected)
    stale = llm.collective_rpc(_reload, args=(_checked(weights, faults, dtype),))[0]
    drop_caches(llm)
    faults.raise_if_any()
    if stale:
        shown = ", ".join(stale[:_SHOWN]) + (f" and {len(stale) - _SHOWN} more" if len(stale) > _SHOWN else "")
        raise ModelError(
            f"weight update: {len(stale)} parameters of vllm kept their old values, since no weight of the checkpoint "
            f"is theirs: {shown}. This version of vllm builds the model otherwise than the actor; use one that mmrl "
            "was tested with (0.32, 0.33), or rollout.engine: hf"
        )


def drop_caches(llm: Any) -> None:
    """Processed images, keys and values of prompts, and features of images."""
    engine = llm.llm_engine
    engine.reset_mm_cache()
    if not engine.reset_prefix_cache():
        raise ModelError("vllm did not drop its prefix cache: a request is still running; this is a fault of mmrl")
    engine.reset_encoder_cache()


def _checked(weights: NamedWeights, faults: WeightFaults, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    """Those that fit, in the engine's precision."""
    for name, weight in weights:
        if faults.fits(name, weight.shape):
            yield name, weight.detach().to(dtype)


def _reload(worker: Any, weights: Iterator[tuple[str, Tensor]]) -> list[str]:
    """Runs in vLLM's worker. Names, sorted, of the engine's own parameters that were not loaded."""
    runner = worker.model_runner
    model = runner.get_model()
    load_weights, loaded = model.load_weights, set()

    def note(given: Iterator[tuple[str, Tensor]]) -> set[str]:
        nonlocal loaded
        loaded = load_weights(given)
        return loaded

    names = {name for name, _ in model.named_parameters()}
    model.load_weights = note
    try:
        worker.reload_weights(weights_iterator=weights)
    except BaseException:
        _settle(worker, model)
        raise
    finally:
        del model.load_weights
    _pack_tied_heads(model)
    return sorted(names - loaded)


def _settle(worker: Any, model: Any) -> None:
    """Ends a reload that broke off: half-loaded layers would otherwise count their weights twice in the next one."""
    layerwise: Any = import_module("vllm.model_executor.model_loader.reload.layerwise")
    config: Any = import_module("vllm.config")
    with config.set_current_vllm_config(worker.vllm_config):
        layerwise.finalize_layerwise_reload(model, worker.model_config)


def _pack_tied_heads(model: Any) -> None:
    """On the CPU a head multiplies by a packed copy of its weight, and vLLM packs anew only what was loaded by its own
    name. A head that is tied to the embeddings is not, and would answer with the old ones."""
    layers: Any = import_module("vllm.model_executor.layers.vocab_parallel_embedding")
    heads = [module for module in model.modules() if isinstance(module, layers.VocabParallelEmbedding)]
    owners: dict[int, int] = {}
    for module in heads:
        owners[id(module.weight)] = owners.get(id(module.weight), 0) + 1
    for module in heads:
        if hasattr(module, "cpu_linear") and owners[id(module.weight)] > 1:
            module.quant_method.process_weights_after_loading(module)
