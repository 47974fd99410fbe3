"""Rewards: what scores responses, and the runner that isolates and times it. Imports no torch."""

from mmrl.rewards.base import Reward, RewardFailure, RewardItem, Score
from mmrl.rewards.function.loading import reward
from mmrl.rewards.runner import RewardRunner, reward_metrics

__all__ = ["Reward", "RewardFailure", "RewardItem", "RewardRunner", "Score", "reward", "reward_metrics"]
