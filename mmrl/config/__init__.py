"""The config of a run: pydantic models, YAML and `key=value` overrides. Imports no torch."""

from mmrl.config.run import RunConfig

__all__ = ["RunConfig"]
