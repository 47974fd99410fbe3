"""Builds the parts that a loop drives, and closes them when it ends."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from mmrl.algorithms import build_algorithm
from mmrl.cluster import Executor, build_executor
from mmrl.config import RunConfig
from mmrl.data.images import ImageStore
from mmrl.data.stream import PromptStream
from mmrl.engines.base import Sampler
from mmrl.errors import DataError
from mmrl.models.fingerprint import model_fingerprint
from mmrl.models.processing import PromptProcessor
from mmrl.rewards.runner import RewardRunner
from mmrl.trainer.answer_fitting import fit_answers, with_update_path
from mmrl.trainer.answers import AnswerBatches
from mmrl.trainer.checkpoints import Checkpointer
from mmrl.trainer.disk_room import check_room_of_run, expected_bytes
from mmrl.trainer.engines import EngineNeeds, EngineSource, InlineSource, SketchMaker
from mmrl.trainer.evaluation import Evaluator
from mmrl.trainer.fitting import Fitted, fit, fit_prompts
from mmrl.trainer.machine_notes import machine_notes
from mmrl.trainer.offline import OfflineLoop
from mmrl.trainer.online import OnlineLoop
from mmrl.trainer.preflight import announce
from mmrl.trainer.recorder import Recorder
from mmrl.trainer.resume import ResumePoint
from mmrl.trainer.run_data import RunData, check_data
from mmrl.trainer.snapshot import SnapshotTaker
from mmrl.trainer.stages import UserStages
from mmrl.trainer.state import RandomState, Stateful, stateful
from mmrl.trainer.unused_parts import freeze_unused_parts
from mmrl.types import Sample


@contextmanager
def build_online_loop(
    config: RunConfig,
    data: RunData,
    *,
    recorder: Recorder,
    store: ImageStore,
    point: ResumePoint | None,
    functions: Sequence[Callable[..., Any]] = (),
) -> Iterator[OnlineLoop]:
    """The RL loop with its engines; the reference is a copy of the weights that the run began with."""
    algorithm = build_algorithm(
        config.algorithm,
        response_limit=config.rollout.max_response_tokens,
        shaping_parts=[reward.part_name for reward in config.reward if reward.shaping],
    )
    config = freeze_unused_parts(config, data, say=recorder.say)
    model = _checked_model(config, point)
    with ExitStack() as stack:
        executor = _executor(config, recorder, stack)
        source = _engine_source(config, store, point, recorder, executor)
        check_room_of_run(config, source.policy, recorder.writer.run_dir, warn=recorder.warn)
        train, held_out = _fitted(config, source.policy.prompts, data, recorder)
        prompts = _stream(config, train.kept, config.rollout.prompts_per_step, point, say=recorder.say)
        rewards = stack.enter_context(RewardRunner(config.reward, config.reward_runner, functions=functions))
        if point is None:
            announce(config, source.policy, train, len(held_out), rewards, say=recorder.say, warn=recorder.warn)
        engines = source.open(
            EngineNeeds(
                temperature=config.rollout.temperature,
                reference=algorithm.needs_reference,
                critic=config.algorithm.needs_critic,
                samples=[*train.kept, *held_out],
            ),
            stack,
        )
        stages = UserStages(config.stages, executor=executor)
        parts = {**engines.parts, "algorithm": algorithm, "stages": stages, "rewards": rewards}
        states = _restored(parts, engines.remote_parts, recorder, point)
        yield OnlineLoop(
            config,
            prompts=prompts,
            processor=engines.processor,
            rollout=engines.rollout,
            reference=engines.reference,
            critic=engines.critic,
            sync=engines.sync,
            rewards=rewards,
            algorithm=algorithm,
            stages=stages,
            actor=engines.actor,
            evaluator=_evaluator(config, held_out, engines.rollout, rewards, recorder),
            checkpointer=_checkpointer(
                config,
                engines.snapshots(states, recorder.writer.config_yaml),
                prompts,
                model,
                recorder,
                point,
                room=expected_bytes(config, source.policy),
            ),
            recorder=recorder,
        )


@contextmanager
def build_offline_loop(
    config: RunConfig,
    data: RunData,
    *,
    recorder: Recorder,
    store: ImageStore,
    point: ResumePoint | None,
    functions: Sequence[Callable[..., Any]] = (),
) -> Iterator[OfflineLoop]:
    """The SFT loop; a rollout engine is there for evaluation only."""
    config = with_update_path(freeze_unused_parts(config, data, say=recorder.say), data)
    model = _checked_model(config, point)
    with ExitStack() as stack:
        executor = _executor(config, recorder, stack)
        source = _engine_source(config, store, point, recorder, executor)
        check_room_of_run(config, source.policy, recorder.writer.run_dir, warn=recorder.warn)
        train, held_out = _fitted(config, source.policy.prompts, data, recorder)
        sketches = AnswerBatches(SketchMaker(source.policy.prompts))
        train = replace(train, kept=fit_answers(config, train.kept, sketches, what="data.train", say=recorder.say))
        prompts = _stream(config, train.kept, config.sft.batch_size, point, say=recorder.say)
        rewards = stack.enter_context(RewardRunner(config.reward, config.reward_runner, functions=functions))
        if point is None:
            announce(config, source.policy, train, len(held_out), rewards, say=recorder.say, warn=recorder.warn)
        needs = EngineNeeds(temperature=1.0, reference=False, critic=False, samples=[*train.kept, *held_out])
        engines = source.open(needs, stack)
        states = _restored(engines.parts, engines.remote_parts, recorder, point)
        yield OfflineLoop(
            config,
            prompts=prompts,
            answers=AnswerBatches(engines.processor),
            sync=engines.sync,
            actor=engines.actor,
            evaluator=_evaluator(config, held_out, engines.rollout, rewards, recorder),
            checkpointer=_checkpointer(
                config,
                engines.snapshots(states, recorder.writer.config_yaml),
                prompts,
                model,
                recorder,
                point,
                room=expected_bytes(config, source.policy),
            ),
            recorder=recorder,
        )


def _executor(config: RunConfig, recorder: Recorder, stack: ExitStack) -> Executor:
    """The workers of the run, which `stack` ends; logs of theirs lie with those of the attempt."""
    for note in machine_notes(config.placement):
        recorder.warn(f"preflight: {note}")
    logs = recorder.writer.attempt_dir / "logs"
    return stack.enter_context(build_executor(config.placement, log_dir=logs, say=recorder.say))


def _engine_source(
    config: RunConfig, store: ImageStore, point: ResumePoint | None, recorder: Recorder, executor: Executor
) -> EngineSource:
    """In this process, or in the workers of `executor`."""
    if config.placement.executor == "inline":
        return InlineSource(config, store, point)
    from mmrl.trainer.cluster_engines import ClusterSource

    run_dir = recorder.writer.run_dir
    return ClusterSource(config, store, point, executor=executor, run_dir=run_dir, say=recorder.say)


def _checked_model(config: RunConfig, point: ResumePoint | None) -> dict[str, Any]:
    """The fingerprint of the model that the run began with, which a resumed run must find unchanged."""
    fingerprint = model_fingerprint(config.model.path)
    if point is not None:
        point.check_model(config.model.path, fingerprint)
    return fingerprint


def _restored(
    candidates: Mapping[str, object], elsewhere: Collection[str], recorder: Recorder, point: ResumePoint | None
) -> Mapping[str, Stateful]:
    """Those of the parts that have a state, and the random numbers; after a resume with the states that they had.

    elsewhere: names of parts that keep theirs in workers.
    """
    parts = stateful({**candidates, "random": RandomState()})
    if point is not None:
        point.restore(parts, say=recorder.say, elsewhere=elsewhere)
    return parts


def _fitted(
    config: RunConfig, processor: PromptProcessor, data: RunData, recorder: Recorder
) -> tuple[Fitted, Sequence[Sample]]:
    train = fit(data.train, processor, config.data, what="data.train", say=recorder.say)
    held_out = fit_prompts(data.held_out, processor, config.data, what="data.eval", say=recorder.say)
    check_data(config, RunData(train.kept, held_out))
    return train, held_out


def _stream(
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


def _evaluator(
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


def _checkpointer(
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
