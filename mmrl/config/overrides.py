"""`key=value` overrides: read as YAML, so they are typed like the file, and laid over the tree of the file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mmrl.config.kinds import config_class
from mmrl.config.nodes import ListNode, MapNode, Node, Origin, Path, Scalar, child, dotted, plain
from mmrl.config.schema import default_node, step
from mmrl.config.secrets import redact, redact_at, redact_under
from mmrl.config.yaml_text import read_yaml
from mmrl.errors import ConfigError

_BARE_KEY = re.compile(r"[A-Za-z_][\w.\[\]-]*")
_INDEX = re.compile(r"\[(\d+)\]")


@dataclass(frozen=True)
class Override:
    """One `key=value`, with what an error message may show of it."""

    path: Path
    node: Node
    origin: Origin


def join_split_overrides(texts: Sequence[str]) -> list[str]:
    """`optim.lr 1e-5`, two words where `=` was forgotten, as one faulty override, so that one message can tell it."""
    joined: list[str] = []
    for text in texts:
        follows_bare_key = bool(joined) and _BARE_KEY.fullmatch(joined[-1]) is not None
        if follows_bare_key and "=" not in text:
            joined[-1] += f" {text}"
        else:
            joined.append(text)
    return joined


def read_override(text: str) -> Override:
    """`optim.lr=1e-6`, `reward.0.weight=2`, `model.freeze=[vision]` …: the value is YAML, nothing at all is null.

    Raises ConfigError without `=`, with an empty key, and for a value that is no YAML.
    """
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals:
        name, _, rest = redact(key).partition(" ")
        meant = f"{name}={redact_under(name, rest)}" if rest else f"{name}=VALUE"
        raise ConfigError(f"override {name!r} has no '='; write it as {meant!r}")
    path = tuple(_INDEX.sub(r".\1", key).split("."))
    if not all(path):
        raise ConfigError(f"override {redact(text)!r} has an empty key; write it as KEY=VALUE, such as optim.lr=1e-6")
    try:
        node = read_yaml(value, lambda line: Origin("override", key))
    except ConfigError as error:
        reason = str(error).removeprefix(f"{key}: ")
        raise ConfigError(f"override {key}: {reason}; quote a text that YAML would misread: '{key}=\"…\"'") from error
    node = node or Scalar(None, None, Origin("override"))
    origin = Origin("override", _shown(key, path, value, node))
    _set_origin(node, origin)
    return Override(path, node, origin)


def apply_override(root: MapNode, override: Override) -> None:
    """Set the override's value in the tree; groups that the file leaves out start from their defaults.

    Raises ConfigError for a key inside a plain value and for an index that a list does not have.
    """
    node: Node = root
    annotation: Any = config_class(root)
    for depth, part in enumerate(override.path[:-1]):
        below = child(node, part)
        if below is None or (isinstance(below, Scalar) and below.value is None):
            below = default_node(annotation, str(part), node) or MapNode({}, override.origin)
            _put(node, override, depth, below)
        annotation = step(annotation, part, node)
        node = below
    _put(node, override, len(override.path) - 1, override.node)


def _put(node: Node, override: Override, depth: int, value: Node) -> None:
    part, above = str(override.path[depth]), dotted(override.path[:depth])
    if isinstance(node, MapNode):
        node.items[part] = value
    elif isinstance(node, ListNode):
        if not (part.isdecimal() and int(part) < len(node.items)):
            raise ConfigError(
                f"{override.origin}: {above} has {_count(len(node.items))}, so there is no {above}.{part}; "
                f"set the whole list, such as '{above}=[…]'"
            )
        node.items[int(part)] = value
        if isinstance(value, Scalar):
            node.origin = override.origin
    else:
        raise ConfigError(
            f"{override.origin}: {above} is a value ({redact_at(override.path, node.value)!r}, set by {node.origin}) "
            "and has no keys; "
            f"write '{above}=VALUE'"
        )


def _count(number: int) -> str:
    return {0: "no items", 1: "1 item (index 0)"}.get(number, f"{number} items (index 0 to {number - 1})")


def _shown(key: str, path: Path, value: str, node: Node) -> str:
    """The override as it may be shown: as typed, or without its value if that holds a secret."""
    data = plain(node)
    is_secret = redact_at(path, data) != data or redact(value) != value
    return f"{key}=<redacted>" if is_secret else f"{key}={value.strip()}"


def _set_origin(node: Node, origin: Origin) -> None:
    node.origin = origin
    children = node.items.values() if isinstance(node, MapNode) else node.items if isinstance(node, ListNode) else ()
    for below in children:
        _set_origin(below, origin)
