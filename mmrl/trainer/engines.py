"""The engines that a loop drives, built in its own process.

`EngineSource.policy` is there first: it makes prompts and knows sizes, so that the data can be fitted to it. `open`
then builds what the algorithm needs, for the data that was found.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

from mmrl.batch import PreparedImage, PreparedPrompt
from mmrl.checkpoint_files import ADAPTER_FOLDER
from mmrl.config import RunConfig
from mmrl.data.images import ImageStore
from mmrl.engines.actor import HfActor
from mmrl.engines.base import Actor, Critic, ReferencePolicy, Sampler
from mmrl.engines.critic import build_critic
from mmrl.engines.reference import AdapterOffReference, Reference
from mmrl.engines.registry import build_rollout
from mmrl.models.lora import load_adapter
from mmrl.models.policy import PolicyModel, load_policy
from mmrl.models.processing import EncodedTurns, PromptProcessor
from mmrl.trainer.resume import ResumePoint
from mmrl.trainer.snapshot import Snapshots, SnapshotTaker
from mmrl.trainer.state import Stateful
from mmrl.types import Message, Sample


class PromptMaker(Protocol):
    """Prompts and answers as the model takes them."""

    def prepare(self, sample: Sample) -> PreparedPrompt: ...

    def encode_response(self, text: str) -> list[int]: ...

    def encode_turns(self, prompt: Sample, turns: Sequence[Message], is_learned: Sequence[bool]) -> EncodedTurns: ...

    def ready_images(self, images: Sequence[PreparedImage]) -> tuple[PreparedImage, ...]: ...


class SketchMaker:
    """Prompts without pixels, which workers take from the store, or which are only looked at."""

    def __init__(self, prompts: PromptProcessor) -> None:
        self._prompts = prompts

    def prepare(self, sample: Sample) -> PreparedPrompt:
        return self._prompts.sketch(sample)

    def encode_response(self, text: str) -> list[int]:
        return self._prompts.encode_response(text)

    def encode_turns(self, prompt: Sample, turns: Sequence[Message], is_learned: Sequence[bool]) -> EncodedTurns:
        return self._prompts.encode_turns(prompt, turns, is_learned)

    def ready_images(self, images: Sequence[PreparedImage]) -> tuple[PreparedImage, ...]:
        return tuple(images)


@dataclass(frozen=True)
class Engines:
    """What a loop drives, wherever it runs.

    sync: brings the actor's weights to the rollout engine, as the given version.
    parts: those of the engines that may have a state of their own for a checkpoint; remote_parts: the names of those
        that keep and restore theirs in workers.
    snapshots: made from every part of the run that has a state, and the config as the run directory holds it.
    """

    processor: PromptMaker
    actor: Actor
    rollout: Sampler
    reference: ReferencePolicy | None
    critic: Critic | None
    sync: Callable[[int], None]
    parts: Mapping[str, object]
    snapshots: Callable[[Mapping[str, Stateful], bytes], SnapshotTaker]
    remote_parts: Collection[str] = ()


@dataclass(frozen=True)
class EngineNeeds:
    """What a loop needs of its engines. samples: that they will be asked about."""

    temperature: float
    reference: bool
    critic: bool
    samples: Sequence[Sample]


class EngineSource(Protocol):
    """policy: with or without its weights; makes prompts and knows sizes."""

    policy: PolicyModel

    def open(self, needs: EngineNeeds, stack: ExitStack) -> Engines:
        """The engines, which `stack` closes."""
        ...


class InlineSource:
    """Every engine in this process, around one policy."""

    def __init__(self, config: RunConfig, store: ImageStore, point: ResumePoint | None) -> None:
        self._config = config
        self._store = store
        self._point = point
        model, lora = config.model, config.model.lora
        if point is not None and lora is None:
            model = model.model_copy(update={"path": str(point.model_folder)})
        sends_merged = lora is None or lora.sync == "merged"
        self._model_path = str(point.model_folder) if point is not None and sends_merged else model.path
        self.policy = load_policy(model, config.data.image, store=store)
        if point is not None and lora is not None:
            load_adapter(self.policy.hf, point.folder / ADAPTER_FOLDER)

    def open(self, needs: EngineNeeds, stack: ExitStack) -> Engines:
        config, policy = self._config, self.policy
        reference = self._reference(needs.temperature) if needs.reference else None
        actor = HfActor(
            policy,
            config.optim,
            config.train,
            temperature=needs.temperature,
            total_steps=config.train.steps,
            idle_steps=config.critic_warmup_steps,
            sends_adapter=config.model.lora is not None and config.model.lora.sync == "adapter",
        )
        critic = build_critic(config, policy, self._store) if needs.critic else None
        rollout = build_rollout(config, policy, needs.samples, model_folder=self._model_path)
        stack.callback(rollout.close)
        if self._point is not None and config.model.lora is not None:
            rollout.update_weights(actor.weights(), self._point.step)
        return Engines(
            processor=policy.prompts,
            actor=actor,
            rollout=rollout,
            reference=reference,
            critic=critic,
            sync=lambda version: rollout.update_weights(actor.weights(), version),
            parts={"actor": actor, **({} if critic is None else {"critic": critic})},
            snapshots=lambda parts, config_yaml: Snapshots(policy, parts, config_yaml=config_yaml),
        )

    def _reference(self, temperature: float) -> Reference | AdapterOffReference:
        """The weights that the run began with: the policy's now, or after a resume those of the config's model. A run
        that trains an adapter has them in its policy."""
        config = self._config
        if config.model.lora is not None:
            return AdapterOffReference(self.policy, config.train, temperature=temperature)
        if self._point is None:
            return Reference.copy_of(self.policy, config.train, temperature=temperature)
        first = load_policy(config.model, config.data.image, store=self._store, trainable=False)
        return Reference(first, config.train, temperature=temperature)
