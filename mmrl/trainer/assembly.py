"""Builds the parts that a loop drives, and closes them when it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from mmrl.algorithms import build_algorithm
from mmrl.config import RunConfig
from mmrl.config.critic import CriticConfig
from mmrl.data.images import ImageStore
from mmrl.data.stream import PromptStream
from mmrl.engines.actor import HfActor
from mmrl.engines.base import RolloutEngine
from mmrl.engines.critic import HfCritic, value_model_like, value_model_of
from mmrl.engines.reference import Reference
from mmrl.engines.registry import rollout_engine_class
from mmrl.models.fingerprint import model_fingerprint
from mmrl.models.policy import PolicyModel, load_policy
from mmrl.rewards.runner import RewardRunner
from mmrl.trainer.checkpoints import Checkpointer
from mmrl.trainer.evaluation import Evaluator
from mmrl.trainer.fitting import Fitted, fit, fit_prompts
from mmrl.trainer.offline import OfflineLoop
from mmrl.trainer.online import OnlineLoop
from mmrl.trainer.preflight import announce
from mmrl.trainer.recorder import Recorder
from mmrl.trainer.resume import ResumePoint
from mmrl.trainer.run_data import RunData, check_data
from mmrl.trainer.snapshot import Snapshots
from mmrl.trainer.stages import UserStages
from mmrl.trainer.state import RandomState, Stateful, stateful
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
    stages = UserStages(config.stages)
    model = _checked_model(config, point)
    policy = _load_policy(config, store, point)
    reference = _reference(config, policy, store, point) if algorithm.needs_reference else None
    train, held_out = _fitted(config, policy, data, recorder)
    prompts = _stream(config, train.kept, config.rollout.prompts_per_step, point)
    actor = _actor(config, policy, temperature=config.rollout.temperature)
    critic = build_critic(config, policy, store) if config.algorithm.needs_critic else None
    parts = {"actor": actor, "algorithm": algorithm, "stages": stages} | ({} if critic is None else {"critic": critic})
    with ExitStack() as stack:
        rollout = _rollout(config, policy, stack)
        rewards = stack.enter_context(RewardRunner(config.reward, config.reward_runner, functions=functions))
        states = _restored({**parts, "rewards": rewards}, recorder, point)
        if point is None:
            announce(config, policy, train, len(held_out), rewards, say=recorder.say, warn=recorder.warn)
        yield OnlineLoop(
            config,
            prompts=prompts,
            processor=policy.prompts,
            rollout=rollout,
            reference=reference,
            critic=critic,
            rewards=rewards,
            algorithm=algorithm,
            stages=stages,
            actor=actor,
            evaluator=_evaluator(config, held_out, rollout, rewards, recorder),
            checkpointer=_checkpointer(config, policy, states, prompts, model, recorder, point),
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
    model = _checked_model(config, point)
    policy = _load_policy(config, store, point)
    train, held_out = _fitted(config, policy, data, recorder)
    prompts = _stream(config, train.kept, config.sft.batch_size, point)
    actor = _actor(config, policy, temperature=1.0)
    parts = _restored({"actor": actor}, recorder, point)
    with ExitStack() as stack:
        rollout = _rollout(config, policy, stack)
        rewards = stack.enter_context(RewardRunner(config.reward, config.reward_runner, functions=functions))
        if point is None:
            announce(config, policy, train, len(held_out), rewards, say=recorder.say, warn=recorder.warn)
        yield OfflineLoop(
            config,
            prompts=prompts,
            processor=policy.prompts,
            actor=actor,
            evaluator=_evaluator(config, held_out, rollout, rewards, recorder),
            checkpointer=_checkpointer(config, policy, parts, prompts, model, recorder, point),
            recorder=recorder,
        )


def _checked_model(config: RunConfig, point: ResumePoint | None) -> dict[str, Any]:
    """The fingerprint of the model that the run began with, which a resumed run must find unchanged."""
    fingerprint = model_fingerprint(config.model.path)
    if point is not None:
        point.check_model(config.model.path, fingerprint)
    return fingerprint


def _restored(
    candidates: Mapping[str, object], recorder: Recorder, point: ResumePoint | None
) -> Mapping[str, Stateful]:
    """Those of the parts that have a state, and the random numbers; after a resume with the states that they had."""
    parts = stateful({**candidates, "random": RandomState()})
    if point is not None:
        point.restore(parts, say=recorder.say)
    return parts


def _load_policy(config: RunConfig, store: ImageStore, point: ResumePoint | None) -> PolicyModel:
    model = config.model
    if point is not None:
        model = model.model_copy(update={"path": str(point.model_folder)})
    return load_policy(model, config.data.image, store=store)


def _reference(config: RunConfig, policy: PolicyModel, store: ImageStore, point: ResumePoint | None) -> Reference:
    """The weights that the run began with: those of the policy now, or after a resume those of the config's model."""
    temperature = config.rollout.temperature
    if point is None:
        return Reference.copy_of(policy, config.train, temperature=temperature)
    first = load_policy(config.model, config.data.image, store=store, trainable=False)
    return Reference(first, config.train, temperature=temperature)


