"""The config of a run: pydantic models, YAML and `key=value` overrides. Imports no torch.

Parts: `run`, `algorithm`, `reward`, `noop` (the models), `kinds` (which of them a kind means), `loading` (file and
overrides to a config with origins),
`dump` (a config to YAML and plain data, secrets removed). Names load when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mmrl.config.dump import dump_yaml, plain_config
    from mmrl.config.loading import LoadedConfig, build_config, load_config
    from mmrl.config.noop import NoopConfig
    from mmrl.config.run import RunConfig

_HOMES = {
    "LoadedConfig": "mmrl.config.loading",
    "NoopConfig": "mmrl.config.noop",
    "RunConfig": "mmrl.config.run",
    "build_config": "mmrl.config.loading",
    "dump_yaml": "mmrl.config.dump",
    "load_config": "mmrl.config.loading",
    "plain_config": "mmrl.config.dump",
}

__all__ = ["LoadedConfig", "NoopConfig", "RunConfig", "build_config", "dump_yaml", "load_config", "plain_config"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mmrl.config' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_HOMES[name]), name)
