"""The reward runner with real processes: whatever a reward does costs its sample only and leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mmrl.config.reward import ExactRewardConfig, FunctionRewardConfig, GateRewardConfig, MathRewardConfig
from mmrl.config.run import RewardRunnerConfig
from mmrl.errors import ConfigError, RunFailedError
from mmrl.rewards import RewardItem, RewardRunner, reward
from mmrl.types import Message, RewardResult, Rollout, RolloutGroup, Sample, TextPart

DEADLINE_S = 1.0

MISCHIEF = """
import asyncio, os, signal, subprocess, sys, time

kept = []

def note_pid(pid, arguments):
    with open(arguments, "a") as file:
        file.write(f"{pid}\\n")

def score(response, pid_file):
    match response:
        case "sleep":
            time.sleep(1000)
        case "sleep without mercy":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            note_pid(os.getpid(), pid_file)
            note_pid(subprocess.Popen(["sleep", "1000"]).pid, pid_file)
            time.sleep(1000)
        case "raise":
            raise ValueError("no good")
        case "raise what cannot be sent":
            raise type("Odd", (Exception,), {"__reduce__": lambda self: 1 / 0, "__str__": lambda self: 1 / 0})()
        case "exit":
            sys.exit(3)
        case "interrupt":
            raise KeyboardInterrupt
        case "leave":
            os._exit(0)
        case "leave with a code":
            os._exit(9)
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "leave a child and go":
            note_pid(subprocess.Popen(["sleep", "1000"]).pid, pid_file)
            os._exit(1)
        case "text":
            return "1.0"
        case "list":
            return [0.5]
        case "nan":
            return float("nan")
        case "no score":
            return {"acc": 1}
        case "memory":
            kept.append(bytearray(4 * 2**30))
        case "leak":
            kept.append(bytearray(60 * 2**20))
        case "print":
            for _ in range(50):
                sys.stdout.write("x" * 2**20)
                sys.stderr.write("x" * 2**20)
        case "fork":
            pid = os.fork()
            if pid == 0:
                time.sleep(0.3)
            else:
                note_pid(pid, pid_file)
        case "fork away":
            pid = os.fork()
            if pid == 0:
                os.setsid()
                time.sleep(1000)
            note_pid(pid, pid_file)
        case "long":
            return {"score": 1, "explanation": "x" * 10**7}
        case "torch":
            return "torch" in sys.modules
        case "none":
            return None
    return {"score": 1.0, "explanation": str(os.getpid())}

def batched(response, num_tokens):
    if "raise" in response:
        raise ValueError("no good")
    if "short" in response:
        return [1.0]
    if "sleep" in response:
        time.sleep(1000)
    return [float("nan") if text == "nan" else len(response) for text in response]

async def later(response):
    await asyncio.sleep(0.01)
    return len(response)
