"""The form of a run, made from the config's models: what can be set, of which kind, what it means, what its default is.

No list of fields is kept by hand, but of those that are asked first. A new field of a config shows up by itself.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic.fields import FieldInfo

from mmrl.config.base import ConfigModel
from mmrl.config.run import RunConfig
from mmrl.config.schema import item_of, models_of, tag_of
from mmrl.errors import ConfigError

Kind = Literal["switch", "choice", "choices", "whole", "number", "text", "texts", "type", "part", "yaml"]

FEW: Mapping[str, str] = {
    "name": "Name",
    "seed": "Seed",
    "model.path": "Model",
    "model.dtype": "Precision",
    "model.freeze": "Frozen parts",
    "model.lora": "Adapter (LoRA)",
    "data.max_prompt_tokens": "Longest prompt, tokens",
    "algorithm.group_size": "Responses a prompt",
    "rollout.engine": "Sampler",
    "rollout.prompts_per_step": "Prompts a step",
    "rollout.max_response_tokens": "Longest response, tokens",
    "rollout.temperature": "Temperature",
    "sft.batch_size": "Samples a step",
    "preference.batch_size": "Pairs a step",
    "preference.beta": "Beta",
    "reward_model.batch_size": "Pairs a step",
    "optim.lr": "Learning rate",
    "train.steps": "Steps",
    "eval.every": "Steps between evaluations",
    "checkpoint.every": "Steps between checkpoints",
}
"""What is asked first, with its name for people; all else is under Advanced."""

BY_ITSELF = ("kind", "data.train", "data.eval", "algorithm", "preference", "reward")
"""What the page asks in a way of its own."""

_OF_KIND: Mapping[str, tuple[str, ...]] = {
    "rl": ("algorithm", "critic", "canary", "stages"),
    "sft": ("sft",),
    "preference": ("preference",),
    "reward_model": ("reward_model",),
}
"""Groups that one kind of run has and the others do not."""


@dataclass(frozen=True)
class FormField:
    """key: dotted, as in the config. kind: how it is asked; `type` chooses among forms of a part (options are their
    names), `part` turns a part on and off, `yaml` is written as YAML. default: as plain data.
    minimum, maximum: bounds that are allowed themselves. is_nullable: none at all is a value too.
    """

    key: str
    label: str
    help: str
    kind: Kind
    default: Any = None
    options: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    is_nullable: bool = False
    is_required: bool = False

    @property
    def is_few(self) -> bool:
        return self.key in FEW


@dataclass(frozen=True)
class FormGroup:
    """A part of the config. key: that of its fields before the last dot, empty for the topmost."""

    key: str
    title: str
    help: str
    fields: tuple[FormField, ...]


def run_form(data: Mapping[str, Any]) -> list[FormGroup]:
    """The groups of a config's form, given what is chosen in it: its kind, and the types of its parts."""
    kind = str(data.get("kind") or "rl")
    foreign = {name for other, names in _OF_KIND.items() if other != kind for name in names}
    groups: dict[str, list[FormField]] = {}
    for field in _fields(RunConfig, "", data):
        if field.key.partition(".")[0] not in foreign and field.key not in BY_ITSELF:
            groups.setdefault(field.key.rpartition(".")[0], []).append(field)
    return [FormGroup(key, title_of(key), _meaning(key), tuple(fields)) for key, fields in groups.items() if fields]


def few_fields(groups: list[FormGroup]) -> list[FormField]:
    """What is asked first, in the order of FEW."""
    found = {field.key: field for group in groups for field in group.fields}
    return [found[key] for key in FEW if key in found]


def part_fields(model: type[ConfigModel], data: Mapping[str, Any], prefix: str = "") -> list[FormField]:
    """The fields of one class, such as a reward's, under a dotted prefix; `type` is left out."""
    return list(_fields(model, prefix, data))


def title_of(key: str) -> str:
    return key.replace("_", " ").replace(".", " · ").capitalize() if key else "General"


def to_value(field: FormField, text: str) -> Any:
    """What was typed for a `number`, `text` or `yaml` field as plain data; text that cannot be read stays as it is, and
    the check of the config tells what is wrong with it."""
    from mmrl.config.yaml_text import plain_yaml

    stripped = text.strip()
    if field.kind == "text":
        return text if stripped or not field.is_nullable else None
    if not stripped:
        return None
    try:
        return plain_yaml(stripped, field.key)
    except ConfigError:
        return text


