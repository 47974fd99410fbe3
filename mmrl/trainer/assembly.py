"""Builds the parts that a loop drives, and closes them when it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from mmrl.algorithms import build_algorithm
from mmrl.config import RunConfig
from mmrl.data.images import ImageStore
from mmrl.rewards.runner import RewardRunner
from mmrl.trainer.answer_fitting import fit_answers, with_update_path
from mmrl.trainer.answers import AnswerBatches
from mmrl.trainer.assembly_parts import (
    checked_model,
    checkpointer_of,
    engine_source,
    fitted_data,
    open_executor,
    prompt_stream,
    restored_parts,
    sampled_evaluation,
)
from mmrl.trainer.disk_room import check_room_of_run, expected_bytes
from mmrl.trainer.engines import EngineNeeds, SketchMaker
from mmrl.trainer.offline import OfflineLoop
from mmrl.trainer.online import OnlineLoop
from mmrl.trainer.preflight import announce
from mmrl.trainer.recorder import Recorder
from mmrl.trainer.resume import ResumePoint
from mmrl.trainer.run_data import RunData
from mmrl.trainer.stages import UserStages
from mmrl.trainer.unused_parts import freeze_unused_parts


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
    model = checked_model(config, point)
    with ExitStack() as stack:
        executor = open_executor(config, recorder, stack)
        source = engine_source(config, store, point, recorder, executor)
        check_room_of_run(config, source.policy, recorder.writer.run_dir, warn=recorder.warn)
        train, held_out = fitted_data(config, source.policy.prompts, data, recorder)
        prompts = prompt_stream(config, train.kept, config.rollout.prompts_per_step, point, say=recorder.say)
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
        states = restored_parts(parts, engines.remote_parts, recorder, point)
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
            evaluator=sampled_evaluation(config, held_out, engines.rollout, rewards, recorder),
            checkpointer=checkpointer_of(
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
    model = checked_model(config, point)
    with ExitStack() as stack:
        executor = open_executor(config, recorder, stack)
        source = engine_source(config, store, point, recorder, executor)
        check_room_of_run(config, source.policy, recorder.writer.run_dir, warn=recorder.warn)
        train, held_out = fitted_data(config, source.policy.prompts, data, recorder)
        sketches = AnswerBatches(SketchMaker(source.policy.prompts))
        train = replace(train, kept=fit_answers(config, train.kept, sketches, what="data.train", say=recorder.say))
        prompts = prompt_stream(config, train.kept, config.sft.batch_size, point, say=recorder.say)
        rewards = stack.enter_context(RewardRunner(config.reward, config.reward_runner, functions=functions))
        if point is None:
            announce(config, source.policy, train, len(held_out), rewards, say=recorder.say, warn=recorder.warn)
        needs = EngineNeeds(temperature=1.0, reference=False, critic=False, samples=[*train.kept, *held_out])
        engines = source.open(needs, stack)
        states = restored_parts(engines.parts, engines.remote_parts, recorder, point)
        yield OfflineLoop(
            config,
            prompts=prompts,
            answers=AnswerBatches(engines.processor),
            sync=engines.sync,
            actor=engines.actor,
            evaluator=sampled_evaluation(config, held_out, engines.rollout, rewards, recorder),
            checkpointer=checkpointer_of(
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
