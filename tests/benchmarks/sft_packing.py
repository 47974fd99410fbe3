"""Seconds an SFT step with samples packed without padding against padded rows, on samples of mixed lengths.

Each way runs in a process of its own, turn about, on the same model, samples and token budget of a micro-batch, in
float32 on two threads. `padded` puts rows of like length together, each padded to the longest of its micro-batch;
`in_order` takes them as they come, as many at a time as fit the budget at the length of the longest, which is what
trainers without packing do. `prefix` pads prompts and answers apart.

    python tests/benchmarks/sft_packing.py --samples 32 --shortest 8 --longest 512 --json
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from against_trl import Clock
from one_step import LR

WAYS = ("packed", "padded", "in_order", "prefix")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=32, help="in a step")
    parser.add_argument("--shortest", type=int, default=8, help="tokens of an answer, by their logarithm")
    parser.add_argument("--longest", type=int, default=512)
    parser.add_argument("--with-images", type=float, default=0.25, help="share of the samples with a 112 px image")
    parser.add_argument("--budget", type=int, default=2048, help="tokens of a micro-batch")
    parser.add_argument("--model", choices=["tiny", "small"], default="small")
    parser.add_argument("--steps", type=int, default=2, help="timed steps of each process, after one that is not")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    options = parse()
    if options.way:
        print("RESULT " + json.dumps(run(options)))
        return
    report = compare(options)
    lines = [f"{way:9} {report['seconds'][way]:.2f} s a step" for way in WAYS]
    lines += [
        f"packed is {report['speedup'][way]:.2f} times as fast as {way} "
        f"({report['cpu_speedup'][way]:.2f} by processor time)"
        for way in WAYS[1:]
    ]
    print(json.dumps(report) if options.json else "\n".join(lines))


def compare(options: argparse.Namespace) -> dict:
    results: dict[str, list[dict[str, list[float]]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        from mmrl.models.tiny import build_tiny_qwen2_5_vl

        build_tiny_qwen2_5_vl(Path(folder) / "model", size=options.model, seed=0)
        for _ in range(options.rounds):
            for way in WAYS:
                results[way].append(child(options, folder, way))
    seconds, cpu_seconds = (
        {way: statistics.median(value for one in found for value in one[name]) for way, found in results.items()}
        for name in ("seconds", "cpu_seconds")
    )
    return {
        "setting": {key: value for key, value in vars(options).items() if key not in ("way", "folder", "json")},
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "speedup": {way: seconds[way] / seconds["packed"] for way in WAYS[1:]},
        "cpu_speedup": {way: cpu_seconds[way] / cpu_seconds["packed"] for way in WAYS[1:]},
    }


def child(options: argparse.Namespace, folder: str, way: str) -> dict[str, list[float]]:
    command = [sys.executable, __file__, "--way", way, "--folder", folder]
    for name in ("samples", "shortest", "longest", "with_images", "budget", "model", "steps", "threads"):
        command += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    environment = os.environ | {"OMP_NUM_THREADS": str(options.threads), "MMRL_HOME": f"{folder}/home"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if done.returncode or not lines:
        raise SystemExit(f"{way} failed ({done.returncode}):\n{done.stderr[-4000:]}")
    return json.loads(lines[-1].removeprefix("RESULT "))


def run(options: argparse.Namespace) -> dict[str, list[float]]:
    import torch
    from PIL import Image

    from mmrl.algorithms.sft import SftObjective
    from mmrl.config.run import ImageConfig, ModelConfig, OptimConfig, TrainConfig
    from mmrl.data.images import ImageStore
    from mmrl.data.normalise import make_sample
    from mmrl.engines.actor import HfActor
    from mmrl.models.policy import load_policy
    from mmrl.trainer.answers import AnswerBatches
    from mmrl.types import ImagePart, Message, Sample, TextPart

    torch.set_num_threads(options.threads)
    store = ImageStore()
    policy = load_policy(ModelConfig(path=f"{options.folder}/model", dtype="float32"), ImageConfig(), store=store)
    answers = AnswerBatches(policy.prompts)

    def sample(draw: random.Random) -> Sample:
        low, high = math.log(options.shortest), math.log(options.longest)
        length = round(math.exp(draw.uniform(low, high)))
        text = " ".join(str(draw.randint(0, 9)) for _ in range(max(length // 2, 1)))
        content: tuple = (TextPart("Say it."),)
        if draw.random() < options.with_images:
            pixels = Image.effect_noise((112, 112), draw.uniform(10, 90)).convert("RGB")
            content = (ImagePart(store.add(pixels)), *content)
        return make_sample((Message("user", content),), text, {})

    steps = [[sample(draw) for _ in range(options.samples)] for draw in map(random.Random, range(options.steps + 1))]
    path = {"packed": "packed", "prefix": "prefix"}.get(options.way, "plain")
    train = TrainConfig(micro_batch_tokens=options.budget, path=path)
    if options.way == "in_order":
        take_rows_in_order()
    actor = HfActor(policy, OptimConfig(lr=LR), train, temperature=1.0, total_steps=len(steps))
    clock = Clock()
    for samples in steps:
        clock.start()
        batch = answers.targets(samples, train_on="last")
        actor.train_step(batch, SftObjective(batch))
        clock.stop()
    return {"seconds": clock.seconds[1:], "cpu_seconds": clock.cpu_seconds[1:]}


def take_rows_in_order() -> None:
    """Micro-batches of equal numbers of rows, as many as fit the budget at the longest row's length."""
    import torch

    from mmrl.engines import passes

    def plan(batch, budget, *, path):
        rows = [len(batch.prompts[prompt]) for prompt in batch.prompt_of_row.tolist()]
        longest = max(prompt + length for prompt, length in zip(rows, batch.response_lengths.tolist(), strict=True))
        return list(torch.arange(batch.num_rows).split(max(1, budget // longest)))

    passes.plan_micro_batches = plan


if __name__ == "__main__":
    main()
