"""vLLM's sleep, told step by step, and the guard against sampling with weights that were given away.

No CPU has sleep mode, so the engine is a record of what it was told; tests marked `gpu` put a real one to sleep.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest

from mmrl.config.rollout import RolloutConfig
from mmrl.engines import vllm_process
from mmrl.engines.vllm_sleep import NeverSleeps, VllmSleeper, sleep_level


class Engine:
    """Records calls."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def reset_prefix_cache(self) -> bool:
        self.calls.append("drop prefixes")
        return True

    def reset_encoder_cache(self) -> None:
        self.calls.append("drop features")

    def sleep(self, level: int) -> None:
        self.calls.append(("sleep", level))

    def wake_up(self, tags: list[str]) -> None:
        self.calls.append(("wake", *tags))


def test_o01_caches_go_before_the_engine_sleeps_and_each_part_wakes_once() -> None:
    engine = Engine()
    sleeper = VllmSleeper(engine, 2)
    sleeper.sleep()
    sleeper.sleep()
    assert engine.calls == ["drop prefixes", "drop features", ("sleep", 2)]
    assert sleeper.is_asleep
    sleeper.wake(weights_only=True)
    assert sleeper.is_asleep
    sleeper.wake(weights_only=True)
    sleeper.wake()
    sleeper.wake()
    assert engine.calls[3:] == [("wake", "weights"), ("wake", "kv_cache")]
    assert not sleeper.is_asleep


def test_o02_weights_that_were_discarded_are_gone_until_they_came() -> None:
    sleeper = VllmSleeper(Engine(), 2)
    assert not sleeper.has_lost_weights
    sleeper.sleep()
    sleeper.wake()
    assert sleeper.has_lost_weights, "waking brings memory back, not what was in it"
    sleeper.weights_came()
    assert not sleeper.has_lost_weights


def test_weights_that_are_kept_are_never_lost() -> None:
    sleeper = VllmSleeper(Engine(), 1)
    sleeper.sleep()
    assert not sleeper.has_lost_weights


@pytest.mark.parametrize(
    ("setting", "quantized", "level"),
    [
        ("auto", False, 2),
        ("auto", True, 1),
        ("keep_weights", False, 1),
        ("discard_weights", True, 2),
        ("never", False, None),
    ],
)
def test_the_level_goes_by_the_kind_of_model(
    monkeypatch: pytest.MonkeyPatch, setting: str, quantized: bool, level: int | None
) -> None:
    monkeypatch.setattr(vllm_process, "can_sleep", lambda: True)
    config = RolloutConfig.model_validate({"engine": "vllm", "sleep": setting})
    assert sleep_level(config, quantized=quantized) == level


def test_where_there_is_no_sleep_mode_nothing_happens_and_that_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(vllm_process, "can_sleep", lambda: False)
    config = RolloutConfig.model_validate({"engine": "vllm", "sleep": "discard_weights"})
    assert sleep_level(config, quantized=False) is None
    sleeper = NeverSleeps(why="it has no sleep mode here")
    with caplog.at_level(logging.INFO, logger="mmrl"):
        sleeper.sleep()
        sleeper.sleep()
    assert [record.getMessage() for record in caplog.records] == [
        "rollout engine vllm keeps its memory while the trainer works: it has no sleep mode here"
    ]
    sleeper.wake()
    sleeper.weights_came()
    assert (sleeper.is_asleep, sleeper.has_lost_weights) == (False, False)
