"""`mmrl train --replay`: an update that was stopped, once more, on the weights that it was stopped on.

The batch and the run as it stood lie in the fault's folder (`faults`); the update runs as it ran, with every module,
token and term of the loss looked at (`locate`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import nn

from mmrl.algorithms import Algorithm, build_algorithm
from mmrl.algorithms.preferences import build_preference
from mmrl.algorithms.reward_model import BradleyTerryObjective
from mmrl.algorithms.sft import SftObjective
from mmrl.batch import GroupBatch
from mmrl.checkpoint_files import ADAPTER_FOLDER
from mmrl.config import RunConfig, load_config
from mmrl.data.images import ImageStore
from mmrl.engines.actor import HfActor
from mmrl.engines.base import Objective
from mmrl.engines.critic import build_critic
from mmrl.engines.finite import NotFiniteError
from mmrl.engines.reward_trainer import HfRewardTrainer
from mmrl.errors import DataError, NotFoundError
from mmrl.models.classifier import is_classifier
from mmrl.models.lora import load_adapter
from mmrl.models.policy import load_policy
from mmrl.models.processing import PromptProcessor
from mmrl.models.reward_model import load_reward_model
from mmrl.runs import layout
from mmrl.trainer.answer_fitting import with_row_path
from mmrl.trainer.faults import CHECKPOINT_FOLDER, Fault, read_fault
from mmrl.trainer.locate import Locator, Place
from mmrl.trainer.resume import ResumePoint, newest_whole_checkpoint, open_checkpoint
from mmrl.trainer.run_data import load_data
from mmrl.trainer.state import RandomState, stateful
from mmrl.trainer.unused_parts import freeze_unused_parts


@dataclass(frozen=True)
class Replay:
    """What a replay found. error: the message of the update that failed again; None where all was finite this time.

    places: the first of each kind of place that was not finite, in the order in which they came. weights: whose.
    """

    fault: Fault
    error: str | None
    places: tuple[Place, ...]
    weights: str

    @property
    def is_reproduced(self) -> bool:
        return bool(self.error or self.places)

    @property
    def lines(self) -> list[str]:
        """For people."""
        what, update = "before any update", self.fault.update
        if update is not None:
            what = f"update {update + 1} of the {self.fault.learner}"
        lines = [f"step {self.fault.step}, {what}, on the weights of {self.weights}"]
        if not self.is_reproduced:
            return [*lines, "every number is finite this time; the fault is not of these weights, settings and machine"]
        lines += [f"begins in {place}" if not index else f"then {place}" for index, place in enumerate(self.places)]
        return [*lines, f"ends with: {self.error}"] if self.error else lines

    def to_json(self) -> dict[str, Any]:
        first = asdict(self.places[0]) if self.places else None
        return {"reproduced": self.is_reproduced, "first": first, **asdict(self)}


def replay(path: Path, overrides: Sequence[str] = ()) -> Replay:
    """Repeats the update of a fault. `overrides` change its config, to see what heals it (`model.dtype=float32`).

    Raises NotFoundError, DataError or ConfigError where the fault or its settings cannot be read.
    """
    fault, batch, folder = read_fault(path)
    point = _weights_before(fault, folder)
    config = load_config(point.folder / layout.CONFIG_FILE, overrides, is_stored=True).run_config
    if fault.learner == "critic":
        config = _as_it_was_trained(config)
    if config.kind == "sft":
        config = with_row_path(config, has_later_images=batch.response_images is not None)
    repeated = _reward_model(config, point) if fault.learner == "reward_model" else _policy(config, point, fault)
    batch = _filled(batch, repeated.prompts)
    point.restore(stateful({**repeated.parts, "random": RandomState()}), say=lambda text: None)

    locator = Locator(repeated.module)
    locator.look_at_weights()
    error: str | None = None
    with locator.watching():
        try:
            locator.look_at_inputs(batch)
            repeated.step(batch, locator)
        except NotFiniteError as failure:
            error = str(failure)
    if error is not None and not locator.places:
        locator.places.append(Place("gradient", "of all weights together, whose squares overflow", "inf"))
    return Replay(fault, error, tuple(locator.places), f"{point.folder}")


@dataclass(frozen=True, eq=False)
class _Repeated:
    """What is trained once more. module: whose numbers are looked at. parts: those with a state. step: repeats it."""

    module: nn.Module
    prompts: PromptProcessor
    parts: Mapping[str, object]
    step: Callable[[GroupBatch, Locator], None]


def _policy(config: RunConfig, point: ResumePoint, fault: Fault) -> _Repeated:
    """The policy, or its critic."""
    lora = config.model.lora
    model = config.model if lora else config.model.model_copy(update={"path": str(point.model_folder)})
    policy = load_policy(model, config.data.image, store=ImageStore())
    if lora is not None:
        load_adapter(policy.hf, point.folder / ADAPTER_FOLDER)
    temperature = config.rollout.temperature if config.kind == "rl" else 1.0
    actor = HfActor(policy, config.optim, config.train, temperature=temperature, total_steps=config.train.steps)
    algorithm = _algorithm(config)
    preference = build_preference(config.preference) if config.kind == "preference" else None
    critic = build_critic(config, policy, ImageStore()) if fault.learner == "critic" else None

    def step(batch: GroupBatch, locator: Locator) -> None:
        if fault.update is None:
            locator.look_at_stats(batch, actor.logprobs(batch))
        elif critic is not None:
            critic.train_step(batch, locator.watch(critic.objective(batch)))
        else:
            objective = (
                _objective(config, algorithm, batch, fault) if preference is None else preference.objective(batch)
            )
            actor.train_step(batch, locator.watch(objective))

    parts = {"actor": actor, "algorithm": algorithm, "preference": preference, "critic": critic}
    return _Repeated(policy.hf if critic is None else critic.model, policy.prompts, parts, step)


def _reward_model(config: RunConfig, point: ResumePoint) -> _Repeated:
    if is_classifier(str(point.model_folder)):
        raise DataError(
            "--replay: the update of a text classifier cannot be repeated; lower optim.lr, or warm up longer"
        )
    model = config.model.model_copy(update={"path": str(point.model_folder)})
    reward_model = load_reward_model(model, config.data.image, store=ImageStore(), trainable=True)
    trainer = HfRewardTrainer(reward_model, config.optim, config.train, total_steps=config.train.steps)

    def step(batch: GroupBatch, locator: Locator) -> None:
        objective = BradleyTerryObjective(batch, centring=config.reward_model.centring)
        trainer.train_step(batch, locator.watch(objective))

    return _Repeated(reward_model, reward_model.body.prompts, {"actor": trainer}, step)


def _filled(batch: GroupBatch, prompts: PromptProcessor) -> GroupBatch:
    """The batch with the pixels of its images."""
    batch = batch.with_(prompts=tuple(prompts.fill(prompt) for prompt in batch.prompts))
    if batch.response_images is None:
        return batch
    return batch.with_(response_images=tuple(prompts.ready_images(images) for images in batch.response_images))


def _as_it_was_trained(config: RunConfig) -> RunConfig:
    """With the parts frozen that the run's data does not reach, as far as that data is still there."""
    with suppress(NotFoundError, DataError):
        return freeze_unused_parts(config, load_data(config))
    return config


def _weights_before(fault: Fault, folder: Path) -> ResumePoint:
    """The run as it stood at the fault or, where that could not be written, its newest checkpoint before."""
    if fault.has_checkpoint:
        return open_checkpoint(folder / CHECKPOINT_FOLDER)
    run_dir = folder.parents[2]
    point = newest_whole_checkpoint(run_dir, before_step=fault.step)
    if point is None:
        raise DataError(
            f"--replay: {folder} holds no weights, and {run_dir} no whole checkpoint before step {fault.step}"
        )
    return point


def _algorithm(config: RunConfig) -> Algorithm[Any] | None:
    if config.kind != "rl":
        return None
    return build_algorithm(config.algorithm, response_limit=config.rollout.max_response_tokens)


def _objective(config: RunConfig, algorithm: Algorithm[Any] | None, batch: GroupBatch, fault: Fault) -> Objective:
    if algorithm is None:
        return SftObjective(batch)
    limit = config.rollout.max_response_tokens
    return algorithm.objective(batch, response_limit=limit, first_update=fault.update == 0)
