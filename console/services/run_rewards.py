"""What a run's config says of its rewards: which of them read coordinates, and which only shape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from console.services.sample_boxes import FramedReward
from mmrl.config.reward import IouRewardConfig, PointRewardConfig
from mmrl.config.reward_base import RewardBase
from mmrl.errors import MmrlError
from mmrl.jobs.configs import config_of
from mmrl.jobs.records import Job


@dataclass(frozen=True)
class RunRewards:
    """framed: those that read coordinates, also inside others. shaping: names of the parts that only shape."""

    framed: tuple[FramedReward, ...] = ()
    shaping: tuple[str, ...] = ()


def rewards_of(job: Job) -> RunRewards:
    """Nothing where the config cannot be read: the job may be older than today's config classes."""
    try:
        rewards: Sequence[RewardBase] = getattr(config_of(job).config, "reward", ())
    except MmrlError:
        return RunRewards()
    framed = tuple(each for each in _all(rewards) if isinstance(each, IouRewardConfig | PointRewardConfig))
    return RunRewards(framed, tuple(reward.part_name for reward in rewards if reward.shaping))


def _all(rewards: Sequence[RewardBase]) -> Iterator[RewardBase]:
    for reward in rewards:
        yield reward
        yield from _all(reward.inner)
