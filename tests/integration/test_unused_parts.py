"""T06: a data set without images does not leave vision weights to be trained by nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mmrl.config import RunConfig
from mmrl.config.critic import CriticConfig
from mmrl.errors import ConfigError
from mmrl.trainer.run_data import RunData
from mmrl.trainer.unused_parts import freeze_unused_parts
from mmrl.types import ImagePart, Message, Sample, TextPart

TEXT = Sample("text", (Message("user", (TextPart("What is 2 + 2?"),)),), answer="4")


def config(model: Path, **model_settings: Any) -> RunConfig:
    return RunConfig.model_validate(
        {"name": "x", "model": {"path": str(model), **model_settings}, "data": {"train": "rows"}}
    )


def test_t06_vision_and_projector_are_frozen_where_no_sample_has_an_image(tiny_model: Callable[..., Path]) -> None:
    said: list[str] = []
    frozen = freeze_unused_parts(config(tiny_model()), RunData([TEXT] * 8, []), say=said.append)
    assert frozen.model.freeze == ("vision", "projector")
    assert said == [
        "no sample of data.train has an image, so vision and projector are frozen (model); set model.freeze: "
        "[vision, projector] to say so yourself"
    ]


def test_t06_one_image_is_enough_to_train_them(tiny_model: Callable[..., Path], pictures: Any) -> None:
    image = Sample("image", (Message("user", (ImagePart(pictures[0]), TextPart("What?"))),), answer="4")
    before = config(tiny_model())
    assert freeze_unused_parts(before, RunData([TEXT, image], [])) is before


def test_t06_a_model_of_text_stays_as_it_is(tiny_model: Callable[..., Path]) -> None:
    before = config(tiny_model("qwen2"))
    assert freeze_unused_parts(before, RunData([TEXT], [])) is before


def test_t06_the_critic_is_frozen_with_it(tiny_model: Callable[..., Path]) -> None:
    before = config(tiny_model(), freeze=["vision", "projector"])
    before = before.model_copy(update={"critic": CriticConfig(freeze=("vision",))})
    frozen = freeze_unused_parts(before, RunData([TEXT], []))
    assert frozen.critic is not None
    assert frozen.critic.freeze == ("vision", "projector")


def test_t06_nothing_else_to_train_is_refused(tiny_model: Callable[..., Path]) -> None:
    with pytest.raises(ConfigError, match="leaves only parts to be trained that read images"):
        freeze_unused_parts(config(tiny_model(), freeze=["language"]), RunData([TEXT], []))
