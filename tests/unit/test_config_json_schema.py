"""The JSON Schema that forms are made from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mmrl.config import RunConfig, plain_config
from mmrl.config.schema import known_keys


def properties(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, model in {"RunConfig": schema, **schema["$defs"]}.items():
        for key, field in model.get("properties", {}).items():
            yield f"{name}.{key}", field


def test_every_property_has_a_description() -> None:
    assert [key for key, field in properties(RunConfig.model_json_schema()) if not field.get("description")] == []


def test_defaults_and_bounds_are_in_the_schema() -> None:
    fields = dict(properties(RunConfig.model_json_schema()))
    assert fields["OptimConfig.lr"]["default"] == 1e-6
    assert fields["OptimConfig.lr"]["exclusiveMinimum"] == 0
    assert fields["ModelConfig.dtype"]["enum"] == ["float32", "bfloat16", "float64"]


def test_unions_are_told_apart_by_type() -> None:
    algorithm = RunConfig.model_json_schema()["properties"]["algorithm"]
    assert algorithm["discriminator"]["propertyName"] == "type"
    assert {"grpo", "dr_grpo"} <= set(algorithm["discriminator"]["mapping"])


def test_no_property_takes_unknown_keys() -> None:
    schema = RunConfig.model_json_schema()
    assert all(model.get("additionalProperties") is False for model in [schema, *schema["$defs"].values()])


def test_known_keys_cover_every_key_of_a_config() -> None:
    config = RunConfig(name="a", kind="sft", model={"path": "m"}, data={"train": "d"})  # type: ignore[arg-type]

    def keys(data: dict[str, Any], prefix: str = "") -> Iterator[str]:
        for key, value in data.items():
            yield prefix + key
            if isinstance(value, dict):
                yield from keys(value, f"{prefix}{key}.")

    assert set(keys(plain_config(config))) <= set(known_keys())
