"""A peer's settings by dotted key, from YAML or from the `key=value` words of a shell script."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mmrl.config.nodes import Origin, plain
from mmrl.config.yaml_text import read_yaml
from mmrl.errors import ConfigError, NotFoundError

_SETTING = re.compile(r"\+{0,2}([A-Za-z_]\w*(?:\.\w+)+)=(.*)", re.DOTALL)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][\w.]*)\}")
_MISSING = "???"
_NOT_SETTINGS = ("defaults", "hydra")


class PeerTree:
    """Settings by dotted key. Those that are absent, null, `???` or computed by the launcher count as not given."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(_flat(values))
        self._taken: set[str] = set()

    def has(self, prefix: str) -> bool:
        return any(key == prefix or key.startswith(f"{prefix}.") for key in self._values)

    def groups(self) -> list[str]:
        return sorted({key.partition(".")[0] for key in self._values})

    def take(self, key: str, default: Any = None) -> Any:
        """The value of a key, marked as read; the default where it is not given."""
        self._taken.add(key)
        value = self._resolve(key)
        return default if value is None else value

    def left(self) -> dict[str, Any]:
        """What was never taken and is given, in the order of the file."""
        return {
            key: value
            for key in self._values
            if key not in self._taken and key.partition(".")[0] not in _NOT_SETTINGS
            if (value := self._resolve(key)) is not None and not key.endswith("._target_")
        }

    def _resolve(self, key: str, depth: int = 0) -> Any:
        value = self._values.get(key)
        if not isinstance(value, str):
            return value
        reference = _REFERENCE.fullmatch(value)
        if reference and depth < 10:
            return self._resolve(reference[1], depth + 1)
        return None if value == _MISSING or "${oc." in value or reference else value


def read_peer(file: Path, overrides: Sequence[str]) -> PeerTree:
    """Raises NotFoundError if there is no such file, ConfigError for one that is neither YAML nor a script."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise NotFoundError(
            f"config file {str(file)!r} does not exist; give a YAML file, or a launch script"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read as text: {error}") from error
    values = _of_script(text, file) if file.suffix in (".sh", ".bash") else _of_yaml(text, file)
    for word in overrides:
        setting = _SETTING.fullmatch(word)
        if setting is None:
            raise ConfigError(f"override {word!r} is not of the form key=value with a dotted key of the peer's config")
        _put(values, setting[1], _typed(setting[2]))
    return PeerTree(values)


def _of_yaml(text: str, file: Path) -> dict[str, Any]:
    node = read_yaml(text, lambda line: Origin("file", f"{file}:{line}"))
    values = plain(node) if node is not None else None
    if not isinstance(values, dict):
        raise ConfigError(f"{file}: a config is a map of keys; this file holds none")
    return values


def _of_script(text: str, file: Path) -> dict[str, Any]:
    """The dotted `key=value` words of a script, variables that the script itself sets put in."""
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        raise ConfigError(f"{file}: cannot be read as a shell script: {error}") from error
    variables = {match[1]: match[2] for match in map(_ASSIGNMENT.fullmatch, words) if match}
    values: dict[str, Any] = {}
    for setting in filter(None, map(_SETTING.fullmatch, words)):
        _put(values, setting[1], _typed(_VARIABLE.sub(lambda found: _value_of(found, variables), setting[2])))
    return values


def _value_of(found: re.Match[str], variables: Mapping[str, str]) -> str:
    return variables.get(found[1] or found[2], found[0])


def _typed(text: str) -> Any:
    try:
        node = read_yaml(text, lambda line: Origin("override", text))
    except ConfigError:
        return text
    return plain(node) if node is not None else None


def _put(values: dict[str, Any], key: str, value: Any) -> None:
    *groups, name = key.split(".")
    for group in groups:
        below = values.get(group)
        values[group] = below if isinstance(below, dict) else {}
        values = values[group]
    values[name] = value


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            pairs += _flat(value, f"{prefix}{key}.")
        else:
            pairs.append((f"{prefix}{key}", value))
    return pairs
