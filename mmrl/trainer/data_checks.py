"""What a run's config asks of rows: tokens as the run counts them, answers tried on the rewards that grade them.

Both are `RowCheck`s of `mmrl.data.survey`: rows pass by, and what is wrong comes back with file and row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from mmrl.config import RunConfig
from mmrl.data.images import ImageStore
from mmrl.data.row_worker import ReadRow
from mmrl.data.rows import RowError
from mmrl.data.sources import Source
from mmrl.data.statistics import Distribution
from mmrl.data.survey import Notices
from mmrl.errors import DataError, ModelError
from mmrl.models.loading import load_prompts
from mmrl.models.processing import PromptProcessor
from mmrl.rewards.probes import find_problems, try_rewards, unscorable_references
from mmrl.rewards.runner import RewardRunner
from mmrl.trainer.fitting import overlong_policy
from mmrl.trainer.targets import prompt_only

ROWS_AT_ONCE = 128
NUM_PROBLEMS_SHOWN = 5


@dataclass(frozen=True)
class RunChecks:
    """tokens: always. rewards: where the config names some."""

    tokens: TokenCheck
    rewards: RewardCheck | None

    @property
    def all(self) -> list[TokenCheck | RewardCheck]:
        return [self.tokens] if self.rewards is None else [self.tokens, self.rewards]


@contextmanager
def checks_of(config: RunConfig) -> Iterator[RunChecks]:
    """The checks of a run; reads the model's processor and none of its weights."""
    processor = load_prompts(config.model.path, config.data.image, store=ImageStore())
    with ExitStack() as stack:
        rewards = None
        if config.reward:
            rewards = RewardCheck(stack.enter_context(RewardRunner(config.reward, config.reward_runner)))
        yield RunChecks(TokenCheck(config, processor), rewards)


class TokenCheck:
    """Counts every prompt with its images expanded and refuses those that the run would refuse."""

    def __init__(self, config: RunConfig, processor: PromptProcessor) -> None:
        self._data = config.data
        self._processor = processor
        self._lengths = Distribution()
        self._long: dict[str, Notices] = {}

    def add(self, row: ReadRow, source: Source) -> Sequence[RowError]:
        try:
            length = self._processor.num_tokens(prompt_only(row.sample))
        except (DataError, ModelError) as error:
            return [RowError(source.file.name, row.row, "images", str(error))]
        self._lengths.add(length)
        return [*self._check_length(length, row, source), *self._check_images(row, source)]

    def finish(self) -> Sequence[RowError]:
        return []

    def warnings(self) -> list[str]:
        policy = overlong_policy(self._data.on_overlong)
        return [
            f"{split}: {notices.count} row(s) are longer than data.max_prompt_tokens "
            f"{self._data.max_prompt_tokens} and {policy} {notices}"
            for split, notices in self._long.items()
        ]

    def to_json(self) -> dict[str, Any]:
        """Distribution of prompt lengths in tokens, the limit, and how many are over it."""
        return {
            "prompt_tokens": self._lengths.summary(),
            "max_prompt_tokens": self._data.max_prompt_tokens,
            "on_overlong": self._data.on_overlong,
            "over_limit": sum(notices.count for notices in self._long.values()),
        }

    def _check_length(self, length: int, row: ReadRow, source: Source) -> list[RowError]:
        limit = self._data.max_prompt_tokens
        if length <= limit:
            return []
        self._long.setdefault(source.split, Notices()).add(str(row.row))
        if self._data.on_overlong != "error":
            return []
        message = f"has {length} tokens with its images expanded, data.max_prompt_tokens is {limit}; shorten it"
        return [RowError(source.file.name, row.row, "prompt", message)]

    def _check_images(self, row: ReadRow, source: Source) -> list[RowError]:
        limit, count = self._data.max_images, len(row.sample.images)
        if limit is None or count <= limit:
            return []
        message = f"has {count} images, data.max_images allows {limit}; leave some out or raise the limit"
        return [RowError(source.file.name, row.row, "images", message)]


class RewardCheck:
    """Tries each row's answer, and a wrong one, on the rewards; an answer that scores no better is an error."""

    def __init__(self, rewards: RewardRunner) -> None:
        self._rewards = rewards
        self._waiting: list[tuple[ReadRow, Source]] = []
        self._problems: dict[str, None] = {}
        self._num_tried = 0
        self._num_unscorable = 0

    def add(self, row: ReadRow, source: Source) -> Sequence[RowError]:
        if row.sample.answer is None:
            return []
        self._waiting.append((row, source))
        return self._try() if len(self._waiting) == ROWS_AT_ONCE else []

    def finish(self) -> Sequence[RowError]:
        return self._try()

    def warnings(self) -> list[str]:
        shown = [f"rewards: {problem}" for problem in list(self._problems)[:NUM_PROBLEMS_SHOWN]]
        more = len(self._problems) - len(shown)
        return [*shown, *([f"rewards: {more} more problems of this kind"] if more > 0 else [])]

    def to_json(self) -> dict[str, Any]:
        return {"answers_tried": self._num_tried, "unscorable": self._num_unscorable}

    def _try(self) -> list[RowError]:
        if not self._waiting:
            return []
        waiting, self._waiting = self._waiting, []
        trials = try_rewards(self._rewards, [row.sample for row, _ in waiting])
        reasons = unscorable_references(trials)
        others = [trial for trial in trials if trial.sample.id not in reasons]
        self._problems |= dict.fromkeys(find_problems(others))
        errors = [
            RowError(source.file.name, row.row, "answer", _message(row, reasons[row.sample.id]))
            for row, source in waiting
            if row.sample.id in reasons
        ]
        self._num_tried += len(waiting)
        self._num_unscorable += len(errors)
        return errors


def _message(row: ReadRow, reason: str) -> str:
    answer = row.sample.answer or ""
    shown = answer if len(answer) <= 60 else f"{answer[:59]}…"
    return f"{shown!r} {reason}; write the answer so that its reward reads it, or choose another reward"
