"""What the loop of reward models drives where the model lives in a pool of workers."""

from __future__ import annotations

from collections.abc import Sequence

from mmrl.cluster.policy.proxies import RemoteRewardTrainer
from mmrl.models.processing import PromptProcessor
from mmrl.trainer.cluster_engines import ClusterSource
from mmrl.trainer.engines import EngineNeeds, SketchMaker
from mmrl.trainer.reward_engines import RewardEngines
from mmrl.types import Sample


class ClusterRewardSource(ClusterSource):
    @property
    def prompts(self) -> PromptProcessor:
        return self.policy.prompts

    def open_reward(self, samples: Sequence[Sample]) -> RewardEngines:
        needs = EngineNeeds(temperature=1.0, reference=False, critic=False, samples=samples)
        workers = self.learner(needs)
        return RewardEngines(
            processor=SketchMaker(self.policy.prompts),
            trainer=RemoteRewardTrainer(workers),
            parts={},
            remote_parts=("actor",),
            snapshots=self.snapshots_of(workers),
        )
