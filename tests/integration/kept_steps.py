"""A step of GRPO on a tiny policy whose gradient can be taken with and without what sampling kept."""

from __future__ import annotations

from models_builders import mixed_samples

from mmrl.algorithms import build_algorithm
from mmrl.batch import build_group_batch
from mmrl.config.algorithm import GrpoConfig
from mmrl.config.rollout import RolloutConfig
from mmrl.config.run import OptimConfig, TrainConfig
from mmrl.engines.actor import HfActor
from mmrl.engines.base import SamplingParams
from mmrl.engines.gradients import GradientAccumulator
from mmrl.engines.rollout_hf import HfRollout
from mmrl.types import RewardResult, ScoredGroup

PARAMS = SamplingParams(max_response_tokens=8)
BUDGET = 300


class Step:
    """A policy, its sampler and its actor; one step can be sampled and its gradient taken."""

    def __init__(self, policy, pictures, *, train=None, params=PARAMS, max_batch_rows=256):
        self.params = params
        self.policy = policy
        self.train = train or TrainConfig(micro_batch_tokens=BUDGET)
        self.actor = HfActor(policy, OptimConfig(lr=1e-3), self.train, temperature=1.0, total_steps=4)
        self.sampler = HfRollout(policy, RolloutConfig(max_batch_rows=max_batch_rows))
        self.algorithm = build_algorithm(GrpoConfig(group_size=4))
        self.samples = mixed_samples(pictures, sees_images=policy.family.sees_images)

    def sample(self, *, for_update=True, step=0):
        groups = self.sampler.generate(
            self.samples, self.params, num_responses=4, seed=0, step=step, for_update=for_update
        )
        scored = [
            ScoredGroup(group, tuple(RewardResult(float(len(set(row.token_ids))), ()) for row in group.rollouts))
            for group in groups
        ]
        prompts = [self.policy.prompts.prepare(sample) for sample in self.samples]
        batch = build_group_batch(prompts, [group.rollouts for group in groups])
        batch = batch.with_(advantages=self.algorithm.advantages(scored, batch))
        return batch, self.algorithm.objective(batch, response_limit=self.params.max_response_tokens, first_update=True)

    def gradients(self, *, for_update):
        batch, objective = self.sample(for_update=for_update)
        self.policy.zero_grad()
        accumulator = GradientAccumulator(self.policy, self.train, self.actor._forward, self.policy.finish_backward)
        accumulator.accumulate(batch, objective)
        return {name: weight.grad.clone() for name, weight in self.policy.named_parameters() if weight.grad is not None}


def relative_gap(found, expected):
    assert found.keys() == expected.keys()
    gap = sum((found[name] - expected[name]).double().square().sum() for name in expected)
    return float((gap / sum(gradient.double().square().sum() for gradient in expected.values())).sqrt())
