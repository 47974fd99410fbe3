"""The large home: 1,000 runs, shards of 1,000,000 samples in the index, 500 checkpoints, curves of 2,000 steps.

Rows only, inserted in bulk: there are no run directories behind them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from home_runs import grpo_job, step_metrics
from job_rows import join

from mmrl.jobs import tables, tables_catalogue
from mmrl.jobs.code_version import code_version
from mmrl.jobs.config_checks import config_hash
from mmrl.jobs.database import Database
from mmrl.jobs.ids import new_id
from mmrl.jobs.states import JobState
from mmrl.jobs.tables import ROLLUP_STEPS
from mmrl.jobs.users import Users

if TYPE_CHECKING:
    from homes import Home

NUM_RUNS = 1000
NUM_SAMPLES = 1_000_000
NUM_CHECKPOINTS = 500
NUM_STEPS = 2000
_CURVED_RUNS = 50
_WHOLE_RUNS = 10
_SHARDS_A_RUN = 10
_STATES = (
    *(JobState.SUCCEEDED,) * 12,
    *(JobState.FAILED,) * 4,
    *(JobState.CANCELLED,) * 2,
    JobState.QUEUED,
    JobState.PAUSED,
)
_KEYS = tuple(step_metrics(1))


def fill_large(home: Home, database: Database) -> None:
    leases = join(database, cpus=64, gpus=tuple(f"GPU-{number}" for number in range(8)))
    owner = Users(database).local().id
    with database.transaction() as connection:
        now = database.now(connection)
        rows = [_job(number, now, owner, leases.worker_id) for number in range(NUM_RUNS)]
        connection.execute(tables.jobs.insert(), rows)
        ids = [row["id"] for row in rows]
        connection.execute(tables.attempts.insert(), [_attempt(row) for row in rows if row["attempt"]])
        connection.execute(tables.job_events.insert(), [event for row in rows for event in _events(row)])
        connection.execute(tables.sample_shards.insert(), [shard for one in ids for shard in _shards(one)])
        connection.execute(
            tables.checkpoints.insert(), [_checkpoint(ids, number, now) for number in range(NUM_CHECKPOINTS)]
        )
        for number, one in enumerate(reversed(ids[-_CURVED_RUNS:])):
            _insert_curves(connection, one, is_whole=number < _WHOLE_RUNS)
        connection.execute(tables_catalogue.datasets.insert(), [_dataset(number, now, owner) for number in range(100)])
    home.jobs = {row["name"]: row["id"] for row in rows}
    home.jobs |= {state.value: row["id"] for row in rows for state in [JobState(row["state"])]}


_CONFIG: dict[str, Any] = {}


def _job(number: int, now: float, owner: str, worker_id: str) -> dict[str, Any]:
    if not _CONFIG:
        _CONFIG.update(grpo_job("large").config)
    at = now - (NUM_RUNS - number) * 600.0
    is_running = number >= NUM_RUNS - 4
    state = JobState.RUNNING if is_running else _STATES[number % len(_STATES)]
    config = _CONFIG | {"name": f"sweep-{number:04d}", "seed": number}
    has_run = state is not JobState.QUEUED
    failed = state is JobState.FAILED
    job_id = new_id(at)
    return {
        "id": job_id,
        "kind": "rl",
        "name": config["name"],
        "owner_id": owner,
        "config": config,
        "config_sha256": config_hash(config),
        "code_version": code_version(),
        "data_hashes": {},
        "state": state.value,
        "desired": "run",
        "pool": "default",
        "backend": "process",
        "cpus": 4,
        "gpus": 1 if is_running else 0,
        "priority": 0,
        "available_at": at,
        "num_waited_for": 0,
        "attempt": int(has_run),
        "max_attempts": 3,
        "retries": 0,
        "lease_epoch": int(has_run),
        "worker_id": worker_id if is_running else None,
        "lease_expires_at": now + 86_400.0 if is_running else None,
        "step": NUM_STEPS if state is JobState.SUCCEEDED else number % NUM_STEPS if has_run else 0,
        "total_steps": NUM_STEPS if has_run else None,
        "error_class": "code" if failed else None,
        "error_message": f"ValueError: row {number} has no answer" if failed else None,
        "exit_code": 6 if failed else 0 if state is JobState.SUCCEEDED else None,
        "run_dir": f"/nowhere/{config['name']}",
        "created_at": at,
        "queued_at": at,
        "started_at": at + 5 if has_run else None,
        "finished_at": at + 500 if state in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED) else None,
        "tags": ["sweep", f"batch-{number // 100}"],
        "note": None,
    }


def _attempt(job: dict[str, Any]) -> dict[str, Any]:
    return {
        "job_id": job["id"],
        "attempt": 1,
        "backend": "process",
        "worker_id": job["worker_id"],
        "token": f"token-{job['id']}",
        "first_step": 0,
        "started_at": job["started_at"],
        "ended_at": job["finished_at"],
        "end_reason": None,
        "exit_code": job["exit_code"],
    }


def _events(job: dict[str, Any]) -> list[dict[str, Any]]:
    ways = [("draft", "queued", "submit")]
    if job["attempt"]:
        ways += [("queued", "starting", "claim"), ("starting", "running", "started")]
    return [
        {
            "job_id": job["id"],
            "attempt": min(index, 1),
            "at": job["created_at"] + index,
            "from_state": way[0],
            "to_state": way[1],
            "cause": way[2],
            "actor": "test",
            "payload": {},
        }
        for index, way in enumerate(ways)
    ]


def _shards(job_id: str) -> list[dict[str, Any]]:
    rows = NUM_SAMPLES // NUM_RUNS // _SHARDS_A_RUN
    return [
        {
            "job_id": job_id,
            "split": "train",
            "step_lo": index * 200 + 1,
            "step_hi": index * 200 + 200,
            "attempt": 1,
            "uri": f"/nowhere/{job_id}/train-{index:06d}.parquet",
            "rows": rows,
            "bytes": rows * 6000,
        }
        for index in range(_SHARDS_A_RUN)
    ]


def _checkpoint(ids: list[str], number: int, now: float) -> dict[str, Any]:
    job_id, step = ids[-1 - number // 10], 200 * (number % 10 + 1)
    return {
        "id": new_id(now),
        "job_id": job_id,
        "attempt": 1,
        "step": step,
        "uri": f"/nowhere/{job_id}/step-{step:06d}",
        "bytes": 7_000_000_000,
        "state": "complete",
        "metrics": {"eval/reward": 0.4 + 0.0001 * step + 0.0002 * number, "eval/exact": 0.5},
        "created_at": now - number * 60.0,
    }


def _insert_curves(connection: sa.Connection, job_id: str, *, is_whole: bool) -> None:
    """Each metric's roll-ups, as `metric_writes` would make them. is_whole: with all single values; of the others only
    two a roll-up, for speed."""
    steps = range(1, NUM_STEPS + 1)
    values = {step: step_metrics(step) for step in steps}
    rows = [
        {"job_id": job_id, "key": key, "step": step, "attempt": 1, "value": values[step][key]}
        for key in _KEYS
        for step in steps
        if is_whole or step % ROLLUP_STEPS in (0, 1)
    ]
    connection.execute(tables.metrics.insert(), rows)
    rollups = []
    for bucket in range(NUM_STEPS // ROLLUP_STEPS + 1):
        inside = [step for step in range(bucket * ROLLUP_STEPS, (bucket + 1) * ROLLUP_STEPS) if step in values]
        for key in _KEYS if inside else ():
            numbers = [values[step][key] for step in inside]
            rollups.append(
                {
                    "job_id": job_id,
                    "key": key,
                    "bucket": bucket,
                    "attempt": 1,
                    "num_values": len(numbers),
                    "total": sum(numbers),
                    "low": min(numbers),
                    "high": max(numbers),
                    "last_step": inside[-1],
                }
            )
    connection.execute(tables.metric_rollups.insert(), rollups)


def _dataset(number: int, now: float, owner: str) -> dict[str, Any]:
    report = {"name": f"data-{number:03d}", "version": "0" * 12, "splits": {}, "source": "made by the tests"}
    return {
        "id": new_id(now),
        "name": report["name"],
        "version": report["version"],
        "uri": f"/nowhere/{report['name']}",
        "sha256": f"{number:064d}",
        "format": "parquet",
        "n_rows": 10_000,
        "bytes": 50_000_000,
        "is_current": True,
        "validation_state": "valid",
        "report": report,
        "owner_id": owner,
        "created_at": now - number * 3600.0,
    }
