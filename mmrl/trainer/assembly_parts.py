"""Parts that every kind of run has, built from its config: data, workers, evaluation, checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from mmrl.cluster import Executor, build_executor
from mmrl.config import RunConfig
from mmrl.data.images import ImageStore
from mmrl.data.stream import PromptStream
from mmrl.engines.base import Sampler
from mmrl.errors import DataError
from mmrl.models.fingerprint import model_fingerprint
from mmrl.models.processing import PromptProcessor
from mmrl.rewards.runner import RewardRunner
from mmrl.trainer.checkpoints import Checkpointer
from mmrl.trainer.engines import EngineSource, InlineSource
from mmrl.trainer.evaluation import Evaluator
from mmrl.trainer.fitting import Fitted, fit, fit_prompts
from mmrl.trainer.machine_notes import machine_notes
from mmrl.trainer.recorder import Recorder
from mmrl.trainer.resume import ResumePoint
from mmrl.trainer.run_data import RunData, check_data
from mmrl.trainer.snapshot import SnapshotTaker
from mmrl.trainer.state import RandomState, Stateful, stateful
from mmrl.types import Sample


def open_executor(config: RunConfig, recorder: Recorder, stack: ExitStack) -> Executor:
    """The workers of the run, which `stack` ends; logs of theirs lie with those of the attempt."""
    for note in machine_notes(config.placement):
        recorder.warn(f"preflight: {note}")
    logs = recorder.writer.attempt_dir / "logs"
    return stack.enter_context(build_executor(config.placement, log_dir=logs, say=recorder.say))


def engine_source(
    config: RunConfig, store: ImageStore, point: ResumePoint | None, recorder: Recorder, executor: Executor
) -> EngineSource:
    """In this process, or in the workers of `executor`."""
    if config.placement.executor == "inline":
        return InlineSource(config, store, point)
    from mmrl.trainer.cluster_engines import ClusterSource

    run_dir = recorder.writer.run_dir
    return ClusterSource(config, store, point, executor=executor, run_dir=run_dir, say=recorder.say)


def checked_model(config: RunConfig, point: ResumePoint | None) -> dict[str, Any]:
    """The fingerprint of the model that the run began with, which a resumed run must find unchanged."""
    fingerprint = model_fingerprint(config.model.path)
    if point is not None:
        point.check_model(config.model.path, fingerprint)
    return fingerprint


def restored_parts(
    candidates: Mapping[str, object], elsewhere: Collection[str], recorder: Recorder, point: ResumePoint | None
) -> Mapping[str, Stateful]:
    """Those of the parts that have a state, and the random numbers; after a resume with the states that they had.

    elsewhere: names of parts that keep theirs in workers.
    """
    parts = stateful({**candidates, "random": RandomState()})
    if point is not None:
        point.restore(parts, say=recorder.say, elsewhere=elsewhere)
    return parts


def fitted_data(
    config: RunConfig, processor: PromptProcessor, data: RunData, recorder: Recorder
) -> tuple[Fitted, Sequence[Sample]]:
    train = fit(data.train, processor, config.data, what="data.train", say=recorder.say)
    held_out = fit_prompts(data.held_out, processor, config.data, what="data.eval", say=recorder.say)
    check_data(config, RunData(train.kept, held_out))
    return train, held_out


def prompt_stream(
    config: RunConfig,
    samples: Sequence[Sample],
    batch_size: int,
    point: ResumePoint | None,
    *,
    say: Callable[[str], None] = lambda text: None,
) -> PromptStream:
    stream = PromptStream(samples, batch_size=batch_size, seed=config.seed, shuffle=config.data.shuffle)
    if point is not None:
        _go_on(stream, point, say)
    return stream


def _go_on(stream: PromptStream, point: ResumePoint, say: Callable[[str], None]) -> None:
    """The stream where the checkpoint left it. A fork on other data, or in another order, takes it from the begin."""
    try:
        stream.restore(point.state["prompts"])
    except DataError as error:
        if not point.is_fork:
            raise
        say(f"fork: the data is taken from its begin: {error}")


def sampled_evaluation(
    config: RunConfig, samples: Sequence[Sample], rollout: Sampler, rewards: RewardRunner, recorder: Recorder
) -> Evaluator:
    return Evaluator(
        samples=samples,
        rollout=rollout,
        rewards=rewards,
        reward_configs=config.reward,
        config=config.eval,
        rollout_config=config.rollout,
        seed=config.seed,
        total_steps=config.train.steps,
        recorder=recorder,
    )


def checkpointer_of(
    config: RunConfig,
    snapshots: SnapshotTaker,
    prompts: PromptStream,
    model: Mapping[str, Any],
    recorder: Recorder,
    point: ResumePoint | None,
    *,
    room: int,
) -> Checkpointer:
    """room: bytes that a checkpoint takes, as far as the model tells."""
    return Checkpointer(
        config.checkpoint,
        snapshots=snapshots,
        prompts=prompts,
        recorder=recorder,
        total_steps=config.train.steps,
        model=model,
        expected_bytes=room,
        best=None if point is None else point.best,
    )
