"""What trains a reward model in one process: the model with its optimiser (`updates`)."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from mmrl.algorithms.reward_model import BradleyTerryObjective
from mmrl.batch import GroupBatch
from mmrl.calls import logged_call
from mmrl.config.run import OptimConfig, TrainConfig
from mmrl.engines.passes import scores_without_gradient
from mmrl.engines.updates import Updates
from mmrl.models.classifier import Classifier
from mmrl.models.matrix_peak import matrix_peak
from mmrl.models.reward_model import RewardModel


class HfRewardTrainer:
    """Meets `engines.base.RewardTrainer` on one device.

    model: what is trained. total_steps: run steps, over which the learning rate takes its course.
    """

    def __init__(
        self, model: RewardModel | Classifier, optim: OptimConfig, train: TrainConfig, *, total_steps: int
    ) -> None:
        self.model = model.eval()
        self._train = train
        if train.gradient_checkpointing:
            model.checkpoint_gradients()
        self._updates = Updates(
            model,
            self._forward,
            optim,
            train,
            total_steps=total_steps,
            learner="reward_model",
            lockstep=model.lockstep,
        )

    @property
    def peak_flops_per_s(self) -> float:
        return matrix_peak(self.model.device.type, self.model.dtype)

    def begin_step(self, step: int) -> None:
        """The next update is the first one of run step `step`, counted from 1."""
        self._updates.begin_step(step)

    @logged_call
    def scores(self, batch: GroupBatch) -> Tensor:
        """(B,) float32 in the rows' own order, on the batch's device, without gradients."""
        return scores_without_gradient(self.model, batch, self._train)

    @logged_call
    def train_step(self, batch: GroupBatch, objective: BradleyTerryObjective) -> dict[str, float]:
        """One optimiser step over `batch`; see `Updates.update`."""
        return self._updates.update(batch, objective)

    def compute_gradients(self, batch: GroupBatch, objective: Any) -> Tensor | None:
        """The gradients of one optimiser step; see `Updates.compute`."""
        return self._updates.compute(batch, objective)

    def apply_gradients(self) -> dict[str, float]:
        """The optimiser step for them; see `Updates.apply`."""
        return self._updates.apply()

    def discard_gradients(self) -> None:
        """Forgets gradients that were computed and not applied."""
        self._updates.discard()

    def state_dict(self) -> dict[str, Any]:
        """Optimiser moments by parameter name and the count of updates; weights and head are saved as a model."""
        return self._updates.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`. Raises ModelError if it is of other parameters than are trained here."""
        self._updates.load_state_dict(state)

    def _forward(self, micro_batch: GroupBatch, objective: BradleyTerryObjective) -> Tensor:
        return self.model(micro_batch, path=self._train.path)
