"""A config as plain data, YAML or text: the one place where configs are written out, so the one where secrets leave."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML
from ruamel.yaml.representer import SafeRepresenter

from mmrl.config.nodes import Origin, Scalar
from mmrl.config.secrets import redact
from mmrl.config.yaml_text import read_yaml
from mmrl.errors import ConfigError

if TYPE_CHECKING:
    from mmrl.config.kinds import AnyConfig


def plain_config(config: AnyConfig) -> dict[str, Any]:
    """The whole config as dicts, lists and JSON scalars, defaults included, secrets replaced by `<redacted>`.

    Whatever writes, prints or sends a config (run directory, trackers, commands) takes it from here.
    """
    data: dict[str, Any] = redact(config.model_dump(mode="json"))
    return data


def dump_yaml(config: AnyConfig) -> str:
    """The whole config as YAML 1.2 that `load_config` reads back to an equal config, but for its secrets."""
    return yaml_text(plain_config(config))


def yaml_text(data: dict[str, Any]) -> str:
    """Plain data as YAML 1.2, in the order that it has; secrets are the caller's concern."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Representer = _Representer
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.allow_unicode = True
    yaml.width = 1_000_000
    buffer = io.StringIO()
    yaml.dump(data, buffer)
    return buffer.getvalue()


def value_text(value: Any) -> str:
    """A scalar or a list of scalars on one line, as an override takes it."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(value_text(item) for item in value)}]"
    if isinstance(value, str):
        return value if _is_plain(value) else _quoted(value)
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False)


class _Representer(SafeRepresenter):
    """Text with characters that YAML's plain and single-quoted styles would fold or drop goes into double quotes."""

    def represent_text(self, data: str) -> Any:
        is_safe = all(char.isprintable() or char == "\n" for char in data)
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=None if is_safe else '"')


_Representer.add_representer(str, _Representer.represent_text)


def _quoted(text: str) -> str:
    """In double quotes, what cannot be printed as an escape."""
    escaped = json.dumps(text, ensure_ascii=False)
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in escaped)


def _is_plain(text: str) -> bool:
    """Whether YAML reads the unquoted text, also inside a list, as that very text."""
    if not text.isprintable() or any(mark in text for mark in ",[]{}"):
        return False
    try:
        node = read_yaml(text, lambda line: Origin("override"))
    except ConfigError:
        return False
    return isinstance(node, Scalar) and node.value == text
