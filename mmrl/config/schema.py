"""Walking the config models: which keys exist, which class stands at a path, and what its default is."""

from __future__ import annotations

import types
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from mmrl.config.base import ConfigModel
from mmrl.config.kinds import config_class
from mmrl.config.nodes import DEFAULT, MapNode, Node, Path, Scalar, child, from_plain

Model = type[ConfigModel]


def models_of(annotation: Any) -> tuple[Model, ...]:
    """The config classes that an annotation allows directly: one, several for a union, none for a plain value."""
    if get_origin(annotation) is Annotated:
        return models_of(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(model for member in get_args(annotation) for model in models_of(member))
    return (annotation,) if isinstance(annotation, type) and issubclass(annotation, ConfigModel) else ()


def item_of(annotation: Any) -> Any | None:
    """The annotation of a list's items, None for what is no list."""
    if get_origin(annotation) is Annotated:
        return item_of(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return next((item for member in get_args(annotation) if (item := item_of(member)) is not None), None)
    return get_args(annotation)[0] if get_origin(annotation) in (tuple, list) else None


def value_of(annotation: Any) -> Any | None:
    """The annotation of the values of a map with names of the user's own, None for what is no such map."""
    return get_args(annotation)[1] if get_origin(annotation) is dict else None


def tag_of(model: Model) -> str | None:
    """The value of `type` that names this member of a union."""
    field = model.model_fields.get("type")
    return field.default if field is not None else None


def choose(models: tuple[Model, ...], node: Node | None) -> tuple[Model, ...]:
    """Of a union's members the one that the node's `type` names; all of them where it names none."""
    tag = child(node, "type") if node is not None else None
    chosen = tuple(model for model in models if isinstance(tag, Scalar) and tag_of(model) == tag.value)
    return chosen or models


def field_at(models: tuple[Model, ...], key: str) -> FieldInfo | None:
    return next((model.model_fields[key] for model in models if key in model.model_fields), None)


def models_at(root: Node, path: Path) -> tuple[Model, ...]:
    """The classes that may stand at `path`, given the types chosen in the tree; empty where no class does."""
    annotation: Any = config_class(root)
    node: Node | None = root
    for part in path:
        annotation = step(annotation, part, node)
        node = child(node, part) if node is not None else None
    return choose(models_of(annotation), node)


def step(annotation: Any, part: str | int, node: Node | None = None) -> Any | None:
    """The annotation one key or index further down; None where the models know nothing of it."""
    item = item_of(annotation) or value_of(annotation)
    if item is not None:
        return item
    field = field_at(choose(models_of(annotation), node), str(part))
    return field.annotation if field is not None else None


def path_of(location: tuple[str | int, ...], root: Node) -> Path:
    """Where in the config an error of pydantic is: its location without the names of union members."""
    annotation: Any = config_class(root)
    path: list[str | int] = []
    for part in location:
        members = {tag_of(model): model for model in models_of(annotation)}
        if len(members) > 1 and part in members:
            annotation = members[str(part)]
            continue
        if item_of(annotation) is not None and not isinstance(part, int):
            continue  # which of "a value or a list of them" was taken
        if part == "[key]":
            continue  # it is the key itself that is wrong
        path.append(part)
        annotation = step(annotation, part)
    return tuple(path)


def default_node(annotation: Any, key: str, node: Node | None) -> Node | None:
    """What the key stands for when nobody sets it, as a tree that an override can change in part.

    Of a default that is a model only what differs from its class is written out, so the rest stays a default.
    """
    field = field_at(choose(models_of(annotation), node), key)
    if field is None or field.default is None or field.default is PydanticUndefined:
        return None
    return _node_of(field.default)


def _node_of(value: Any) -> Node:
    if isinstance(value, ConfigModel):
        names = [*(["type"] if tag_of(type(value)) else []), *sorted(value.model_fields_set - {"type"})]
        return MapNode({name: _node_of(getattr(value, name)) for name in names}, DEFAULT)
    if isinstance(value, dict):
        return MapNode({name: _node_of(item) for name, item in value.items()}, DEFAULT)
    return from_plain(value, DEFAULT)


@cache
def known_keys(model: Model | None = None) -> tuple[str, ...]:
    """All dotted keys of a config class, that of training unless another is given: groups and values, items of lists as
    `.0`, of maps those that the default has; of rewards inside rewards one level."""
    return tuple(dict.fromkeys(_keys_below(model or config_class(None), "")))


def _keys_below(annotation: Any, prefix: str, above: tuple[tuple[Model, ...], ...] = ()) -> Iterator[str]:
    item = item_of(annotation)
    if item is not None:
        yield from _keys_below(item, f"{prefix}0.", above)
    models = models_of(annotation)
    if above.count(models) > 1:
        return
    for model in models:
        for name, field in model.model_fields.items():
            yield prefix + name
            yield from _keys_below(field.annotation, f"{prefix}{name}.", (*above, models))
            if models_of(value_of(field.annotation)):
                for key in field.default:
                    yield f"{prefix}{name}.{key}"
                    yield from _keys_below(value_of(field.annotation), f"{prefix}{name}.{key}.", (*above, models))
