"""MLflow, by its client alone: any tracking server, or a folder or database of its own.

`MLFLOW_TRACKING_URI` (default: a database `mlflow.db` in the run directory), `MLFLOW_EXPERIMENT_NAME` (default: mmrl)
and the credentials of MLflow's own variables hold as usual.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mmrl.runs.disk import write_whole
from mmrl.runs.records import StateName
from mmrl.runs.tracker_base import SampleRow, Segment

_PARAMS_A_CALL = 90
_METRICS_A_CALL = 900
_PARAM_CHARACTERS = 500


class MlflowTracker:
    """The attempts of a run share one MLflow run, whose id is kept in `<run-dir>/mlflow-id`."""

    def __init__(self, run_dir: Path) -> None:
        # Its own telemetry would ask the network before the first metric.
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow.tracking import MlflowClient

        self._run_dir = run_dir
        self._segment = Segment.of(run_dir)
        uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{run_dir / 'mlflow.db'}"
        self._client = MlflowClient(tracking_uri=uri)
        self._run_id = ""

    def start(self, config: Mapping[str, Any]) -> None:
        self._run_id = self._open(str(config.get("name", self._run_dir.name)))
        client, segment = self._client, self._segment
        client.set_tag(self._run_id, f"segment.{segment.number}", f"steps after {segment.sent_until} are new")
        if segment.number == 1 or not client.get_run(self._run_id).data.params:
            self._log_params(_flat(config))
        client.log_dict(self._run_id, dict(config), f"config-{segment.number}.json")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        named = self._segment.named(step, metrics)
        values = [
            Metric(_metric_name(name), float(value), now, step)
            for name, value in named.items()
            if math.isfinite(float(value))
        ]
        for first in range(0, len(values), _METRICS_A_CALL):
            self._client.log_batch(self._run_id, metrics=values[first : first + _METRICS_A_CALL])

    def samples(self, rows: Sequence[SampleRow]) -> None:
        """One JSON file a step and split, images beside it by name."""
        first = rows[0]
        folder = f"samples/{first.split}/segment-{self._segment.number}"
        table = [
            {
                "step": row.step,
                "prompt": row.prompt,
                "images": [image.name for image in row.images],
                "answer": row.answer,
                "response": row.response,
                "reward": row.reward,
                **{f"reward/{name}": value for name, value in row.parts.items()},
            }
            for row in rows
        ]
        self._client.log_text(self._run_id, json.dumps(table, indent=1), f"{folder}/step-{first.step:06d}.json")

    def finish(self, state: StateName) -> None:
        status = {"succeeded": "FINISHED", "cancelled": "KILLED", "paused": "KILLED"}.get(state, "FAILED")
        self._client.set_tag(self._run_id, "state", state)
        self._client.set_terminated(self._run_id, status=status)

    def _open(self, name: str) -> str:
        """The run that earlier attempts began, else a new one."""
        path = self._run_dir / "mlflow-id"
        if path.exists():
            run_id = path.read_text().strip()
            self._client.update_run(run_id, status="RUNNING")
            return run_id
        experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME", "mmrl")
        found = self._client.get_experiment_by_name(experiment)
        experiment_id = found.experiment_id if found is not None else self._client.create_experiment(experiment)
        run_id = str(self._client.create_run(experiment_id, run_name=name).info.run_id)
        write_whole(path, run_id.encode())
        return run_id

    def _log_params(self, params: Mapping[str, str]) -> None:
        from mlflow.entities import Param

        entries = [Param(_metric_name(key), value[:_PARAM_CHARACTERS]) for key, value in params.items()]
        for first in range(0, len(entries), _PARAMS_A_CALL):
            self._client.log_batch(self._run_id, params=entries[first : first + _PARAMS_A_CALL])


def _flat(value: Any, prefix: str = "") -> dict[str, str]:
    if isinstance(value, Mapping) and value:
        found: dict[str, str] = {}
        for key, entry in value.items():
            found |= _flat(entry, f"{prefix}.{key}" if prefix else str(key))
        return found
    return {prefix: value if isinstance(value, str) else json.dumps(value, default=str)} if prefix else {}


def _metric_name(name: str) -> str:
    """MLflow takes letters, digits, `_-. :/` and spaces."""
    return "".join(char if char.isalnum() or char in "_-. :/" else "_" for char in name)
