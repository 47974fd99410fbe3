"""The critic of one process: a value model with its own optimiser."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor

from mmrl.algorithms.value_loss import ValueObjective
from mmrl.batch import GroupBatch
from mmrl.calls import logged_call
from mmrl.config.critic import CriticConfig
from mmrl.config.run import ModelConfig, RunConfig, TrainConfig
from mmrl.data.images import ImageStore
from mmrl.engines.passes import values_without_gradient
from mmrl.engines.updates import Updates
from mmrl.errors import ModelError
from mmrl.models.flops import step_flops
from mmrl.models.lockstep import everyones
from mmrl.models.policy import PolicyModel, load_policy
from mmrl.models.processing import PromptProcessor
from mmrl.models.value_model import ValueModel


class HfCritic:
    """Meets `engines.base.Critic` on one device.

    model: what is trained. total_steps: run steps, over which its learning rate takes its course.
    """

    def __init__(self, model: ValueModel, config: CriticConfig, train: TrainConfig, *, total_steps: int) -> None:
        self.model = model.eval()
        if train.gradient_checkpointing:
            model.body.checkpoint_gradients()
        self._value_clip = config.value_clip
        self._train = train
        self._updates = Updates(
            model,
            self._forward,
            config.optim,
            train,
            total_steps=total_steps,
            rate_key="critic.optim.lr",
            learner="critic",
            lockstep=model.lockstep,
        )

    def begin_step(self, step: int) -> None:
        """The next update is the first one of run step `step`, counted from 1."""
        self._updates.begin_step(step)

    @logged_call
    def values(self, batch: GroupBatch) -> Tensor:
        """(B, T) float32 in the rows' own order, on the batch's device, zero where response_mask is 0."""
        return values_without_gradient(self.model, batch, self._train)

    @logged_call
    def train_step(self, batch: GroupBatch, objective: ValueObjective | None = None) -> dict[str, float]:
        """One optimiser step over `batch`, which has values and returns; see `Updates.update`. `flops` of all ranks as
        in `step_flops`."""
        metrics = self._updates.update(batch, objective or self.objective(batch))
        mine = 0.0
        if batch.num_sampled_tokens:
            head_size = self.model.head.weight.numel()
            mine = step_flops(self.model.body, batch, path=self._train.path, head_size=head_size)
        return metrics | {"flops": sum(everyones(self.model.lockstep, mine))}

    def objective(self, batch: GroupBatch) -> ValueObjective:
        """What the optimiser step over `batch` minimises."""
        return ValueObjective(batch, value_clip=self._value_clip)

    def state_dict(self) -> dict[str, Any]:
        """The weights that are trained, their optimiser's moments and the count of updates. Frozen weights are those
        of the model that the critic began as."""
        return {"weights": self._trained_weights(), **self._updates.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`. Raises ModelError if it is of other parameters than this critic trains."""
        weights = self._trained_weights()
        found = {name: tuple(weight.shape) for name, weight in state["weights"].items()}
        if found != {name: tuple(weight.shape) for name, weight in weights.items()}:
            raise ModelError(
                "the state of the critic is of other weights than this run trains; resume with the critic.model and "
                "critic.freeze that the checkpoint was written with"
            )
        for name, weight in weights.items():
            weight.copy_(state["weights"][name])
        self._updates.load_state_dict(state)

    def _trained_weights(self) -> dict[str, Tensor]:
        return {name: weight.detach() for name, weight in self.model.named_parameters() if weight.requires_grad}

    def _forward(self, micro_batch: GroupBatch, objective: ValueObjective) -> Tensor:
        return self.model(micro_batch, path=self._train.path)


def build_critic(config: RunConfig, policy: PolicyModel, store: ImageStore) -> HfCritic:
    """A copy of the policy, or the model of `critic.model`, with a value head."""
    critic, model = critic_settings(config)
    if critic.model is None and model.freeze == config.model.freeze:
        value_model = value_model_like(policy)
    else:
        value_model = value_model_of(load_policy(model, config.data.image, store=store), policy)
    return HfCritic(value_model, critic, config.train, total_steps=config.train.steps)


def critic_settings(config: RunConfig) -> tuple[CriticConfig, ModelConfig]:
    """The critic's settings, and the model that it begins as."""
    critic = config.critic or CriticConfig()
    freeze = config.model.freeze if critic.freeze is None else critic.freeze
    path = config.model.path if critic.model is None else critic.model
    return critic, config.model.model_copy(update={"path": path, "freeze": freeze})


def value_model_like(policy: PolicyModel) -> ValueModel:
    """A critic that begins with the weights that `policy` has now; frozen weights, processor and adapter are shared,
    and so are the features of images that a frozen tower gave."""
    shared = [
        policy.prompts,
        policy.family,
        policy.images,
        *(weight for weight in policy.parameters() if not weight.requires_grad),
    ]
    return ValueModel(copy.deepcopy(policy, {id(item): item for item in shared}))


def value_model_of(body: PolicyModel, policy: PolicyModel) -> ValueModel:
    """A critic on another model than the policy's. Raises ModelError as `check_reads_alike`."""
    check_reads_alike(body.prompts, policy.prompts)
    return ValueModel(body)


def check_reads_alike(critic: PromptProcessor, policy: PromptProcessor) -> None:
    """Raises ModelError where a critic's model does not read the policy's tokens as the policy does."""
    mine, theirs = (prompts.tokenizer.get_vocab() for prompts in (critic, policy))
    if mine != theirs:
        different = sorted(token for token in mine.keys() | theirs.keys() if mine.get(token) != theirs.get(token))
        raise ModelError(
            f"critic.model: its tokenizer is another than the policy's ({len(different)} tokens differ, such as "
            f"{different[0]!r}), so it would read other texts; take a model of the same family, or critic.model: null"
        )
