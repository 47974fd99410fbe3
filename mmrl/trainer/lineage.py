"""Where a model comes from: run, step, config, data, metrics, and the model that the run began with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mmrl import __version__
from mmrl.checkpoint_files import STATE_FILE
from mmrl.evaluation.records import Evaluation, evaluations_in
from mmrl.runs import layout
from mmrl.runs.checkpoint_refs import ModelRef
from mmrl.runs.config_file import parse_config
from mmrl.runs.forks import read_fork


@dataclass(frozen=True)
class Lineage:
    """name: of the run, or of the model's folder where no run made it. config: of the checkpoint's attempt, no secrets.

    data: training set -> hash of its content and number of samples. base: path of the model that the run began with.
    base_files: SHA-256 of its files. metrics: of the checkpoint. evaluations: what is known of it besides.
    forked_from: the checkpoint that the run began at, where it is a fork.
    """

    name: str
    run_dir: str | None
    step: int | None
    config: Mapping[str, Any]
    base: str | None
    base_files: Mapping[str, str]
    data: Mapping[str, Mapping[str, Any]]
    metrics: Mapping[str, float]
    evaluations: tuple[Mapping[str, Any], ...] = ()
    forked_from: Mapping[str, Any] | None = None
    mmrl: str = field(default=__version__)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def lineage_of(ref: ModelRef) -> Lineage:
    """As far as it is written down; of a model that no run made, hardly anything is."""
    if ref.checkpoint is None or ref.run_dir is None:
        return Lineage(ref.model.name, None, None, {}, None, {}, {}, {})
    config = _read_yaml(ref.checkpoint / layout.CONFIG_FILE)
    state = _read_json(ref.checkpoint / STATE_FILE)
    parts = (state.get("prompts") or {}).get("parts", [])
    return Lineage(
        name=str(config.get("name", ref.run_dir.name)),
        run_dir=str(ref.run_dir),
        step=ref.step,
        config=config,
        base=(config.get("model") or {}).get("path"),
        base_files=(state.get("model") or {}).get("files", {}),
        data={part["name"]: {"content": part["content"], "num_samples": part["num_samples"]} for part in parts},
        metrics=_read_json(ref.checkpoint / layout.MANIFEST_FILE).get("metrics", {}),
        evaluations=tuple(
            {
                "id": each.id,
                "panel": each.panel,
                "panel_hash": each.panel_hash,
                "data": each.data,
                **each.summary.flat(),
            }
            for each in evaluations_in(ref.run_dir)
            if each.model.step == ref.step
        ),
        forked_from=read_fork(ref.run_dir),
    )


def _evaluation(each: Evaluation) -> dict[str, Any]:
    facts = {"id": each.id, "panel": each.panel, "panel_hash": each.panel_hash, "data": each.data}
    return facts | each.summary.flat()


def _read_yaml(path: Path) -> dict[str, Any]:
    return parse_config(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _read_json(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(path.read_bytes()) if path.is_file() else {}
    return values
