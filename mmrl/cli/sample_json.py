"""Samples as JSON, for `mmrl sample … --json`. Names are those of the records; null means not kept or not computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mmrl.data.serialise import messages_to_json
from mmrl.runs.reader import RunReader
from mmrl.runs.records import GroupRecord, ResponseRecord, StepSummary


def summaries(steps: Sequence[StepSummary]) -> list[dict[str, Any]]:
    return [asdict(step) for step in steps]


def group_rows(groups: Sequence[GroupRecord]) -> list[dict[str, Any]]:
    """One row a group, without its text."""
    return [
        {
            "group_id": group.group_id,
            "prompt_id": group.prompt_id,
            "num_responses": len(group.responses),
            "reward_mean": group.reward_mean,
            "reward_std": group.reward_std,
            "rewards": [response.reward for response in group.by_reward],
            "num_truncated": sum(response.is_truncated for response in group.responses),
            "kept_because": group.kept_because,
        }
        for group in groups
    ]


def shown(
    reader: RunReader, groups: Sequence[GroupRecord], *, num_groups: int, with_tokens: bool = False
) -> dict[str, Any]:
    """The groups of one step with their responses, best reward first. num_groups: those that the step has."""
    return {
        "run_dir": str(reader.run_dir.absolute()),
        "split": groups[0].split,
        "step": groups[0].step,
        "attempt": groups[0].attempt,
        "num_groups": num_groups,
        "groups": [_group(reader, group, with_tokens=with_tokens) for group in groups],
    }


def _group(reader: RunReader, group: GroupRecord, *, with_tokens: bool) -> dict[str, Any]:
    return {
        "group_id": group.group_id,
        "prompt_id": group.prompt_id,
        "reward_mean": group.reward_mean,
        "reward_std": group.reward_std,
        "kept_because": group.kept_because,
        "kept_rate": group.kept_rate,
        "prompt": None if group.prompt is None else messages_to_json(group.prompt),
        "answer": group.answer,
        "meta": group.meta,
        "images": [{**asdict(image), "path": _inside(reader, reader.image(image.sha256))} for image in group.images],
        "responses": [_response(response, with_tokens=with_tokens) for response in group.by_reward],
        "greedy": None if group.greedy is None else _response(group.greedy, with_tokens=False),
    }


def _response(response: ResponseRecord, *, with_tokens: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "sample_idx": response.sample_idx,
        "reward": response.reward,
        "advantage": response.advantage,
        "parts": [asdict(part) for part in response.parts],
        "finish_reason": response.finish_reason,
        "length": response.length,
        "turns": response.turns,
        "policy_version": response.policy_version,
        "seed": response.seed,
        "text": response.text,
    }
    if with_tokens:
        row |= {
            "token_ids": response.token_ids,
            "response_mask": response.response_mask,
            "logprobs": response.logprobs,
            **asdict(response.tokens),
        }
    return row


def _inside(reader: RunReader, path: Path | None) -> str | None:
    """The path of a kept image, from the run directory on."""
    return None if path is None else str(path.relative_to(reader.run_dir))
