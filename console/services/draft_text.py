"""The text of a draft: YAML in which single keys are changed while the rest, comments included, stays as it is."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from mmrl.config.yaml_text import plain_yaml
from mmrl.errors import ConfigError

UNSET = object()
"""As a value: the key is taken away, and its default holds."""


@lru_cache(maxsize=256)
def parsed(text: str) -> dict[str, Any] | None:
    """The config as far as it is written, not to be written into; None where the text is no YAML map."""
    try:
        found = plain_yaml(text, "the draft")
    except ConfigError:
        return None
    return dict(found) if isinstance(found, Mapping) else {} if found is None else None


def with_value(text: str, key: str, value: Any) -> str:
    """The YAML with one dotted key set, or taken away for UNSET together with groups that it leaves empty.

    Raises ConfigError where the text is no YAML, or where the key leads into a plain value.
    """
    yaml = YAML()
    yaml.width = 1_000_000
    try:
        root = yaml.load(text)
    except (YAMLError, RecursionError) as error:
        raise ConfigError("the YAML has an error; mend it in the text first") from error
    root = {} if root is None else root
    _put(root, key.split("."), value, key)
    buffer = io.StringIO()
    yaml.dump(root, buffer)
    return "" if not root else buffer.getvalue()


def with_changes(text: str, before: str, after: str) -> str:
    """The text, made of `before`, with what was changed from `before` to `after` changed in it as well, but for keys
    that it has changed itself. As it is where one of the three is no YAML map."""
    first, second, own = parsed(before), parsed(after), parsed(text)
    if before == after or first is None or second is None or own is None:
        return text
    changed_here = {key for key, _ in _changes(first, own)}
    for key, value in _changes(first, second):
        if key not in changed_here:
            with contextlib.suppress(ConfigError):  # it has a plain value where the key leads into
                text = with_value(text, key, value)
    return text


def _changes(before: Mapping[str, Any], after: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys that differ, with their new values; lists count as one value."""
    for name in dict.fromkeys([*before, *after]):
        key, old, new = f"{prefix}{name}", before.get(name, UNSET), after.get(name, UNSET)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from _changes(old, new, f"{key}.")
        elif old is UNSET or new is UNSET or old != new:
            yield key, new


def _put(node: Any, parts: list[str], value: Any, key: str) -> None:
    part: Any = parts[0]
    if isinstance(node, list) and part.isdecimal() and int(part) < len(node):
        part = int(part)
    elif not isinstance(node, dict):
        raise ConfigError(f"{key} leads into a value that has no keys; mend it in the text")
    if len(parts) == 1:
        if value is not UNSET:
            node[part] = value
        elif isinstance(node, list) or part in node:
            del node[part]
        return
    below = node.get(part) if isinstance(node, dict) else node[part]
    if below is None:
        if value is UNSET:
            return
        node[part] = below = {}
    _put(below, parts[1:], value, key)
    if value is UNSET and isinstance(node, dict) and not below:
        del node[part]
