"""Builds the parts that the loops of preferences and of reward models drive, and closes them when they end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from mmrl.algorithms.preferences import Preference, build_preference
from mmrl.batch import GroupBatch
from mmrl.cluster import Executor
from mmrl.config import RunConfig
from mmrl.data.images import ImageStore
from mmrl.data.stream import PromptStream
from mmrl.models.classifier import is_classifier
from mmrl.models.policy import PolicyModel
from mmrl.models.processing import PromptProcessor
from mmrl.rewards.runner import RewardRunner
from mmrl.trainer.answer_fitting import fit_answers
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
from mmrl.trainer.engines import EngineNeeds, Engines, SketchMaker
from mmrl.trainer.fitting import Fitted
from mmrl.trainer.pair_evaluation import Evaluations, PreferenceEvaluation, RewardModelEvaluation, portions
from mmrl.trainer.pair_notes import pair_notes
from mmrl.trainer.preference import PreferenceLoop
from mmrl.trainer.preference_batches import PreferenceBatches, batches_to_compare, rows_of
from mmrl.trainer.preflight import announce
from mmrl.trainer.recorder import Recorder
from mmrl.trainer.reference_cache import ReferenceCache, ReferenceKey
from mmrl.trainer.reference_logprobs import ReferenceLogprobs
from mmrl.trainer.resume import ResumePoint
from mmrl.trainer.reward_engines import ClassifierSource, InlineRewardSource, RewardEngineSource, check_classifier
from mmrl.trainer.reward_training import RewardModelLoop
from mmrl.trainer.run_data import RunData
from mmrl.trainer.targets import judged_of, pair_of
from mmrl.trainer.unused_parts import freeze_unused_parts
from mmrl.types import Sample


@contextmanager
def build_preference_loop(
    config: RunConfig,
    data: RunData,
    *,
    recorder: Recorder,
    store: ImageStore,
    point: ResumePoint | None,
    functions: Sequence[Callable[..., Any]] = (),
) -> Iterator[PreferenceLoop]:
    """The loop of preferences. A rollout engine is there for evaluation only; a second model only where what the
    first was asked is lost."""
    config = freeze_unused_parts(config, data, say=recorder.say)
    fingerprint = checked_model(config, point)
    preference = build_preference(config.preference)
    with ExitStack() as stack:
        executor = open_executor(config, recorder, stack)
        source = engine_source(config, store, point, recorder, executor)
        check_room_of_run(config, source.policy, recorder.writer.run_dir, warn=recorder.warn)
        sketches = AnswerBatches(SketchMaker(source.policy.prompts))
        train, held_out = _fitted_answers(config, source.policy.prompts, data, sketches, recorder)
        compared = [sample for sample in held_out if _is_compared(preference, sample)]
        prompts = prompt_stream(config, train.kept, config.preference.batch_size, point)
        rewards = stack.enter_context(RewardRunner(config.reward, config.reward_runner, functions=functions))
        if point is None:
            _warn_of_pairs(config, data, recorder)
            announce(config, source.policy, train, len(held_out), rewards, say=recorder.say, warn=recorder.warn)
        reference = _reference(config, fingerprint, recorder) if preference.needs_reference else None
        to_come = [*_to_come(config, preference, train.kept, point), *portions(compared, config.preference.batch_size)]
        asked = [samples for samples in to_come if _is_missing(reference, preference, sketches, samples)]
        needs = EngineNeeds(
            temperature=1.0,
            reference=point is not None and bool(asked),
            critic=False,
            samples=[*train.kept, *held_out],
        )
        engines = source.open(needs, stack)
        answers = AnswerBatches(engines.processor)
        if reference is not None:
            to_compute = (rows_of(preference, answers, samples) for samples in asked)
            _prepare(reference, batches_to_compare(preference, to_compute), engines, recorder)
        batches = PreferenceBatches(preference, answers, actor=engines.actor, reference=reference, recorder=recorder)
        states = restored_parts({**engines.parts, "preference": preference}, engines.remote_parts, recorder, point)
        sampled = held_out if config.reward or functions else ()
        yield PreferenceLoop(
            config,
            prompts=prompts,
            preference=preference,
            batches=batches,
            sync=engines.sync,
            actor=engines.actor,
            evaluator=Evaluations(
                [
                    PreferenceEvaluation(
                        compared, preference, batches, engines.actor, config.preference.batch_size, recorder
                    ),
                    sampled_evaluation(config, sampled, engines.rollout, rewards, recorder),
                ],
                every=config.eval.every,
                total_steps=config.train.steps,
            ),
            checkpointer=checkpointer_of(
                config,
                engines.snapshots(states, recorder.writer.config_yaml),
                prompts,
                fingerprint,
                recorder,
                point,
                room=expected_bytes(config, source.policy),
            ),
            recorder=recorder,
        )


@contextmanager
def build_reward_model_loop(
    config: RunConfig,
    data: RunData,
    *,
    recorder: Recorder,
    store: ImageStore,
    point: ResumePoint | None,
    functions: Sequence[Callable[..., Any]] = (),
) -> Iterator[RewardModelLoop]:
    """The loop of reward models, which samples nothing and is scored by nothing."""
    is_text_classifier = is_classifier(config.model.path)
    if is_text_classifier:
        check_classifier(config, data)
    else:
        config = freeze_unused_parts(config, data, say=recorder.say)
    fingerprint = checked_model(config, point)
    with ExitStack() as stack:
        executor = open_executor(config, recorder, stack)
        source = _reward_source(config, store, point, recorder, executor, of_classifier=is_text_classifier)
        sketches = AnswerBatches(SketchMaker(source.prompts))
        train, held_out = _fitted_answers(config, source.prompts, data, sketches, recorder)
        compared = [sample for sample in held_out if pair_of(sample) is not None]
        prompts = prompt_stream(config, train.kept, config.reward_model.batch_size, point)
        room = 0
        if point is None:
            _warn_of_pairs(config, data, recorder)
        if source.policy is not None:
            room = expected_bytes(config, source.policy)
            check_room_of_run(config, source.policy, recorder.writer.run_dir, warn=recorder.warn)
            if point is None:
                _announce_without_rewards(config, source.policy, train, len(compared), recorder)
        engines = source.open_reward([*train.kept, *compared])
        answers = AnswerBatches(engines.processor)
        states = restored_parts(engines.parts, engines.remote_parts, recorder, point)
        evaluation = RewardModelEvaluation(compared, answers, engines.trainer, config.reward_model, recorder)
        yield RewardModelLoop(
            config,
            prompts=prompts,
            answers=answers,
            trainer=engines.trainer,
            evaluator=Evaluations([evaluation], every=config.eval.every, total_steps=config.train.steps),
            checkpointer=checkpointer_of(
                config,
                engines.snapshots(states, recorder.writer.config_yaml),
                prompts,
                fingerprint,
                recorder,
                point,
                room=room,
            ),
            recorder=recorder,
        )


def _warn_of_pairs(config: RunConfig, data: RunData, recorder: Recorder) -> None:
    for note in pair_notes(config, data):
        recorder.warn(note)


def _announce_without_rewards(
    config: RunConfig, policy: PolicyModel, train: Fitted, num_held_out: int, recorder: Recorder
) -> None:
    with RewardRunner((), config.reward_runner) as no_rewards:
        announce(config, policy, train, num_held_out, no_rewards, say=recorder.say, warn=recorder.warn)


def _reward_source(
    config: RunConfig,
    store: ImageStore,
    point: ResumePoint | None,
    recorder: Recorder,
    executor: Executor,
    *,
    of_classifier: bool,
) -> RewardEngineSource:
    if of_classifier:
        return ClassifierSource(config, point)
    if config.placement.executor == "inline":
        return InlineRewardSource(config, store, point)
    from mmrl.trainer.cluster_reward_engines import ClusterRewardSource

    run_dir = recorder.writer.run_dir
    return ClusterRewardSource(config, store, point, executor=executor, run_dir=run_dir, say=recorder.say)


def _fitted_answers(
    config: RunConfig, processor: PromptProcessor, data: RunData, answers: AnswerBatches, recorder: Recorder
) -> tuple[Fitted, Sequence[Sample]]:
    """Samples whose prompts and answers are short enough."""
    train, held_out = fitted_data(config, processor, data, recorder)
    kept = fit_answers(config, train.kept, answers, what="data.train", say=recorder.say)
    return replace(train, kept=kept), held_out


def _is_compared(preference: Preference[Any], sample: Sample) -> bool:
    return pair_of(sample) is not None if preference.takes_pairs else bool(judged_of(sample))


def _reference(config: RunConfig, fingerprint: dict[str, Any], recorder: Recorder) -> ReferenceLogprobs:
    settings = {"dtype": config.model.dtype, "temperature": 1.0}
    return ReferenceLogprobs(ReferenceCache(ReferenceKey(fingerprint, settings), warn=recorder.warn))


def _to_come(
    config: RunConfig, preference: Preference[Any], samples: Sequence[Sample], point: ResumePoint | None
) -> Sequence[Sequence[Sample]]:
    """The samples of every step that is still to be made; each once where a step does not mix prompts and answers."""
    size = config.preference.batch_size
    stream: PromptStream = prompt_stream(config, samples, size, point)
    done = 0 if point is None else point.step
    steps = [stream.next_batch() for _ in range(config.train.steps - done)]
    if preference.needs_baseline:
        return steps
    different = {id(sample): sample for batch in steps for sample in batch}
    return list(portions(list(different.values()), size))


def _is_missing(
    reference: ReferenceLogprobs | None, preference: Preference[Any], answers: AnswerBatches, samples: Sequence[Sample]
) -> bool:
    if reference is None:
        return False
    batches = batches_to_compare(preference, iter([rows_of(preference, answers, samples)]))
    return any(reference.missing(batch) for batch in batches)


def _prepare(reference: ReferenceLogprobs, batches: Iterator[GroupBatch], engines: Engines, recorder: Recorder) -> None:
    """At the run's begin the policy is the reference; later it is a model of its own, there if it is needed."""
    policy = engines.reference
    if policy is not None:
        reference.compute = policy.logprobs
    compute = (lambda batch: engines.actor.logprobs(batch).logprobs) if policy is None else policy.logprobs
    count = reference.prepare(batches, compute)
    if count:
        recorder.say(f"log-probabilities of {count} answers under the reference were computed, and are kept by content")
