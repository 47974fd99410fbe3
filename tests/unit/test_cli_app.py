"""The command frame: help without heavy imports, exit codes, and how errors are told."""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import typer
from config_files import write_config
from timed_process import run_process, run_timed

import mmrl
from mmrl.cli import app as cli
from mmrl.cli.app import COMMANDS, main
from mmrl.cli.lazy import LazyCommand
from mmrl.cli.logs import VerboseOption, is_debugging
from mmrl.errors import ConflictError, MmrlError, RunFailedError

HEAVY = ("torch", "transformers", "pyarrow", "pydantic", "wandb", "rich", "mmrl.config")


@pytest.fixture(autouse=True)
def _quiet_again() -> Iterator[None]:
    yield
    for name in ("mmrl", "mmrl.stage"):
        logging.getLogger(name).setLevel(logging.NOTSET)
    logging.getLogger("mmrl").handlers.clear()


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Callable[[], None]], None]:
    """Puts a function in the place of the commands, as `mmrl try`."""
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "home"))

    def install(function: Callable[[], None]) -> None:
        module = ModuleType("try_module")
        module.__dict__["try"] = function
        monkeypatch.setitem(sys.modules, "try_module", module)
        monkeypatch.setattr(cli._Mmrl, "lazy_commands", (LazyCommand("try", "try_module", "Try."),))

    return install


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    code = (
        "import sys; from mmrl.cli.app import main; code = main(['--help']); "
        f"print(code, [m for m in {HEAVY!r} if m in sys.modules])"
    )
    done, seconds = run_timed([sys.executable, "-c", code])
    assert done.stdout.splitlines()[-1] == "0 []", done.stderr
    assert seconds < 0.5


def test_help_lists_every_command_with_its_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for command in COMMANDS:
        assert f"  {command.name} " in out
        assert command.help in out


def test_every_command_can_be_loaded_and_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for command in COMMANDS:
        assert main([command.name, "--help"]) == 0, command.name
        assert f"Usage: mmrl {command.name}" in capsys.readouterr().out


def test_help_brings_no_torch_for_any_command() -> None:
    names = [command.name for command in COMMANDS]
    code = (
        f"import sys; from mmrl.cli.app import main; [main([name, '--help']) for name in {names!r}]; "
        "print([m for m in ('torch', 'transformers') if m in sys.modules])"
    )
    done = run_process([sys.executable, "-c", code])
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


def test_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"mmrl {mmrl.__version__}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["confg"], "No such command 'confg'. Did you mean 'config'?"),
        (["config", "shw"], "No such command 'shw'. Did you mean 'show'?"),
        (["config", "show"], "Missing argument 'CONFIG'"),
        (["train", "x.yaml"], "--run-dir DIR is missing"),
        (["config", "schema", "--yaml"], "No such option"),
        (["config", "show", "x.yaml", "--provenence"], "No such option"),
    ],
)
def test_wrong_use_ends_in_2(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err


def test_the_process_ends_with_the_code_of_the_error(tmp_path: Path) -> None:
    missing = run_process([sys.executable, "-m", "mmrl", "config", "show", str(tmp_path / "x.yaml")])
    assert missing.returncode == 3
    assert missing.stderr.startswith("error: config file ")
    assert "Traceback" not in missing.stderr
    path = write_config(tmp_path, "learning_rate: 1\n")
    wrong = run_process([sys.executable, "-m", "mmrl", "config", "show", str(path)])
    assert wrong.returncode == 2
    assert "run.yaml:5: unknown key 'learning_rate'; did you mean 'optim.lr'?" in wrong.stderr
    assert wrong.stdout == ""


@pytest.mark.parametrize(
    ("error", "code"),
    [(MmrlError("a"), 1), (ConflictError("a"), 5), (RunFailedError("a"), 6), (KeyboardInterrupt(), 130)],
)
def test_errors_end_in_their_own_code(
    error: BaseException, code: int, command: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise error

    command(fail)
    assert main(["try"]) == code
    if code != 130:
        assert capsys.readouterr().err == "error: a\n"


def test_a_message_cannot_steer_the_terminal(command: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise MmrlError("row \x1b[2J\nline")

    command(fail)
    main(["try"])
    assert capsys.readouterr().err == "error: row \\x1b[2J\nline\n"


def test_a_full_disk_is_named_with_its_path(command: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/big/file")

    command(fail)
    assert main(["try"]) == 1
    assert "disk full: no space left to write /big/file" in capsys.readouterr().err


def test_a_full_disk_is_seen_behind_another_error(
    command: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        try:
            raise RuntimeError("I/O error: No space left on device (os error 28)")
        except RuntimeError as error:
            raise ValueError("cannot save") from error

    command(fail)
    assert main(["try"]) == 1
    assert "error: disk full" in capsys.readouterr().err


def test_a_missing_package_is_named(command: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        import not_a_package_of_anyone.part  # type: ignore[import-not-found] # noqa: F401

    command(fail)
    assert main(["try"]) == 1
    assert "package 'not_a_package_of_anyone' is not installed" in capsys.readouterr().err


def test_another_error_is_a_bug_whose_traceback_goes_to_a_file(
    command: Callable[..., None], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fail() -> None:
        raise ZeroDivisionError("division by zero")

    command(fail)
    assert main(["try"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: ZeroDivisionError: division by zero\nthis is a bug in mmrl")
    assert "Traceback" not in err
    (log,) = (tmp_path / "home" / "logs").iterdir()
    assert str(log) in err
    assert "in fail" in log.read_text()
    assert log.read_text().startswith("mmrl try\n")


def test_the_log_of_a_bug_shows_no_secret_of_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mmrl.cli.failures import describe

    monkeypatch.setenv("MMRL_HOME", str(tmp_path))
    describe(ValueError("x"), ["run", "a.yaml", "reward.0.arguments.api_key=fake-123", "seed=1"])
    (log,) = (tmp_path / "logs").iterdir()
    assert log.read_text().startswith("mmrl run a.yaml reward.0.arguments.api_key=<redacted> seed=1\n")


def test_the_traceback_of_a_bug_is_shown_with_vv(
    command: Callable[..., None], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fail() -> None:
        raise ZeroDivisionError("division by zero")

    command(fail)
    assert main(["-vv", "try"]) == 1
    assert "Traceback" in capsys.readouterr().err
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        ([], ["odd"]),
        (["-v"], ["rollout 1.20 s", "odd"]),
        (["-vv"], ["rollout 1.20 s", "pack 3 groups", "odd"]),
        (["-v", "-v"], ["rollout 1.20 s", "pack 3 groups", "odd"]),
    ],
)
def test_v_tells_stages_and_vv_every_call_on_stderr(
    words: list[str], lines: list[str], command: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    def work() -> None:
        logging.getLogger("mmrl.stage").info("rollout 1.20 s")
        logging.getLogger("mmrl.engines.actor").debug("pack 3 groups")
        logging.getLogger("mmrl.data").warning("odd")

    command(work)
    assert main([*words, "try"]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert [line.split(": ", 1)[1] for line in captured.err.splitlines()] == lines


def test_v_may_stand_before_and_after_the_command() -> None:
    app = typer.Typer()

    @app.callback()
    def root(verbose: VerboseOption = 0) -> None: ...

    @app.command("try")
    def try_(verbose: VerboseOption = 0) -> None:
        seen.append(is_debugging())

    seen: list[bool] = []
    group = typer.main.get_command(app)
    for words in (["-vv", "try"], ["try", "-vv"], ["-vv", "try", "-v"], ["try", "-v"]):
        group.main(words, standalone_mode=False)
    assert seen == [True, True, True, False]
