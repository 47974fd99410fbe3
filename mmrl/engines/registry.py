"""The rollout engines by name. A module is imported when its engine is asked for: each brings heavy libraries."""

from __future__ import annotations

from importlib import import_module

from mmrl.errors import ConfigError

ROLLOUT_ENGINES = {"hf": "mmrl.engines.rollout_hf:HfRollout"}
"""Name in `rollout.engine` -> module and class. The class meets `engines.base.RolloutEngine`."""


def rollout_engine_class(name: str) -> type:
    """Raises ConfigError for a name that is not registered."""
    if name not in ROLLOUT_ENGINES:
        raise ConfigError(f"rollout.engine: no engine is named {name!r}; there are {', '.join(ROLLOUT_ENGINES)}")
    module, _, class_name = ROLLOUT_ENGINES[name].partition(":")
    return getattr(import_module(module), class_name)
