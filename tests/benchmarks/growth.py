"""How time and memory of a GRPO step grow with images, group size, response length and model size.

Each point runs in a process of its own. Beside the seconds stands the count of operations: nothing should grow faster
than that, which the exponent tells (1 is as fast as the operations, below 1 slower). `--plot FILE` draws the curves.

    python tests/benchmarks/growth.py --json
    python tests/benchmarks/growth.py --plot docs/growth.svg
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

STEPS = 2


@dataclass(frozen=True)
class Point:
    """One setting: images a prompt of `px` pixels a side, responses a prompt, tokens of each, size of the model."""

    prompts: int = 4
    images: int = 1
    px: int = 112
    group: int = 8
    new_tokens: int = 32
    model: str = "small"


AXES: dict[str, list[Point]] = {
    "images": [Point(images=number, new_tokens=8, group=4) for number in (1, 2, 4, 8)],
    "group": [Point(group=size) for size in (4, 8, 16, 32)],
    "new_tokens": [Point(new_tokens=length) for length in (16, 32, 64, 128)],
    "model": [Point(model=size) for size in ("tiny", "small", "medium")],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--axes", nargs="*", choices=list(AXES), default=list(AXES))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--plot", help="write the curves to this SVG or PNG file")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.point:
        print("RESULT " + json.dumps(run_point(Point(**json.loads(options.point)), options.threads)))
        return
    report = {axis: grow(axis, options.threads) for axis in options.axes}
    if options.plot:
        plot(report, Path(options.plot))
    print(json.dumps(report) if options.json else as_text(report))


def grow(axis: str, threads: int) -> dict:
    """The points of one axis, and how seconds and bytes grow from the first to the last against operations."""
    points = [child(point, threads) | {"value": getattr(point, axis)} for point in AXES[axis]]
    return {
        "points": points,
        "time_exponent": exponent([point["seconds"] for point in points], [point["flops"] for point in points]),
        "memory_exponent": exponent([point["step_bytes"] for point in points], [point["flops"] for point in points]),
    }


def exponent(values: list[float], flops: list[float]) -> float:
    """e of the power law value ~ flops^e through the two ends."""
    return math.log(values[-1] / values[0]) / math.log(flops[-1] / flops[0])


def child(point: Point, threads: int) -> dict:
    command = [sys.executable, __file__, "--point", json.dumps(asdict(point)), "--threads", str(threads)]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if done.returncode or not lines:
        raise SystemExit(f"{point} failed ({done.returncode}):\n{done.stderr[-4000:]}")
    return json.loads(lines[-1].removeprefix("RESULT "))


def run_point(point: Point, threads: int) -> dict:
    """step_bytes: what the steps took beyond the process with its model loaded."""
    import torch
    from one_step import Stepper, random_images

    from mmrl.models.tiny import build_tiny_qwen2_5_vl

    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory() as folder:
        build_tiny_qwen2_5_vl(folder, size=point.model, seed=0)
        stepper = Stepper(folder, group=point.group, new_tokens=point.new_tokens, total_steps=STEPS + 1)
        before = peak_bytes()
        steps = []
        for number in range(STEPS + 1):
            images = random_images(number, prompts=point.prompts, images=point.images, px=point.px)
            steps.append(stepper.step(number, images))
    return {
        "seconds": statistics.median(step.seconds for step in steps[1:]),
        "flops": steps[-1].flops,
        "peak_bytes": peak_bytes(),
        "step_bytes": max(peak_bytes() - before, 1 << 20),
    }


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def as_text(report: dict) -> str:
    lines = ["| axis | value | seconds | GFLOP | GFLOP/s | peak, GiB |", "| --- | --- | --- | --- | --- | --- |"]
    for axis, curve in report.items():
        for point in curve["points"]:
            gflop = point["flops"] / 1e9
            lines.append(
                f"| {axis} | {point['value']} | {point['seconds']:.2f} | {gflop:.0f} | "
                f"{gflop / point['seconds']:.0f} | {point['peak_bytes'] / 2**30:.2f} |"
            )
    lines.append("")
    for axis, curve in report.items():
        lines.append(
            f"{axis}: time grows as operations to the power {curve['time_exponent']:.2f}, "
            f"memory of a step to the power {curve['memory_exponent']:.2f}"
        )
    return "\n".join(lines)


def plot(report: dict, file: Path) -> None:
    """Seconds and bytes of each axis over operations, on logarithmic scales, with a line of slope 1 beside them."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for panel, key, title in zip(panels, ("seconds", "step_bytes"), ("seconds a step", "bytes of a step"), strict=True):
        for axis, curve in report.items():
            points = curve["points"]
            panel.loglog([p["flops"] for p in points], [p[key] for p in points], marker="o", label=axis)
        first = min((point for curve in report.values() for point in curve["points"]), key=lambda p: p["flops"])
        last = max(point["flops"] for curve in report.values() for point in curve["points"])
        panel.loglog(
            [first["flops"], last], [first[key], first[key] * last / first["flops"]], "k--", label="as operations"
        )
        panel.set(xlabel="floating-point operations of a step", title=title)
        panel.legend()
    figure.savefig(file)


if __name__ == "__main__":
    main()
