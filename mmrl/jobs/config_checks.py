"""What a job's config may not hold, and what it takes a right for: secrets, code, what leaves the machine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from mmrl.config.secrets import is_reference, is_secret_key, redact
from mmrl.config.yaml_bounds import MAX_NODES, MAX_STORED_BYTES
from mmrl.data.serialise import canonical
from mmrl.errors import ConfigError

_ASKING_REWARDS = ("judge", "remote")
"""Rewards that post to an address, which a judge has also where none is written."""


def refuse_literal_secrets(config: Mapping[str, Any]) -> None:
    """Raises ConfigError that names the keys under which a secret stands as it is, and shows none of them."""
    faults = [key for key, name, value in _leaves(config) if _is_secret(name, value)]
    if faults:
        raise ConfigError(
            f"{', '.join(faults)}: a secret may not stand in a job's config, which is stored and shown; write "
            "env:NAME (a variable of the environment of the workers) or file:PATH (a file that they can read)"
        )


def code_keys(config: Mapping[str, Any]) -> list[str]:
    """The keys with which a config does what its account may and its author need not: run Python code that is not
    mmrl's (files, functions, remote code of models), read a secret (`env:NAME`, `file:PATH`), ask a server."""
    return [key for key, name, value in _leaves(config) if _is_code(key, name, value) or _reaches_out(name, value)]


def config_hash(config: Mapping[str, Any]) -> str:
    """SHA-256 of the config in one form: the order of keys makes no difference.

    Raises ConfigError for text that is no Unicode, which no file and no database takes, and for more than a config
    that is read again from its file may have.
    """
    try:
        data = canonical(config).encode("utf-8")
    except UnicodeEncodeError as error:
        raise ConfigError(f"the config holds half of a surrogate pair ({error}); write the character itself") from error
    if len(data) > MAX_STORED_BYTES:
        raise ConfigError(
            f"the config has {len(data):,} bytes; at most {MAX_STORED_BYTES:,} are allowed; put data into files "
            "and name those"
        )
    if (number := _num_values(config)) > MAX_NODES:
        raise ConfigError(
            f"the config has {number:,} values with its defaults; at most {MAX_NODES:,} are read; put data into files "
            "and name those"
        )
    return hashlib.sha256(data).hexdigest()


def _leaves(value: Any, key: str = "", name: str = "") -> Iterator[tuple[str, str, Any]]:
    """(dotted key, last name in it that is none of a list, value) of every scalar."""
    if isinstance(value, Mapping):
        for word, item in value.items():
            yield from _leaves(item, f"{key}.{word}".lstrip("."), str(word))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{key}.{index}", name)
    else:
        yield key, name, value


def _is_secret(name: str, value: Any) -> bool:
    if not isinstance(value, str) or not value or is_reference(value):
        return False
    return is_secret_key(name) or redact(value) != value


def _is_code(key: str, name: str, value: Any) -> bool:
    if name == "trust_remote_code":
        return bool(value)
    if name == "type" and value == "function":
        return True
    is_loaded = name == "path" and (key.startswith("stages.") or key.endswith("advantage.path"))
    return isinstance(value, str) and (is_loaded or value.endswith(".py"))


def _reaches_out(name: str, value: Any) -> bool:
    if not isinstance(value, str):
        return False
    return is_reference(value) or name == "url" or (name == "type" and value in _ASKING_REWARDS)


def _num_values(value: Any) -> int:
    """Of a config as YAML counts them: maps, lists and scalars, each one."""
    inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return 1 + sum(map(_num_values, inside))
