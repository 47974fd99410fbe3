"""New weights into vLLM: mmrl's update beside vLLM's bare `reload_weights` of the same tensors, and beside gloo.

Alone: every tensor lies in memory, and both do nothing but load it; mmrl also checks each name and shape, packs a tied
head and drops the caches. On two ranks the weights come from FSDP2 shards, beside the bare reload plus what gloo's own
all-gather of the same bytes takes. Extra memory is what one update adds to the peak, for two depths of the model: it
should be that of the largest layer, not of the model. Each setting has processes of its own; the medians of turns that
alternate are compared.

    python tests/benchmarks/weight_sync.py --json
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

MIB = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="medium", help="size of the tiny model; medium has 116 M parameters")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--worlds", type=int, nargs="*", choices=(1, 2), default=[1, 2], help="numbers of ranks")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--world", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        result = measure(options) if options.world == 1 else measure_ranks(options)
        print("RESULT " + json.dumps(result))
        return
    report = compare(options.model, options.turns, options.worlds)
    print(json.dumps(report) if options.json else as_text(report))


def compare(size: str, turns: int, worlds: list[int]) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        whole, shallow = Path(folder) / "whole", Path(folder) / "shallow"
        report: dict = {"parameters": build(whole, size, depth=1.0)}
        if 1 in worlds:
            build(shallow, size, depth=0.5)
            alone = processes(whole, turns, world=1)[0]
            report["alone"] = alone | {"ratio": alone["mmrl_s"] / alone["bare_s"]}
            report["memory"] = processes(whole, 0, world=1)[0]
            report["memory_of_half_the_layers"] = processes(shallow, 0, world=1)[0]
        if 2 in worlds:
            slowest = max(processes(whole, turns, world=2), key=lambda rank: rank["mmrl_s"])
            allowed = slowest["bare_s"] + 1.5 * slowest["all_gather_s"]
            report["two_ranks"] = slowest | {"allowed_s": allowed, "ratio": slowest["mmrl_s"] / allowed}
    return report


def build(folder: Path, size: str, *, depth: float) -> int:
    """A tiny model with this share of its layers; the number of its parameters."""
    from dataclasses import replace

    from mmrl.models import tiny

    shape = tiny._SHAPES[size]
    layers = max(1, round(shape.layers * depth))
    tiny._SHAPES[size] = replace(shape, layers=layers)
    try:
        tiny.build_tiny_qwen2_5_vl(folder, size=size, seed=0)
    finally:
        tiny._SHAPES[size] = shape
    return sum(weight.numel() for _, weight in named(load_policy_of(folder)))


def processes(folder: Path, turns: int, *, world: int) -> list[dict]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    if not turns:
        # Memory alone: glibc gives every tensor back at once, and what it would keep for later is not taken for need.
        environment["MALLOC_MMAP_THRESHOLD_"] = "65536"
    command = [sys.executable, __file__, "--folder", str(folder), "--turns", str(turns), "--world", str(world)]
    command += ["--port", str(port), "--rank"]
    running = [
        subprocess.Popen([*command, str(rank)], env=environment, stdout=subprocess.PIPE, text=True)
        for rank in range(world)
    ]
    results = []
    for process in running:
        output, _ = process.communicate()
        lines = [line for line in output.splitlines() if line.startswith("RESULT ")]
        if process.returncode or not lines:
            raise SystemExit(f"a rank of {world} failed ({process.returncode})")
        results.append(json.loads(lines[-1].removeprefix("RESULT ")))
    return results


def measure(options: argparse.Namespace) -> dict:
    """One rank: what mmrl adds to the bare reload or, in no turns, what an update adds to the process's peak."""
    from mmrl.engines.vllm_build import build_vllm_rollout

    folder = Path(options.folder)
    policy = load_policy_of(folder)
    engine = build_vllm_rollout(config_of(folder), policy.prompts, needs(), model_folder=folder)
    weights = list(named(policy))
    if not options.turns:
        engine.update_weights(iter(weights), 1)
        with peak_rss() as extra:
            engine.update_weights(iter(weights), 1)
        sizes = {"extra": extra.bytes, "model": sum(weight.nbytes for _, weight in weights)}
        return {f"{name}_mib": size / MIB for name, size in (sizes | {"largest_layer": largest_layer(weights)}).items()}
    mmrl, bare = in_turn(
        [
            lambda: engine.update_weights(iter(weights), 1),
            lambda: engine._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(weights)}),
        ],
        options.turns,
    )
    return {"mmrl_s": mmrl, "bare_s": bare}


