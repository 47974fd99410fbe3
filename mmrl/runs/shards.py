"""The parquet form of samples: one row a response, the columns of a group repeated on each of its rows."""

from __future__ import annotations

import io
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mmrl.data.serialise import messages_to_json
from mmrl.errors import DataError
from mmrl.runs.disk import plain
from mmrl.runs.recording import Selection
from mmrl.runs.records import TokenRecord
from mmrl.types import RewardPart, RewardResult, Rollout, ScoredGroup

SCHEMA_VERSION = 1
ROWS_PER_ROW_GROUP = 64

_FLOATS = pa.list_(pa.float32())

_PARTS = pa.list_(
    pa.struct(
        [
            ("name", pa.string()),
            ("value", pa.float64()),
            ("weight", pa.float64()),
            ("extracted", pa.string()),
            ("explanation", pa.string()),
            ("error", pa.string()),
            ("ms", pa.float64()),
            ("scaled", pa.float64()),
            ("vetoes", pa.bool_()),
            ("extras", pa.string()),
        ]
    )
)
_GREEDY = pa.struct(
    [
        ("policy_version", pa.int64()),
        ("sample_idx", pa.int32()),
        ("seed", pa.uint64()),
        ("response", pa.string()),
        ("reward_total", pa.float64()),
        ("reward_parts", _PARTS),
        ("length", pa.int32()),
        ("finish_reason", pa.string()),
        ("turns", pa.int32()),
    ]
)

SCHEMA = pa.schema(
    [
        ("schema_version", pa.int16()),
        ("attempt", pa.int32()),
        ("split", pa.string()),
        ("step", pa.int64()),
        ("policy_version", pa.int64()),
        ("prompt_id", pa.string()),
        ("group_id", pa.int32()),
        ("sample_idx", pa.int32()),
        ("seed", pa.uint64()),
        ("kept_because", pa.string()),
        ("kept_rate", pa.float64()),
        ("messages", pa.string()),
        ("images", pa.list_(pa.struct([("sha256", pa.string()), ("width", pa.int32()), ("height", pa.int32())]))),
        ("answer", pa.string()),
        ("meta", pa.string()),
        ("response", pa.string()),
        ("reward_total", pa.float64()),
        ("reward_parts", _PARTS),
        ("advantage", pa.float64()),
        ("group_mean", pa.float64()),
        ("group_std", pa.float64()),
        ("greedy", _GREEDY),
        ("length", pa.int32()),
        ("finish_reason", pa.string()),
        ("turns", pa.int32()),
        ("token_ids", pa.list_(pa.int32())),
        ("response_mask", pa.list_(pa.bool_())),
        ("logprobs", _FLOATS),
        ("actor_logprobs", _FLOATS),
        ("reference_logprobs", _FLOATS),
        ("entropy", _FLOATS),
    ]
)
"""null means not kept or not computed, never 0."""

TOKEN_COLUMNS = ("token_ids", "response_mask", "logprobs", "actor_logprobs", "reference_logprobs", "entropy")


def encode_shard(
    groups: Sequence[ScoredGroup],
    selection: Selection,
    *,
    attempt: int,
    split: str,
    step: int,
    token_logprobs: bool = True,
    tokens: Sequence[Sequence[TokenRecord]] | None = None,
) -> bytes:
    """The parquet file of one step's groups. `tokens[i][j]` is what is known of response j of group i."""
    rows = []
    for index, group in enumerate(groups):
        shared = {
            "schema_version": SCHEMA_VERSION,
            "attempt": attempt,
            "split": split,
            "step": step,
            "group_id": index,
            "kept_rate": selection.rate,
            **_group_columns(group, reason=selection.reasons.get(index)),
        }
        for number, rollout in enumerate(group.group.rollouts):
            full = index in selection.reasons
            row = shared | _response_columns(group, number, full=full)
            if full:
                row |= _full_columns(rollout, tokens[index][number] if tokens else TokenRecord(), token_logprobs)
            rows.append(row)
    sink = io.BytesIO()
    pq.write_table(
        pa.Table.from_pylist(rows, schema=SCHEMA), sink, row_group_size=ROWS_PER_ROW_GROUP, compression="zstd"
    )
    return sink.getvalue()


def read_shard(
    path: Path, *, columns: Sequence[str] | None = None, group_id: int | None = None
) -> list[dict[str, Any]]:
    """The rows of a shard, or those of one group of it; a column that an older shard lacks is None.

    Raises DataError for a damaged file, OSError for one that is gone.
    """
    try:
        return _rows(path, columns, group_id)
    except pa.ArrowException as error:
        told = " ".join(str(error).split())[:200]
        raise DataError(f"{path} cannot be read as samples, it is damaged: {told}") from error