"""


@pytest.fixture(scope="module")
def mischief(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("reward") / "mischief.py"
    file.write_text(MISCHIEF)
    return file


def config(file: Path, **settings: object) -> FunctionRewardConfig:
    pid_file = str(file.with_suffix(".pids"))
    arguments = {"timeout_s": DEADLINE_S, "arguments": {"pid_file": pid_file}, **settings}
    return FunctionRewardConfig(path=str(file), **arguments)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def runner(mischief: Path) -> Iterator[RewardRunner]:
    with RewardRunner([config(mischief), ExactRewardConfig(weight=0.0)], RewardRunnerConfig(workers=2)) as runner:
        yield runner


@pytest.fixture(scope="module")
def single(mischief: Path) -> Iterator[RewardRunner]:
    with RewardRunner([config(mischief)], RewardRunnerConfig(workers=1, memory_mb=512)) as runner:
        yield runner


def sample(id: str = "s") -> Sample:
    return Sample(id, (Message("user", (TextPart("?"),)),), "7")


def try_out(runner: RewardRunner, *texts: str) -> list[RewardResult]:
    return runner.score_texts([(sample(f"s{position}"), text) for position, text in enumerate(texts)])


def rollout_group(*texts: str) -> RolloutGroup:
    rollouts = (Rollout("s", index, (1,), (1,), (0.0,), "stop", text, 0, 0) for index, text in enumerate(texts))
    return RolloutGroup(sample(), tuple(rollouts))


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def assert_gone(pids: list[int]) -> None:
    assert pids
    until = time.monotonic() + 10
    while time.monotonic() < until and any(map(is_alive, pids)):
        time.sleep(0.05)
    assert [pid for pid in pids if is_alive(pid)] == []


def noted_pids(file: Path) -> list[int]:
    pid_file = file.with_suffix(".pids")
    pids = [int(line) for line in pid_file.read_text().split()]
    pid_file.unlink()
    return pids


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("sleep", "it took longer than 1 s and was stopped"),
        ("raise", r"it raised ValueError: no good (mischief.py:"),
        ("raise what cannot be sent", "it raised Odd: (its message cannot be shown)"),
        ("exit", "it called exit(3)"),
        ("interrupt", "it raised KeyboardInterrupt"),
        ("leave", "it ended its process (exit code 0)"),
        ("leave with a code", "it ended its process (exit code 9)"),
        ("crash", "its process was killed by SIGSEGV"),
        ("text", "it returned '1.0' (str)"),
        ("list", "it returned [0.5] (list)"),
        ("nan", "it returned nan"),
        ("no score", "it returned a dict without 'score'"),
        ("memory", "it ran out of memory"),
    ],
)
def test_a_bad_response_costs_its_sample_only(runner: RewardRunner, mischief: Path, text: str, error: str) -> None:
    results = try_out(runner, "a", "b", text, "c", "d")
    assert [result.total for result in results] == [1.0, 1.0, None, 1.0, 1.0]
    part = results[2].parts[0]
    assert part.value is None
    assert (part.error or "").startswith(f"reward 'score' ({mischief}) on sample s2, response 0: {error}")


def test_a_child_that_the_reward_forked_is_killed_at_the_deadline_with_its_group(
    runner: RewardRunner, mischief: Path
) -> None:
    results = try_out(runner, "a", "sleep without mercy", "b")
    assert [result.total for result in results] == [1.0, None, 1.0]
    pids = noted_pids(mischief)
    assert len(pids) == 2
    assert_gone(pids)


def test_a_child_is_killed_when_its_worker_leaves(runner: RewardRunner, mischief: Path) -> None:
    assert [result.total for result in try_out(runner, "leave a child and go", "a")] == [None, 1.0]
    assert_gone(noted_pids(mischief))


def test_a_child_that_comes_back_from_the_reward_takes_no_part_in_the_pool(
    single: RewardRunner, mischief: Path
) -> None:
    results = try_out(single, "fork", *"abcdefgh")
    assert [result.total for result in results] == [1.0] * 9
    time.sleep(0.5)
    later = try_out(single, *"abcdefgh")
    workers = {result.parts[0].explanation for result in [*results, *later]}
    assert len(workers) == 1
    assert_gone(noted_pids(mischief))


def test_what_the_reward_prints_goes_nowhere_and_harms_nothing(
    runner: RewardRunner, capfd: pytest.CaptureFixture[str]
) -> None:
    assert [result.total for result in try_out(runner, "a", "print", "b")] == [1.0, 1.0, 1.0]
    assert capfd.readouterr() == ("", "")


def test_a_huge_explanation_is_cut(runner: RewardRunner) -> None:
    (result,) = try_out(runner, "long")
    assert (result.parts[0].explanation or "").endswith("x… (10000000 characters)")
    assert len(result.parts[0].explanation or "") < 2100


def test_exceptions_and_nonsense_leave_the_worker_in_place(single: RewardRunner) -> None:
    texts = ["a", "raise", "b", "exit", "c", "list", "d", "none", "e"]
    results = try_out(single, *texts)
    assert len({result.parts[0].explanation for result in results if result.total is not None}) == 1
    none = results[7]
    assert (none.total, none.parts[0].error) == (None, None)


def test_a_timeout_ends_neither_this_process_nor_the_pool(single: RewardRunner) -> None:
    server = server_pid(single)
    before, hanging, after = try_out(single, "a", "sleep", "b")
    assert (before.total, hanging.total, after.total) == (1.0, None, 1.0)
    assert hanging.parts[0].ms == DEADLINE_S * 1000
    assert before.parts[0].explanation != after.parts[0].explanation
    assert server_pid(single) == server


def test_a_reward_that_leaks_memory_is_given_a_new_process_in_time(single: RewardRunner) -> None:
    results = try_out(single, *["leak"] * 24)
    assert [result.total for result in results] == [1.0] * 24
    assert len({result.parts[0].explanation for result in results}) > 1


def test_a_server_that_is_killed_is_started_again(single: RewardRunner) -> None:
    try_out(single, "a")
    killed = server_pid(single)
    os.kill(killed, signal.SIGKILL)
    assert [result.total for result in try_out(single, "a", "raise", "b")] == [1.0, None, 1.0]
    assert server_pid(single) != killed


def test_hanging_responses_among_many_are_done_in_bounded_time(runner: RewardRunner) -> None:
    texts = ["sleep" if position % 20 == 7 else "a" for position in range(120)]
    began = time.monotonic()
    results = try_out(runner, *texts)
    assert time.monotonic() - began < (6 / 2 + 2) * (DEADLINE_S + 2)
    assert [result.total for result in results] == [None if text == "sleep" else 1.0 for text in texts]


def test_one_raising_response_of_eight_is_missing_and_the_others_keep_their_places(runner: RewardRunner) -> None:
    (results,) = runner.score([rollout_group("a", "b", "c", "d", "raise", "e", "f", "g")])
    assert [result.total for result in results] == [1.0] * 4 + [None] + [1.0] * 3
    assert "on sample s, response 4: it raised" in (results[4].parts[0].error or "")


def test_the_ceiling_on_failures_stops_the_run(runner: RewardRunner) -> None:
    with pytest.raises(RunFailedError, match=r"reward 'score' failed on 2 of 3 responses .*\n- .*no good"):
        runner.score([rollout_group("raise", "raise", "a")])


def test_workers_import_no_torch(runner: RewardRunner) -> None:
    assert try_out(runner, "torch")[0].total == 0.0


def test_after_close_no_process_is_left(mischief: Path) -> None:
    runner = RewardRunner([config(mischief)], RewardRunnerConfig(workers=2))
    results = try_out(runner, "a", "b", "fork away", "c")
    pids = [server_pid(runner), *(int(str(result.parts[0].explanation)) for result in results), *noted_pids(mischief)]
    runner.close()
    assert_gone(pids)
    assert [result.total for result in try_out(runner, "a")] == [1.0]
    runner.close()


def test_closing_while_responses_hang_ends_them(mischief: Path) -> None:
    runner = RewardRunner([config(mischief, timeout_s=1000.0)], RewardRunnerConfig(workers=2))
    pool = runner._pool
    assert pool is not None
    runner._send_off([RewardItem(sample(), "sleep without mercy")] * 500)
    until = time.monotonic() + 20
    while time.monotonic() < until and not mischief.with_suffix(".pids").exists():
        time.sleep(0.05)
    time.sleep(0.3)
    began = time.monotonic()
    runner.close()
    assert time.monotonic() - began < 4
    assert_gone(noted_pids(mischief))


def test_async_functions_and_several_rewards_keep_their_order(mischief: Path) -> None:
    later = FunctionRewardConfig(path=str(mischief), name="later", weight=10.0)
    with RewardRunner([config(mischief), MathRewardConfig(), later], RewardRunnerConfig(workers=2)) as runner:
        results = try_out(runner, r"\boxed{7}", "raise", r"\boxed{8}", "7")
    assert [part.name for part in results[0].parts] == ["score", "math", "later"]
    assert [[part.value for part in result.parts] for result in results] == [
        [1.0, 1.0, 9.0],
        [None, 0.0, 5.0],
        [1.0, 0.0, 9.0],
        [1.0, 1.0, 1.0],
    ]
    assert [result.total for result in results] == [92.0, None, 91.0, 12.0]


def test_a_combination_with_a_function_in_it_runs_in_the_pool(mischief: Path) -> None:
    gate = GateRewardConfig(condition=ExactRewardConfig(boxed=False), reward=config(mischief), otherwise=0.5)
    with RewardRunner([gate], RewardRunnerConfig(workers=1)) as runner:
        open_sample = Sample("open", sample().messages, "sleep")
        results = runner.score_texts([(sample(), "sleep"), (open_sample, "sleep"), (sample(), "7")])
    assert [result.total for result in results] == [0.5, None, 1.0]
    assert "it took longer than 1 s" in (results[1].parts[0].error or "")


def test_a_batch_function_loses_its_batch_only(mischief: Path) -> None:
    batched = FunctionRewardConfig(path=str(mischief), name="batched", batch=3, timeout_s=0.5)
    texts = ["a", "b", "c", "d", "raise", "e", "f", "nan", "g", "h", "short", "i", "j", "sleep", "k", "l"]
    with RewardRunner([batched], RewardRunnerConfig(workers=2)) as runner:
        results = try_out(runner, *texts)
    totals = [3.0, 3.0, 3.0, None, None, None, 3.0, None, 3.0, None, None, None, None, None, None, 1.0]
    assert [result.total for result in results] == totals
    errors = [result.parts[0].error or "" for result in results]
    assert "sample s3, response 0: it raised ValueError: no good" in errors[3]
    assert "it returned nan" in errors[7]
    assert "it returned 1 scores for 3 responses" in errors[9]
    assert "it took longer than 1.5 s" in errors[12]


def test_functions_passed_from_python_run_in_the_pool() -> None:
    factor = 3

    @reward(weight=0.5, name="times", timeout_s=DEADLINE_S)
    def scaled(response: str) -> dict[str, object]:
        if response == "sleep":
            time.sleep(1000)
        return {"score": factor * len(response), "explanation": str(os.getpid())}

    with RewardRunner([], RewardRunnerConfig(), functions=[scaled, lambda: 1]) as runner:
        short, hanging = try_out(runner, "ab", "sleep")
    assert [part.name for part in short.parts] == ["times", "function"]
    assert short.total == 0.5 * 6 + 1
    assert short.parts[0].explanation != str(os.getpid())
    assert hanging.parts[0].error == (
        "reward 'times' on sample s1, response 0: it took longer than 1 s and was stopped"
    )


def test_an_answer_that_cannot_be_worked_out_costs_at_most_its_deadline() -> None:
    endless = [r"\boxed{(10^9)!}", r"\boxed{\binom{10^{9}}{10^{8}}}"]
    with RewardRunner([MathRewardConfig(timeout_s=2)], RewardRunnerConfig(workers=2)) as runner:
        began = time.monotonic()
        results = try_out(runner, *endless, "\\(2003^{2002^{2001}}\\) ends so.\nAnswer: 007", r"\boxed{7}")
    assert time.monotonic() - began < 12
    assert all(result.total in (0.0, None) for result in results[:2])
    assert [result.total for result in results[2:]] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "does not exist"),
        ("def scores(response): return 1", "did you mean 'scores'?"),
        ("def score(tokenizer): return 1", "nothing gives its argument 'tokenizer'"),
        ("import os; os._exit(1)", "the reward processes did not start"),
    ],
)
def test_a_function_that_does_not_load_is_refused_at_the_start(tmp_path: Path, text: str | None, message: str) -> None:
    file = tmp_path / "own.py"
    if text is not None:
        file.write_text(text)
    with pytest.raises(Exception, match=message) as caught:
        RewardRunner([FunctionRewardConfig(path=str(file))], RewardRunnerConfig())
    assert isinstance(caught.value, ConfigError) or "did not start" in str(caught.value)


def test_the_users_main_script_is_not_run_again_and_its_death_ends_every_process(tmp_path: Path) -> None:
    script = tmp_path / "own_training.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, signal
            from mmrl.config.run import RewardRunnerConfig
            from mmrl.rewards import RewardRunner
            from mmrl.types import Message, Sample, TextPart

            print("main runs", flush=True)

            def own(response):
                return {"score": 1, "explanation": str(os.getpid())}

            runner = RewardRunner([], RewardRunnerConfig(workers=2), functions=[own])
            sample = Sample("s", (Message("user", (TextPart("?"),)),))
            pids = {int(r.parts[0].explanation) for r in runner.score_texts([(sample, "a")] * 50)}
            print(*pids, runner._pool._process.pid, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
            """
        )
    )
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    lines = run.stdout.splitlines()
    assert lines[0] == "main runs", run.stderr
    assert len(lines) == 2
    assert_gone([int(pid) for pid in lines[1].split()])


def server_pid(runner: RewardRunner) -> int:
    assert runner._pool is not None
    assert runner._pool._process is not None
    return runner._pool._process.pid
