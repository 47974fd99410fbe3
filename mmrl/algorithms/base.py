"""`Algorithm`: what the trainer asks of any algorithm, and the parts in which algorithms differ.

The trainer calls, in this order and for each step of the loop:
    select(groups)                     the groups and responses to learn from
    complete(groups, batch)            one advantage for each sampled token, over the whole batch; a critic's returns
    prepare_update(batch)              which tokens learn from it, and how much
    objective(mini_batch, ...)         for each optimiser step, what it minimises
    observe(metrics)                   what the step measured, for weights that are steered by it
It does not know which algorithm it runs. Its config may put the advantages of another algorithm, or a policy loss by
name, in the place of its own. An algorithm is a subclass that gives `group_advantages` (or `advantages`,
where the tokens of a response differ) and, where it does not clip the ratio as PPO does, `policy_loss`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch
from torch import Tensor

from mmrl.algorithms.aggregation import UpdateCounts
from mmrl.algorithms.correction import prepare_update
from mmrl.algorithms.kl import kl_estimate
from mmrl.algorithms.objective import LossTerm, PolicyObjective
from mmrl.algorithms.policy_losses import PolicyLoss, PolicyTokens, configured_loss, ppo_clip_loss
from mmrl.algorithms.selection import Selection, scores_of, select_groups
from mmrl.algorithms.steering import EntropyWeight, KlWeight
from mmrl.batch import GroupBatch
from mmrl.config.algorithm import ClippedPolicyConfig, PolicyGradientConfig
from mmrl.types import ScoredGroup

if TYPE_CHECKING:
    from mmrl.algorithms.user_advantages import UserAdvantages

ConfigT = TypeVar("ConfigT", bound=PolicyGradientConfig)
ClippedConfigT = TypeVar("ClippedConfigT", bound=ClippedPolicyConfig)


@dataclass(frozen=True, eq=False)
class GroupScores:
    """What the advantages of one group are made from, each (rollouts,) float64.

    scores: the total reward. returns: scores less the KL penalty where that is taken from the reward, else scores.
    lengths: sampled tokens. group: the group itself, for its parts of rewards and its greedy response.
    mask: (rollouts, T) float32, 1 on sampled tokens.
    """

    scores: Tensor
    returns: Tensor
    lengths: Tensor
    group: ScoredGroup
    mask: Tensor


class Algorithm(ABC, Generic[ConfigT]):
    """An algorithm that samples a group of responses a prompt and learns by the policy gradient.

    response_limit: the longest response that is sampled, in tokens.
    shaping_parts: names of the parts of the reward that say nothing of success; see `outcome_gate`.
    """

    def __init__(
        self, config: ConfigT, *, response_limit: int | None = None, shaping_parts: Collection[str] = ()
    ) -> None:
        self.config = config
        self.response_limit = response_limit
        self.shaping_parts = frozenset(shaping_parts)
        self.advantage_source: Algorithm[Any] = self
        self.user_advantages: UserAdvantages | None = None
        self.kl_weight = KlWeight(config.kl)
        self.entropy_weight = EntropyWeight(config.entropy_coef, config.entropy_target)

    @property
    def needs_reference(self) -> bool:
        """Whether `GroupBatch.reference_logprobs` must be there."""
        return self.config.uses_reference

    @property
    def needs_old_entropy(self) -> bool:
        """Whether `GroupBatch.old_entropy` must be there."""
        return self.config.entropy_top_share is not None

    def needs_old_logprobs(self, mini_batches: int, epochs: int) -> bool:
        """Whether the actor's logprobs must be taken before the update: if more than one optimiser step follows (for a
        single one the current logprobs are the old ones), or where they decide which tokens learn."""
        return mini_batches * epochs > 1 or self.config.correction.is_on or self.needs_old_entropy

    def select(self, groups: Sequence[ScoredGroup]) -> Selection:
        """The groups and responses that the update learns from, and counts of the rest."""
        return select_groups(
            groups,
            drop_without_spread=self.config.drop_groups_without_spread,
            mask_truncated=self.config.mask_truncated,
            min_scores=max(self.config.min_group_size, self.advantage_source.config.min_group_size),
            outcome_gate=self.config.gate,
            shaping_parts=self.shaping_parts,
        )

    def complete(self, groups: Sequence[ScoredGroup], batch: GroupBatch) -> GroupBatch:
        """The batch with all that its objectives need; its rows are the groups' responses in order."""
        if self.user_advantages is not None and groups:
            return batch.with_(advantages=self.user_advantages(self.group_scores(groups, batch), batch.response_mask))
        return batch.with_(advantages=self.advantage_source.advantages(groups, batch))

    def prepare_update(self, batch: GroupBatch) -> tuple[GroupBatch, dict[str, float]]:
        """The completed batch as the policy's update takes it, and metrics: advantages times the correction's weights,
        zero for tokens that entropy_top_share leaves out, and responses that the correction leaves out masked."""
        return prepare_update(batch, self.config.correction, entropy_top_share=self.config.entropy_top_share)

    def advantages(self, groups: Sequence[ScoredGroup], batch: GroupBatch) -> Tensor:
        """(B, T) float32, zero where response_mask is 0. The batch's rows are the groups' responses in order."""
        scores = self.group_scores(groups, batch)
        if not scores:
            return torch.zeros_like(batch.response_mask)
        advantages = torch.cat(self.batch_advantages(scores))
        tokens = advantages.to(batch.response_mask.device)[:, None] * batch.response_mask
        return self.token_advantages(tokens, batch.response_mask).float()

    def objective(self, mini_batch: GroupBatch, *, response_limit: int, first_update: bool) -> PolicyObjective:
        """What the optimiser step over `mini_batch` minimises; its counts are fixed here, for any micro-batches.

        first_update: no optimiser step has been made since the responses were sampled.
        """
        return PolicyObjective(
            self.config,
            self.policy_loss if self.config.policy_loss is None else configured_loss(self.config.policy_loss),
            counts=UpdateCounts.of(mini_batch, response_limit=response_limit),
            first_update=first_update,
            kl_coef=self.kl_weight.value,
            entropy_weight=self.entropy_weight,
            extra_terms=self.extra_terms(mini_batch),
        )

    def extra_terms(self, mini_batch: GroupBatch) -> Sequence[LossTerm]:
        """Terms of the loss of one update beside those that all algorithms know."""
        return ()

    def observe(self, metrics: Mapping[str, float], *, num_responses: int) -> dict[str, float]:
        """Steers the weights by the metrics of a step's update; returns, as metrics, those that it was made with."""
        used = {}
        if self.config.kl.target is not None:
            used["actor/kl_coef"] = self.kl_weight.value
            if "actor/kl_reference" in metrics:
                self.kl_weight.observe(metrics["actor/kl_reference"], num_responses=num_responses)
        if self.config.entropy_target is not None:
            used["actor/entropy_coef"] = self.entropy_weight.value
            if "actor/entropy" in metrics:
                self.entropy_weight.observe(metrics["actor/entropy"])
        return used

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run must know: the weights as they were steered."""
        entropy = self.entropy_weight
        return {"kl_coef": self.kl_weight.value, "entropy_coef": entropy.coef, "entropy": entropy.entropy}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`; a weight that is not steered stays as the config says, and one that is steered stays
        within the bounds that the config gives it now."""
        if self.config.kl.target is not None:
            self.kl_weight.value = float(state["kl_coef"])
        if self.config.entropy_target is not None:
            self.entropy_weight.coef = min(float(state["entropy_coef"]), self.config.entropy_target.max_coef)
            self.entropy_weight.entropy = state.get("entropy")

    def group_scores(self, groups: Sequence[ScoredGroup], batch: GroupBatch) -> list[GroupScores]:
        """What the advantages of each group are made from."""
        sizes = [len(group.group.rollouts) for group in groups]
        assert sum(sizes) == batch.num_rows, f"{sum(sizes)} responses in the groups, {batch.num_rows} rows in the batch"
        scores = [scores_of(group) for group in groups]
        penalties = self.kl_penalties(batch).sum(-1).split(sizes)
        masks = batch.response_mask.cpu().split(sizes)
        return [
            GroupScores(score, returns=score - penalty, lengths=mask.sum(-1).double(), group=group, mask=mask)
            for group, score, penalty, mask in zip(groups, scores, penalties, masks, strict=True)
        ]

    def batch_advantages(self, groups: Sequence[GroupScores]) -> list[Tensor]:
        """One advantage for each response of each group, float64. Override where groups depend on each other."""
        return [self.group_advantages(group) for group in groups]

    def token_advantages(self, advantages: Tensor, mask: Tensor) -> Tensor:
        """The advantages of the whole batch, (B, T) float64, zero where mask is 0. Override where they are normalised
        over the batch."""
        return advantages

    def group_advantages(self, group: GroupScores) -> Tensor:
        """One advantage for each response of the group, (rollouts,) float64."""
        raise NotImplementedError(f"{type(self).__name__} gives neither group_advantages nor advantages")

    @abstractmethod
    def policy_loss(self, tokens: PolicyTokens) -> PolicyLoss:
        """The loss of each token, without KL and entropy terms."""

    def kl_penalties(self, batch: GroupBatch) -> Tensor:
        """coef * k1 of each token, (B, T) float64 on the CPU: what the reference takes from its reward.

        k1 is taken under the policy that sampled: the logprobs of the update's start, or where no pass for them is
        needed the sampler's own.
        """
        kl = self.config.kl
        if kl.coef == 0 or kl.where == "loss":
            return torch.zeros(batch.response_mask.shape, dtype=torch.float64)
        sampled = batch.sampler_logprobs if batch.old_logprobs is None else batch.old_logprobs
        assert sampled is not None, "a KL penalty needs the logprobs of the policy that sampled"
        assert batch.reference_logprobs is not None, "a KL penalty needs reference logprobs"
        k1 = kl_estimate(sampled.double().cpu(), batch.reference_logprobs.double().cpu(), "k1")
        return self.kl_weight.value * k1 * batch.response_mask.double().cpu()


class ClippedAlgorithm(Algorithm[ClippedConfigT]):
    """An algorithm that clips the ratio as PPO does."""

    def policy_loss(self, tokens: PolicyTokens) -> PolicyLoss:
        config = self.config
        return ppo_clip_loss(tokens, clip_low=config.clip_low, clip_high=config.clip_high, dual_clip=config.dual_clip)
