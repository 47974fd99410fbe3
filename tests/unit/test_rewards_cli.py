"""`mmrl reward`, as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from data_files import write_jsonl
from typer.testing import CliRunner

from mmrl.cli.reward import app
from mmrl.errors import ConfigError
from mmrl.rewards.registry import REWARDS

CONFIG = """
name: try-out
model: {{path: nowhere}}
data: {{train: {rows}}}
rollout: {{prompts_per_step: 2}}
reward: [{{type: exact}}, {{type: format, weight: 0.1}}]
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "home"))
    rows = write_jsonl(tmp_path / "rows.jsonl", *({"prompt": f"{n}?", "answer": str(n)} for n in range(4)))
    file = tmp_path / "config.yaml"
    file.write_text(CONFIG.format(rows=rows))
    return file


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_list_names_every_reward_with_its_fields() -> None:
    result = run("list", "--json")
    rewards = {entry["type"]: entry for entry in json.loads(result.stdout)["rewards"]}
    assert set(rewards) == set(REWARDS)
    fields = {field["name"]: field for field in rewards["keyword"]["fields"]}
    assert (fields["keywords"]["required"], fields["keywords"]["type"]) == (True, "list of str")
    assert fields["max_penalty"]["default"] == 1.0
    assert all(entry["description"] and field["description"] for entry in rewards.values() for field in entry["fields"])
    text = run("list").stdout
    assert "exact: 1 if the extracted answer equals the reference as text, else 0." in text
    assert "  max_tokens (int, required): From this many sampled tokens on the bonus is 0." in text


def test_test_prints_a_table_of_probes_and_parts(config: Path) -> None:
    result = run("test", config)
    assert result.exit_code == 0, result.output
    header, *rows = [line.split() for line in result.stdout.splitlines()]
    assert header == ["response", "tried", "reward", "missing", "exact", "format"]
    assert rows[0] == ["reference", "in", "a", "box", "4", "1.1", "0", "1", "1"]
    assert rows[-1] == ["empty", "4", "0", "0", "0", "0"]


def test_test_as_json_has_every_response_with_its_parts(config: Path) -> None:
    data = json.loads(run("test", config, "--limit", "2", "--json").stdout)
    assert (data["samples"], len(data["responses"]), data["problems"]) == (2, 12, [])
    first = data["responses"][0]
    assert (first["probe"], first["response"], first["total"]) == ("reference in a box", r"\boxed{0}", 1.1)
    assert [part["name"] for part in first["parts"]] == ["exact", "format"]


def test_overrides_change_the_rewards_that_are_tried(config: Path) -> None:
    data = json.loads(run("test", config, "reward.0.boxed=false", "--limit", "1", "--json").stdout)
    assert {row["probe"]: row["part_means"]["exact"] for row in data["probes"]}["reference plain"] == 1.0


def test_problems_are_told_on_stderr(config: Path) -> None:
    result = run("test", config, "reward=[{type: format}]")
    assert "its reference answer '0' scores no more than a wrong one" in result.stderr


def test_a_config_without_rewards_is_refused(config: Path) -> None:
    result = run("test", config, "kind=sft", "reward=[]")
    assert isinstance(result.exception, ConfigError)
    assert "names no rewards to try" in str(result.exception)
