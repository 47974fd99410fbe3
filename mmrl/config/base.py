"""The base of all config models and the field types that several of them share."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationInfo

from mmrl.config.secrets import is_secret_key, redact_under

_VARIABLE = re.compile(r"\$\{?(\w+)")
_UNSET_VARIABLE = re.compile(r"\$\{(\w+)\}")


def home() -> Path:
    """The folder that holds mmrl's state: `MMRL_HOME`, or `~/.mmrl`."""
    return Path(os.environ.get("MMRL_HOME") or "~/.mmrl").expanduser()


def expand_path(text: str) -> str:
    """`~` and `${MMRL_HOME}` (or any `${VARIABLE}` that is set) expanded; anything else as it is."""
    return os.path.expanduser(os.path.expandvars(text.replace("${MMRL_HOME}", str(home()))))


def find_path(text: str, folders: Iterable[Path]) -> str:
    """A relative path made absolute under the first of `folders` in which it exists; anything else as it is.

    A word without separator or suffix is a name (of a data set or a module) and is never taken for a path.
    `PATH@SPLIT` is looked up as PATH.
    """
    looks_like_path = "/" in text or os.sep in text or bool(Path(text).suffix)
    if not looks_like_path or "://" in text or os.path.isabs(text):
        return text
    stem, at, split = text.rpartition("@")
    for folder in folders:
        if (folder / text).exists():
            return os.path.abspath(folder / text)
        if at and stem and (folder / stem).exists():
            return os.path.abspath(folder / stem) + at + split
    return text


def _check_tells_no_secret(text: str) -> None:
    """A path is shown in logs, errors and stored configs, and so would be what a variable in it holds."""
    for name in _VARIABLE.findall(text):
        value = os.environ.get(name, "")
        if is_secret_key(name) or redact_under(name, value) != value:
            raise ValueError(
                f"the environment variable {name} in {text!r} holds a secret, and a path is shown to others; write the "
                "path out, or use a variable that may be read"
            )


def _resolve_path(text: str, info: ValidationInfo) -> str:
    _check_tells_no_secret(text)
    expanded = expand_path(text)
    unset = _UNSET_VARIABLE.search(expanded)
    if unset:
        raise ValueError(f"the environment variable {unset[1]} in {text!r} is not set; set it, or write the path out")
    if not info.context:
        return expanded
    return find_path(expanded, (Path.cwd(), info.context["folder"]))


PathText = Annotated[str, AfterValidator(_resolve_path)]
"""A path, or a name where the field allows one. Loading from a file makes relative paths absolute, see `find_path`."""


def default_type(name: str) -> BeforeValidator:
    """For a field that is a union told apart by `type`: a map without `type` is taken to be of type `name`."""

    def add_type(value: Any) -> Any:
        return {"type": name, **value} if isinstance(value, dict) and "type" not in value else value

    return BeforeValidator(add_type)


class ConfigModel(BaseModel):
    """Frozen, unknown keys refused, each field with one line of meaning that forms show as help."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        validate_default=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        defer_build=True,  # a class is built when it is first used: a third off the time that the import takes
    )

    @property
    def changed(self) -> set[str]:
        """The fields whose values are not their defaults. A config read from a dump sets every field, so that one is
        set says nothing."""
        return {name for name, field in type(self).model_fields.items() if getattr(self, name) != field.get_default()}

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Secrets stay out of logs and tracebacks too."""
        for name, value in super().__repr_args__():
            yield name, redact_under(name or "", value)
