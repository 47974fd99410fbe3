"""FLOP/s of the update and of sampling as shares of the machine's matrix peak, which is measured in the same run.

Operations are counted by `mmrl.models.flops`: matrix products and attention of the tokens that were asked for, none for
padding. The peak is measured before, between and after the parts of every step; a share is that of the median step.

    python tests/benchmarks/update_share.py --image-px 224 --prompts 16 --group 8 --new-tokens 64 --json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--image-px", type=int, default=224)
    parser.add_argument("--images", type=int, default=1)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--model", choices=["tiny", "small"], default="small")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    report = measure(options)
    print(json.dumps(report) if options.json else as_text(report))


def measure(options: argparse.Namespace) -> dict:
    import torch
    from matrix_peak import MatrixPeak
    from one_step import Stepper, random_images

    from mmrl.models.tiny import build_tiny_qwen2_5_vl

    torch.set_num_threads(options.threads)
    peak = MatrixPeak()
    with tempfile.TemporaryDirectory() as folder:
        build_tiny_qwen2_5_vl(folder, size=options.model, seed=0)
        stepper = Stepper(
            folder,
            group=options.group,
            new_tokens=options.new_tokens,
            total_steps=options.steps + 1,
            wait=peak.measure,
        )
        steps = []
        for number in range(options.steps + 1):
            images = random_images(number, prompts=options.prompts, images=options.images, px=options.image_px)
            peak.measure()
            steps.append(stepper.step(number, images))
        peak.measure()
    limit = statistics.median(peak.seen)
    timed = steps[1:]
    return {
        "matrix_peak_gflops": limit / 1e9,
        "matrix_peak_range_gflops": [min(peak.seen) / 1e9, max(peak.seen) / 1e9],
        "update_share": statistics.median(step.update_flops / step.update_s for step in timed) / limit,
        "rollout_share": statistics.median(step.rollout_flops / step.rollout_s for step in timed) / limit,
        "step_share": statistics.median(step.flops / step.seconds for step in timed) / limit,
        "update_gflop": timed[0].update_flops / 1e9,
        "rollout_gflop": timed[0].rollout_flops / 1e9,
        "update_s": [step.update_s for step in timed],
        "rollout_s": [step.rollout_s for step in timed],
    }


def as_text(report: dict) -> str:
    low, high = report["matrix_peak_range_gflops"]
    return (
        f"matrix peak {report['matrix_peak_gflops']:.0f} GFLOP/s ({low:.0f} to {high:.0f})\n"
        f"update   {report['update_share']:.0%} of it\n"
        f"sampling {report['rollout_share']:.0%} of it\n"
        f"step     {report['step_share']:.0%} of it"
    )


if __name__ == "__main__":
    main()
