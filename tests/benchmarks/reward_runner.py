"""Responses a second through the reward runner, beside bare Pebble and the ideal, and how long hanging ones hold it up.

The function takes 1 ms of processor time. With --hanging, 1 % of the responses never end.

    python tests/benchmarks/reward_runner.py --responses 4000 --json
    python tests/benchmarks/reward_runner.py --hanging --responses 10000 --deadline 1
"""

from __future__ import annotations

import argparse
import json
import time

import pebble

from mmrl.config.run import RewardRunnerConfig
from mmrl.rewards import RewardRunner, reward
from mmrl.types import Message, Sample, TextPart

SAMPLE = Sample("s", (Message("user", (TextPart("How many?"),)),), "7")
TEXT = "Let us count them one by one. " * 40
ALLOWED_OVERHEAD_S = 2.0


def one_millisecond(response: str) -> float:
    until = time.process_time() + 0.001
    while time.process_time() < until:
        pass
    return 1.0


def measure_runner(responses: int, workers: int) -> float:
    with RewardRunner([], RewardRunnerConfig(workers=workers), functions=[one_millisecond]) as runner:
        runner.score_texts([(SAMPLE, TEXT)] * workers)
        began = time.monotonic()
        runner.score_texts([(SAMPLE, TEXT)] * responses)
        return responses / (time.monotonic() - began)


def measure_pebble(responses: int, workers: int) -> float:
    with pebble.ProcessPool(workers) as pool:
        pool.schedule(one_millisecond, (TEXT,)).result()
        began = time.monotonic()
        for future in [pool.schedule(one_millisecond, (TEXT,), timeout=10) for _ in range(responses)]:
            future.result()
        return responses / (time.monotonic() - began)


def measure_hanging(responses: int, workers: int, deadline_s: float) -> dict[str, float]:
    @reward(timeout_s=deadline_s)
    def sometimes_endless(response: str) -> float:
        while response == "hang":
            time.sleep(1)
        return one_millisecond(response)

    texts = ["hang" if index % 100 == 50 else TEXT for index in range(responses)]
    with RewardRunner([], RewardRunnerConfig(workers=workers), functions=[sometimes_endless]) as runner:
        began = time.monotonic()
        results = runner.score_texts([(SAMPLE, text) for text in texts])
        seconds = time.monotonic() - began
    hanging = texts.count("hang")
    lost = sum(result.total is None for result in results)
    assert lost == hanging, f"{lost} responses were lost, {hanging} of them hang"
    bound = (hanging / workers + 2) * (deadline_s + ALLOWED_OVERHEAD_S)
    return {"responses": responses, "hanging": hanging, "seconds": seconds, "bound_seconds": bound}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--responses", type=int, default=4000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--hanging", action="store_true", help="1 %% of the responses never end")
    parser.add_argument("--deadline", type=float, default=1.0, help="seconds for one response, with --hanging")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.hanging:
        figures = measure_hanging(options.responses, options.workers, options.deadline)
    else:
        figures = {
            "pebble_per_second": measure_pebble(options.responses, options.workers),
            "runner_per_second": measure_runner(options.responses, options.workers),
            "ideal_per_second": options.workers / 0.001,
        }
    if options.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:<20}{value:,.1f}")


if __name__ == "__main__":
    main()
