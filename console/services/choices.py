"""What a form can offer for a model and for data: what is there, and what was used before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from console.services.beginnings import Template
from console.services.drafts import Draft
from mmrl.config.base import home
from mmrl.data.registry import DatasetInfo, DatasetRegistry
from mmrl.errors import MmrlError
from mmrl.jobs.records import Job

_NUM_MODELS = 40


def known_models(jobs: Iterable[Job], templates: Iterable[Template]) -> list[str]:
    """Paths and names of models: those prepared here, those of past runs, those of the templates; each once."""
    prepared = sorted(str(file.parent) for file in home().glob("*/*/config.json") if (file.parent.name == "model"))
    used = [path for job in jobs if (path := _model_of(job.config))]
    offered = [path for template in templates if (path := _model_in(template.text))]
    return list(dict.fromkeys([*prepared, *used, *offered]))[:_NUM_MODELS]


def known_data(registry: DatasetRegistry) -> dict[str, int]:
    """NAME@SPLIT of every registered data set that can be read, with its rows; by name."""
    found: dict[str, int] = {}
    for name in registry.names():
        info = _info(registry, name)
        if info is not None:
            found |= {f"{name}@{split}": each.num_rows for split, each in info.splits.items()}
    return found


def train_refs(value: Any) -> list[str]:
    """The data sets of `data.train` as a draft has it: one, or several."""
    if isinstance(value, str):
        return [value] if value else []
    parts = value if isinstance(value, Sequence) else []
    return [str(part.get("name")) for part in parts if isinstance(part, Mapping) and part.get("name")]


def train_weights(value: Any) -> dict[str, float]:
    """The weight of each of several; 1 where none is written."""
    weights: dict[str, float] = {}
    for part in value if isinstance(value, list) else []:
        if isinstance(part, Mapping) and part.get("name"):
            weight = part.get("weight", 1.0)
            weights[str(part["name"])] = float(weight) if isinstance(weight, int | float) else 1.0
    return weights


def train_value(refs: Sequence[str], weights: Mapping[str, float]) -> Any:
    """The same for a draft: one name alone, or several with weights; None for none."""
    if len(refs) < 2:
        return refs[0] if refs else None
    return [{"name": ref, "weight": weights.get(ref, 1.0)} for ref in refs]


def resolve_ref(ref: str, known: Mapping[str, int]) -> str:
    """A bare name as the NAME@SPLIT that it means, where that is one of those known."""
    if ref in known or "@" in ref:
        return ref
    splits = [each for each in known if each.rpartition("@")[0] == ref]
    return f"{ref}@train" if f"{ref}@train" in splits else splits[0] if len(splits) == 1 else ref


def _info(registry: DatasetRegistry, name: str) -> DatasetInfo | None:
    try:
        return registry.find(name)
    except MmrlError:
        return None


def _model_of(config: Mapping[str, Any]) -> str:
    model = config.get("model")
    return str(model.get("path") or "") if isinstance(model, Mapping) else ""


def _model_in(text: str) -> str:
    path = _model_of(Draft("", "", text, "", 0.0, "").data or {})
    return "" if "${" in path else path
