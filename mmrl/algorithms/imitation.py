"""A likelihood term on the responses that did their task, beside what a policy objective minimises."""

from __future__ import annotations

from torch import Tensor

from mmrl.batch import GroupBatch, TokenStats


class ImitationTerm:
    """coef * mean of -log pi over the sampled tokens of succeeded responses (VAPO, arXiv 2504.05118).

    batch: the whole update, with `succeeded`; the mean is over its tokens, whatever the micro-batches.
    """

    name = "actor/imitation_loss"

    def __init__(self, batch: GroupBatch, *, coef: float) -> None:
        self._coef = coef
        self._num_tokens = int(_tokens_to_imitate(batch).sum())

    def __call__(self, micro_batch: GroupBatch, stats: TokenStats) -> Tensor:
        counted = _tokens_to_imitate(micro_batch).to(stats.logprobs.device)
        return -self._coef * (stats.logprobs * counted).sum() / max(self._num_tokens, 1)


def _tokens_to_imitate(batch: GroupBatch) -> Tensor:
    assert batch.succeeded is not None, "imitation needs to know which responses succeeded"
    return batch.response_mask * batch.succeeded[:, None]
