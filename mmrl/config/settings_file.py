"""Settings of a part of mmrl: a YAML file in mmrl's home under variables of the environment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeVar, get_origin

from pydantic import ValidationError

from mmrl.config.base import ConfigModel
from mmrl.errors import ConfigError

SettingsT = TypeVar("SettingsT", bound=ConfigModel)


def read_settings(model: type[SettingsT], file: Path, *, prefix: str, what: str) -> SettingsT:
    """The settings from `file`, which need not exist, and from `<prefix><FIELD>`, which is put over it.

    Lists in the environment are separated by commas. what: whose settings, for messages. Raises ConfigError that names
    the file and the variables.
    """
    try:
        return model.model_validate({**_from_file(file), **_from_environment(model, prefix)})
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, item['loc'])) or 'all'}: {item['msg']}" for item in error.errors())
        known = ", ".join(model.model_fields)
        raise ConfigError(f"settings of {what} ({file}, {prefix}*): {faults}; known are {known}") from error


def _from_file(file: Path) -> dict[str, Any]:
    from mmrl.config.nodes import MapNode, Origin, plain
    from mmrl.config.yaml_text import read_yaml

    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}; mend its permissions or remove it") from error
    root = read_yaml(text, lambda line: Origin("file", f"{file}:{line}"))
    if root is None:
        return {}
    if not isinstance(root, MapNode):
        raise ConfigError(f"{file}: must be a map of settings, such as `name: value`")
    values: dict[str, Any] = plain(root)
    return values


def _from_environment(model: type[ConfigModel], prefix: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        text = os.environ.get(prefix + name.upper())
        if text:
            is_list = get_origin(field.annotation) is tuple
            found[name] = tuple(word.strip() for word in text.split(",") if word.strip()) if is_list else text
    return found
