"""`mmrl dataset`, as a user types it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from data_files import red_png, write_jsonl
from typer.testing import CliRunner

from mmrl.cli.dataset import app
from mmrl.data import load_dataset
from mmrl.data.ingest import BadRowsError
from mmrl.errors import EXIT_WRONG_USE, DataError, NotFoundError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a.png").write_bytes(red_png())
    rows = [{"prompt": f"<image>{index}?", "images": ["a.png"], "answer": index} for index in range(6)]
    return write_jsonl(tmp_path / "d" / "a.jsonl", *rows)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def data_of(*arguments: str | Path) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_added_data_set_is_listed_with_its_splits(file: Path) -> None:
    added = data_of("add", file, "--name", "six")
    assert (added["name"], added["num_rows"], added["skipped"]) == ("six", 6, [])
    assert added["splits"]["train"]["num_images"] == 6
    assert data_of("list")["datasets"][0]["version"] == added["version"]
    header, line = run("list").stdout.splitlines()
    assert header.split() == ["name", "version", "splits", "bytes"]
    assert line.split() == ["six", added["version"], "train", "6", "rows", str(added["num_bytes"])]


def test_list_of_nothing_prints_nothing_but_a_hint() -> None:
    assert data_of("list") == {"datasets": []}
    result = run("list")
    assert result.stdout == ""
    assert "`mmrl dataset add PATH --name NAME` adds one" in result.stderr


def test_show_reads_a_file_as_its_options_say(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(red_png())
    file = write_jsonl(tmp_path / "raw.jsonl", {"query": "How many?", "meta": {"image": "a.png", "n": 3}})
    mapping = ["--map", "prompt=query", "--map", "images=meta.image", "--map", "answer=meta.n"]
    shown = data_of("show", file, *mapping, "--images-first")
    assert (shown["rows"][0]["answer"], shown["rows"][0]["images"][0]["size"]) == ("3", [32, 32])
    run("add", file, "--name", "raw", *mapping, "--images-first")
    with pytest.raises(DataError, match="raw is registered, and its rows were read when it was added"):
        CliRunner().invoke(app, ["show", "raw", "--images-first"], catch_exceptions=False)


def test_show_prints_the_rows_that_are_asked_for(file: Path) -> None:
    run("add", file, "--name", "six", "--split", "test")
    shown = data_of("show", "six@test", "--rows", "1:3")
    assert (shown["name"], shown["split"], len(shown["rows"])) == ("six", "test", 2)
    row = shown["rows"][0]
    sample = load_dataset("six")[1]
    assert set(row) == {"id", "messages", "images", "answer", "meta"}
    assert (row["id"], row["answer"]) == (sample.id, "1")
    assert row["images"] == [{"sha256": sample.images[0].sha256, "size": [32, 32]}]
    assert row["messages"][0]["content"][1] == {"type": "text", "text": "1?"}
    text = run("show", "six", "--rows", "0:1").stdout
    assert f"user: [image 32x32 {sample.images[0].sha256[:12]}]0?" in text
    assert "answer: 0" in text


def test_text_of_rows_cannot_command_the_terminal(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "b.jsonl", {"prompt": "red \x1b[31m \u202e"})
    shown = run("show", path)
    assert "user: red \\x1b[31m \\u202e" in shown.stdout
    assert "\x1b" not in shown.stdout + run("show", path, "--json").stdout


@pytest.mark.parametrize("rows", ["5", "3:3", "a:b", "-1:2", "4:2"])
def test_rows_must_be_a_range(file: Path, rows: str) -> None:
    result = run("show", file, f"--rows={rows}")
    assert result.exit_code == EXIT_WRONG_USE
    assert "START:STOP" in result.stderr


def test_validate_reports_bad_rows_by_line_and_fails(file: Path) -> None:
    with file.open("a") as lines:
        lines.write('\n{"prompt": "<image><image>", "images": ["a.png"]}\n{"prompt": "x", "answer": NaN}\n')
    result = run("validate", file, "--json")
    report = json.loads(result.stdout)
    assert result.exit_code == 1
    assert (report["rows"], report["valid"], report["warnings"]) == (8, 6, [])
    assert [(error["row"], error["field"]) for error in report["errors"]] == [(8, "prompt"), (9, "answer")]
    assert "2 <image> placeholder(s) but 1 image(s)" in report["errors"][0]["message"]
    plain = run("validate", file)
    assert plain.stdout.splitlines()[-1] == "6 of 8 rows are valid"
    assert plain.stdout.startswith("bad: a.jsonl:8: prompt: 2 <image>")


def test_validate_of_sound_rows_succeeds_and_registers_nothing(file: Path, home: Path) -> None:
    report = data_of("validate", file)
    assert report == {
        "rows": 6,
        "valid": 6,
        "columns": {"train": ["prompt", "images", "answer"]},
        "errors": [],
        "warnings": [],
    }
    assert not home.exists()


def test_bad_rows_are_refused_unless_left_out_by_request(file: Path) -> None:
    with file.open("a") as lines:
        lines.write("broken\n")
    refused = run("add", file, "--name", "six")
    assert isinstance(refused.exception, BadRowsError)
    assert refused.exception.exit_code == EXIT_WRONG_USE
    assert "a.jsonl:7: not valid JSON" in str(refused.exception)
    added = run("add", file, "--name", "six", "--skip-bad")
    assert added.exit_code == 0
    assert "left out: a.jsonl:7: not valid JSON" in added.stderr
    assert "train 6 rows" in added.stdout
    assert data_of("add", file, "--name", "six", "--skip-bad")["skipped"][0]["row"] == 7


def test_export_writes_a_folder_that_reads_back(file: Path, tmp_path: Path) -> None:
    run("add", file, "--name", "six")
    assert data_of("export", "six", tmp_path / "out")["splits"] == ["train"]
    assert load_dataset(tmp_path / "out").samples[3].id == load_dataset("six")[3].id
    assert isinstance(run("export", "six@tset", tmp_path / "other").exception, NotFoundError)


def test_missing_data_set_is_not_found() -> None:
    result = run("show", "nothing")
    assert isinstance(result.exception, NotFoundError)
    assert result.exception.exit_code == 3
