"""A first look at a run's samples: how many there are, and a few of the last ones. Reads a few hundred rows at most."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from mmrl.data.serialise import messages_from_json
from mmrl.errors import DataError
from mmrl.jobs.job_reads import JobReads
from mmrl.jobs.records import Job, ShardRow, local_path

NUM_ROWS = 5
_COLUMNS = ("step", "messages", "images", "answer", "response", "reward_total", "length", "finish_reason")
_LONGEST = 2000


@dataclass(frozen=True)
class SampleRow:
    """prompt: its last turn. None where only the numbers were kept. num_images: of the prompt."""

    step: int
    prompt: str | None
    num_images: int
    answer: str | None
    response: str | None
    reward: float | None
    length: int
    finish_reason: str


@dataclass(frozen=True)
class SampleGlance:
    """num_rows: responses by split, all steps together. rows: of the last step kept of `split`."""

    num_rows: dict[str, int]
    split: str | None = None
    rows: tuple[SampleRow, ...] = ()


def glance(jobs: JobReads, job: Job) -> SampleGlance:
    """Raises DataError for samples that are not here, or cannot be read."""
    shards = jobs.shards(job.id)
    num_rows: dict[str, int] = {}
    for shard in shards:
        num_rows[shard.split] = num_rows.get(shard.split, 0) + shard.num_rows
    if not shards:
        return SampleGlance({})
    split = "train" if "train" in num_rows else min(num_rows)
    last = max((shard for shard in shards if shard.split == split), key=lambda shard: shard.step_hi)
    return SampleGlance(num_rows, split, tuple(_last_rows(_path(last))))


def _path(shard: ShardRow) -> Path:
    path = local_path(shard.uri)
    if path is None:
        raise DataError(f"the samples are at {shard.uri}, which is not on this machine")
    return path


def _last_rows(path: Path) -> Sequence[SampleRow]:
    """Those of the last row group that were kept in full, else those of which the numbers were."""
    try:
        with pq.ParquetFile(path) as file:
            present = [name for name in _COLUMNS if name in file.schema_arrow.names]
            rows = file.read_row_group(file.num_row_groups - 1, columns=present).to_pylist()
        full = [row for row in rows if row.get("response") is not None] or rows
        return [_row(row) for row in full[-NUM_ROWS:]]
    except FileNotFoundError as error:
        raise DataError(f"{path} is gone; samples are read from the run directory") from error
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} cannot be read as samples: {' '.join(str(error).split())[:200]}") from error


def _row(row: dict[str, object]) -> SampleRow:
    messages = row.get("messages")
    images = row.get("images")
    return SampleRow(
        step=int(str(row["step"])),
        prompt=_prompt(messages) if isinstance(messages, str) else None,
        num_images=len(images) if isinstance(images, list) else 0,
        answer=_cut(row.get("answer")),
        response=_cut(row.get("response")),
        reward=row["reward_total"] if isinstance(row["reward_total"], float) else None,
        length=int(str(row["length"])),
        finish_reason=str(row["finish_reason"]),
    )


def _prompt(messages: str) -> str:
    turns = messages_from_json(json.loads(messages))
    return (_cut(turns[-1].text) or "") if turns else ""


def _cut(text: object) -> str | None:
    if not isinstance(text, str):
        return None
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " …"
