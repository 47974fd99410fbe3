"""Which devices there are: processor, memory, disk at MMRL_HOME, GPUs."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path
from typing import Any

import psutil

from mmrl.cli.checks import Check
from mmrl.config.base import home

GIB = 2**30
_FEATURES = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "bf16")
_WARN_FREE_BYTES, _FAIL_FREE_BYTES = 10 * GIB, GIB // 4
_WARN_MEMORY_BYTES = 4 * GIB


def check_machine(torch: Any | None) -> list[Check]:
    """`torch` is the imported module, None where it cannot be imported."""
    gpus = [] if torch is None else check_gpus(torch)
    return [check_cpu(), check_memory(), check_disk(home()), *gpus]


def check_cpu() -> Check:
    features = cpu_features()
    text = f"{_cpu_name()}, {_count(usable_cores(), 'core')} usable"
    return Check("machine", "cpu", "ok", f"{text}, {' '.join(sorted(features))}" if features else text)


def check_memory() -> Check:
    total, free = memory_bytes()
    text = f"{total / GIB:.1f} GiB, {free / GIB:.1f} GiB free"
    if free >= _WARN_MEMORY_BYTES:
        return Check("machine", "memory", "ok", text)
    return Check("machine", "memory", "warn", text, "end other programs, or train a small model")


def check_disk(folder: Path) -> Check:
    """Free space where mmrl keeps its state, and whether it may write there."""
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(existing).free
    text = f"{folder}: {free / GIB:.1f} GiB free"
    fix = "free some space, or set MMRL_HOME to a folder on another disk"
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return Check("machine", "disk", "fail", f"{folder} cannot be written", "set MMRL_HOME to a folder of yours")
    if free < _FAIL_FREE_BYTES:
        return Check("machine", "disk", "fail", text, fix)
    return Check("machine", "disk", "ok" if free >= _WARN_FREE_BYTES else "warn", text, _fix_below(free, fix))


def check_gpus(torch: Any) -> list[Check]:
    """Each GPU that torch can use with its memory, or why there is none."""
    if torch.cuda.is_available():
        return [_gpu(torch, index) for index in range(torch.cuda.device_count())]
    if torch.version.cuda is None and getattr(torch.version, "hip", None) is None:
        reason = "torch is built for the CPU only"
    elif os.environ.get("CUDA_VISIBLE_DEVICES", "unset") in ("", "-1"):
        reason = "CUDA_VISIBLE_DEVICES hides them"
    else:
        reason = f"torch is built for CUDA {torch.version.cuda}, but finds no device or driver"
    return [Check("machine", "gpu", "ok", f"none ({reason}); runs use the CPU")]


def usable_cores() -> int:
    """Cores that this process may run on; fewer than the machine has, in a container or under taskset."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _read("/sys/fs/cgroup/cpu.max").split()
    if len(quota) == 2 and quota[0].isdecimal():
        cores = min(cores, max(1, round(int(quota[0]) / int(quota[1]))))
    return cores


def cpu_features() -> set[str]:
    """Those of the processor's features that decide how fast it multiplies matrices; empty where it cannot be told."""
    flags = {word for line in _cpu_info() if line.startswith(("flags", "Features")) for word in line.split()}
    return flags.intersection(_FEATURES)


def memory_bytes() -> tuple[int, int]:
    """Total and free memory, within the limit of the container if there is one."""
    memory = psutil.virtual_memory()
    limit, used = _read("/sys/fs/cgroup/memory.max"), _read("/sys/fs/cgroup/memory.current")
    if not (limit.isdecimal() and used.isdecimal()):
        return memory.total, memory.available
    return min(memory.total, int(limit)), max(0, min(memory.available, int(limit) - int(used)))


def _gpu(torch: Any, index: int) -> Check:
    properties = torch.cuda.get_device_properties(index)
    capability = f"compute {properties.major}.{properties.minor}"
    text = f"{properties.name}, {properties.total_memory / GIB:.0f} GiB, {capability}"
    return Check("machine", f"gpu {index}", "ok", text)


def _cpu_name() -> str:
    names = [line.partition(":")[2].strip() for line in _cpu_info() if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _cpu_info() -> list[str]:
    return _read("/proc/cpuinfo").splitlines()


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _fix_below(free: int, fix: str) -> str | None:
    return fix if free < _WARN_FREE_BYTES else None


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
