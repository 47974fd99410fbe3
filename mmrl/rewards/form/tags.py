"""The reward `tags`: the response is made of given tags, such as thinking and answer."""

from __future__ import annotations

import re

from mmrl.config.reward import TagsRewardConfig
from mmrl.rewards.base import Reward, RewardItem, Score


class TagsReward(Reward):
    """1 if each tag stands exactly once, closed and with text in it, in the given order, with nothing but space before,
    between and behind; else 0, or the share of tags in good order where `partial` is set. The content of the last tag
    is what is extracted."""

    def __init__(self, config: TagsRewardConfig) -> None:
        self._tags = config.tags
        self._whole = re.compile(r"\s*".join(["", *(f"<{tag}>.*?</{tag}>" for tag in config.tags), ""]), re.DOTALL)
        self._partial = config.partial

    def score(self, item: RewardItem) -> Score:
        contents = {tag: _content(item.response, tag) for tag in self._tags}
        faults = [f"<{tag}> {fault}" for tag in self._tags if (fault := _fault(item.response, tag)) is not None]
        if not faults and self._whole.fullmatch(item.response) is None:
            faults = ["the tags are out of order, nested, or not all there is"]
        last = contents[self._tags[-1]]
        if not faults:
            return Score(1.0, last, "each tag once and in order")
        good = sum(_fault(item.response, tag) is None for tag in self._tags)
        return Score(good / len(self._tags) if self._partial else 0.0, last, "; ".join(faults))


def _fault(response: str, tag: str) -> str | None:
    opened, closed = response.count(f"<{tag}>"), response.count(f"</{tag}>")
    if (opened, closed) != (1, 1):
        return f"is opened {opened} and closed {closed} times, not once each"
    content = _content(response, tag)
    if content is None:
        return "is closed before it is opened"
    return None if content else "is empty"


def _content(response: str, tag: str) -> str | None:
    begin = response.rfind(f"<{tag}>")
    end = response.find(f"</{tag}>", begin)
    return response[begin + len(tag) + 2 : end].strip() if 0 <= begin < end else None
