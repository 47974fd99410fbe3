"""vLLM's sleep: device memory given back while the trainer works on the same device.

Level 1 moves the weights to the computer's memory, level 2 forgets them; both forget the cache. After level 2 the
weights are whatever lay in that memory before, without any error of vLLM's, until all of them have come anew.
"""

from __future__ import annotations

import logging
from typing import Any, Protocol

from mmrl.config.rollout import RolloutConfig
from mmrl.engines import vllm_process

logger = logging.getLogger(__name__)

_LEVELS = {"keep_weights": 1, "discard_weights": 2}
_PARTS = ("weights", "kv_cache")


class Sleeper(Protocol):
    """Puts one engine to sleep and wakes it."""

    @property
    def is_asleep(self) -> bool: ...

    @property
    def has_lost_weights(self) -> bool:
        """Whether the weights are gone since the last time that all of them came (`weights_came`)."""
        ...

    def sleep(self) -> None: ...

    def wake(self, *, weights_only: bool = False) -> None:
        """weights_only: the memory of the weights, so that they can come while the cache is still given away."""
        ...

    def weights_came(self) -> None: ...


def make_sleeper(llm: Any, config: RolloutConfig, *, brings_all: bool = True) -> Sleeper:
    """brings_all: whether every update brings all weights; those of an adapter alone do not."""
    quantized = llm.llm_engine.model_config.quantization is not None
    level = sleep_level(config, quantized=quantized or not brings_all)
    if level is None:
        return NeverSleeps(why="rollout.sleep is never" if config.sleep == "never" else "it has no sleep mode here")
    return VllmSleeper(llm.llm_engine, level)


def sleep_level(config: RolloutConfig, *, quantized: bool) -> int | None:
    """By the model's kind: an update brings every weight of a plain model, so they can go. What a quantised one holds
    besides is made from its checkpoint and comes with no update."""
    if config.sleep == "never" or not vllm_process.can_sleep():
        return None
    return _LEVELS.get(config.sleep, 1 if quantized else 2)


class VllmSleeper:
    def __init__(self, engine: Any, level: int) -> None:
        """engine: a `vllm.LLMEngine` that was started with sleep mode."""
        self._engine = engine
        self._level = level
        self._asleep: tuple[str, ...] = ()
        self._has_lost_weights = False

    @property
    def is_asleep(self) -> bool:
        return bool(self._asleep)

    @property
    def has_lost_weights(self) -> bool:
        return self._has_lost_weights

    def sleep(self) -> None:
        if self._asleep == _PARTS:
            return
        self.wake()
        self._engine.reset_prefix_cache()
        self._engine.reset_encoder_cache()
        self._engine.sleep(level=self._level)
        self._asleep = _PARTS
        self._has_lost_weights = self._has_lost_weights or self._level == 2

    def wake(self, *, weights_only: bool = False) -> None:
        # One part at a time: memory that is there already must not be asked for again.
        for part in self._asleep:
            if part == "weights" or not weights_only:
                self._engine.wake_up(tags=[part])
                self._asleep = tuple(other for other in self._asleep if other != part)

    def weights_came(self) -> None:
        self._has_lost_weights = False


class NeverSleeps:
    """Where there is no sleep mode, or none is wanted: said once, and otherwise nothing."""

    is_asleep = False
    has_lost_weights = False

    def __init__(self, why: str) -> None:
        self._why = why
        self._has_said = False

    def sleep(self) -> None:
        if not self._has_said:
            self._has_said = True
            logger.info("rollout engine vllm keeps its memory while the trainer works: %s", self._why)

    def wake(self, *, weights_only: bool = False) -> None:
        """Nothing: it never sleeps."""

    def weights_came(self) -> None:
        """Nothing: they never went."""
