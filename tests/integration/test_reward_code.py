"""The reward `code`: programs run in a real sandbox, and whatever they try costs their response only."""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from mmrl.config.reward import CodeRewardConfig
from mmrl.config.run import RewardRunnerConfig
from mmrl.errors import ConfigError
from mmrl.rewards import RewardItem, RewardRunner, Score
from mmrl.rewards.code.reward import CodeReward
from mmrl.rewards.sandbox import sandbox
from mmrl.rewards.sandbox.sandbox import Limits, Sandbox
from mmrl.types import Message, RewardResult, Sample, TextPart

PAIRS = [{"input": "1 2", "output": "3"}, {"input": "5 5", "output": "10"}]
ASSERTS = ["assert add(1, 2) == 3", "assert add(5, 5) == 10"]
RIGHT = "a, b = map(int, input().split())\nprint(a + b)"
SECRET = "not-a-real-secret-4711"


def sample(tests: Any, answer: str | None = None) -> Sample:
    return Sample("s", (Message("user", (TextPart("Add two numbers."),)),), answer, {"tests": tests})


def block(program: str) -> str:
    return f"Here it is:\n```python\n{program}\n```"


def score(program: str, tests: Any = PAIRS, **settings: Any) -> Score:
    config = CodeRewardConfig(**{"test_timeout_s": 5.0} | settings)
    return CodeReward(config).score(RewardItem(sample(tests), block(program)))


def test_right_wrong_malformed_and_empty_programs() -> None:
    right = score(RIGHT)
    assert (right.value, right.explanation) == (1.0, "2 of 2 tests passed")
    assert right.extras == {"tests": 2.0, "passed": 2.0}
    assert (right.extracted or "").startswith("a, b = map")
    wrong = score("a, b = map(int, input().split())\nprint(a * b)")
    assert (wrong.value, wrong.explanation) == (0.0, "0 of 2 tests passed; test 1: expected '3', it printed '2'")
    malformed = score("print(")
    assert (malformed.value, malformed.explanation) == (
        0.0,
        "0 of 2 tests passed; test 1: SyntaxError: '(' was never closed",
    )
    reward = CodeReward(CodeRewardConfig())
    for response in ("", RIGHT, f"```python\n{RIGHT}"):
        empty = reward.score(RewardItem(sample(PAIRS), response))
        assert (empty.value, empty.explanation) == (0.0, "no closed ``` block with a program")
    whole = CodeReward(CodeRewardConfig(fenced=False))
    assert whole.score(RewardItem(sample(PAIRS), RIGHT)).value == 1.0


def test_tests_may_be_asserts_calls_or_the_answer() -> None:
    program = "def add(a, b):\n    return a + b"
    assert score(program, ASSERTS).value == 1.0
    assert score(program, "\n".join(ASSERTS)).value == 1.0
    assert score(program, {"fn_name": "add", "inputs": [[1, 2]], "outputs": [3]}).value == 1.0
    in_class = "class Solution:\n    def add(self, a, b):\n        return a + b"
    assert score(in_class, {"fn_name": "add", "inputs": [[1, 2]], "outputs": [3]}).value == 1.0
    in_answer = Sample("s", (Message("user", (TextPart("Add."),)),), ASSERTS[0])
    assert CodeReward(CodeRewardConfig()).score(RewardItem(in_answer, block(program))).value == 1.0


def test_the_share_of_passed_tests_is_paid_where_asked_for() -> None:
    half = "a, b = map(int, input().split())\nprint(3)"
    assert score(half).value == 0.0
    assert score(half, partial=True).value == 0.5
    assert score(half, max_tests=1).value == 1.0
    half = "def add(a, b):\n    return 3"
    assert score(half, ASSERTS).value == 0.0
    told = score(half, ASSERTS, partial=True)
    assert (told.value, told.explanation) == (0.5, "1 of 2 tests passed; test 2: AssertionError:")


@pytest.mark.parametrize(
    "program",
    [
        "import os; os._exit(0)",
        "import sys; sys.exit(0)",
        "raise SystemExit",
        "class E:\n    def __eq__(self, other): return True\nadd = lambda a, b: E()",
        "class E(int):\n    def __eq__(self, other): return True\nadd = lambda a, b: E(1)",
        "import builtins\nadd = lambda a, b: 0\nprint('0')\nprint('1')",
        "import unittest.mock\nadd = unittest.mock.Mock(side_effect=AssertionError)",
        "import unittest.mock\nadd = lambda a, b: unittest.mock.ANY",
        "import __main__\n__main__.equal = __main__.plain = lambda *values: True\nadd = lambda a, b: 0",
    ],
)
def test_a_program_cannot_pass_asserts_by_leaving_or_by_equalling_everything(program: str) -> None:
    assert score(program, ASSERTS).value == 0.0


@pytest.fixture
def listener() -> Iterator[tuple[int, list[str]]]:
    """A server on this machine, and who came."""
    came: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def take() -> None:
            while True:
                try:
                    connection, address = server.accept()
                except OSError:
                    return
                came.append(str(address))
                connection.close()

        threading.Thread(target=take, daemon=True).start()
        yield server.getsockname()[1], came


