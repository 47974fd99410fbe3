"""What a rescoring moved, as records to take along: a row for each response that moved most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from console.services.exports import Export, Record
from console.services.formats import number_text
from mmrl.data.serialise import canonical
from mmrl.jobs.records import Job


def export_rescore(job: Job, data: Mapping[str, Any]) -> Export:
    """data: as `mmrl reward rescore --json` gives it."""
    rows, steps = data["rows"], data["steps"]
    return Export(
        name=f"{job.name}-rescored",
        title=f"Responses of {job.name} under changed rewards",
        records=lambda: _records(data),
        total=len(rows),
        about={
            "run": f"{job.name} ({job.id})",
            "split": data["split"],
            "steps": f"{min(steps)} to {max(steps)}" if steps else "none",
            "responses": f"the {len(rows):,} that moved most of {data['responses']:,}",
            "rank correlation": number_text(data["rank_correlation"], 3),
            "pairs in another order": f"{data['pairs_swapped']:,} of {data['pairs']:,}",
            "groups with another best response": f"{data['best_changed']:,} of {data['groups']:,}",
            **{
                f"mean of {each['name']}": f"{number_text(each['mean_before'])} → {number_text(each['mean_after'])}"
                for each in (data["total"], *data["parts"])
            },
        },
        content=canonical(rows),
    )


def _records(data: Mapping[str, Any]) -> Iterator[Record]:
    for row in data["rows"]:
        parts = {
            f"{part['name']} {when}": part["value"] for when in ("before", "after") for part in row[f"parts_{when}"]
        }
        values = {
            "split": data["split"],
            "step": row["step"],
            "group": row["group_id"],
            "sample": row["sample_idx"],
            "response": row["text"],
            "total before": row["total_before"],
            "total after": row["total_after"],
            "advantage flips": row["flips"],
            **parts,
        }
        yield Record(values)