def measure_ranks(options: argparse.Namespace) -> dict:
    """One of two ranks, an engine each: weights gathered tensor by tensor from shards."""
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    from mmrl.engines.vllm_build import build_vllm_rollout

    os.environ |= {"RANK": str(options.rank), "WORLD_SIZE": str(options.world), "LOCAL_RANK": str(options.rank)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(options.port)}
    dist.init_process_group("gloo", rank=options.rank, world_size=options.world)
    folder = Path(options.folder)
    policy = load_policy_of(folder)
    engine = build_vllm_rollout(config_of(folder), policy.prompts, needs(), model_folder=folder, distributed=True)
    weights = list(named(load_policy_of(folder)))
    for layer in policy.family.language_model(policy.hf).layers:
        fully_shard(layer)
    fully_shard(policy)
    part = torch.zeros(-(-sum(weight.numel() for _, weight in weights) // options.world))
    whole = torch.empty(len(part) * options.world)
    mmrl, bare, gather = in_turn(
        [
            lambda: engine.update_weights(named(policy), 1),
            lambda: engine._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(weights)}),
            lambda: dist.all_gather_into_tensor(whole, part),
        ],
        options.turns,
        before=dist.barrier,
    )
    engine.close()
    dist.destroy_process_group()
    return {"mmrl_s": mmrl, "bare_s": bare, "all_gather_s": gather}


def in_turn(
    calls: list[Callable[[], object]], turns: int, *, before: Callable[[], object] = lambda: None
) -> list[float]:
    """Median seconds of each, after one turn that does not count."""
    seconds: list[list[float]] = [[] for _ in calls]
    for turn in range(turns + 1):
        for index, call in enumerate(calls):
            before()
            started = time.perf_counter()
            call()
            if turn:
                seconds[index].append(time.perf_counter() - started)
    return [statistics.median(each) for each in seconds]


class Peak:
    bytes = 0


@contextmanager
def peak_rss() -> Iterator[Peak]:
    """Most that the process had more than before, looked at every millisecond."""
    import psutil

    process, peak, is_over = psutil.Process(), Peak(), threading.Event()
    start = process.memory_info().rss

    def watch() -> None:
        while not is_over.wait(0.001):
            peak.bytes = max(peak.bytes, process.memory_info().rss - start)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        is_over.set()
        watcher.join()


def largest_layer(weights) -> int:
    """Bytes of the largest module of vLLM: a weight alone, or those that it keeps as one."""
    sizes: dict[str, int] = {}
    for name, weight in weights:
        module = name.rpartition(".")[0]
        for fused in ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"):
            module = module.removesuffix(fused)
        sizes[module] = sizes.get(module, 0) + weight.nbytes
    return max(sizes.values())


def load_policy_of(folder: Path):
    from mmrl.config.run import ImageConfig, ModelConfig
    from mmrl.data.images import ImageStore
    from mmrl.models.policy import load_policy

    config = ModelConfig(path=str(folder), dtype="float32", device="cpu")
    return load_policy(config, ImageConfig(), store=ImageStore(folder / "images"))


def named(policy):
    from mmrl.models.policy import named_weights

    return named_weights(policy)


def config_of(folder: Path):
    from mmrl.config import RunConfig

    rollout = {"engine": "vllm", "kv_cache_gib": 0.25, "max_batch_rows": 8}
    model = {"path": str(folder), "dtype": "float32", "device": "cpu"}
    return RunConfig.model_validate({"name": "sync", "model": model, "data": {"train": "none"}, "rollout": rollout})


def needs():
    from mmrl.engines.rollout_needs import RolloutNeeds

    return RolloutNeeds(64, 1, 16, 16 * 784, 16)


def as_text(report: dict) -> str:
    lines = [f"{report['parameters'] / 1e6:.0f} M parameters, float32"]
    if "alone" in report:
        alone, memory, half = report["alone"], report["memory"], report["memory_of_half_the_layers"]
        lines += [
            f"one rank: mmrl {alone['mmrl_s']:.3f} s, bare reload {alone['bare_s']:.3f} s, ratio {alone['ratio']:.2f} "
            "(at most 1.3)",
            f"extra memory of an update: {memory['extra_mib']:.0f} MiB for a model of {memory['model_mib']:.0f} MiB, "
            f"{half['extra_mib']:.0f} MiB for {half['model_mib']:.0f} MiB; "
            f"the largest layer has {memory['largest_layer_mib']:.0f} MiB",
        ]
    if "two_ranks" in report:
        two = report["two_ranks"]
        lines.append(
            f"two ranks, from shards: mmrl {two['mmrl_s']:.3f} s; bare reload {two['bare_s']:.3f} s + 1.5 x all-gather "
            f"{two['all_gather_s']:.3f} s = {two['allowed_s']:.3f} s, ratio {two['ratio']:.2f} (at most 1)"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
