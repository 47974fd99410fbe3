"""How much of a step on two workers is spent outside of them: sending, joining, rewards, and the loop itself.

The run is real: `mmrl train` on a local Ray, two FSDP2 ranks of the small model, digits of 224x224 pixels. Each worker
logs how long its calls took; what of a step's time no worker was in a call is the controller's.

    python tests/benchmarks/controller_overhead.py --json
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

CALL = re.compile(r"rank \d+: \w+\.(\w+) took ([0-9.]+) s")
WARM_UP_STEPS = 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("hf", "vllm"), default="vllm")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MMRL_HOME"] = f"{folder}/home"
        report = measure(options, Path(folder))
    if options.json:
        print(json.dumps(report))
    else:
        print(
            f"step {report['step_s']:.2f} s, in workers {report['in_workers_s']:.2f} s: "
            f"{report['overhead']:.1%} is the controller's"
        )


def measure(options: argparse.Namespace, folder: Path) -> dict:
    from mmrl.config import RunConfig, dump_yaml
    from mmrl.data.digits import build_digits, digit_texts
    from mmrl.models.tiny import build_tiny_qwen2_5_vl
    from mmrl.runs.reader import RunReader

    build_digits()
    model = build_tiny_qwen2_5_vl(folder / "model", size="small", sentences=digit_texts(), seed=0)
    config = RunConfig.model_validate(
        {
            "name": "controller-overhead",
            "model": {"path": str(model), "dtype": "float32"},
            "data": {"train": "digits-which@train", "max_prompt_tokens": 256, "image": {"min_pixels": 224 * 224}},
            "algorithm": {"type": "grpo", "group_size": 8},
            "reward": [{"type": "length", "max_tokens": 64}],
            "rollout": {"engine": options.engine, "prompts_per_step": options.prompts, "max_response_tokens": 32},
            "train": {"steps": options.steps + WARM_UP_STEPS, "mini_batches": 2},
            "eval": {"every": 0, "at_start": False},
            "checkpoint": {"every": 0},
            "placement": {"executor": "ray", "pools": {"main": {"workers": 2}}},
        }
    )
    (folder / "run.yaml").write_text(dump_yaml(config))
    command = [sys.executable, "-m", "mmrl.cli.app", "-vv", "train", "run.yaml", "--run-dir", "run"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    logs = sorted((folder / "run").glob("attempt-1/logs/worker-*.log"))
    steps = [row.values["timing_s/step"] for row in RunReader(folder / "run").metrics() if row.step > WARM_UP_STEPS]
    in_workers = busy_seconds([calls_of(path) for path in logs])
    return {
        "engine": options.engine,
        "steps": len(steps),
        "step_s": sum(steps) / len(steps),
        "in_workers_s": in_workers / len(steps),
        "overhead": 1 - in_workers / sum(steps),
    }


def calls_of(log: Path) -> list[tuple[str, float]]:
    """Method and seconds of each call of a rank in the steps that count, in order; a checkpoint is part of none."""
    calls = [(name, float(seconds)) for name, seconds in CALL.findall(log.read_text())]
    begins = [place for place, (name, _) in enumerate(calls) if name == "begin_step"]
    return [call for call in calls[begins[WARM_UP_STEPS] + 1 :] if call[0] not in ("save", "close", "begin_step")]


def busy_seconds(ranks: list[list[tuple[str, float]]]) -> float:
    """A call of all ranks takes as long as its slowest."""
    shared = [list(zip(*same, strict=True)) for same in zip(*ranks, strict=False)]
    return sum(max(seconds) for _, seconds in shared)


if __name__ == "__main__":
    main()
