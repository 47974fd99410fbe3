"""Exports of Rewards: each agreement with its interval, and pairs with both sides' parts."""

from __future__ import annotations

from console.services.reward_export import export_pairs


def test_pairs_are_exported_beside_the_agreement_of_each_reward() -> None:
    part = {"name": "exact", "value": 0.0, "explanation": "not the reference", "error": None}
    failed = {"name": "exact", "value": None, "explanation": None, "error": "too slow"}
    data = {
        "data": "marks@train",
        "pairs": 3,
        "agreement": [{"reward": "total", "agrees": 2, "disagrees": 1, "share": 2 / 3, "low": 0.2, "high": 0.9}],
        "rows": [
            {
                "sample": "s1",
                "answer": "7",
                "chosen": {"text": "six", "total": 0.0, "parts": [part]},
                "rejected": {"text": "seven", "total": 1.0, "parts": [failed]},
            }
        ],
    }
    export = export_pairs(data)
    agreement, pair = (record.values for record in export.records())
    assert export.total == 2
    assert (agreement["table"], agreement["reward"], agreement["low"]) == ("agreement", "total", 0.2)
    assert (pair["chosen"], pair["total chosen"], pair["part exact chosen"]) == ("six", 0.0, 0.0)
    assert (pair["rejected"], pair["part exact rejected"], pair["why rejected"]) == ("seven", None, "exact: too slow")