def _rows(path: Path, columns: Sequence[str] | None, group_id: int | None) -> list[dict[str, Any]]:
    wanted = [name for name in SCHEMA.names if columns is None or name in columns]
    with pq.ParquetFile(path) as file:
        present = set(file.schema_arrow.names)
        kept = [name for name in wanted if name in present]
        if group_id is None:
            rows = file.read(columns=kept).to_pylist()
        else:
            table = file.read_row_groups(_row_groups_of(file, group_id), columns=kept)
            rows = table.filter(pc.field("group_id") == group_id).to_pylist()
    return [{name: row.get(name) for name in wanted} for row in rows]


def _row_groups_of(file: pq.ParquetFile, group_id: int) -> list[int]:
    """Those that may hold rows of the group, by their statistics: a step with many responses has many row groups."""
    column = next(
        number for number in range(file.metadata.num_columns) if file.schema.column(number).path == "group_id"
    )
    found = []
    for number in range(file.num_row_groups):
        statistics_of = file.metadata.row_group(number).column(column).statistics
        if statistics_of is None or not statistics_of.has_min_max or statistics_of.min <= group_id <= statistics_of.max:
            found.append(number)
    return found


def _group_columns(group: ScoredGroup, *, reason: str | None) -> dict[str, Any]:
    sample = group.group.sample
    totals = [total for result in group.rewards if (total := _finite(result.total)) is not None]
    columns: dict[str, Any] = {
        "prompt_id": sample.id,
        "kept_because": reason,
        "group_mean": statistics.fmean(totals) if totals else None,
        "group_std": statistics.stdev(totals) if len(totals) > 1 else None,
        "greedy": _greedy_column(group, full=reason is not None),
    }
    if reason is not None:
        columns |= {
            "messages": json.dumps(messages_to_json(sample.messages)),
            "images": [{"sha256": i.sha256, "width": i.width, "height": i.height} for i in sample.images],
            "answer": _text(sample.answer),
            "meta": json.dumps(plain(sample.meta)),
        }
    return columns


def _greedy_column(group: ScoredGroup, *, full: bool) -> dict[str, Any] | None:
    """The response that the group is compared with, beside its own: none of them, and never learned from."""
    if group.group.greedy is None or group.greedy_reward is None:
        return None
    text = _text(group.group.greedy.text) if full else None
    return {**_numbers(group.group.greedy, group.greedy_reward, full=full), "response": text}


def _response_columns(group: ScoredGroup, number: int, *, full: bool) -> dict[str, Any]:
    """What every response keeps: numbers, and why a reward failed."""
    return {
        **_numbers(group.group.rollouts[number], group.rewards[number], full=full),
        "advantage": None if group.advantages is None else _finite(group.advantages[number]),
    }


def _numbers(rollout: Rollout, reward: RewardResult, *, full: bool) -> dict[str, Any]:
    return {
        "policy_version": rollout.policy_version,
        "sample_idx": rollout.index,
        "seed": rollout.seed % 2**64,
        "reward_total": _finite(reward.total),
        "reward_parts": [_part(part, full=full) for part in reward.parts],
        "length": len(rollout.token_ids),
        "finish_reason": rollout.finish_reason,
        "turns": rollout.turns,
    }


def _full_columns(rollout: Rollout, known: TokenRecord, token_logprobs: bool) -> dict[str, Any]:
    return {
        "response": _text(rollout.text),
        "token_ids": rollout.token_ids,
        "response_mask": [bool(bit) for bit in rollout.response_mask],
        "logprobs": rollout.logprobs if token_logprobs else None,
        "actor_logprobs": known.actor_logprobs if token_logprobs else None,
        "reference_logprobs": known.reference_logprobs if token_logprobs else None,
        "entropy": known.entropy if token_logprobs else None,
    }


def _part(part: RewardPart, *, full: bool) -> dict[str, Any]:
    return {
        "name": part.name,
        "value": _finite(part.value),
        "weight": part.weight,
        "extracted": _text(part.extracted) if full else None,
        "explanation": _text(part.explanation) if full else None,
        "error": _text(part.error),
        "ms": part.ms,
        "scaled": _finite(part.scaled),
        "vetoes": part.vetoes,
        "extras": _extras(part.extras, full=full),
    }


def _extras(extras: Mapping[str, float | str], *, full: bool) -> str | None:
    """As JSON; the texts only where text is kept."""
    kept = {key: value for key, value in extras.items() if full or not isinstance(value, str)}
    return json.dumps(plain(kept)) if kept else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _text(text: str | None) -> str | None:
    """Lone surrogates, which UTF-8 cannot hold, as their escapes."""
    return None if text is None else text.encode("utf-8", "backslashreplace").decode()
