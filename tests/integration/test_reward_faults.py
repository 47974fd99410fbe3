"""Whatever a reward does to one response costs that response only."""

from __future__ import annotations

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
    sample,
    server_pid,
    try_out,
    write_mischief,
)

from mmrl.config.reward import ExactRewardConfig, FunctionRewardConfig, GateRewardConfig, MathRewardConfig
from mmrl.config.run import RewardRunnerConfig
from mmrl.errors import RunFailedError
from mmrl.rewards import RewardRunner
from mmrl.types import Sample


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


def test_r27_a_timeout_ends_neither_this_process_nor_the_pool(single: RewardRunner) -> None:
    server, (earlier,) = server_pid(single), try_out(single, "a")
    before, hanging, after = try_out(single, "a", "sleep", "b")
    assert (before.total, hanging.total, after.total) == (1.0, None, 1.0)
    assert hanging.parts[0].ms == DEADLINE_S * 1000
    assert earlier.parts[0].explanation != after.parts[0].explanation
    assert server_pid(single) == server


def test_a_reward_that_leaks_memory_is_given_a_new_process_in_time(single: RewardRunner) -> None:
    results = try_out(single, *["leak"] * 24)
    assert [result.total for result in results] == [1.0] * 24
    assert len({result.parts[0].explanation for result in results}) > 1


def test_a_response_that_kills_the_server_of_the_pool_costs_itself_only(runner: RewardRunner) -> None:
    results = try_out(runner, "a", "kill the parent", "b", "c")
    assert [result.total is None for result in results] == [False, True, False, False]


def test_hanging_responses_among_many_are_done_in_bounded_time(runner: RewardRunner) -> None:
    texts = ["sleep" if position % 20 == 7 else "a" for position in range(120)]
    began = time.monotonic()
    results = try_out(runner, *texts)
    assert time.monotonic() - began < (6 / 2 + 2) * (DEADLINE_S + 2)
    assert [result.total for result in results] == [None if text == "sleep" else 1.0 for text in texts]


def test_responses_that_go_to_a_worker_together_are_lost_one_by_one(runner: RewardRunner, mischief: Path) -> None:
    quick = [f"#{number}" for number in range(400)]
    assert [result.total for result in try_out(runner, *quick)] == list(range(400))
    bad = {50: "sleep", 90: "crash", 91: "leave", 130: "raise", 170: "leave with a code", 210: "memory", 399: "exit"}
    numbers = mischief.with_suffix(".pids-numbers")
    numbers.unlink()
    results = try_out(runner, *(bad.get(place, text) for place, text in enumerate(quick)))
    assert [result.total for result in results] == [None if place in bad else place for place in range(400)]
    assert {place for place, result in enumerate(results) if result.parts[0].error} == bad.keys()
    repeated = len(numbers.read_text().split()) - (400 - len(bad))
    assert 0 < repeated < 200, "those before a culprit are done twice, which shows that they went together, and no more"


def test_a_slow_response_behind_quick_ones_has_its_whole_deadline(single: RewardRunner) -> None:
    slow = "take most of the deadline"
    assert [result.total for result in try_out(single, *["a"] * 100, slow, *["a"] * 20, slow, slow)] == [1.0] * 123


def test_r31_one_raising_response_of_eight_is_missing_and_the_others_keep_their_places(runner: RewardRunner) -> None:
    (results,) = runner.score([rollout_group("a", "b", "c", "d", "raise", "e", "f", "g")])
    assert [result.total for result in results] == [1.0] * 4 + [None] + [1.0] * 3
    assert "on sample s, response 4: it raised" in (results[4].parts[0].error or "")


def test_r31_the_ceiling_on_failures_stops_the_run(runner: RewardRunner) -> None:
    with pytest.raises(RunFailedError, match=r"reward 'score' failed on 2 of 3 responses .*\n- .*no good"):
        runner.score([rollout_group("raise", "raise", "a")])


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


def test_r18_r19_an_answer_that_cannot_be_worked_out_costs_at_most_its_deadline() -> None:
    endless = [r"\boxed{(10^9)!}", r"\boxed{\binom{10^{9}}{10^{8}}}"]
    with RewardRunner([MathRewardConfig(timeout_s=2)], RewardRunnerConfig(workers=2)) as runner:
        began = time.monotonic()
        results = try_out(runner, *endless, "\\(2003^{2002^{2001}}\\) ends so.\nAnswer: 007", r"\boxed{7}")
    assert time.monotonic() - began < 12
    assert all(result.total in (0.0, None) for result in results[:2])
    assert [result.total for result in results[2:]] == [1.0, 1.0]


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
