"""The reward `code`: the response's program is run against the sample's tests, in a sandbox."""

from __future__ import annotations

import re
import secrets
import sys
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

from mmrl.config.reward import CodeRewardConfig
from mmrl.rewards.base import Reward, RewardItem, Score
from mmrl.rewards.code.tests import CodeTest, InputTest, Test, is_same_output, read_tests
from mmrl.rewards.sandbox.sandbox import Limits, Run, Sandbox

_BLOCK = re.compile(r"^[ \t]*```[ \t]*(?P<language>[\w+-]*)[^\n]*\n(?P<code>.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)
_LANGUAGES = ("", "python", "py", "python3")
_HARNESS = Path(__file__).with_name("harness.py")


@dataclass(frozen=True)
class _Result:
    """trouble: why the test did not pass; empty where it did."""

    trouble: str = ""


class CodeReward(Reward):
    """The share of tests that pass, or 1 only where all do. Whatever the program does costs its response alone, and a
    program that hangs, crashes or takes too much is a wrong answer, not a failure of the reward.

    Expected outputs and verdicts stay outside of the sandbox. Tests that are code run in the program's own process, so
    they are told apart from what the program prints by a mark that it is not given.
    """

    isolated: ClassVar[bool] = True

    def __init__(self, config: CodeRewardConfig) -> None:
        self._config = config
        self._sandbox = Sandbox(config.isolation)

    def score(self, item: RewardItem) -> Score:
        config = self._config
        tests = read_tests(item.sample.meta.get(config.tests, item.sample.answer))[: config.max_tests]
        program = find_program(item.response) if config.fenced else item.response
        if program is None or not program.strip():
            return Score(0.0, None, "no closed ``` block with a program" if config.fenced else "the response is empty")
        results = self._run(program, tests)
        passed = sum(not result.trouble for result in results)
        value = passed / len(tests) if config.partial else float(passed == len(tests))
        counts = {"tests": float(len(tests)), "passed": float(passed)}
        return Score(value, program, _explain(results, passed, len(tests)), counts)

    def _run(self, program: str, tests: list[Test]) -> list[_Result]:
        """The results of the tests, up to the first that does not pass unless each one counts."""
        ends_at = time.monotonic() + 0.8 * self._config.timeout_s
        codes = [test for test in tests if isinstance(test, CodeTest)]
        results = self._run_codes(program, codes, ends_at) if codes else []
        for test in tests:
            if not isinstance(test, InputTest) or (not self._config.partial and any(one.trouble for one in results)):
                continue
            results.append(self._run_input(program, test, ends_at))
        return results

    def _run_input(self, program: str, test: InputTest, ends_at: float) -> _Result:
        limits = self._limits(ends_at, num_tests=1)
        if limits.wall_s <= 0:
            return _Result("not reached within timeout_s")
        argv = [sys.executable, "-I", "solution.py"]
        run = self._sandbox.run(argv, files={"solution.py": program}, stdin=test.given.encode(), limits=limits)
        printed = run.stdout.decode(errors="replace")
        if trouble := _trouble_of(run, limits):
            return _Result(trouble)
        if is_same_output(printed, test.expected):
            return _Result()
        return _Result(f"expected {_short(test.expected)}, it printed {_short(printed)}")

    def _run_codes(self, program: str, tests: list[CodeTest], ends_at: float) -> list[_Result]:
        limits = self._limits(ends_at, num_tests=len(tests))
        mark = secrets.token_hex(16)
        files = {"solution.py": program, "harness.py": _harness()}
        stdin = f"{mark}\n{[test.code for test in tests]!r}".encode()
        run = self._sandbox.run([sys.executable, "-I", "harness.py"], files=files, stdin=stdin, limits=limits)
        told = {}
        for line in run.stdout.decode(errors="replace").splitlines():
            if match := re.fullmatch(rf"{mark} (\d+)(?: (.*))?", line):
                told[int(match[1])] = match[2] or ""
        missing = _trouble_of(run, limits) or "the program ended the process"
        return [_Result(told.get(index, missing)) for index in range(len(tests))]

    def _limits(self, ends_at: float, *, num_tests: int) -> Limits:
        config = self._config
        return Limits(
            wall_s=min(config.test_timeout_s * num_tests, ends_at - time.monotonic()),
            memory_bytes=config.memory_mb * 2**20,
            processes=config.processes,
            output_bytes=int(config.output_mb * 2**20),
        )


def find_program(response: str) -> str | None:
    """The last closed ``` block that is Python or of no language."""
    blocks = [block["code"] for block in _BLOCK.finditer(response) if block["language"].lower() in _LANGUAGES]
    return blocks[-1] if blocks else None


@cache
def _harness() -> str:
    return _HARNESS.read_text()


def _trouble_of(run: Run, limits: Limits) -> str:
    if run.stopped == "time":
        return f"it took longer than {limits.wall_s:.3g} s"
    if run.stopped == "memory":
        return f"it took more than {limits.memory_bytes / 2**20:.0f} MiB of memory"
    if run.exit_code == 0:
        return ""
    last = run.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    code = f"signal {run.exit_code - 128}" if run.exit_code > 128 else f"exit code {run.exit_code}"
    return last[-200:] or f"it ended with {code}"


def _explain(results: list[_Result], passed: int, num_tests: int) -> str:
    first = next(((number, one.trouble) for number, one in enumerate(results, 1) if one.trouble), None)
    return f"{passed} of {num_tests} tests passed" + (f"; test {first[0]}: {first[1]}" if first else "")


def _short(text: str) -> str:
    text = text.strip()
    return repr(text if len(text) <= 80 else text[:77] + "…")
