"""YAML 1.2 text into a tree of nodes. Source text and line of each value are kept, so `0123` can still become text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from mmrl.config.nodes import ListNode, MapNode, Node, Origin, Scalar, plain
from mmrl.config.yaml_bounds import MAX_CHARACTERS, MAX_NODES, BoundedScanner, TooMuchError
from mmrl.errors import ConfigError

_TAG = "tag:yaml.org,2002:"
_TEXT_TAGS = ("str", "timestamp")  # YAML 1.2 has no dates: they are text
OriginOfLine = Callable[[int], Origin]


def read_yaml(text: str, origin_of_line: OriginOfLine) -> Node | None:
    """The one document in `text`; None when it is empty.

    origin_of_line: the origin of a value that begins in that line (counted from 1).
    Raises ConfigError with file, line and column for a syntax error, a key set twice, or a tag outside YAML 1.2, and
    for more than MAX_NODES values, counted with all that aliases repeat, or anything else beyond `yaml_bounds`.
    """
    if len(text) > MAX_CHARACTERS:
        raise ConfigError(
            f"{origin_of_line(1).where}: the text has {len(text):,} characters; at most {MAX_CHARACTERS:,} are read; "
            "put data into files and name those"
        )
    try:
        return _read(text, origin_of_line)
    except RecursionError as error:
        raise ConfigError(f"{origin_of_line(1).where}: maps and lists stand too deep in each other") from error


def plain_yaml(text: str, what: str) -> Any:
    """The same as plain data, None for an empty text. what: for messages. Raises ConfigError."""
    root = read_yaml(text, lambda line: Origin("file", f"{what}:{line}"))
    return None if root is None else plain(root)


def _read(text: str, origin_of_line: OriginOfLine) -> Node | None:
    try:
        document = _parser().compose(text)
    except TooMuchError as error:
        raise ConfigError(f"{origin_of_line(error.line).where}: {error}") from error
    except MarkedYAMLError as error:
        line, column = (error.problem_mark.line + 1, error.problem_mark.column + 1) if error.problem_mark else (1, 1)
        problem = error.problem or error.context or "cannot be read"
        hint = "; indent with spaces, not tabs" if "\\t" in problem else ""
        raise ConfigError(
            f"{origin_of_line(line).where}: not valid YAML at column {column}: {problem}{hint}"
        ) from error
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        character = f"U+{ord(text[error.position]):04X}"
        raise ConfigError(
            f"{origin_of_line(line).where}: not valid YAML: character {character} is not allowed; remove it, or write "
            "it as an escape in double quotes"
        ) from error
    return _Builder(origin_of_line).build(document, ()) if document is not None else None


def _parser() -> YAML:
    yaml = YAML(typ="safe", pure=True)
    yaml.Scanner = BoundedScanner
    return yaml


class _Builder:
    def __init__(self, origin_of_line: OriginOfLine) -> None:
        self.origin_of_line = origin_of_line
        self.num_nodes = 0

    def build(self, node: Any, ancestors: tuple[int, ...], origin: Origin | None = None) -> Node:
        origin = origin or self._origin(node)
        self.num_nodes += 1
        if id(node) in ancestors:
            raise ConfigError(f"{origin.where}: aliases (`*name`) make the config endless; write it out")
        if self.num_nodes > MAX_NODES:
            raise ConfigError(
                f"{origin.where}: more than {MAX_NODES:,} values, counted with all that aliases (`*name`) repeat; put "
                "data into files and name those"
            )
        inside = (*ancestors, id(node))
        if isinstance(node, MappingNode) and node.tag == f"{_TAG}map":
            return MapNode({key: self.build(value, inside, where) for key, value, where in self._items(node)}, origin)
        if isinstance(node, SequenceNode) and node.tag == f"{_TAG}seq":
            return ListNode([self.build(item, inside) for item in node.value], origin)
        return Scalar(self._value(node, origin), node.value, origin)

    def _origin(self, node: Any) -> Origin:
        return self.origin_of_line(node.start_mark.line + 1)

    def _items(self, node: Any) -> Iterator[tuple[str, Any, Origin]]:
        """Key, value and the key's origin; what `<<` brings in comes first, and is replaced by keys written out."""
        own: dict[str, tuple[Any, Origin]] = {}
        merged: dict[str, tuple[Any, Origin]] = {}
        for key_node, value_node in node.value:
            origin = self._origin(key_node)
            if not isinstance(key_node, ScalarNode):
                raise ConfigError(f"{origin.where}: a key must be text; got a map or a list")
            if key_node.tag == f"{_TAG}merge":
                merged |= self._merged(value_node, origin)
                continue
            if key_node.value in own:
                first = own[key_node.value][1]
                raise ConfigError(
                    f"{origin.where}: key {key_node.value!r} is set twice (first at {first.where}); keep one of them"
                )
            own[key_node.value] = (value_node, origin)
        yield from ((key, value, where) for key, (value, where) in (merged | own).items())

    def _merged(self, node: Any, origin: Origin) -> dict[str, tuple[Any, Origin]]:
        maps = node.value if isinstance(node, SequenceNode) else [node]
        merged: dict[str, tuple[Any, Origin]] = {}
        for one in reversed(maps):
            if not isinstance(one, MappingNode):
                raise ConfigError(f"{origin.where}: `<<` takes a map or a list of maps")
            merged |= {key: (value, where) for key, value, where in self._items(one)}
        return merged

    def _value(self, node: Any, origin: Origin) -> Any:
        kind = str(node.tag).removeprefix(_TAG)
        if kind in _TEXT_TAGS and isinstance(node, ScalarNode):
            return node.value
        try:
            return _CONVERTERS[kind](node.value)
        except (KeyError, ValueError, AttributeError):
            raise ConfigError(
                f"{origin.where}: {node.value!r} cannot be read with the tag {node.tag}; "
                "allowed are plain text, numbers, true, false, null, lists and maps; quote the value to have it as text"
            ) from None


def _to_int(text: str) -> int:
    digits = text.replace("_", "").lower()
    return int(digits, 0) if digits.lstrip("+-")[:2] in ("0x", "0o", "0b") else int(digits)


def _to_float(text: str) -> float:
    plain_text = text.replace("_", "").lower()
    return float(plain_text.replace(".inf", "inf").replace(".nan", "nan"))


_CONVERTERS: dict[str, Callable[[str], Any]] = {
    "null": lambda _: None,
    "bool": lambda text: {"true": True, "false": False}[text.lower()],
    "int": _to_int,
    "float": _to_float,
}
