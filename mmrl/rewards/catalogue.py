"""What rewards there are and what can be set about them, from their config classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic.fields import FieldInfo

from mmrl.config.reward import RewardConfig

_LAST = ("weight", "name")


@dataclass(frozen=True)
class RewardField:
    """default: None for a field that must be set; `required` tells it from a default of None."""

    name: str
    type: str
    required: bool
    default: Any
    description: str


@dataclass(frozen=True)
class RewardType:
    type: str
    description: str
    fields: tuple[RewardField, ...]


def reward_types() -> list[RewardType]:
    """Every reward that a config can name, in the order of the config's union."""
    return [_reward_type(member) for member in get_args(get_args(RewardConfig)[0])]


def _reward_type(config_class: Any) -> RewardType:
    fields: dict[str, FieldInfo] = dict(config_class.model_fields)
    tag = fields.pop("type").default
    ordered = sorted(fields, key=lambda name: _LAST.index(name) if name in _LAST else -1)
    return RewardType(
        type=tag,
        description=" ".join((config_class.__doc__ or "").split()),
        fields=tuple(_field(name, fields[name]) for name in ordered),
    )


def _field(name: str, info: FieldInfo) -> RewardField:
    return RewardField(
        name=name,
        type=_type_text(info.annotation),
        required=info.is_required(),
        default=None if info.is_required() else info.default,
        description=" ".join((info.description or "").split()),
    )


def _type_text(annotation: Any) -> str:
    """`tuple[str, ...]` as `list of str`, `float | None` as it is, a reward as `reward`."""
    if "RewardConfig" in str(annotation):
        return "list of reward" if get_origin(annotation) is tuple else "reward"
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation.__name__
    text = str(annotation).replace("typing.", "")
    return text.replace("tuple[", "list of ").replace(", ...]", "") if text.startswith("tuple[") else text
