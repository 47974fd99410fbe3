"""One of several ranks that sample with vLLM: `python vllm_ranks.py RANK WORLD PORT FOLDER OUT`.

With an engine for each rank and then with one for all of them, each rank samples, moves its shards of the weights,
syncs and compares with the actor. What it found goes to OUT as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from rollout_conformance import ROOMY, ids_of, load_cpu_policy, make_samples, params, view_of_actor, vllm_config
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from mmrl.data.images import ImageStore
from mmrl.engines.vllm_build import build_vllm_rollout
from mmrl.models.policy import PolicyModel, checkpoint_names
from mmrl.types import ImageRef


def main(rank: int, world: int, port: int, folder: Path, out: Path) -> None:
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": str(rank),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    found = {size: sample_and_sync(folder, size) for size in (1, world)}
    # The group is the trainer's, and outlives the engines.
    total = torch.ones(1)
    dist.all_reduce(total)
    out.write_text(json.dumps({"found": found, "sum": total.item()}))
    dist.destroy_process_group()


def sample_and_sync(folder: Path, tensor_parallel: int) -> list[dict[str, Any]]:
    """Gap to the actor, and the ids, under the weights of the folder and after each of two updates."""
    rank, world = dist.get_rank(), dist.get_world_size()
    store = ImageStore(folder / "images")
    samples = make_samples([ImageRef(**ref) for ref in json.loads((folder / "pictures.json").read_text())])
    actor = load_cpu_policy(folder / "model", store)
    sharded = load_cpu_policy(folder / "model", store)
    for layer in sharded.family.language_model(sharded.hf).layers:
        fully_shard(layer)
    fully_shard(sharded)
    config = vllm_config(folder / "model", tensor_parallel=tensor_parallel)
    engine = build_vllm_rollout(config, actor.prompts, ROOMY, model_folder=folder / "model", distributed=True)
    # Ranks of one engine sample the same; engines have samples of their own.
    own = samples if tensor_parallel == world else samples[rank::world]
    found = []
    for version in range(3):
        if version:
            perturb(actor, version)
            perturb(sharded, version)
            engine.update_weights(full_weights(sharded), version)
        groups = engine.generate(own, params(16), num_responses=4, seed=0, step=version)
        found.append({"gap": view_of_actor(actor, groups, 1.0).largest_gap, "ids": ids_of(groups)})
    engine.close()
    return found


@torch.no_grad()
def perturb(policy: PolicyModel, seed: int) -> None:
    """The same change whether the weights are whole or in shards."""
    draw = torch.Generator().manual_seed(seed)
    for weight in policy.hf.parameters():
        if weight.ndim < 2:
            continue
        change = torch.randn(weight.shape, generator=draw) * 0.02
        if isinstance(weight, DTensor):
            local = weight.to_local()
            first = _first_row(weight)
            local += change[first : first + local.shape[0]]
        else:
            weight += change


def _first_row(weight: DTensor) -> int:
    rank, world = dist.get_rank(), dist.get_world_size()
    size = -(-weight.shape[0] // world)
    return min(rank * size, weight.shape[0])


def full_weights(policy: PolicyModel):
    names = checkpoint_names(policy.hf)
    for name, weight in policy.hf.named_parameters():
        yield names[name], weight.full_tensor() if isinstance(weight, DTensor) else weight.detach()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]), Path(sys.argv[5]))
