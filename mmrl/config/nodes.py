"""The tree that a config file is read into: plain data in which each value knows where it was set and as what text.

`yaml_text` makes it, `overrides` changes it, `loading` hands its plain form to pydantic and then asks it for origins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

OriginKind = Literal["default", "file", "override"]
Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Origin:
    """Who set a value. `where` is `file:line`, or the text of the override; empty for a default."""

    kind: OriginKind
    where: str = ""

    def __str__(self) -> str:
        return {"default": "default", "file": self.where, "override": f"override {self.where}"}[self.kind]


DEFAULT = Origin("default")


@dataclass
class Scalar:
    """A text, number, boolean or null. `text` is the text as written, None where there is none."""

    value: Any
    text: str | None
    origin: Origin


@dataclass
class MapNode:
    items: dict[str, Node]
    origin: Origin


@dataclass
class ListNode:
    items: list[Node]
    origin: Origin


Node = Scalar | MapNode | ListNode


def plain(node: Node) -> Any:
    """The tree as dicts, lists and scalars."""
    if isinstance(node, MapNode):
        return {key: plain(item) for key, item in node.items.items()}
    if isinstance(node, ListNode):
        return [plain(item) for item in node.items]
    return node.value


def from_plain(value: Any, origin: Origin) -> Node:
    """The tree of plain data, all of one origin."""
    if isinstance(value, Mapping):
        return MapNode({str(key): from_plain(item, origin) for key, item in value.items()}, origin)
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return ListNode([from_plain(item, origin) for item in value], origin)
    return Scalar(value, None, origin)


def child(node: Node, part: str | int) -> Node | None:
    """The item of a map or list, None where there is none. A list takes its index as number or digits."""
    if isinstance(node, MapNode):
        return node.items.get(str(part))
    if isinstance(node, ListNode) and str(part).isdecimal() and int(part) < len(node.items):
        return node.items[int(part)]
    return None


def find(root: Node, path: Path) -> Node | None:
    """The node at `path`, None where nothing was set."""
    node: Node | None = root
    for part in path:
        node = child(node, part) if node is not None else None
    return node


def nearest(root: Node, path: Path) -> Node:
    """The node at `path`, or at the longest part of it that was set."""
    node = root
    for part in path:
        below = child(node, part)
        if below is None:
            break
        node = below
    return node


def dotted(path: Path) -> str:
    return ".".join(str(part) for part in path)