def test_a_program_sees_no_secrets_no_files_no_network_and_no_other_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listener: tuple[int, list[str]]
) -> None:
    port, came = listener
    monkeypatch.setenv("API_KEY", SECRET)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    key = tmp_path / ".ssh" / "id_rsa"
    key.write_text(SECRET)
    program = f"""
import os, socket

def tried(what):
    try:
        return what()
    except OSError as error:
        return type(error).__name__

print(dict(os.environ))
print(tried(lambda: open({str(key)!r}).read()))
print(tried(lambda: open(os.path.expanduser("~/.ssh/id_rsa")).read()))
print(tried(lambda: os.listdir({str(tmp_path)!r})))
print(tried(lambda: open("/etc/passwd").read()))
print(tried(lambda: open("/proc/1/environ").read()))
print(tried(lambda: socket.create_connection(("127.0.0.1", {port}), 1)))
print(tried(lambda: os.kill({os.getpid()}, 0)))
print(tried(lambda: open("/usr/written", "w")))
print(tried(lambda: os.setuid(0)), os.getuid() == {os.getuid()} == 0)
open("/tmp/left-behind-4711", "w").write("x")
"""
    run = Sandbox().run(
        [sys.executable, "-I", "solution.py"],
        files={"solution.py": program},
        limits=Limits(10.0, 2**29),
    )
    assert run.exit_code == 0, run.stderr
    lines = run.stdout.decode().splitlines()
    assert SECRET not in run.stdout.decode()
    assert "API_KEY" not in lines[0]
    assert lines[1:] == [
        "FileNotFoundError",
        "FileNotFoundError",
        "FileNotFoundError",
        "FileNotFoundError",
        "PermissionError",
        "OSError",
        "ProcessLookupError",
        "OSError",
        "PermissionError False",
    ]
    assert came == []
    assert not Path("/tmp/left-behind-4711").exists()


@pytest.mark.parametrize(
    ("program", "trouble"),
    [
        ("import os\nwhile True: os.fork()", "Resource temporarily unavailable|took longer"),
        ("x = bytearray(8 * 2**30)", "MemoryError"),
        ("x = []\nwhile True: x.append(bytearray(2**20))", "MemoryError|took more|took longer"),
        ("while True: pass", "it took longer than 1 s"),
        ("import time\ntime.sleep(1000)", "it took longer than 1 s"),
        ("while True: print('x' * 2**16)", "File too large"),
        ("while True: open('/tmp/a', 'ab').write(b'x' * 2**16)", "File too large"),
        ("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nprint(3)", ""),
        ("import os\nos.abort()", "it ended with signal 6"),
        ("import ctypes\nctypes.string_at(0)", "it ended with signal 11"),
        ("import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()", ""),
        ("import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(9)", "longer than 1 s"),
    ],
)
def test_whatever_a_program_does_is_a_wrong_answer_and_leaves_nothing_behind(program: str, trouble: str) -> None:
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    result = score(program, test_timeout_s=1.0)
    assert result.value == 0.0
    assert re.search(trouble, result.explanation or "")
    assert {process.pid for process in psutil.Process().children(recursive=True)} <= before


def test_memory_is_counted_over_all_processes_of_a_program() -> None:
    program = """
import os, time
for _ in range(8):
    if os.fork() == 0:
        x = bytearray(b"x" * 40 * 2**20)
        time.sleep(1000)
time.sleep(1000)
"""
    result = score(program, test_timeout_s=20.0, memory_mb=128)
    assert "it took more than 128 MiB of memory" in (result.explanation or "")


def test_a_process_that_moves_away_dies_with_the_program(tmp_path: Path) -> None:
    program = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(1234)
    os._exit(0)
"""
    assert score(program, [{"input": "", "output": ""}]).value == 1.0
    assert not any("1234" in " ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))


def test_in_the_runner_bad_programs_cost_their_responses_only() -> None:
    programs = ["while True: pass", RIGHT, "import os\nwhile True: os.fork()", RIGHT, "x = bytearray(8 * 2**30)"]
    config = CodeRewardConfig(test_timeout_s=1.0, timeout_s=8.0)
    with RewardRunner([config], RewardRunnerConfig(workers=2)) as runner:
        results: list[RewardResult] = runner.score_texts([(sample(PAIRS), block(program)) for program in programs])
    assert [result.total for result in results] == [0.0, 1.0, 0.0, 1.0, 0.0]


def test_a_sample_without_tests_is_a_failure_and_no_wrong_answer() -> None:
    with RewardRunner([CodeRewardConfig()], RewardRunnerConfig(workers=1)) as runner:
        (result,) = runner.score_texts([(sample([]), block(RIGHT))])
    assert result.total is None
    assert "the sample has no tests" in (result.parts[0].error or "")


def test_the_deadline_of_a_response_ends_what_its_program_started() -> None:
    """Where even the sandbox hangs, the runner's deadline takes everything with it."""
    config = CodeRewardConfig(test_timeout_s=1.0, timeout_s=1.0)
    slow = "import time\ntime.sleep(5551234)"
    with RewardRunner([config], RewardRunnerConfig(workers=1)) as runner:
        began = time.monotonic()
        (result,) = runner.score_texts([(sample(PAIRS), block(slow))])
        assert time.monotonic() - began < 10
    assert result.total in (0.0, None)


def test_where_namespaces_are_not_allowed_that_is_said_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "_trouble_with", lambda namespaces: "Operation not permitted" if namespaces else None)
    sandbox._choose.cache_clear()
    try:
        with pytest.raises(ConfigError, match=r"allows no namespaces \(Operation not permitted\).*allow them"):
            CodeReward(CodeRewardConfig(isolation="namespaces"))
        monkeypatch.setattr(sandbox, "_throwaway_uid", lambda: None)
        with pytest.raises(ConfigError, match="or run as root"):
            CodeReward(CodeRewardConfig(isolation="auto"))
    finally:
        sandbox._choose.cache_clear()
