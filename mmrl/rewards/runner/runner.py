"""Runs the rewards of a config over responses.

Groups come in, all at once or one by one while others are still sampled; each response is scored by each reward.
Those that may hang or crash (`Reward.isolated`) go to a pool of processes with deadlines (`stream.py`, `pool.py`,
`server.py`, `worker.py`), those that ask a server or a model (`service.py`) wait for it beside them, and the others run
here meanwhile. What comes of each try is an `Outcome`; the outcomes of a response, weighted and summed, are its
`RewardResult`. A reward that fails on a response is missing from it, and with it the total.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mmrl.calls import logged_call
from mmrl.config.reward import RewardConfig
from mmrl.config.run import RewardRunnerConfig
from mmrl.config.secrets import secret_values, without
from mmrl.errors import RunFailedError
from mmrl.rewards.base import RewardItem
from mmrl.rewards.combine.normalise import Normaliser
from mmrl.rewards.model.service import JoinedStream, ServiceStream
from mmrl.rewards.outcome import Outcome, attempt
from mmrl.rewards.runner.metrics import reward_metrics
from mmrl.rewards.runner.parts import check_names, part_of_config, part_of_function, result_of, total_of
from mmrl.rewards.runner.pool import RewardPool
from mmrl.rewards.runner.server import Setup
from mmrl.rewards.runner.stream import JobStream, Lane
from mmrl.types import RewardResult, Rollout, RolloutGroup, Sample

__all__ = ["RewardRunner", "reward_metrics"]

_CAUSES_SHOWN = 3
_logger = logging.getLogger(__name__)


class RewardRunner:
    """Scores rollouts with the rewards of a config and with functions passed from Python.

    functions: called as `mmrl.rewards.function.function` says; weight, name and deadline come from the decorator
        `mmrl.rewards.reward`. They run in the pool too, sent there by cloudpickle; one that cannot be sent (it holds
        a lock or a model, say), and one marked `isolated=False`, runs in the calling process without a deadline.

    Raises:
        ConfigError: a user's function does not load, or two rewards have one name.
        MmrlError: the processes, or a model that scores, do not start.
    """

    def __init__(
        self,
        configs: Sequence[RewardConfig],
        runner: RewardRunnerConfig,
        *,
        functions: Sequence[Callable[..., Any]] = (),
    ) -> None:
        self._max_failure_rate = runner.max_failure_rate
        self._secrets = secret_values([config.model_dump() for config in configs])
        self._parts = [part_of_config(config, lambda inner: RewardRunner([inner], runner)) for config in configs]
        self._parts += [part_of_function(function) for function in functions]
        check_names(self._parts)
        self._normaliser = Normaliser({place: part.normalise for place, part in enumerate(self._parts)})
        self._isolated = [part for part in self._parts if part.source is not None]
        self._serviced = [part for part in self._parts if part.service is not None]
        self._services = [part.service for part in self._serviced if part.service is not None]
        self._started: list[RolloutGroup] = []
        self._stream: JoinedStream | None = None
        self._pool: RewardPool | None = None
        try:
            self._open(runner)
        except BaseException:
            self.close()
            raise

    def start(self, group: RolloutGroup) -> None:
        """Begin with a group whose responses are all there, while others are still sampled. The next `score` goes on
        from there if it is given this very object, and forgets it otherwise; it gives the same either way."""
        self._stream = self._stream or self._new_stream()
        if self._stream is not None:
            self._stream.add(_items([group]))
            self._started.append(group)

    @logged_call
    def score(self, groups: Sequence[RolloutGroup], *, normalised: bool = True) -> list[tuple[RewardResult, ...]]:
        """The reward of each rollout, by group and in order.

        normalised: whether parts that ask for it are brought to a scale before they are added up. An evaluation wants
            their values as they are.

        Raises:
            RunFailedError: one reward failed on a larger share of the responses than `max_failure_rate`.
        """
        stream, places = self._stream_of(groups)
        results = iter(self._score_items(_items(groups), stream, places))
        scored = [tuple(next(results) for _ in group.rollouts) for group in groups]
        self._check_failures([result for group in scored for result in group])
        return self.normalise(scored) if normalised else scored

    def normalise(self, scored: Sequence[Sequence[RewardResult]]) -> list[tuple[RewardResult, ...]]:
        """The results of groups with the parts that ask for it brought to a scale, and their totals from that."""
        return [
            tuple(RewardResult(total_of(self._parts, parts), parts) for parts in group)
            for group in self._normaliser.scaled(scored)
        ]

    def state_dict(self) -> dict[str, Any]:
        """What a run must keep to go on: the running figures of normalised parts."""
        return self._normaliser.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._normaliser.load_state_dict(state)

    def score_texts(self, texts: Sequence[tuple[Sample, str]]) -> list[RewardResult]:
        """The same for responses that nobody sampled, to try rewards out. Tokens are counted as one for every four
        bytes; no share of failures is too large."""
        return self.score_items(
            [RewardItem(sample, text, num_tokens=-(-len(text.encode()) // 4)) for sample, text in texts]
        )

    def score_items(self, items: Sequence[RewardItem]) -> list[RewardResult]:
        """The same for responses whose tokens are known."""
        return self._score_items(items, self._new_stream_of(items), range(len(items)))

    def score_alone(self, items: Sequence[RewardItem]) -> list[Outcome]:
        """What the only reward of this runner makes of responses, without weight and total."""
        ((_, column),) = self._columns(items, self._new_stream_of(items), range(len(items))).items()
        return column

    def close(self) -> None:
        """End the processes, and forget what was started. The runner can still be used: they start again when
        needed."""
        self._started, self._stream = [], None
        if self._pool is not None:
            self._pool.close()
        for service in self._services:
            service.close()

    def __enter__(self) -> RewardRunner:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _open(self, runner: RewardRunnerConfig) -> None:
        for service in self._services:
            service.open()
        if self._isolated:
            sources = tuple(part.source for part in self._isolated if part.source is not None)
            self._pool = RewardPool(Setup(sources, runner.workers, runner.memory_mb * 2**20))

    def _new_stream(self) -> JoinedStream | None:
        streams: list[JobStream | ServiceStream] = []
        if self._pool is not None:
            streams.append(JobStream(self._pool, [Lane(part.batch, part.deadline_s) for part in self._isolated]))
        if self._services:
            streams.append(ServiceStream(self._services))
        return JoinedStream(streams) if streams else None

    def _new_stream_of(self, items: Sequence[RewardItem]) -> JoinedStream | None:
        self._started, self._stream = [], None
        stream = self._new_stream()
        if stream is not None:
            stream.add(items)
        return stream

    def _stream_of(self, groups: Sequence[RolloutGroup]) -> tuple[JoinedStream | None, list[int]]:
        """The stream that holds every response of the groups, and the place of each in it."""
        started, stream = self._started, self._stream or self._new_stream()
        self._started, self._stream = [], None
        known = {id(group) for group in started}
        missing = [group for group in groups if id(group) not in known]
        if stream is not None:
            stream.add(_items(missing))
        places, count = {}, 0
        for group in [*started, *missing]:
            places[id(group)] = range(count, count := count + len(group.rollouts))
        return stream, [place for group in groups for place in places[id(group)]]

    def _score_items(
        self, items: Sequence[RewardItem], stream: JoinedStream | None, places: Sequence[int]
    ) -> list[RewardResult]:
        """places: where each item lies in the stream, which runs while the other rewards are computed here."""
        if not items:
            return []
        columns = self._columns(items, stream, places)
        rows = zip(*(columns[part.name] for part in self._parts), strict=True)
        return [result_of(self._parts, row, item) for row, item in zip(rows, items, strict=True)]

    def _columns(
        self, items: Sequence[RewardItem], stream: JoinedStream | None, places: Sequence[int]
    ) -> dict[str, list[Outcome]]:
        """The outcomes of each reward, in the order of the items."""
        if stream is not None:
            stream.flush()
        columns = {part.name: attempt(part.local, items) for part in self._parts if part.local is not None}
        if stream is not None:
            for part, outcomes in zip([*self._isolated, *self._serviced], stream.collect(), strict=True):
                columns[part.name] = [outcomes[place] for place in places]
        return {name: [self._clean(outcome) for outcome in column] for name, column in columns.items()}

    def _clean(self, outcome: Outcome) -> Outcome:
        """The outcome without secrets of the config: a user's function may put its key into an error."""
        if not self._secrets:
            return outcome

        def clean(text: str | None) -> str | None:
            return text if text is None else without(text, self._secrets)

        return replace(
            outcome,
            extracted=clean(outcome.extracted),
            explanation=clean(outcome.explanation),
            error=clean(outcome.error),
        )

    def _check_failures(self, results: Sequence[RewardResult]) -> None:
        for position, part in enumerate(self._parts):
            errors = [error for result in results if (error := result.parts[position].error) is not None]
            if not errors:
                continue
            causes = errors[:_CAUSES_SHOWN]
            for cause in causes:
                _logger.warning("%s", cause)
            share = len(errors) / len(results)
            if share > self._max_failure_rate:
                raise RunFailedError(
                    f"reward '{part.name}' failed on {len(errors)} of {len(results)} responses "
                    f"({share:.0%}; reward_runner.max_failure_rate allows {self._max_failure_rate:.0%}); "
                    "first causes:\n" + "\n".join(f"- {cause}" for cause in causes)
                )


def _items(groups: Sequence[RolloutGroup]) -> list[RewardItem]:
    return [_item(group.sample, rollout) for group in groups for rollout in group.rollouts]


def _item(sample: Sample, rollout: Rollout) -> RewardItem:
    return RewardItem(sample, rollout.text, rollout.index, sum(rollout.response_mask), rollout.finish_reason)
