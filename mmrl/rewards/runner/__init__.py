"""Running the rewards of a config over responses, in processes with deadlines."""

from mmrl.rewards.runner.metrics import reward_metrics
from mmrl.rewards.runner.runner import RewardRunner

__all__ = ["RewardRunner", "reward_metrics"]
