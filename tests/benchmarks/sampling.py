"""Tokens a second of the rollout engines `vllm` and `hf` on the same prompts, each in a process of its own, turn about.

The same model, images and seeds, so the same responses. `vllm` at the sizes that a run would give it.

    python tests/benchmarks/sampling.py --json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ENGINES = ("hf", "vllm")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="small")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--px", type=int, default=224, help="side of the image of each prompt; 0 for text only")
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.engine:
        print("RESULT " + json.dumps(measure(options)))
        return
    report = compare(options)
    print(json.dumps(report) if options.json else as_text(report))


def compare(options: argparse.Namespace) -> dict:
    from mmrl.models.tiny import build_tiny_qwen2_5_vl

    with tempfile.TemporaryDirectory() as folder:
        build_tiny_qwen2_5_vl(folder, size=options.model, seed=0)
        report: dict = {engine: child(engine, folder, options) for engine in ENGINES}
    report["ratio"] = report["vllm"]["tokens_per_s"] / report["hf"]["tokens_per_s"]
    return report


def child(engine: str, folder: str, options: argparse.Namespace) -> dict:
    names = ("prompts", "group", "px", "new_tokens", "turns", "threads")
    command = [sys.executable, __file__, "--engine", engine, "--folder", folder]
    for name in names:
        command += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    environment = os.environ | {"OMP_NUM_THREADS": str(options.threads), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if done.returncode or not lines:
        raise SystemExit(f"engine {engine} failed ({done.returncode})")
    return json.loads(lines[-1].removeprefix("RESULT "))


def measure(options: argparse.Namespace) -> dict:
    """Medians over the turns, each with images that were not seen before, after one that does not count."""
    import torch
    from one_step import random_images

    from mmrl.config import RunConfig
    from mmrl.data.images import ImageStore
    from mmrl.engines.base import SamplingParams
    from mmrl.engines.registry import build_rollout
    from mmrl.models.policy import load_policy
    from mmrl.types import ImagePart, Message, Sample, TextPart

    torch.set_num_threads(options.threads)
    store = ImageStore(Path(options.folder) / "images")
    model = {"path": options.folder, "dtype": "float32", "device": "cpu"}
    rollout = {"engine": options.engine, "max_response_tokens": options.new_tokens}
    config = RunConfig.model_validate({"name": "s", "model": model, "data": {"train": "none"}, "rollout": rollout})
    policy = load_policy(config.model, config.data.image, store=store, trainable=False)
    turns = []
    for turn in range(options.turns + 1):
        pictures = random_images(turn, prompts=options.prompts, images=1, px=options.px)
        contents = [[ImagePart(store.add(image)) for image in images] for images in pictures]
        turns.append(
            [
                Sample(f"{turn}-{index}", (Message("user", (*parts, TextPart(f"What is shown? Say {index} words."))),))
                for index, parts in enumerate(contents)
            ]
        )
    samples = [sample for turn in turns for sample in turn]
    engine = build_rollout(config, policy, samples, model_folder=options.folder)
    params = SamplingParams(options.new_tokens)
    results = []
    for step, own in enumerate(turns):
        engine.generate(own, params, num_responses=options.group, seed=0, step=step)
        results.append(engine.last_stats)
    engine.close()
    timed = [stats for stats in results[1:] if stats is not None]
    seconds = [stats.prepare_s + stats.prefill_s + stats.decode_s for stats in timed]
    return {
        "tokens_per_s": statistics.median(
            stats.response_tokens / spent for stats, spent in zip(timed, seconds, strict=True)
        ),
        "response_tokens": [stats.response_tokens for stats in timed],
        "prepare_s": statistics.median(stats.prepare_s for stats in timed),
        "prefill_s": statistics.median(stats.prefill_s for stats in timed),
        "decode_s": statistics.median(stats.decode_s for stats in timed),
    }


def as_text(report: dict) -> str:
    lines = [
        f"{engine}: {part['tokens_per_s']:.0f} tokens/s; prepare {part['prepare_s']:.2f} s, prefill "
        f"{part['prefill_s']:.2f} s, decode {part['decode_s']:.2f} s"
        for engine, part in report.items()
        if isinstance(part, dict)
    ]
    return "\n".join([*lines, f"vllm gives {report['ratio']:.2f} times the tokens of hf"])


if __name__ == "__main__":
    main()
