"""Which config class a run's `kind` names. That of a noop loads without those of training, which take their time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from mmrl.config.base import ConfigModel
from mmrl.config.nodes import MapNode, Node, Scalar
from mmrl.errors import ConfigError

if TYPE_CHECKING:
    from mmrl.config.evaluate import EvaluateConfig
    from mmrl.config.noop import NoopConfig
    from mmrl.config.run import RunConfig

    AnyConfig = RunConfig | NoopConfig | EvaluateConfig


def config_class(root: Node | None) -> type[ConfigModel]:
    """The class of a config's tree; that of training where it names no kind, or one that does not exist."""
    kind = root.items.get("kind") if isinstance(root, MapNode) else None
    if isinstance(kind, Scalar) and kind.value == "noop":
        from mmrl.config.noop import NoopConfig

        return NoopConfig
    if isinstance(kind, Scalar) and kind.value == "evaluate":
        from mmrl.config.evaluate import EvaluateConfig

        return EvaluateConfig
    from mmrl.config.run import RunConfig

    return RunConfig


def config_classes() -> tuple[type[ConfigModel], ...]:
    from mmrl.config.evaluate import EvaluateConfig
    from mmrl.config.noop import NoopConfig
    from mmrl.config.run import RunConfig

    return (RunConfig, NoopConfig, EvaluateConfig)


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
