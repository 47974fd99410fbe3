"""Saving on some ranks and going on on others: what each does, and what the next update makes of the weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from shard_case import Case, World, objective, parameters
from torch import nn

from mmrl.algorithms.value_loss import ValueObjective
from mmrl.config.critic import CriticConfig
from mmrl.engines.actor import HfActor
from mmrl.engines.critic import HfCritic
from mmrl.engines.shard_checkpoint import load_sharded_parts, save_sharded_parts
from mmrl.engines.shard_model_files import save_sharded_model
from mmrl.errors import CheckpointWriteError
from mmrl.models.policy import companion_files, save_policy
from mmrl.models.value_model import ValueModel


def save(world: World, case: Case) -> dict[str, Any]:
    """An update, a checkpoint in scratch/FOLDER/checkpoint, and the weights after one more update."""
    folder = world.scratch / case.folder
    actor = world.actor(world.sharded_policy(case), case)
    critic = critic_of(world.sharded_value_model(case), case)
    update(world, case, actor, critic)
    save_sharded_model(actor.policy, folder / "checkpoint" / "model", world.ranks, file_bytes=200_000)
    save_sharded_parts(folder / "checkpoint", {"actor": actor, "critic": critic}, world.ranks)
    if world.ranks.rank == 0:
        write_companions(actor, folder / "checkpoint" / "model")
    update(world, case, actor, critic)
    write_weights(world, folder / "after-save.safetensors", actor.policy, critic.model)
    return {}


def resume(world: World, case: Case) -> dict[str, Any]:
    """Goes on from scratch/FOLDER/checkpoint; the weights after one more update."""
    folder = world.scratch / case.folder
    moved = Case(**{**vars(case), "model": {**(case.model or {}), "path": str(folder / "checkpoint" / "model")}})
    actor = world.actor(world.sharded_policy(moved), case)
    critic = critic_of(world.sharded_value_model(case), case)
    models = {"actor": actor.policy, "critic": critic.model}
    load_sharded_parts(folder / "checkpoint", {"actor": actor, "critic": critic}, models, world.ranks)
    update(world, case, actor, critic)
    write_weights(world, folder / f"after-resume-{world.ranks.world_size}.safetensors", actor.policy, critic.model)
    return {}


def check_disk(world: World, case: Case) -> dict[str, Any]:
    """Each rank writes to a disk of its own; the model goes where no folder can be made."""
    actor = world.actor(world.sharded_policy(case), case)
    folder = world.scratch / f"{case.name}-{world.ranks.rank}"
    blocked = world.scratch / "blocked"
    blocked.touch()
    return {
        "message": message_of(lambda: save_sharded_parts(folder, {"actor": actor}, world.ranks), folder),
        "blocked": message_of(lambda: save_sharded_model(actor.policy, blocked / "model", world.ranks), blocked),
    }


def message_of(save: Callable[[], None], folder: Path) -> str:
    try:
        save()
    except CheckpointWriteError as error:
        return str(error).replace(str(folder), "FOLDER")
    return "no error"


def critic_of(model: ValueModel, case: Case) -> HfCritic:
    return HfCritic(model, CriticConfig(optim=case.optim_config), case.train_config, total_steps=9)


def update(world: World, case: Case, actor: HfActor, critic: HfCritic) -> None:
    """One of each on the recorded rollouts, the same every time."""
    batch = world.batch(case)
    actor.train_step(world.share(batch, case), objective(batch))
    critic.train_step(world.share(batch, case), ValueObjective(batch, value_clip=0.5))


def write_weights(world: World, path: Path, *models: nn.Module) -> None:
    weights = {
        f"{number}/{name}": weight.clone()
        for number, model in enumerate(models)
        for name, weight in parameters(model).items()
    }
    if world.ranks.rank == 0:
        save_file(weights, path)


def write_companions(actor: HfActor, folder: Path) -> None:
    for name, content in companion_files(actor.policy).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def save_whole(folder: Path, actor: HfActor, critic: HfCritic) -> None:
    """As a run in one process does."""
    save_policy(actor.policy, folder / "model")
    torch.save({"actor": actor.state_dict(), "critic": critic.state_dict()}, folder / "trainer.pt")