def _fields(model: type[ConfigModel], prefix: str, data: Any) -> Iterator[FormField]:
    values = data if isinstance(data, Mapping) else {}
    for name, info in model.model_fields.items():
        if name != "type":
            yield from _field(f"{prefix}{name}", info, values.get(name))


def _field(key: str, info: FieldInfo, value: Any) -> Iterator[FormField]:
    models = models_of(info.annotation)
    default = None if info.is_required() else _plain(info.get_default(call_default_factory=True))
    if not models or item_of(info.annotation) is not None:
        yield _leaf(key, info, default)
        return
    is_nullable = _allows_none(info.annotation)
    if len(models) > 1 and all(tag_of(each) for each in models):
        tags = {str(tag_of(each)): each for each in models}
        yield _of(key, info, "type", default=default, options=tuple(tags), is_nullable=is_nullable)
        chosen = tags.get(_tag(value, default))
        if chosen is not None:
            yield from _fields(chosen, f"{key}.", value)
        return
    if is_nullable:
        yield _of(key, info, "part", default=default, is_nullable=True)
        if value is None:
            return
    yield from _fields(models[0], f"{key}.", value)


def _tag(value: Any, default: Any) -> str:
    for each in (value, default):
        if isinstance(each, Mapping) and each.get("type"):
            return str(each["type"])
    return ""


def _leaf(key: str, info: FieldInfo, default: Any) -> FormField:
    annotation, is_nullable = _without_none(info.annotation)
    item = item_of(annotation)
    literals = _literals(annotation if item is None else item)
    kind: Kind
    if literals:
        kind = "choice" if item is None else "choices"
    elif item is not None:
        kind = "texts" if _is(item, str) and not models_of(item) else "yaml"
    elif annotation is bool:
        kind = "switch"
    elif annotation is int:
        kind = "whole"
    elif annotation is float:
        kind = "number"
    else:
        kind = "text" if _is(annotation, str) else "yaml"
    low, high = _bounds(info)
    return _of(key, info, kind, default=default, options=literals, is_nullable=is_nullable, low=low, high=high)


def _of(
    key: str,
    info: FieldInfo,
    kind: Kind,
    *,
    default: Any,
    options: tuple[str, ...] = (),
    is_nullable: bool = False,
    low: float | None = None,
    high: float | None = None,
) -> FormField:
    label = FEW.get(key) or key.rpartition(".")[2].replace("_", " ").capitalize()
    meaning = " ".join((info.description or "").split())
    return FormField(key, label, meaning, kind, default, options, low, high, is_nullable, info.is_required())


def _plain(value: Any) -> Any:
    """A default as YAML would hold it."""
    if isinstance(value, ConfigModel):
        return value.model_dump(mode="json")
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) is Annotated:
        return _without_none(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        others = [each for each in get_args(annotation) if each is not type(None)]
        if len(others) == 1:
            return _without_none(others[0])[0], True
    return annotation, False


def _allows_none(annotation: Any) -> bool:
    if get_origin(annotation) is Annotated:
        return _allows_none(get_args(annotation)[0])
    return get_origin(annotation) in (Union, types.UnionType) and type(None) in get_args(annotation)


def _literals(annotation: Any) -> tuple[str, ...]:
    if get_origin(annotation) is Annotated:
        return _literals(get_args(annotation)[0])
    values = get_args(annotation) if get_origin(annotation) is Literal else ()
    return tuple(values) if all(isinstance(each, str) for each in values) else ()


def _is(annotation: Any, wanted: type) -> bool:
    return annotation is wanted or (get_origin(annotation) is Annotated and _is(get_args(annotation)[0], wanted))


def _bounds(info: FieldInfo) -> tuple[float | None, float | None]:
    """The lowest and highest whole numbers allowed; None where there is no bound, or one that is not allowed itself."""
    low = next((float(each.ge) for each in info.metadata if isinstance(each, annotated_types.Ge)), None)  # type: ignore[arg-type]
    high = next((float(each.le) for each in info.metadata if isinstance(each, annotated_types.Le)), None)  # type: ignore[arg-type]
    return low, high


def _meaning(key: str) -> str:
    """What a group is for: of the field that holds it."""
    info: FieldInfo | None = None
    models: tuple[Any, ...] = (RunConfig,)
    for part in key.split(".") if key else ():
        info = next((model.model_fields[part] for model in models if part in model.model_fields), None)
        models = models_of(info.annotation) if info is not None else ()
    return " ".join((info.description or "").split()) if info is not None else ""
