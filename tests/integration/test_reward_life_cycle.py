"""The reward processes from start to end: order, restarts, and no process left behind."""

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
from reward_mischief import (
    DEADLINE_S,
    assert_gone,
    config,
    noted_pids,
    rollout_group,
    server_pid,
    try_out,
    write_mischief,
)

from mmrl.config.reward import ExactRewardConfig, FunctionRewardConfig, MathRewardConfig
from mmrl.config.run import RewardRunnerConfig
from mmrl.errors import ConfigError
from mmrl.rewards import RewardRunner, reward


@pytest.fixture(scope="module")
def mischief(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mischief(tmp_path_factory.mktemp("reward"))


@pytest.fixture(scope="module")
def runner(mischief: Path) -> Iterator[RewardRunner]:
    with RewardRunner([config(mischief), ExactRewardConfig(weight=0.0)], RewardRunnerConfig(workers=2)) as runner:
        yield runner


@pytest.fixture(scope="module")
def single(mischief: Path) -> Iterator[RewardRunner]:
    with RewardRunner([config(mischief)], RewardRunnerConfig(workers=1, memory_mb=512)) as runner:
        yield runner


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


def test_a_server_that_is_killed_is_started_again(single: RewardRunner) -> None:
    try_out(single, "a")
    killed = server_pid(single)
    os.kill(killed, signal.SIGKILL)
    assert [result.total for result in try_out(single, "a", "raise", "b")] == [1.0, None, 1.0]
    assert server_pid(single) != killed


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
    runner.start(rollout_group(*["sleep without mercy"] * 500))
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
