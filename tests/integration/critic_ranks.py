"""A critic sharded by FSDP2 over the ranks of this run, each with prompts of its own, against the whole on one rank.

    critic_ranks.py MODEL_FOLDER SCRATCH_FOLDER

prints on rank 0 the relative difference of values, of the gradient, and of the weights after an optimiser step.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, distributed
from torch.distributed.fsdp import fully_shard

from mmrl.algorithms.value_loss import ValueObjective
from mmrl.batch import GroupBatch
from mmrl.config.optim import OptimConfig
from mmrl.config.run import ImageConfig, ModelConfig
from mmrl.data.images import ImageStore
from mmrl.engines.critic import value_model_like
from mmrl.engines.optimizer import build_optimizer
from mmrl.models.policy import load_policy
from mmrl.models.value_model import ValueModel

sys.path.insert(0, str(Path(__file__).parents[1]))
from models_builders import mixed_batch


def main(model_folder: str, scratch: str) -> None:
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    whole, batch = critic_and_batch(model_folder, Path(scratch) / f"images-{rank}")
    sharded, _ = critic_and_batch(model_folder, Path(scratch) / f"images-{rank}")
    for module in sharded.body.family.wrap_points(sharded.body.hf):
        fully_shard(module)
    fully_shard(sharded)
    objective = ValueObjective(batch, value_clip=0.5)
    shard = batch.select_prompts(0, 2) if rank == 0 else batch.select_prompts(2, 4)

    values = whole(batch)
    objective(batch, values).loss.backward()
    own = sharded(shard)
    # FSDP takes the mean over ranks, and the sum over them is the gradient.
    (objective(shard, own).loss * distributed.get_world_size()).backward()
    rows = torch.arange(batch.num_rows)[(batch.prompt_of_row < 2) == (rank == 0)]
    report = {"values": difference([own], [values[rows, : own.shape[1]]])}
    report["gradient"] = difference(gradients(sharded), gradients(whole))
    for model in (whole, sharded):
        build_optimizer(model, OptimConfig(lr=1e-3)).step()
    report["weights"] = difference(
        [full(weight.detach()) for weight in sharded.parameters()], [weight.detach() for weight in whole.parameters()]
    )
    if rank == 0:
        print(json.dumps(report))
    distributed.destroy_process_group()


def critic_and_batch(model_folder: str, images: Path) -> tuple[ValueModel, GroupBatch]:
    store = ImageStore(images)
    draw = np.random.default_rng(0)
    sizes = [(56, 56), (112, 84), (140, 240)]
    pictures = [store.add(Image.fromarray(draw.integers(0, 256, (*size, 3), dtype=np.uint8))) for size in sizes]
    config = ModelConfig(path=model_folder, dtype="float32", device="cpu")
    policy = load_policy(config, ImageConfig(), store=store)
    model = value_model_like(policy)
    torch.manual_seed(0)
    torch.nn.init.normal_(model.head.weight)
    batch = mixed_batch(policy, pictures)
    noise = [torch.randn(batch.response_mask.shape) * batch.response_mask for _ in range(2)]
    return model, batch.with_(values=noise[0], returns=noise[1])


def gradients(model: torch.nn.Module) -> list[Tensor]:
    return [full(weight.grad) for weight in model.parameters() if weight.grad is not None]


def full(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def difference(found: list[Tensor], expected: list[Tensor]) -> float:
    pairs = list(zip(found, expected, strict=True))
    gap = sum(float((mine - theirs).detach().double().square().sum()) for mine, theirs in pairs)
    return (gap / sum(float(theirs.detach().double().square().sum()) for _, theirs in pairs)) ** 0.5


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(sys.argv[1], sys.argv[2])
