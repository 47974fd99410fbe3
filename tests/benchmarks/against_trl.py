"""mmrl against one of TRL's trainers: each in processes of its own, turn about, TRL at its fastest micro-batch size."""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path


def compare(options: argparse.Namespace, sizes: Sequence[int], run_side: Callable[[str, str, int], dict]) -> dict:
    """The report of mmrl and of TRL with each of the micro-batch sizes. run_side: (folder, side, micro-batch)."""
    with tempfile.TemporaryDirectory() as folder:
        build_model(options, Path(folder))
        mmrl, trl = [], {}
        for size in sizes:
            mmrl.append(run_side(folder, "mmrl", 0))
            trl[size] = run_side(folder, "trl", size)
    best = min(trl, key=lambda size: trl[size]["seconds"])
    seconds = statistics.median(value for result in mmrl for value in result["all_seconds"])
    memory = max(result["peak_bytes"] for result in mmrl)
    return {
        "setting": {key: value for key, value in vars(options).items() if key not in ("side", "folder", "json")},
        "mmrl_seconds": seconds,
        "mmrl_parts": mmrl[-1].get("parts", {}),
        "mmrl_peak_bytes": memory,
        "trl_seconds": {str(size): result["seconds"] for size, result in trl.items()},
        "trl_peak_bytes": {str(size): result["peak_bytes"] for size, result in trl.items()},
        "trl_best_micro_batch": best,
        "speedup": trl[best]["seconds"] / seconds,
        "cpu_speedup": trl[best]["cpu_seconds"] / statistics.median(result["cpu_seconds"] for result in mmrl),
        "memory_ratio": memory / trl[best]["peak_bytes"],
    }


def as_text(report: dict) -> str:
    best = str(report["trl_best_micro_batch"])
    return "\n".join(
        [
            f"mmrl {report['mmrl_seconds']:.2f} s a step, {report['mmrl_peak_bytes'] / 2**30:.2f} GiB",
            f"TRL  {report['trl_seconds'][best]:.2f} s a step, {report['trl_peak_bytes'][best] / 2**30:.2f} GiB "
            f"(micro-batch {best}, its fastest)",
            f"mmrl is {report['speedup']:.2f} times as fast ({report['cpu_speedup']:.2f} by processor time) with "
            f"{report['memory_ratio']:.2f} times the memory",
        ]
    )


def child(program: str, options: argparse.Namespace, folder: str, arguments: Sequence[str]) -> dict:
    """Runs one side in a process of its own and reads its result line."""
    environment = os.environ | {
        "OMP_NUM_THREADS": str(options.threads),
        "HF_HUB_OFFLINE": "1",
        "MMRL_HOME": f"{folder}/home",
        "TOKENIZERS_PARALLELISM": "false",
    }
    command = [sys.executable, program, "--folder", folder, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if done.returncode or not lines:
        raise SystemExit(f"{' '.join(arguments)} failed ({done.returncode}):\n{done.stderr[-4000:]}")
    return json.loads(lines[-1].removeprefix("RESULT "))


def settings_of(options: argparse.Namespace, names: Sequence[str]) -> list[str]:
    """The options of these names as arguments of a command."""
    return [word for name in names for word in (f"--{name.replace('_', '-')}", str(getattr(options, name)))]


def build_model(options: argparse.Namespace, folder: Path) -> None:
    from mmrl.models.tiny import build_tiny_qwen2_5_vl

    build_tiny_qwen2_5_vl(folder / "model", size=options.model, seed=0)


class Clock:
    """Seconds, and processor seconds of all threads, of each step; the first one is left out."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.cpu_seconds: list[float] = []

    def start(self) -> None:
        self._began = time.perf_counter(), time.process_time()

    def stop(self) -> None:
        self.seconds.append(time.perf_counter() - self._began[0])
        self.cpu_seconds.append(time.process_time() - self._began[1])


def timed(result: dict, clock: Clock) -> dict:
    return result | {
        "seconds": statistics.median(clock.seconds[1:]),
        "all_seconds": clock.seconds[1:],
        "cpu_seconds": statistics.median(clock.cpu_seconds[1:]),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
