"""The rollout engines by name. A module is imported when its engine is asked for: each brings heavy libraries."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from mmrl.config import RunConfig
from mmrl.engines.base import RolloutEngine
from mmrl.errors import ConfigError
from mmrl.models.policy import PolicyModel
from mmrl.types import Sample

ROLLOUT_ENGINES = {
    "hf": "mmrl.engines.rollout_hf:build",
    "vllm": "mmrl.engines.vllm_build:build",
}
"""Name in `rollout.engine` -> module and function, which takes what `build_rollout` does."""


def build_rollout(
    config: RunConfig, policy: PolicyModel, samples: Sequence[Sample], *, model_folder: str | Path
) -> RolloutEngine:
    """The engine of the config for this process alone.

    policy: the actor's own. samples: all that it will be asked about. model_folder: where the policy's weights were
    loaded from, for an engine that holds weights of its own.
    Raises ConfigError for a name that is not registered, and where the engine cannot work here or has too little room.
    """
    name = config.rollout.engine
    if name not in ROLLOUT_ENGINES:
        raise ConfigError(f"rollout.engine: no engine is named {name!r}; there are {', '.join(ROLLOUT_ENGINES)}")
    module, _, function = ROLLOUT_ENGINES[name].partition(":")
    engine: RolloutEngine = getattr(import_module(module), function)(config, policy, samples, model_folder=model_folder)
    return engine
