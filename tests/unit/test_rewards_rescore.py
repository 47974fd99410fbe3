"""`mmrl reward rescore`: stored responses under a changed reward."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from runs_builders import begin_run, group
from typer.testing import CliRunner

from mmrl.cli.reward import app
from mmrl.config.record import RecordConfig
from mmrl.data.images import ImageStore
from mmrl.errors import ConfigError, NotFoundError
from mmrl.runs.layout import resolve_run

CONFIG = """\
name: digits
model: {path: tiny}
data: {train: digits}
reward: [{type: exact, weight: 2.0}]
"""


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """Two steps. In the first the answer is 7 and only a boxed one was paid."""
    store = ImageStore(tmp_path / "store")
    writer = begin_run(tmp_path / "run", config=CONFIG)
    first = group([(r"It is \boxed{7}", 2.0), ("seven", 0.0), ("7 apples", 0.0), ("", None)])
    level = group([("7", 0.0), ("8", 0.0)])
    writer.samples(1, "train", [first], store_path=store.path)
    writer.samples(2, "train", [level], store_path=store.path)
    return tmp_path / "run"


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    """Only the response that is the answer and no more is paid now."""
    file = tmp_path / "new.yaml"
    file.write_text(
        "reward:\n  - {type: exact, boxed: false, weight: 1.0}\n  - {type: format, pattern: s.*, weight: 3}\n"
    )
    return file


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["rescore", *map(str, arguments)])


def test_what_moved_is_counted_for_the_total_and_each_part(run_dir: Path, changed: Path) -> None:
    result = run(run_dir, "--config", changed, "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["groups"], told["responses"], told["skipped_groups"], told["steps"]) == (2, 6, 0, [1, 2])
    by_text = {(row["step"], row["sample_idx"]): row for row in told["rows"]}
    totals = {place: (row["total_before"], row["total_after"]) for place, row in by_text.items()}
    assert totals == {
        (1, 0): (2.0, 0.0),  # in a box, so not the whole response
        (1, 1): (0.0, 3.0),  # begins with s
        (1, 2): (0.0, 0.0),
        (1, 3): (None, 0.0),
        (2, 0): (0.0, 1.0),
        (2, 1): (0.0, 0.0),
    }
    assert told["total"] == {
        "name": "total", "mean_before": 0.4, "mean_after": pytest.approx(4 / 6), "up": 2, "down": 1,
        "missing_before": 1, "missing_after": 0,
    }  # fmt: skip
    exact, style = told["parts"]
    assert (exact["name"], exact["up"], exact["down"]) == ("exact", 1, 1)
    assert (style["name"], style["missing_before"], style["missing_after"]) == ("format", 6, 0)


def test_order_best_responses_and_signs_of_advantages_are_compared_within_groups(run_dir: Path, changed: Path) -> None:
    told = json.loads(run(run_dir, "--config", changed, "--json").stdout)
    # before 2, 0, 0 and none: advantages 4/3, -2/3, -2/3; after 0, 3, 0, 0: -3/4, 9/4, -3/4, -3/4
    assert (told["flips_to_positive"], told["flips_to_negative"]) == (1, 1)
    assert [row["flips"] for row in told["rows"]] == [True, True, False, False, False, False]
    assert [row["advantage_after"] for row in told["rows"]] == [-0.75, 2.25, -0.75, -0.75, 0.5, -0.5]
    assert (told["pairs"], told["pairs_swapped"]) == (1, 1)
    assert told["best_changed"] == 1
    assert (told["gained_spread"], told["lost_spread"]) == (1, 0)


def test_the_table_names_parts_and_the_responses_that_moved_most(run_dir: Path, changed: Path) -> None:
    result = run(run_dir, "--config", changed)
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["exact", "0.2", "0.1667", "1", "1", "1", "0"] in lines, result.stdout
    assert "step 1, group 0, response 1: 0.000 -> 3.000, advantage flips" in result.stdout
    assert "6 responses in 2 groups" in result.output


def test_the_runs_own_reward_changed_by_overrides_moves_what_they_change(run_dir: Path) -> None:
    same = json.loads(run(run_dir, "--json").stdout)
    assert (same["total"]["up"], same["total"]["down"], same["pairs_swapped"]) == (0, 0, 0)
    told = json.loads(run(run_dir, "reward.0.weight=-1", "--json").stdout)
    assert told["total"]["mean_after"] == pytest.approx(-1 / 6)
    assert told["flips_to_negative"] == 1


def test_steps_are_chosen_and_unknown_ones_are_told(run_dir: Path, changed: Path) -> None:
    assert json.loads(run(run_dir, "--config", changed, "--steps", "2:", "--json").stdout)["steps"] == [2]
    missing = run(run_dir, "--config", changed, "--steps", "9")
    assert isinstance(missing.exception, NotFoundError)
    assert "there are: 1, 2" in str(missing.exception)
    empty = run(run_dir, "--config", changed, "--steps", "1:1")
    assert "a range leaves out its end: 1:2 is step 1" in str(empty.exception)
    wrong = run(run_dir, "--config", changed, "--steps", "two")
    assert isinstance(wrong.exception, ConfigError)


def test_a_config_without_rewards_and_a_run_without_texts_are_refused(tmp_path: Path, run_dir: Path) -> None:
    empty = tmp_path / "empty.yaml"
    empty.write_text("reward: []\n")
    assert "names no rewards" in str(run(run_dir, "--config", empty).exception)
    bare = tmp_path / "bare"
    writer = begin_run(bare, config=CONFIG, record=RecordConfig(full_tokens_per_step=0))
    writer.samples(1, "train", [group([("7", 1.0)])], store_path=tmp_path / "store")
    refused = run(bare).exception
    assert isinstance(refused, NotFoundError)
    assert "none of the 1 groups of train was kept with its text" in str(refused)
    assert isinstance(run(tmp_path / "nowhere").exception, NotFoundError)


def test_a_run_is_found_by_its_name_where_one_folder_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path))
    begin_run(tmp_path / "runs" / "digits-20260102-030405", config=CONFIG)
    assert resolve_run("digits").name == "digits-20260102-030405"
    begin_run(tmp_path / "runs" / "digits-20260102-030406", config=CONFIG)
    with pytest.raises(NotFoundError, match="2 runs are named 'digits'; give one of: digits-20260102-030405, digits-"):
        resolve_run("digits")
