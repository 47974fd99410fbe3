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
from mmrl.models.policy import PolicyModel, save_weights
from mmrl.models.reward_model import RewardModel, load_reward_model, save_head
from mmrl.trainer.engines import PromptMaker
from mmrl.trainer.resume import ResumePoint
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
    """policy: the body, with or without its weights."""

    policy: PolicyModel

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

    def open_reward(self, samples: Sequence[Sample]) -> RewardEngines:
        config = self._config
        trainer = HfRewardTrainer(self._model, config.optim, config.train, total_steps=config.train.steps)
        return RewardEngines(
            processor=self.policy.prompts,
            trainer=trainer,
            parts={"actor": trainer},
            snapshots=lambda parts, config_yaml: RewardSnapshots(self._model, parts, config_yaml=config_yaml),
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
