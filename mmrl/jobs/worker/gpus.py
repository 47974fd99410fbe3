"""The GPUs of this machine by NVML: which there are, and which processes still hold memory on them."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from mmrl.errors import ConfigError

SIMULATED_VARIABLE = "MMRL_SIMULATED_GPUS"
"""A JSON file of GPU UUID -> process ids that hold memory on it, in place of the machine's: for rehearsals."""


class GpuProbe(Protocol):
    def uuids(self) -> tuple[str, ...]:
        """The GPUs of this machine, in their order."""
        ...

    def holders(self, uuids: Sequence[str]) -> dict[str, tuple[int, ...]]:
        """GPU -> the processes that have memory on it; GPUs that nobody holds are left out."""
        ...


def make_probe() -> GpuProbe:
    simulated = os.environ.get(SIMULATED_VARIABLE)
    return _SimulatedGpus(Path(simulated)) if simulated else _Nvml()


def chosen_gpus(text: str, probe: GpuProbe) -> tuple[str, ...]:
    """The UUIDs that `all`, `none`, or a list of indices or UUIDs means. Raises ConfigError for others."""
    here = probe.uuids()
    if text in ("all", "none"):
        return here if text == "all" else ()
    found = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        uuid = here[int(word)] if word.isdecimal() and int(word) < len(here) else word
        if uuid not in here:
            known = ", ".join(f"{index} ({name})" for index, name in enumerate(here)) or "this machine has none"
            raise ConfigError(f"--gpus: no GPU {word!r}; there are: {known}")
        found.append(uuid)
    return tuple(dict.fromkeys(found))


class _Nvml:
    """Without a driver or its Python package there are no GPUs."""

    def uuids(self) -> tuple[str, ...]:
        with _nvml() as nvml:
            if nvml is None:
                return ()
            handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
            return tuple(_text(nvml.nvmlDeviceGetUUID(handle)) for handle in handles)

    def holders(self, uuids: Sequence[str]) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        with _nvml() as nvml:
            for uuid in uuids if nvml is not None else ():
                handle = nvml.nvmlDeviceGetHandleByUUID(uuid.encode())
                pids = tuple(entry.pid for entry in nvml.nvmlDeviceGetComputeRunningProcesses(handle))
                if pids:
                    found[uuid] = pids
        return found


class _SimulatedGpus:
    def __init__(self, path: Path) -> None:
        self._path = path

    def uuids(self) -> tuple[str, ...]:
        return tuple(self._read())

    def holders(self, uuids: Sequence[str]) -> dict[str, tuple[int, ...]]:
        return {uuid: tuple(pids) for uuid, pids in self._read().items() if pids and uuid in uuids}

    def _read(self) -> dict[str, list[int]]:
        table: dict[str, list[int]] = json.loads(self._path.read_text())
        return table


@contextlib.contextmanager
def _nvml() -> Iterator[Any]:
    """The started library; None where it is not there."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
