"""The run on people's marks: a whole config, whatever run the answers came from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from console.services.mark_runs import GOALS, config_like, marks_config
from mmrl.config import RunConfig
from mmrl.data.registry import DatasetInfo, DatasetRegistry, register
from mmrl.data.serialise import messages_to_json
from mmrl.errors import ConfigError
from mmrl.jobs.data_versions import data_versions
from mmrl.types import Message, Sample, TextPart

CONFIGS = sorted(Path(__file__).parents[3].joinpath("configs").glob("q*.yaml"))
MODEL = Path("/runs/x/checkpoints/step-000010/model")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path))
    return tmp_path


def _marks(num: int, *, num_test: int = 0) -> DatasetInfo:
    def row(number: int) -> Sample:
        turns = {
            name: messages_to_json([Message("assistant", (TextPart(f"{name} {number}"),))])
            for name in ("chosen", "rejected")
        }
        return Sample(f"s{number}", (Message("user", (TextPart(f"What is {number}?"),)),), "1", turns)

    splits = {"train": [row(number) for number in range(num)]}
    return register("marks", splits | ({"test": [row(1000)] * num_test} if num_test else {}), source="by hand")


@pytest.mark.parametrize("goal", GOALS)
@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.stem)
def test_a_run_like_each_of_mmrls_configs_needs_no_further_setting(home: Path, file: Path, goal: str) -> None:
    parent: dict[str, Any] = RunConfig.load(file).model_dump(mode="json")
    config = RunConfig.model_validate(config_like(parent, _marks(10), MODEL, goal))
    assert (config.kind, config.model.path) == (goal, str(MODEL))
    assert config.model.dtype == parent["model"]["dtype"]
    assert config.optim.lr == pytest.approx(parent["optim"]["lr"] / 10)
    assert config.data.train == f"marks:{DatasetRegistry().find('marks').version}@train"
    assert config.data.max_prompt_tokens == parent["data"]["max_prompt_tokens"]


def test_few_pairs_are_gone_over_a_few_times_and_held_out_ones_decide(home: Path) -> None:
    parent = yaml.safe_load(CONFIGS[-1].read_text())
    few = config_like(parent, _marks(10), MODEL, "preference")
    assert (few["preference"], few["train"]["steps"]) == ({"type": "dpo", "batch_size": 10}, 5)
    assert few["data"]["eval"] == parent["data"]["eval"]
    many = config_like(parent, _marks(640, num_test=5), MODEL, "preference")
    assert (many["preference"]["batch_size"], many["train"]["steps"]) == (32, 60)
    assert many["data"]["eval"] == f"marks:{DatasetRegistry().find('marks').version}@test"


def test_marks_that_came_later_change_nothing_of_a_run_on_an_earlier_version(home: Path) -> None:
    (home / "model").mkdir()
    (home / "model" / "config.json").write_text("{}")
    early, late = _marks(3), _marks(5)
    config = marks_config(f"marks:{early.version}", str(home / "model"))
    assert config["data"]["train"] == f"marks:{early.version}@train"
    assert config["preference"]["batch_size"] == 3
    assert data_versions(config) == {f"marks:{early.version}@train": early.version}
    assert marks_config("marks", str(home / "model"))["data"]["train"] == f"marks:{late.version}@train"


def test_a_model_that_no_run_made_has_a_config_too(home: Path) -> None:
    config = RunConfig.model_validate(config_like({}, _marks(3), MODEL, "preference"))
    assert (config.name, config.data.eval) == ("marks-dpo", None)
    with pytest.raises(ConfigError, match=r"learned from by preference and reward_model \(got 'rl'\)"):
        marks_config("marks", str(home), "rl")
