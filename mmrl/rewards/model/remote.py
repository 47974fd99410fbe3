"""The reward `remote`: what an HTTP service of the user's says of responses. `docs/rewards.md` has its JSON."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from mmrl.config.reward import RemoteRewardConfig
from mmrl.data.images import ImageStore
from mmrl.rewards.base import RewardFailure, RewardItem
from mmrl.rewards.function.function import read_or_fail
from mmrl.rewards.model.http_service import HttpService
from mmrl.rewards.model.service import Asked, Waiting
from mmrl.rewards.outcome import Outcome, outcome_from
from mmrl.types import ImageRef

SCHEMA_VERSION = 1


class RemoteReward(HttpService):
    """Responses in batches to the service; a score, a dict with `score`, null or an `error` for each comes back."""

    def __init__(self, config: RemoteRewardConfig) -> None:
        super().__init__(config)
        self._config = config
        self._waiting = Waiting(config.batch, lambda batch: self.loop.submit(self._ask(batch)))

    def submit(self, items: Sequence[RewardItem]) -> list[Future[Outcome]]:
        return self._waiting.add(items)

    def flush(self) -> None:
        self._waiting.flush()

    def close(self) -> None:
        self._waiting.cancel()
        super().close()

    async def _ask(self, batch: Sequence[Asked]) -> None:
        try:
            outcomes = await self._outcomes([item for item, _ in batch])
        except BaseException:
            for _, future in batch:
                future.cancel()
            raise
        for (_, future), outcome in zip(batch, outcomes, strict=True):
            future.set_result(outcome)

    async def _outcomes(self, items: Sequence[RewardItem]) -> list[Outcome]:
        try:
            reply = await self.client.post(lambda: request_body(items, with_images=self._config.images))
            scores = read_scores(reply.body, len(items))
        except RewardFailure as failure:
            return [Outcome(error=str(failure))] * len(items)
        except Exception as error:
            return [Outcome(error=f"{type(error).__name__}: {error}")] * len(items)
        return [outcome_from(_read(score), ms=reply.ms / len(items)) for score in scores]


def request_body(items: Sequence[RewardItem], *, with_images: bool) -> dict[str, Any]:
    """What is posted, as JSON values."""
    return {"version": SCHEMA_VERSION, "responses": [_response(item, with_images=with_images) for item in items]}


def data_uri(image: ImageRef, store: ImageStore) -> str:
    """A stored image, as the PNG or JPEG that it is, in a data URI."""
    data = store.read(image)
    kind = "png" if data.startswith(b"\x89PNG") else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def read_scores(body: Any, num_responses: int) -> list[Any]:
    """The `scores` of a reply. Raises RewardFailure for another form or another number of them."""
    scores = body.get("scores") if isinstance(body, Mapping) else None
    if not isinstance(scores, list):
        raise RewardFailure(f'the service must answer with {{"scores": [...]}}; it sent {str(body)[:200]!r}')
    if len(scores) != num_responses:
        raise RewardFailure(f"the service sent {len(scores)} scores for {num_responses} responses")
    return scores


def _response(item: RewardItem, *, with_images: bool) -> dict[str, Any]:
    store = ImageStore()
    return {
        "sample_id": item.sample.id,
        "index": item.index,
        "prompt": [{"role": message.role, "text": message.text} for message in item.sample.messages],
        "response": item.response,
        "answer": item.sample.answer,
        "meta": dict(item.sample.meta),
        "images": [
            {"sha256": image.sha256, "width": image.width, "height": image.height}
            | ({"data": data_uri(image, store)} if with_images else {})
            for image in item.sample.images
        ],
        "num_tokens": item.num_tokens,
        "finish_reason": item.finish_reason,
    }


def _read(score: Any) -> Any:
    if isinstance(score, Mapping) and score.get("error") is not None:
        return RewardFailure(f"the service could not score it: {_printable(str(score['error']))}")
    return read_or_fail(score)


def _printable(text: str) -> str:
    """NULs and other control characters escaped: logs and files would be no text with them."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
