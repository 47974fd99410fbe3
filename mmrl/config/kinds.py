"""Which config class a run's `kind` names. That of a noop loads without those of training, which take their time."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

from mmrl.config.base import ConfigModel
from mmrl.config.nodes import MapNode, Node, Scalar
from mmrl.errors import ConfigError

if TYPE_CHECKING:
    from mmrl.config.evaluate import EvaluateConfig
    from mmrl.config.export import ExportConfig
    from mmrl.config.mark import MarkConfig
    from mmrl.config.noop import NoopConfig
    from mmrl.config.run import RunConfig
    from mmrl.config.serve import ServeConfig

    AnyConfig: TypeAlias = RunConfig | NoopConfig | EvaluateConfig | MarkConfig | ExportConfig | ServeConfig

_HOMES = {
    "noop": ("mmrl.config.noop", "NoopConfig"),
    "evaluate": ("mmrl.config.evaluate", "EvaluateConfig"),
    "mark": ("mmrl.config.mark", "MarkConfig"),
    "export": ("mmrl.config.export", "ExportConfig"),
    "serve": ("mmrl.config.serve", "ServeConfig"),
}
"""Kinds with a class of their own; all others train, and are of `RunConfig`."""


def config_class(root: Node | None) -> type[ConfigModel]:
    """The class of a config's tree; that of training where it names no kind, or one that does not exist."""
    kind = root.items.get("kind") if isinstance(root, MapNode) else None
    return _class_at(*_HOMES.get(str(kind.value) if isinstance(kind, Scalar) else "", _TRAINING))


_TRAINING = ("mmrl.config.run", "RunConfig")


def config_classes() -> tuple[type[ConfigModel], ...]:
    return tuple(_class_at(*home) for home in (_TRAINING, *_HOMES.values()))


def _class_at(module: str, name: str) -> type[ConfigModel]:
    found: type[ConfigModel] = getattr(import_module(module), name)
    return found


def all_kinds() -> tuple[str, ...]:
    """Every kind that a config may name."""
    return tuple(kind for each in config_classes() for kind in kinds_of(each))


def kinds_of(model: type[ConfigModel]) -> tuple[str, ...]:
    kinds: tuple[Any, ...] = get_args(model.model_fields["kind"].annotation)
    return kinds


def class_of_kind(kind: str) -> type[ConfigModel]:
    """Raises ConfigError for a kind that does not exist."""
    found = next((each for each in config_classes() if kind in kinds_of(each)), None)
    if found is None:
        raise ConfigError(f"no kind {kind!r}; allowed: {', '.join(all_kinds())}")
    return found
