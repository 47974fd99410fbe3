"""`PolicyWorker`: one rank of a pool, with the roles of the run that live there.

It holds its shards of actor, critic and reference, and its part of the rollout engine, as far as they are in its pool.
The controller calls all ranks at once, each with its share of the rows; prompts come without pixels, which a rank takes
from the image store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from mmrl.algorithms.value_loss import ValueObjective
from mmrl.batch import GroupBatch, TokenStats
from mmrl.checkpoint_files import ADAPTER_FOLDER
from mmrl.cluster.base import WorkerContext
from mmrl.cluster.dispatch import dispatch
from mmrl.cluster.policy.roles import PolicyJob, build_roles
from mmrl.cluster.policy.shares import PER_WORKER
from mmrl.cluster.policy.weight_stream import Chunk, Mailbox, WeightStream
from mmrl.cluster.policy.weight_wire import WireSender, WireTaker
from mmrl.engines.actor import HfActor
from mmrl.engines.base import Objective, RolloutEngine, RolloutStats, SamplingParams
from mmrl.engines.critic import HfCritic
from mmrl.engines.finite import Learner, NotFiniteError
from mmrl.engines.reward_trainer import HfRewardTrainer
from mmrl.engines.shard_checkpoint import save_sharded_parts
from mmrl.engines.shard_model_files import save_sharded_adapter, save_sharded_model, save_sharded_reward_model
from mmrl.types import RolloutGroup, Sample

Result = TypeVar("Result")


class NotFinite:
    """A NotFiniteError on its way to the controller, which knows the whole batch. No weight has moved and the ranks
    live on, so that the run as it stands can be written aside."""

    def __init__(self, error: NotFiniteError) -> None:
        self.message = str(error)
        self.learner: Learner = error.learner
        self.update = error.update

    def error(self, batch: GroupBatch | None) -> NotFiniteError:
        return NotFiniteError(self.message, batch=batch, learner=self.learner, update=self.update)


class PolicyWorker:
    """One rank of the roles in a pool. Methods take the share of this rank; see `proxies` for the other side."""

    def __init__(self, context: WorkerContext, job: PolicyJob) -> None:
        self._roles = build_roles(context, job)
        self._timeout_s, ranks = job.config.placement.deadline_s, self._roles.ranks
        self._mailbox = Mailbox(timeout_s=self._timeout_s, wire=WireTaker(ranks.rank + 1, ranks.device))
        self._wire: WireSender | None = None

    @dispatch("rank_zero")
    def peak_flops_per_s(self) -> float:
        return self._learner.peak_flops_per_s

    @dispatch("broadcast")
    def begin_step(self, step: int) -> None:
        self._learner.begin_step(step)

    @dispatch(PER_WORKER)
    def logprobs(self, batch: GroupBatch, with_entropy: bool) -> TokenStats:
        return self._actor.logprobs(self._filled(batch), with_entropy=with_entropy)

    @dispatch(PER_WORKER)
    def compute_gradients(self, batch: GroupBatch, objective: Objective) -> Tensor | NotFinite | None:
        return _caught(lambda: self._learner.compute_gradients(self._filled(batch), objective))

    @dispatch("broadcast")
    def apply_gradients(self) -> dict[str, float]:
        return self._learner.apply_gradients()

    @dispatch("broadcast")
    def discard_gradients(self) -> None:
        self._learner.discard_gradients()

    @dispatch(PER_WORKER)
    def scores(self, batch: GroupBatch) -> Tensor:
        assert isinstance(self._roles.actor, HfRewardTrainer), "only a reward model gives scores"
        return self._roles.actor.scores(self._filled(batch))

    @dispatch(PER_WORKER)
    def reference_logprobs(self, batch: GroupBatch) -> Tensor:
        assert self._roles.reference is not None
        return self._roles.reference.logprobs(self._filled(batch))

    @dispatch("broadcast")
    def begin_critic_step(self, step: int) -> None:
        self._critic.begin_step(step)

    @dispatch(PER_WORKER)
    def values(self, batch: GroupBatch) -> Tensor:
        return self._critic.values(self._filled(batch))

    @dispatch(PER_WORKER)
    def train_critic(self, batch: GroupBatch, objective: ValueObjective) -> dict[str, float] | NotFinite:
        return _caught(lambda: self._critic.train_step(self._filled(batch), objective))

    @dispatch(PER_WORKER)
    def generate(
        self, samples: Sequence[Sample], params: SamplingParams, **settings: Any
    ) -> tuple[list[RolloutGroup], RolloutStats | None]:
        groups = self._rollout.generate(samples, params, **settings)
        return groups, self._rollout.last_stats

    @dispatch("broadcast")
    def sleep_rollout(self) -> None:
        self._rollout.sleep()

    @dispatch("broadcast")
    def sync_weights(self, version: int) -> None:
        """The weights of the actor, tensor by tensor, to the rollout engine in the same processes."""
        self._rollout.update_weights(self._actor.weights(), version)

    @dispatch("broadcast")
    def send_weights(self, stream: WeightStream, version: int) -> None:
        """The same to the rollout engine of another pool. All ranks gather a tensor at a time; the first one sends."""
        ranks, weights = self._roles.ranks, self._actor.weights()
        if ranks.rank > 0:
            for _ in weights:
                pass
            return
        if stream.by_broadcast and self._wire is None:
            self._wire = WireSender(stream.workers.num_workers, ranks.device, timeout_s=self._timeout_s)
        stream.send(weights, version, wire=self._wire)

    @dispatch("broadcast")
    def receive_weights(self, version: int) -> None:
        """The other end: takes the weights of `version` as `deliver` brings them."""
        self._rollout.update_weights(self._mailbox.weights(version), version)

    @dispatch("broadcast", concurrent=True)
    def deliver(self, chunk: Chunk) -> None:
        self._mailbox.put(chunk)

    @dispatch("broadcast")
    def save(self, folder: Path) -> None:
        """What of a checkpoint lies in this pool: the model of the actor, and the states of actor and critic."""
        actor, ranks = self._roles.actor, self._roles.ranks
        parts: dict[str, Any] = {"actor": actor, "critic": self._roles.critic}
        if isinstance(actor, HfRewardTrainer):
            save_sharded_reward_model(actor.model, folder / "model", ranks)
        elif actor is not None:
            save_sharded_model(actor.policy, folder / "model", ranks)
            save_sharded_adapter(actor.policy, folder / ADAPTER_FOLDER, ranks)
        parts = {name: part for name, part in parts.items() if part is not None}
        save_sharded_parts(folder, parts, self._roles.ranks)

    def close(self) -> None:
        """The engine before the processes: it has groups of its own."""
        self._mailbox.close()
        if self._wire is not None:
            self._wire.close()
        if self._roles.rollout is not None:
            self._roles.rollout.close()

    @property
    def _learner(self) -> HfActor | HfRewardTrainer:
        assert self._roles.actor is not None, "the actor is in another pool"
        return self._roles.actor

    @property
    def _actor(self) -> HfActor:
        assert isinstance(self._roles.actor, HfActor), "the actor is in another pool"
        return self._roles.actor

    @property
    def _critic(self) -> HfCritic:
        assert self._roles.critic is not None, "the critic is in another pool"
        return self._roles.critic

    @property
    def _rollout(self) -> RolloutEngine:
        assert self._roles.rollout is not None, "sampling is in another pool"
        return self._roles.rollout

    def _filled(self, batch: GroupBatch) -> GroupBatch:
        prompts = self._roles.prompts
        filled = batch.with_(prompts=tuple(prompts.fill(prompt) for prompt in batch.prompts))
        if batch.response_images is None:
            return filled
        return filled.with_(response_images=tuple(prompts.ready_images(images) for images in batch.response_images))


def _caught(call: Callable[[], Result]) -> Result | NotFinite:
    try:
        return call()
    except NotFiniteError as error:
        return NotFinite(error)
