"""All that pydantic finds wrong with a config, as one error: where, the value got, what is allowed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from mmrl.config.kinds import all_kinds, config_class
from mmrl.config.nodes import MapNode, Node, Path, dotted, find, nearest, plain
from mmrl.config.schema import field_at, models_at, path_of
from mmrl.config.secrets import redact_at
from mmrl.config.suggestions import suggest
from mmrl.errors import ConfigError

_KEY_AT_START = re.compile(r"^[a-z_]+(?:\.\w+)*(?=: )")
_KINDS = {
    "float": "a number, such as 0.5 or 1e-6",
    "int": "a whole number",
    "bool": "true or false",
    "string": "text",
    "tuple": "a list, such as [a, b]",
    "list": "a list, such as [a, b]",
    "dict": "a map of keys",
    "model": "a map of keys",
    "finite": "a finite number",
}
_BOUNDS = {"greater_than": ("gt", ">"), "greater_than_equal": ("ge", ">="), "less_than": ("lt", "<")} | {
    "less_than_equal": ("le", "<=")
}


def config_error(source: str, faults: Sequence[str]) -> ConfigError:
    """One error for all faults: itself if there is one, else a headed list."""
    if len(faults) == 1:
        return ConfigError(faults[0])
    return ConfigError("\n  ".join([f"{source}: {len(faults)} settings are wrong", *faults]))


def faults_of(error: ValidationError, root: Node, source: str) -> list[str]:
    """A line for each thing wrong: `file:line: key: what is wrong, the value got, what is allowed`."""
    return [_fault(details, root, source) for details in error.errors(include_url=False)]


def fault_line(root: Node, path: Path, text: str, source: str) -> str:
    """`text` about the value at `path`, headed by where that value, or the group it belongs in, was set."""
    where = nearest(root, path).origin
    head = source if where.kind == "default" else str(where)
    return f"{head}: {dotted(path)}: {text}" if path else f"{head}: {text}"


def shown(value: Any, path: Path) -> str:
    """A value as a message quotes it: short, and without secrets."""
    text = repr(redact_at(path, value))
    text = {"None": "null", "True": "true", "False": "false"}.get(text, text)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _fault(details: ErrorDetails, root: Node, source: str) -> str:
    path, kind = path_of(details["loc"], root), details["type"]
    if kind == "value_error":
        return _fault_of_validator(details, path, root, source)
    if kind == "extra_forbidden":
        return _unknown_key(path, root, source)
    if kind == "missing":
        return fault_line(root, path, _missing(path, root), source)
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return _wrong_type(details, path, root, source)
    got = shown(details["input"], path)
    if path == ("kind",) and kind == "literal_error":
        return fault_line(root, path, f"got {got}; {_choices(all_kinds(), details['input'])}", source)
    allowed = _allowed(details) if kind in _PHRASES or kind.split("_")[0] in _KINDS else details["msg"].lower()
    return fault_line(root, path, f"got {got}; {allowed}", source)


def _fault_of_validator(details: ErrorDetails, path: Path, root: Node, source: str) -> str:
    """Checks of our own write a whole sentence; those that join several groups open with the key they mean."""
    text = str(details["ctx"]["error"])
    key = _KEY_AT_START.match(text)
    full = () if key is None else (*path, *key[0].split("."))
    if key is None or field_at(models_at(root, path), str(full[len(path)])) is None:
        return fault_line(root, path, text, source)
    return fault_line(root, full, text[key.end() + 2 :], source)


def _unknown_key(path: Path, root: Node, source: str) -> str:
    full = path
    node = find(root, path)
    while isinstance(node, MapNode) and len(node.items) == 1:
        key, node = next(iter(node.items.items()))
        full = (*full, key)
    siblings = tuple(dict.fromkeys(name for model in models_at(root, path[:-1]) for name in model.model_fields))
    model = config_class(root)
    hint = suggest(dotted(path), siblings, model)
    if hint.startswith("known here") and full != path:
        hint = suggest(dotted(full), siblings, model)
    origin = nearest(root, path).origin
    return f"{origin}: unknown key {dotted(path)!r}; {hint}"


def _missing(path: Path, root: Node) -> str:
    if isinstance(path[-1], int):
        return f"is missing; the list {dotted(path[:-1])} is too short"
    field = field_at(models_at(root, path[:-1]), str(path[-1]))
    meaning = f" ({field.description})" if field is not None and field.description else ""
    return f"is missing and has no default{meaning}; set it in the file or as {dotted(path)}=VALUE"


def _wrong_type(details: ErrorDetails, path: Path, root: Node, source: str) -> str:
    tags = [tag for model in models_at(root, path) for tag in [model.model_fields["type"].default]]
    node = find(root, (*path, "type"))
    if details["type"] == "union_tag_not_found" or node is None:
        return fault_line(root, path, f"needs a `type`; {_choices(tags, None)}", source)
    return fault_line(root, (*path, "type"), f"got {shown(plain(node), path)}; {_choices(tags, plain(node))}", source)


def _choices(allowed: Sequence[str], got: Any) -> str:
    near = get_close_matches(str(got), allowed, n=1)
    return f"allowed: {', '.join(allowed)}" + (f"; did you mean {near[0]!r}?" if near else "")


def _allowed(details: ErrorDetails) -> str:
    kind, context = details["type"], details.get("ctx", {})
    if kind in _BOUNDS:
        name, sign = _BOUNDS[kind]
        return f"must be {sign} {context[name]:g}"
    if kind in _PHRASES:
        return _PHRASES[kind](details)
    return f"must be {_KINDS[kind.split('_')[0]]}"


_PHRASES: dict[str, Callable[[ErrorDetails], str]] = {
    "literal_error": lambda details: _choices(re.findall(r"'([^']*)'", details["ctx"]["expected"]), details["input"]),
    "string_too_short": lambda details: "must not be empty",
    "too_short": lambda details: f"must have at least {details['ctx']['min_length']} items",
    "too_long": lambda details: f"must have at most {details['ctx']['max_length']} items",
    "int_from_float": lambda details: "must be a whole number",
    **dict.fromkeys(_BOUNDS, _allowed),
}
