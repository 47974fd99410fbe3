"""The reward `judge`: a language or vision-language model, asked through an OpenAI-compatible address, grades."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from mmrl.config.reward import JudgeRewardConfig
from mmrl.data.images import ImageStore
from mmrl.errors import MmrlError
from mmrl.rewards.base import RewardFailure, RewardItem, Score
from mmrl.rewards.model.http_service import HttpService
from mmrl.rewards.model.judge_cache import JudgeCache
from mmrl.rewards.model.judge_prompt import (
    Grade,
    Question,
    messages,
    new_code,
    question_of,
    read_grade,
    response_format,
)
from mmrl.rewards.model.remote import data_uri
from mmrl.rewards.outcome import Outcome, outcome_from
from mmrl.types import ImageRef


@dataclass(frozen=True)
class _Asked:
    """What came of asking once: a grade or a failure, what it took, and milliseconds."""

    grade: Grade | RewardFailure
    usage: Mapping[str, float]
    ms: float = 0.0


class JudgeReward(HttpService):
    """(grade - lowest) / (highest - lowest). Equal questions are asked once, in flight and on disk.

    Its extras: `cached` (1 where nothing was asked), and where something was, `prompt_tokens`, `completion_tokens`,
    `retries`, and `cost` where prices are set.
    """

    def __init__(self, config: JudgeRewardConfig) -> None:
        super().__init__(config, path="/chat/completions")
        self._config = config
        self._cache = JudgeCache(config)
        self._in_flight: dict[str, asyncio.Task[_Asked]] = {}
        self._spent = 0.0

    def submit(self, items: Sequence[RewardItem]) -> list[Future[Outcome]]:
        return [self.loop.submit(self._judge(item)) for item in items]

    async def _judge(self, item: RewardItem) -> Outcome:
        question = question_of(item, self._config)
        key = self._cache.key(question)
        kept = self._cache.get(key)
        if kept is not None:
            return self._outcome(_Asked(kept, {"cached": 1.0}))
        task = self._in_flight.get(key)
        if task is not None:
            asked = await asyncio.shield(task)
            return self._outcome(replace(asked, usage={"cached": 1.0}))
        task = self._in_flight[key] = asyncio.create_task(self._ask(question))
        try:
            asked = await task
        finally:
            del self._in_flight[key]
        if isinstance(asked.grade, Grade):
            self._cache.put(key, asked.grade)
        return self._outcome(asked)

    async def _ask(self, question: Question) -> _Asked:
        code = new_code(question)
        try:
            reply = await self.client.post(lambda: self._request(question, code))
        except (RewardFailure, MmrlError) as failure:
            return _Asked(RewardFailure(str(failure)), {"cached": 0.0})
        usage = self._usage(reply.body) | {"cached": 0.0, "retries": float(reply.retries)}
        try:
            return _Asked(read_grade(_answer(reply.body), self._config, code), usage, reply.ms)
        except RewardFailure as failure:
            return _Asked(failure, usage, reply.ms)

    def _request(self, question: Question, code: str) -> dict[str, Any]:
        limit = self._config.max_cost
        if limit is not None and self._spent >= limit:
            raise RewardFailure(f"nothing more is asked: {self._spent:g} of max_cost {limit:g} is spent")
        store = ImageStore()
        images = {content.sha256: content for _, content in question.prompt if isinstance(content, ImageRef)}
        urls = {sha256: data_uri(image, store) for sha256, image in images.items()}
        fields: dict[str, Any] = {
            "model": self._config.model,
            "messages": messages(question, self._config, code, urls),
            "temperature": self._config.temperature,
            "max_tokens": self._config.max_tokens,
        }
        if self._config.reply == "json":
            fields["response_format"] = response_format(self._config)
        return {name: value for name, value in (fields | self._config.extra).items() if value is not None}

    def _usage(self, body: Any) -> dict[str, float]:
        given = body.get("usage") if isinstance(body, Mapping) else None
        tokens = {
            name: float(count)
            for name in ("prompt_tokens", "completion_tokens")
            if isinstance(given, Mapping) and isinstance(count := given.get(name), int)
        }
        config = self._config
        if not (config.prompt_price or config.completion_price):
            return tokens
        prompt, completion = tokens.get("prompt_tokens", 0.0), tokens.get("completion_tokens", 0.0)
        cost = (prompt * config.prompt_price + completion * config.completion_price) / 1e6
        self._spent += cost
        return tokens | {"cost": cost}

    def _outcome(self, asked: _Asked) -> Outcome:
        if isinstance(asked.grade, RewardFailure):
            return replace(outcome_from(asked.grade, ms=asked.ms), extras=asked.usage)
        lowest, highest = self._config.scale
        value = (asked.grade.value - lowest) / (highest - lowest)
        shown = f"{asked.grade.value:g} of {highest:g}"
        return outcome_from(Score(value, shown, asked.grade.explanation or None, asked.usage), ms=asked.ms)


def _answer(body: Any) -> str | None:
    """The content of the first choice; a reasoning field beside it is left alone.

    Raises:
        RewardFailure: the reply is none of a chat, or was refused.
    """
    try:
        message = body["choices"][0]["message"]
    except (KeyError, IndexError, TypeError):
        raise RewardFailure(f"the judge's server sent no chat completion: {str(body)[:200]!r}") from None
    if message.get("refusal"):
        raise RewardFailure(f"the judge refused: {str(message['refusal'])[:200]!r}")
    content = message.get("content")
    return content if isinstance(content, str) else None
