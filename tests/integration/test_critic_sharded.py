"""The critic under FSDP2 on two ranks is the critic of one process."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from mmrl.models.tiny import build_tiny


def test_two_ranks_give_the_values_gradient_and_step_of_one(tmp_path: Path) -> None:
    model = build_tiny("qwen2_5_vl", tmp_path / "model", seed=1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    program = str(Path(__file__).parent / "critic_ranks.py")
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, program, str(model), str(tmp_path)],
            env={**os.environ, **shared, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [rank.communicate(timeout=240) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], outputs[0][1][-3000:] + outputs[1][1][-3000:]
    report = json.loads(outputs[0][0].strip().splitlines()[-1])
    assert report["values"] < 1e-5
    assert report["gradient"] < 1e-5
    assert report["weights"] < 1e-5
