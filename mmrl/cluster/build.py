"""From a placement to the executor that it names. Ray is imported only where it is used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mmrl.cluster.base import Executor
from mmrl.cluster.inline import InlineExecutor
from mmrl.config.placement import PlacementConfig
from mmrl.errors import ConfigError


def build_executor(
    placement: PlacementConfig, *, log_dir: Path | None, say: Callable[[str], None] | None = None
) -> Executor:
    """The executor of a placement, its pools ready for groups.

    log_dir: the folder of the workers' logs. say: told what was started, and how long it took.
    Raises ConfigError where Ray is not installed, or has not what the pools ask for.
    """
    if placement.executor == "inline":
        return InlineExecutor(placement)
    try:
        from mmrl.cluster.ray_executor import RayExecutor
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise ConfigError(
            "placement.executor: 'ray' needs the Python package ray, which is not installed; install it, or use "
            "'inline'"
        ) from error
    return RayExecutor(placement, log_dir=log_dir, say=say)
