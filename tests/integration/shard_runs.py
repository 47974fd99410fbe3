"""Starts `shard_ranks.py` on some ranks and reads its report."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).parent / "shard_ranks.py"
TIMEOUT_S = 420


def run_ranks(
    num_ranks: int,
    *,
    models: Mapping[str, Path],
    scratch: Path,
    cases: Sequence[Mapping[str, Any]],
    device: str = "cpu",
) -> dict[str, dict[str, Any]]:
    """Case -> what differs, the largest over ranks. Fails with what the ranks said if one of them does."""
    scratch.mkdir(parents=True, exist_ok=True)
    settings = scratch / f"settings-{num_ranks}.json"
    paths = {name: str(path) for name, path in models.items()}
    settings.write_text(json.dumps({"models": paths, "scratch": str(scratch), "cases": list(cases), "device": device}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": str(num_ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    logs = [scratch / f"rank-{rank}-of-{num_ranks}.log" for rank in range(num_ranks)]
    processes = []
    for rank, log in enumerate(logs):
        with log.open("w") as file:
            processes.append(
                subprocess.Popen(
                    [sys.executable, str(PROGRAM), str(settings)],
                    env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                    stdout=file,
                    stderr=subprocess.STDOUT,
                )
            )
    try:
        codes = [process.wait(timeout=TIMEOUT_S) for process in processes]
    finally:
        for process in processes:
            process.kill()
    said = "\n".join(f"{log.name}: {log.read_text()[-3000:]}" for log in logs)
    assert codes == [0] * num_ranks, said
    report: dict[str, dict[str, Any]] = json.loads((scratch / f"report-{num_ranks}.json").read_text())
    return report
