"""Mutated inputs end in accepted rows or errors of rows: no crash, no traceback, no stray file, bounded memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).with_name("data_fuzz.py")


def fuzz(folder: Path, num_examples: int, *, timeout_s: int) -> dict[str, object]:
    work, here = folder / "work", folder / "here"
    work.mkdir()
    here.mkdir()
    command = [sys.executable, str(FUZZ), str(work), str(num_examples)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, cwd=here)
    assert done.returncode == 0, done.stderr[-3000:]
    assert {path.name for path in here.iterdir()} <= {".hypothesis"}
    figures: dict[str, object] = json.loads(done.stdout)
    return figures


def check(figures: dict[str, object], num_examples: int) -> None:
    assert figures["examples"] == num_examples
    assert int(str(figures["accepted"])) > num_examples // 10, "mutations must leave some rows whole"
    assert int(str(figures["row_errors"])) > num_examples // 10
    assert int(str(figures["file_errors"])) > 0
    assert figures.get("long_messages", 0) == 0
    assert figures["strange_files"] == []
    assert figures["unforeseen"] == {}, "each kind of fault is foreseen and told in its own words"
    assert float(str(figures["memory_mb"])) < 1024


def test_five_hundred_mutated_inputs_are_read_or_refused(tmp_path: Path) -> None:
    check(fuzz(tmp_path, 500, timeout_s=120), 500)


@pytest.mark.slow
def test_ten_thousand_mutated_inputs_are_read_or_refused(tmp_path: Path) -> None:
    check(fuzz(tmp_path, 10_000, timeout_s=1200), 10_000)
