"""Runs every benchmark and writes the table of docs/benchmarks.md. Quote ratios: seconds depend on the machine."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs" / "benchmarks.md"

LARGE_IMAGES = ["--image-px", "448", "--prompts", "4", "--new-tokens", "16"]
GRPO_STEPS = {
    "16 prompts x 8, 224 px, 64 new tokens": ["--image-px", "224", "--prompts", "16", "--new-tokens", "64"],
    "4 prompts x 8, 448 px, 16 new tokens": LARGE_IMAGES,
    "the same, vision frozen": [*LARGE_IMAGES, "--freeze", "vision"],
    "the same, frozen, images seen before": [*LARGE_IMAGES, "--freeze", "vision", "--seen"],
    "text only, 8 prompts x 16, 128 new tokens": [
        *("--image-px", "0", "--prompts", "8", "--group", "16", "--new-tokens", "128"),
    ],
}

HEADER = """# Benchmarks

`make bench` writes this page. Quote its ratios, not its seconds: those depend on the machine and on what else runs.

Each row is one run of `tests/benchmarks/grpo_step.py`: one GRPO step (sampling, rewards, update) of mmrl and of TRL's
`GRPOTrainer` on the same 16.5 M parameter Qwen2.5-VL, images, batch and response lengths, in float32 on two threads,
each in processes of its own, turn about. TRL counts at its fastest micro-batch size.

"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", default="3", help="timed steps of each process")
    parser.add_argument("--trl-micro-batches", nargs="*", default=[], help="only these, not 8, 32 and all rows")
    parser.add_argument("--json", action="store_true", help="print the GRPO reports instead of writing the page")
    options = parser.parse_args()
    more = ["--trl-micro-batches", *options.trl_micro_batches] if options.trl_micro_batches else []
    reports = {name: run([*arguments, *more], options.steps) for name, arguments in GRPO_STEPS.items()}
    if options.json:
        print(json.dumps(reports, indent=1))
    else:
        parts = (shares, growth, offline, engines, rewards, ingest, job_database, console, machine)
        DOCS.write_text(HEADER + table(reports) + "".join(part() for part in parts))
        print(f"wrote {DOCS}", file=sys.stderr)


def run(arguments: list[str], steps: str) -> dict:
    command = [sys.executable, str(HERE / "grpo_step.py"), *arguments, "--steps", steps, "--json"]
    print(" ".join(command), file=sys.stderr)
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def table(reports: dict[str, dict]) -> str:
    lines = ["| work | mmrl, s | TRL, s | times as fast | memory of TRL's |", "| --- | --- | --- | --- | --- |"]
    for name, report in reports.items():
        best = str(report["trl_best_micro_batch"])
        seconds = f"{report['mmrl_seconds']:.2f} | {report['trl_seconds'][best]:.2f} (micro-batch {best})"
        lines.append(f"| {name} | {seconds} | {report['speedup']:.2f} | {report['memory_ratio']:.0%} |")
    return "\n".join(lines) + "\n"


def shares() -> str:
    """How near update and sampling come to the machine's matrix products."""
    title = "The first row's update and sampling as shares of the matrix peak (`tests/benchmarks/update_share.py`):"
    return printed(title, "update_share.py")


def growth() -> str:
    """Time and memory against images, group size, response length and model size, with their curves."""
    title = "How a step grows (`tests/benchmarks/growth.py`; 1 is as fast as its operations):"
    curves = DOCS.with_name("growth.svg")
    return printed(title, "growth.py", "--plot", str(curves)) + f"\n![Growth of time and memory]({curves.name})\n"


def offline() -> str:
    """A DPO step beside TRL's, and SFT packed beside padded."""
    title = "A DPO step on 4 pairs with a 448 px image, beside TRL's `DPOTrainer` (`tests/benchmarks/dpo_step.py`):"
    dpo = printed(title, "dpo_step.py")
    title = "An SFT step on samples of mixed lengths, packed and padded (`tests/benchmarks/sft_packing.py`):"
    return dpo + printed(title, "sft_packing.py")


def engines() -> str:
    """vLLM beside `hf`, what an update of its weights takes, and what of a step no worker works in."""
    sampling = printed("Tokens a second of the two rollout engines (`tests/benchmarks/sampling.py`):", "sampling.py")
    title = "An update of vLLM's weights beside its bare reload (`tests/benchmarks/weight_sync.py`):"
    sync = printed(title, "weight_sync.py")
    title = "A step on two FSDP2 ranks with vLLM (`tests/benchmarks/controller_overhead.py`):"
    return sampling + sync + printed(title, "controller_overhead.py")


def rewards() -> str:
    """The reward runner beside bare Pebble."""
    title = "A reward function of 1 ms of processor time, on two workers (`tests/benchmarks/reward_runner.py`):"
    return printed(title, "reward_runner.py", "--responses", "4000")


def ingest() -> str:
    """Reading a data set beside a loop that only decodes, and beside `datasets`."""
    return printed("20,000 rows with a PNG of 256x256 each (`tests/benchmarks/ingest.py`):", "ingest.py")


def job_database() -> str:
    """Claims a second on both engines, what a fleet asks of PostgreSQL, what a worker adds to a job and to a run."""
    title = "Claims of jobs a second, all workers together (`tests/benchmarks/claims.py`):"
    claims = printed(title, "claims.py")
    fleet = printed("A simulated fleet on PostgreSQL (`tests/benchmarks/fleet.py`):", "fleet.py")
    title = "200 jobs through one worker, beside the same processes by hand (`tests/benchmarks/worker_overhead.py`):"
    overhead = printed(title, "worker_overhead.py")
    title = "Indexing a second of a run with 1,000 metrics and 2,000 samples (`tests/benchmarks/indexer.py`):"
    return claims + fleet + overhead + printed(title, "indexer.py")


def console() -> str:
    """Server time and memory of the console's pages on a large home."""
    title = "Pages of the console, 1,000 runs and 1,000,000 samples indexed (`tests/benchmarks/console_pages.py`):"
    pages = printed(title, "console_pages.py")
    title = "Responses and Compare, 1,000,000 responses on disk (`tests/benchmarks/console_samples.py`):"
    return pages + printed(title, "console_samples.py")


def printed(title: str, script: str, *arguments: str) -> str:
    """What a benchmark prints, under a title."""
    command = [sys.executable, str(HERE / script), *arguments]
    print(" ".join(command), file=sys.stderr)
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return f"\n{title}\n\n```\n{text}```\n"


def machine() -> str:
    return f"\nMeasured {datetime.now(UTC):%Y-%m-%d} on {os.cpu_count()} cores of {platform.machine()}.\n"


if __name__ == "__main__":
    main()
