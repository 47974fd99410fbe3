"""What a run's config says of its rewards: what each pays, which of them read coordinates, and which only shape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from console.services.reward_notes import reward_notes
from console.services.sample_boxes import FramedReward
from mmrl.config.reward import IouRewardConfig, PointRewardConfig
from mmrl.config.reward_base import RewardBase
from mmrl.errors import MmrlError
from mmrl.jobs.configs import config_of
from mmrl.jobs.records import Job


@dataclass(frozen=True)
class Listed:
    """One entry of the config's rewards. part: the name of its part. pays: what it gives, in a sentence."""

    part: str
    type: str
    weight: float
    pays: str


@dataclass(frozen=True)
class RunRewards:
    """framed: those that read coordinates, also inside others. shaping: names of the parts that only shape. listed: all
    of the config, in its order. algorithm: the one that makes advantages of rewards; empty where there is none."""

    framed: tuple[FramedReward, ...] = ()
    shaping: tuple[str, ...] = ()
    listed: tuple[Listed, ...] = ()
    algorithm: str = ""


def rewards_of(job: Job) -> RunRewards:
    """Nothing where the config cannot be read: the job may be older than today's config classes."""
    try:
        config = config_of(job).config
    except MmrlError:
        return RunRewards()
    rewards: Sequence[RewardBase] = getattr(config, "reward", ())
    framed = tuple(each for each in _all(rewards) if isinstance(each, IouRewardConfig | PointRewardConfig))
    shaping = tuple(reward.part_name for reward in rewards if reward.shaping)
    algorithm = str(getattr(getattr(config, "algorithm", None), "type", ""))
    return RunRewards(framed, shaping, tuple(map(_listed, rewards)), algorithm)


def _listed(reward: RewardBase) -> Listed:
    kind = str(reward.type)  # type: ignore[attr-defined]
    note = reward_notes().get(kind)
    return Listed(reward.part_name, kind, reward.weight, note.pays if note is not None else "")


def _all(rewards: Sequence[RewardBase]) -> Iterator[RewardBase]:
    for reward in rewards:
        yield reward
        yield from _all(reward.inner)
