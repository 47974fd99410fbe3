"""What the loop of reward models drives, built in its own process, and its checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from mmrl.checkpoint_files import MODEL_FOLDER
from mmrl.config import RunConfig
from mmrl.data.images import ImageStore
from mmrl.engines.base import RewardTrainer
from mmrl.engines.reward_trainer import HfRewardTrainer
from mmrl.errors import ConfigError, DataError, ModelError
from mmrl.models.classifier import Classifier, load_classifier, save_classifier
from mmrl.models.policy import PolicyModel, save_weights
from mmrl.models.reward_model import RewardModel, load_reward_model, save_head
from mmrl.models.saving import files_saved_by
from mmrl.trainer.engines import PromptMaker
from mmrl.trainer.resume import ResumePoint
from mmrl.trainer.run_data import RunData
from mmrl.trainer.snapshot import Snapshot, Snapshots, SnapshotTaker
from mmrl.trainer.state import MemoryCopy, Stateful
from mmrl.types import Sample

_HEAD = "reward head"
"""Its name among the weights of a snapshot; no weight of a model has a space in its name."""


@dataclass(frozen=True)
class RewardEngines:
    """parts, remote_parts, snapshots: see `trainer.engines.Engines`."""

    processor: PromptMaker
    trainer: RewardTrainer
    parts: Mapping[str, object]
    snapshots: Callable[[Mapping[str, Stateful], bytes], SnapshotTaker]
    remote_parts: Collection[str] = ()


class RewardEngineSource(Protocol):
    """policy: the body, with or without its weights; None of a text classifier."""

    @property
    def policy(self) -> PolicyModel | None: ...

    @property
    def prompts(self) -> Any:
        """What makes prompts and counts their tokens."""
        ...

    def open_reward(self, samples: Sequence[Sample]) -> RewardEngines:
        """samples: that it will be asked about."""
        ...


class InlineRewardSource:
    """The model in this process."""

    def __init__(self, config: RunConfig, store: ImageStore, point: ResumePoint | None) -> None:
        self._config = config
        model = config.model
        if point is not None:
            model = model.model_copy(update={"path": str(point.model_folder)})
        self._model = load_reward_model(model, config.data.image, store=store, trainable=True)
        self.policy = self._model.body
        self.prompts = self.policy.prompts

    def open_reward(self, samples: Sequence[Sample]) -> RewardEngines:
        config = self._config
        trainer = HfRewardTrainer(self._model, config.optim, config.train, total_steps=config.train.steps)
        return RewardEngines(
            processor=self.policy.prompts,
            trainer=trainer,
            parts={"actor": trainer},
            snapshots=lambda parts, config_yaml: RewardSnapshots(self._model, parts, config_yaml=config_yaml),
        )


def check_classifier(config: RunConfig, data: RunData) -> None:
    """Refuses what a text classifier cannot do. Raises ConfigError or DataError."""
    if config.placement.executor != "inline":
        raise ConfigError(
            f"placement.executor: {config.model.path} is a text classifier, which is trained in one process (got "
            f"{config.placement.executor}); use inline, or begin from a language model, which ranks can divide"
        )
    if config.model.freeze:
        raise ConfigError(
            f"model.freeze: {config.model.path} is a text classifier, whose parts are not known (got "
            f"{', '.join(config.model.freeze)}); leave it out"
        )
    seeing = next((sample for sample in data.train if sample.images), None)
    if seeing is not None:
        raise DataError(
            f"data.train: sample {seeing.place} has an image, and {config.model.path} is a text classifier; begin from "
            "a vision-language model"
        )


class ClassifierSource:
    """A text classifier in this process. policy: none, so that nothing is known of its parts and sizes."""

    policy: None = None

    def __init__(self, config: RunConfig, point: ResumePoint | None) -> None:
        self._config = config
        model = config.model
        if point is not None:
            model = model.model_copy(update={"path": str(point.model_folder)})
        self._model = load_classifier(model)
        if self._model.hf.config.num_labels != 1:
            raise ModelError(
                f"model.path: {config.model.path} has {self._model.hf.config.num_labels} classes, and a reward model "
                "gives one number; load it with num_labels=1 and save it, then name that folder"
            )
        self.prompts = self._model.prompts

    def open_reward(self, samples: Sequence[Sample]) -> RewardEngines:
        config = self._config
        trainer = HfRewardTrainer(
            self._model,
            config.optim,
            config.train.model_copy(update={"path": "plain"}),
            total_steps=config.train.steps,
        )
        return RewardEngines(
            processor=self._model.prompts,
            trainer=trainer,
            parts={"actor": trainer},
            snapshots=lambda parts, config_yaml: ClassifierSnapshots(self._model, parts, config_yaml=config_yaml),
        )


class RewardSnapshots(Snapshots):
    """Snapshots whose model folder is that of a reward model."""

    def __init__(self, model: RewardModel, parts: Mapping[str, Stateful], *, config_yaml: bytes) -> None:
        super().__init__(model.body, parts, config_yaml=config_yaml)
        self._head = model.head

    def take(self, step: int, *, state: Mapping[str, Any], metrics: Mapping[str, float]) -> Snapshot:
        snapshot = super().take(step, state=state, metrics=metrics)
        head = MemoryCopy().of(self._head.weight, place="the reward head")
        return replace(snapshot, weights={**snapshot.weights, _HEAD: head})

    def write(self, snapshot: Snapshot, folder: Path) -> int:
        model = folder / MODEL_FOLDER
        model.mkdir(parents=True)
        weights = dict(snapshot.weights)
        save_head(weights.pop(_HEAD), model)
        save_weights(self._policy, model, weights)
        return self.write_parts(snapshot, folder)


class ClassifierSnapshots(Snapshots):
    """Snapshots whose model folder is that of a classifier."""

    def __init__(self, model: Classifier, parts: Mapping[str, Stateful], *, config_yaml: bytes) -> None:
        self._model = model
        self._parts = dict(parts)
        self._config_yaml = config_yaml
        self._companions = files_saved_by(model.prompts.tokenizer.save_pretrained)

    def take(self, step: int, *, state: Mapping[str, Any], metrics: Mapping[str, float]) -> Snapshot:
        memory = MemoryCopy()
        return self._take(step, memory.of(self._model.hf.state_dict(), place="the model"), memory, state, metrics)

    def write(self, snapshot: Snapshot, folder: Path) -> int:
        model = folder / MODEL_FOLDER
        model.mkdir(parents=True)
        save_classifier(self._model, model, dict(snapshot.weights))
        return self.write_parts(snapshot, folder)
