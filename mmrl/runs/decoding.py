"""From the rows of a parquet shard back to records."""

from __future__ import annotations

import json
import statistics
from itertools import groupby
from pathlib import Path
from typing import Any

from mmrl.data.serialise import messages_from_json
from mmrl.runs.records import GroupRecord, ResponseRecord, StepSummary, TokenRecord
from mmrl.runs.shards import SCHEMA, TOKEN_COLUMNS, read_shard
from mmrl.types import RewardPart

_SUMMARY_COLUMNS = (
    "split",
    "step",
    "attempt",
    "group_id",
    "kept_because",
    "reward_total",
    "length",
    "finish_reason",
)


def read_groups(path: Path, *, with_tokens: bool) -> list[GroupRecord]:
    """The groups of a shard; without tokens, what is per token is None."""
    columns = None if with_tokens else [name for name in SCHEMA.names if name not in TOKEN_COLUMNS]
    rows = read_shard(path, columns=columns)
    return [_group(list(members)) for _, members in groupby(rows, key=lambda row: row["group_id"])]


def read_group(path: Path, group_id: int) -> GroupRecord | None:
    """One group of a shard with all that is known of it, read from its own row groups only; None where it has none."""
    rows = read_shard(path, group_id=group_id)
    return _group(rows) if rows else None


def read_summary(path: Path) -> StepSummary:
    """Figures of a shard, from its small columns only."""
    rows = read_shard(path, columns=_SUMMARY_COLUMNS)
    totals = [row["reward_total"] for row in rows if row["reward_total"] is not None]
    return StepSummary(
        split=rows[0]["split"],
        step=rows[0]["step"],
        attempt=rows[0]["attempt"],
        num_groups=len({row["group_id"] for row in rows}),
        num_responses=len(rows),
        num_full=len({row["group_id"] for row in rows if row["kept_because"] is not None}),
        num_missing=len(rows) - len(totals),
        num_truncated=sum(row["finish_reason"] == "length" for row in rows),
        reward_mean=statistics.fmean(totals) if totals else None,
        reward_std=statistics.stdev(totals) if len(totals) > 1 else None,
        length_mean=statistics.fmean(row["length"] for row in rows),
    )


def _group(rows: list[dict[str, Any]]) -> GroupRecord:
    first = rows[0]
    return GroupRecord(
        attempt=first["attempt"],
        split=first["split"],
        step=first["step"],
        group_id=first["group_id"],
        prompt_id=first["prompt_id"],
        reward_mean=first["group_mean"],
        reward_std=first["group_std"],
        kept_because=first["kept_because"],
        kept_rate=first["kept_rate"],
        responses=tuple(_response(row) for row in rows),
        prompt=None if first["messages"] is None else messages_from_json(json.loads(first["messages"])),
        answer=first["answer"],
        meta=None if first["meta"] is None else json.loads(first["meta"]),
        greedy=None if first.get("greedy") is None else _response(first["greedy"]),
    )


def _part(row: dict[str, Any]) -> RewardPart:
    """A shard that was written before parts had extras or a scale lacks these fields."""
    extras = row.get("extras")
    return RewardPart(**{**row, "extras": {} if extras is None else json.loads(extras)})


def _response(row: dict[str, Any]) -> ResponseRecord:
    return ResponseRecord(
        sample_idx=row["sample_idx"],
        seed=row["seed"],
        policy_version=row["policy_version"],
        reward=row["reward_total"],
        parts=tuple(map(_part, row["reward_parts"])),
        advantage=row.get("advantage"),
        length=row["length"],
        finish_reason=row["finish_reason"],
        turns=row["turns"],
        text=row["response"],
        token_ids=_tuple(row.get("token_ids")),
        response_mask=_tuple(row.get("response_mask"), int),
        logprobs=_tuple(row.get("logprobs")),
        tokens=TokenRecord(
            actor_logprobs=_tuple(row.get("actor_logprobs")),
            reference_logprobs=_tuple(row.get("reference_logprobs")),
            entropy=_tuple(row.get("entropy")),
        ),
    )


def _tuple(values: list[Any] | None, kind: type | None = None) -> tuple[Any, ...] | None:
    if values is None:
        return None
    return tuple(values) if kind is None else tuple(kind(value) for value in values)