def _fitted(
    config: RunConfig, policy: PolicyModel, data: RunData, recorder: Recorder
) -> tuple[Fitted, Sequence[Sample]]:
    train = fit(data.train, policy.prompts, config.data, what="data.train", say=recorder.say)
    held_out = fit_prompts(data.held_out, policy.prompts, config.data, what="data.eval", say=recorder.say)
    check_data(config, RunData(train.kept, held_out))
    return train, held_out


def _stream(config: RunConfig, samples: Sequence[Sample], batch_size: int, point: ResumePoint | None) -> PromptStream:
    stream = PromptStream(samples, batch_size=batch_size, seed=config.seed, shuffle=config.data.shuffle)
    if point is not None:
        stream.restore(point.state["prompts"])
    return stream


def _actor(config: RunConfig, policy: PolicyModel, *, temperature: float) -> HfActor:
    return HfActor(
        policy,
        config.optim,
        config.train,
        temperature=temperature,
        total_steps=config.train.steps,
        idle_steps=config.critic_warmup_steps,
    )


def build_critic(config: RunConfig, policy: PolicyModel, store: ImageStore) -> HfCritic:
    """A copy of the policy, or the model of `critic.model`, with a value head; see `engines.critic`."""
    critic = config.critic or CriticConfig()
    freeze = config.model.freeze if critic.freeze is None else critic.freeze
    if critic.model is None and freeze == config.model.freeze:
        model = value_model_like(policy)
    else:
        path = config.model.path if critic.model is None else critic.model
        settings = config.model.model_copy(update={"path": path, "freeze": freeze})
        model = value_model_of(load_policy(settings, config.data.image, store=store), policy)
    return HfCritic(model, critic, config.train, total_steps=config.train.steps)


def _rollout(config: RunConfig, policy: PolicyModel, stack: ExitStack) -> RolloutEngine:
    rollout = rollout_engine_class(config.rollout.engine)(policy, config.rollout)
    stack.callback(rollout.close)
    return rollout


def _evaluator(
    config: RunConfig, samples: Sequence[Sample], rollout: RolloutEngine, rewards: RewardRunner, recorder: Recorder
) -> Evaluator:
    return Evaluator(
        samples=samples,
        rollout=rollout,
        rewards=rewards,
        config=config.eval,
        rollout_config=config.rollout,
        seed=config.seed,
        total_steps=config.train.steps,
        recorder=recorder,
    )


def _checkpointer(
    config: RunConfig,
    policy: PolicyModel,
    parts: Mapping[str, Stateful],
    prompts: PromptStream,
    model: Mapping[str, Any],
    recorder: Recorder,
    point: ResumePoint | None,
) -> Checkpointer:
    return Checkpointer(
        config.checkpoint,
        snapshots=Snapshots(policy, parts, config_yaml=recorder.writer.config_yaml),
        prompts=prompts,
        recorder=recorder,
        total_steps=config.train.steps,
        model=model,
        best=None if point is None else point.best,
    )
