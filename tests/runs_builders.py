"""Small samples, groups and run directories for the tests of `mmrl.runs` and the commands that read them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from mmrl.config.record import RecordConfig
from mmrl.data.images import ImageStore
from mmrl.runs.writer import RunWriter
from mmrl.types import (
    ImagePart,
    ImageRef,
    Message,
    RewardPart,
    RewardResult,
    Rollout,
    RolloutGroup,
    Sample,
    ScoredGroup,
    TextPart,
)

CONFIG = """\
name: digits
kind: rl
seed: 0
model: {path: tiny}
data: {train: digits}
algorithm: {type: grpo}
train: {steps: 4}
"""


def store_image(store: ImageStore, *, red: int = 0) -> ImageRef:
    return store.add(Image.new("RGB", (12, 8), (red, 0, 0)))


def sample(text: str = "Which digit?", *, images: Sequence[ImageRef] = (), answer: str | None = "7") -> Sample:
    content = (*(ImagePart(image) for image in images), TextPart(text))
    name = text.encode("ascii", "backslashreplace").decode()
    return Sample(f"id of {name}", (Message("user", content),), answer, {"source": "test", "row": 3})


def rollout(text: str, *, index: int = 0, length: int = 3, cut: bool = False, step: int = 0) -> Rollout:
    return Rollout(
        sample_id="id",
        index=index,
        token_ids=tuple(range(10, 10 + length)),
        response_mask=(1,) * length,
        logprobs=tuple(-0.5 * place for place in range(length)),
        finish_reason="length" if cut else "stop",
        text=text,
        policy_version=step,
        seed=2**63 + index,
    )


def group(
    texts_and_rewards: Sequence[tuple[str, float | None]],
    *,
    prompt: Sample | None = None,
    advantages: tuple[float | None, ...] | None = None,
    length: int = 3,
    cut: bool = False,
) -> ScoredGroup:
    """One part, `exact`, of weight 2 and value total / 2; a reward of None failed with an error."""
    prompt = prompt or sample()
    rollouts = [rollout(text, index=index, length=length, cut=cut) for index, (text, _) in enumerate(texts_and_rewards)]
    rewards = [_reward(text, total) for text, total in texts_and_rewards]
    return ScoredGroup(RolloutGroup(prompt, tuple(rollouts)), tuple(rewards), advantages)


def begin_run(run_dir: Path, *, step: int = 0, config: str = CONFIG, record: RecordConfig | None = None) -> RunWriter:
    """An attempt whose loop began after `step` steps; the next one if the folder holds a run."""
    writer = RunWriter.create(run_dir, config_yaml=config, resume=True, record=record)
    writer.begin(step, total_steps=4)
    return writer


def _reward(text: str, total: float | None) -> RewardResult:
    if total is None:
        return RewardResult(None, (RewardPart("exact", None, 2.0, error="no answer found", ms=0.5),))
    return RewardResult(total, (RewardPart("exact", total / 2, 2.0, extracted=text, explanation="equal", ms=0.5),))
