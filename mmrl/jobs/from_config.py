"""A job from a config: what it needs of a machine follows from its placement unless it is said."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mmrl.jobs.records import NewJob

if TYPE_CHECKING:
    from mmrl.config.kinds import AnyConfig


@dataclass(frozen=True)
class Needs:
    """CPU slots and whole GPUs of the machine that holds the job."""

    cpus: int
    gpus: int


def job_of(config: AnyConfig, *, cpus: int | None = None, gpus: int | None = None, **settings: Any) -> NewJob:
    """The config as a job to submit, named after it. settings: what else `NewJob` takes.

    cpus, gpus: in place of what the config's placement asks for.
    """
    data = config.model_dump(mode="json")
    name = settings.pop("name", None)
    needs = needs_of(data)
    return NewJob(
        config=data,
        name=config.name if name is None else name,
        kind=config.kind,
        cpus=needs.cpus if cpus is None else cpus,
        gpus=needs.gpus if gpus is None else gpus,
        **settings,
    )


def needs_of(config: Mapping[str, Any]) -> Needs:
    """What a run takes of the machine that it starts on.

    All of its pools, where it has them there: in the trainer's own process, or in a Ray of its own. A run that joins a
    cluster (placement.address) takes one slot here, and the rest from Ray.
    """
    placement = config.get("placement") or {}
    pools = placement.get("pools") or {}
    if not pools or placement.get("address") is not None:
        return Needs(1, 0)
    cpus = sum(pool["workers"] * pool["cpus_per_worker"] for pool in pools.values())
    gpus = sum(pool["workers"] * pool["gpus_per_worker"] for pool in pools.values())
    return Needs(max(1, math.ceil(cpus)), math.ceil(gpus))
