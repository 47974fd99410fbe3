"""Tables and JSON on stdout, in wide, narrow and no terminals."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from mmrl.cli import output
from mmrl.cli.output import fold, print_json, print_table, text_width

ROWS = [{"name": "exact", "value": 0.5, "note": "one two three four five six"}, {"name": "length", "value": None}]


def terminal(monkeypatch: pytest.MonkeyPatch, columns: int | None) -> None:
    monkeypatch.setattr(output, "terminal_width", lambda: columns)


def test_a_table_is_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(ROWS, ["name", "value", "note"])
    assert capsys.readouterr().out == (
        "name    value  note\nexact   0.5    one two three four five six\nlength  -      -\n"
    )


def test_rows_may_be_sequences(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([("a", True), ("b", 12)], ["k", "v"])
    assert capsys.readouterr().out == "k  v\na  yes\nb  12\n"


def test_a_table_without_rows_is_its_header(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([], ["k", "value"])
    assert capsys.readouterr().out == "k  value\n"


def test_the_last_column_is_folded_where_it_does_not_fit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal(monkeypatch, 40)
    print_table(ROWS, ["name", "value", "note"])
    assert capsys.readouterr().out.splitlines()[1:3] == [
        "exact   0.5    one two three four five",
        "               six",
    ]


def test_a_terminal_too_narrow_for_columns_gets_a_line_a_cell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal(monkeypatch, 20)
    print_table(ROWS, ["name", "value", "note"])
    assert capsys.readouterr().out.splitlines() == [
        "name   exact",
        "value  0.5",
        "note   one two three four five six",
        "",
        "name   length",
        "value  -",
        "note   -",
    ]


def test_wide_characters_count_twice_and_control_characters_are_made_harmless(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table([("数字", 1), ("a\x1b[2Jb\n", 2)], ["name", "n"])
    assert capsys.readouterr().out.splitlines() == ["name         n", "数字         1", r"a\x1b[2Jb\n  2"]


def test_text_is_folded_between_words_and_within_those_too_long() -> None:
    assert fold("one two three", 7) == ["one two", "three"]
    assert fold("abcdefghij k", 4) == ["abcd", "efgh", "ij k"]
    assert fold("a\nb", 10) == ["a", "b"]
    assert fold("", 10) == [""]
    assert text_width("数字\nabc") == 4


def test_json_takes_dataclasses_paths_and_numbers_that_are_not_finite(capsys: pytest.CaptureFixture[str]) -> None:
    @dataclass
    class Point:
        x: float
        where: Path

    print_json({"points": (Point(float("nan"), Path("a/b")),), "text": "数字", 3: {"inf": float("inf")}})
    text = capsys.readouterr().out
    assert "数字" in text
    assert json.loads(text) == {"points": [{"x": None, "where": "a/b"}], "text": "数字", "3": {"inf": None}}


def test_json_of_a_config_shows_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    from mmrl.config.reward import FunctionRewardConfig

    print_json(FunctionRewardConfig(path="f.py", arguments={"api_key": "fake-key"}))
    assert json.loads(capsys.readouterr().out)["arguments"] == {"api_key": "<redacted>"}


def test_nothing_is_folded_where_stdout_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert output.terminal_width() is None
