"""What rewards gave, as records to take along: of answers tried on rows, and beside people's marks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from console.services.exports import Export, Record
from mmrl.data.serialise import canonical


def export_try(data: Mapping[str, Any]) -> Export:
    """A row for each answer that was tried. data: as `mmrl reward test --json` gives it."""
    rows = data["responses"]

    def records() -> Iterator[Record]:
        for row in rows:
            values = {
                "row": row["sample"],
                "reference_answer": row["answer"],
                "answered_with": row["probe"],
                "response": row["response"],
                "total": row["total"],
                **_parts(row["parts"]),
            }
            yield Record(values, f"Row {row['sample']}")

    return Export(
        name="rewards-tried",
        title=f"Rewards tried on {data['data']}",
        records=records,
        total=len(rows),
        about={"data": data["data"], "rows": f"{data['samples']:,}", "problems": "; ".join(data["problems"]) or "none"},
        shared=("row", "reference_answer"),
        content=canonical(rows),
    )


def export_agreement(rows: Sequence[Mapping[str, Any]], *, about: Mapping[str, str]) -> Export:
    """A row for each reward. rows: as `OrderAgreement`; intervals are Wilson's at 95 %, over prompts."""
    return Export(
        name="rewards-beside-people",
        title="Rewards beside people's marks",
        records=lambda: [Record(dict(row)) for row in rows],
        total=len(rows),
        about=about,
        content=canonical([dict(row) for row in rows]),
    )


def export_pairs(data: Mapping[str, Any]) -> Export:
    """A row for each reward's agreement, then one for each pair whose rejected answer gets more; `table` tells which.
    data: as `mmrl reward agreement --json` gives it."""
    agreement, pairs = data["agreement"], data["rows"]

    def records() -> Iterator[Record]:
        for row in agreement:
            yield Record({"table": "agreement", **row}, "Agreement with people")
        for row in pairs:
            yield Record({"table": "pair", **_pair(row)}, "Pairs whose rejected answer gets more")

    return Export(
        name="rewards-on-pairs",
        title=f"Rewards on the pairs of {data['data']}",
        records=records,
        total=len(agreement) + len(pairs),
        about={"data": data["data"], "pairs": f"{data['pairs']:,}"},
        content=canonical([agreement, pairs]),
    )


def _pair(row: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {"row": row["sample"], "reference_answer": row["answer"]}
    for name in ("chosen", "rejected"):
        side = row[name]
        values |= {name: side["text"], f"total {name}": side["total"]}
        values |= {f"{part} {name}": value for part, value in _parts(side["parts"]).items()}
    return values


def _parts(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Each part's value, and why."""
    told = [f"{part['name']}: {part.get('error') or part.get('explanation')}" for part in parts if _says(part)]
    return {**{f"part {part['name']}": part["value"] for part in parts}, "why": "; ".join(told) or None}


def _says(part: Mapping[str, Any]) -> bool:
    return bool(part.get("error") or part.get("explanation"))
