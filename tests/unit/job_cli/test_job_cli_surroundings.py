"""What commands of jobs find around them: a damaged database, closed streams, a terminal, a shell that completes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from job_commands import Run, submitted


def test_a_file_that_is_no_database_is_named(config: Path, mmrl: Run, tmp_path: Path) -> None:
    (tmp_path / "home" / "mmrl.db").write_text("nothing of the kind" * 100)
    code, _, err = mmrl("job", "list")
    assert code == 1
    assert f"{tmp_path}/home/mmrl.db is none of SQLite's, or is damaged" in err
    assert "bug" not in err


@pytest.mark.parametrize(("closed", "out"), [("2>&-", "[]\n"), (">&-", ""), ("<&- >&- 2>&-", "")])
def test_closed_streams_are_no_bug_and_errors_never_get_among_the_data(closed: str, out: str, config: Path) -> None:
    mmrl = f"{sys.executable} -m mmrl job"
    done = subprocess.run(["bash", "-c", f"{mmrl} list --json {closed}"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, out, "")
    done = subprocess.run(["bash", "-c", f"{mmrl} show nope {closed}"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (3, "")


def test_a_database_that_cannot_be_written_is_told_as_such(config: Path, mmrl: Run, tmp_path: Path) -> None:
    shutil.move(tmp_path / "home" / "mmrl.db", tmp_path / "home" / "other.db")
    (tmp_path / "home" / "mmrl.db").mkdir()
    code, _, err = mmrl("job", "list")
    assert code == 1
    assert f"{tmp_path}/home/mmrl.db cannot be opened for writing" in err
    assert "permissions of its folder" in err


def test_a_disk_that_takes_no_more_is_told_as_such(config: Path) -> None:
    command = f"ulimit -f 0; {sys.executable} -m mmrl job submit {config}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "the disk refuses to hold the job database" in done.stderr
    assert "check its space" in done.stderr


def test_a_message_cannot_steer_the_terminal(config: Path, mmrl: Run) -> None:
    """x06: names come from whoever submits; the reader of a list or an error is somebody else."""
    code, _, err = mmrl("job", "show", "\x1b]0;mine\x07\u202e")
    assert code == 3
    submitted(mmrl, config)
    mmrl("job", "cancel", "probe")
    note = mmrl("job", "list", "--search", "\x1b[31m")[2]
    assert "\x1b" not in err + note


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("mmrl job sho", ["show"]),
        ("mmrl job show pro", ["probe"]),
        ("mmrl job submit --after pro", ["probe"]),
        ("mmrl job list --state sta", ["starting"]),
        ("mmrl worker start --job pro", ["probe"]),
        ("mmrl wor", ["worker"]),
    ],
)
def test_the_shell_completes_commands_and_jobs(words: str, expected: list[str], config: Path, mmrl: Run) -> None:
    submitted(mmrl, config)
    environment = os.environ | {
        "_MMRL_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    script = "import sys; from mmrl.cli.app import main; sys.argv[0] = 'mmrl'; sys.exit(main([]))"
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.split() == expected, done.stderr


def test_slots_beyond_every_bound_are_wrong_use_and_no_bug(config: Path, mmrl: Run) -> None:
    code, _, err = mmrl("worker", "start", "--until-idle", "--cpus", 10**20)
    assert code == 2
    assert "--cpus" in err
