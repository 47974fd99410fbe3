"""Parts of a model that a run's data never reaches: they are frozen rather than left to train without a gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mmrl.config import RunConfig
from mmrl.config.optim import ModelPart
from mmrl.errors import ConfigError
from mmrl.models.loading import family_of
from mmrl.trainer.run_data import RunData

_SEEING: tuple[ModelPart, ...] = ("vision", "projector")


def freeze_unused_parts(
    config: RunConfig, data: RunData, *, say: Callable[[str], None] = lambda text: None
) -> RunConfig:
    """The config with vision and projector frozen where no training sample has an image; `say` is told of it.

    Nothing would train them, and an optimiser that only decays them would spoil them slowly. The critic's are frozen
    with them. Raises ConfigError where nothing else was to be trained.
    """
    if any(sample.images for sample in data.train):
        return config
    changes: dict[str, object] = {}
    freeze = _with_seeing_parts(config.model.path, config.model.freeze, key="model.freeze")
    if freeze != config.model.freeze:
        changes["model"] = config.model.model_copy(update={"freeze": freeze})
    critic = config.critic
    if critic is not None and critic.freeze is not None:
        path = config.model.path if critic.model is None else critic.model
        freeze = _with_seeing_parts(path, critic.freeze, key="critic.freeze")
        if freeze != critic.freeze:
            changes["critic"] = critic.model_copy(update={"freeze": freeze})
    if not changes:
        return config
    say(
        f"no sample of data.train has an image, so {' and '.join(_SEEING)} are frozen ({', '.join(changes)}); set "
        f"model.freeze: [{', '.join(_SEEING)}] to say so yourself"
    )
    return config.model_copy(update=changes)


def _with_seeing_parts(path: str, freeze: Sequence[ModelPart], *, key: str) -> tuple[ModelPart, ...]:
    if not family_of(path).sees_images:
        return tuple(freeze)
    if "language" in freeze and not set(_SEEING) <= set(freeze):
        raise ConfigError(
            f"{key}: [{', '.join(freeze)}] leaves only parts to be trained that read images, and no sample of "
            "data.train has an image; give data with images, or take language out of it"
        )
    return (*freeze, *(part for part in _SEEING if part not in freeze))
