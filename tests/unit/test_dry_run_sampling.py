"""A dry run counts the sampling that a run does and no other."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from mmrl.config import RunConfig
from mmrl.trainer.preflight import PreflightReport, preflight

PAIR = {"chosen": "4", "rejected": "5", "answer": "4"}


@pytest.fixture
def report_of(
    tmp_path: Path, tiny_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., PreflightReport]:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "home"))
    rows = [json.dumps(PAIR | {"prompt": f"{number} + 1?"}) for number in range(4)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(rows) + "\n")

    def report(**changes: object) -> PreflightReport:
        data = {"train": str(tmp_path / "pairs.jsonl"), "eval": str(tmp_path / "pairs.jsonl")}
        plain = {
            "name": "pairs",
            "kind": "preference",
            "model": {"path": str(tiny_model()), "dtype": "float32", "device": "cpu"},
            "data": data,
            "preference": {"batch_size": 2},
            "train": {"steps": 1},
        }
        found = preflight(RunConfig.model_validate(plain | changes))
        assert isinstance(found, PreflightReport)
        return found

    return report


def seconds(report: PreflightReport) -> float:
    (time,) = (estimate.value for estimate in report.estimates if estimate.name == "time")
    return time


def test_preferences_without_rewards_sample_nothing(report_of: Callable[..., PreflightReport]) -> None:
    silent, graded = report_of(), report_of(reward=[{"type": "exact"}])
    names = [{estimate.name for estimate in report.estimates} for report in (silent, graded)]
    assert ["sampling cache" in each for each in names] == [False, True]
    assert ["rollout (hf)" in report.placement for report in (silent, graded)] == [False, True]
    assert seconds(silent) < seconds(graded)


def test_comparing_held_out_answers_counts_though_nothing_is_sampled(
    report_of: Callable[..., PreflightReport], tmp_path: Path
) -> None:
    unwatched = report_of(data={"train": str(tmp_path / "pairs.jsonl")})
    assert seconds(unwatched) < seconds(report_of())
