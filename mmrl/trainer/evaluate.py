"""Evaluating a model by itself: a panel answered, graded, and kept with what it takes to compare it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmrl import __version__
from mmrl.config import RunConfig
from mmrl.config.evaluation import AnswerConfig
from mmrl.config.run import ImageConfig
from mmrl.data import load_dataset
from mmrl.data.images import ImageStore
from mmrl.data.options import options_of
from mmrl.engines.base import Sampler
from mmrl.engines.rollout_needs import needs_of
from mmrl.errors import ConfigError
from mmrl.evaluation.panels import Panel, PanelSettings, panel_of, read_panel, save_panel
from mmrl.evaluation.records import EvaluatedModel, Evaluation, models_root, write_evaluation
from mmrl.evaluation.versions import Versions, rewards_version
from mmrl.models.loading import load_prompts
from mmrl.models.policy import load_policy
from mmrl.models.processing import PromptProcessor
from mmrl.models.versions import (
    processor_version,
    prompts_version,
    template_version,
    tokenizer_version,
    weights_version,
)
from mmrl.rewards.runner import RewardRunner
from mmrl.runs.checkpoint_refs import ModelRef
from mmrl.trainer.checkpoint_folder import check_model
from mmrl.trainer.evaluation import Answers, Grading, answer_all
from mmrl.trainer.targets import prompt_only

Say = Callable[[str], None]


@dataclass(frozen=True)
class Evaluated:
    """An evaluation, where it lies, and the answers it is made of."""

    evaluation: Evaluation
    answers: Answers


def make_panel(
    config: RunConfig, *, answers: AnswerConfig, data: str, name: str | None = None, limit: int | None = None
) -> Panel:
    """The prompts of `data` frozen with the settings of `answers` and of the config, and kept in mmrl's home.

    Raises NotFoundError, DataError as reading data does; ConflictError where another panel has the name.
    """
    store = ImageStore()
    samples = [prompt_only(sample) for sample in load_dataset(data, limit=limit, options=options_of(config.data))]
    settings = PanelSettings.of(
        answers,
        max_response_tokens=config.rollout.max_response_tokens,
        stop=config.rollout.stop,
        seed=config.seed,
        min_pixels=config.data.image.min_pixels,
        max_pixels=config.data.image.max_pixels,
    )
    panel = panel_of(samples, settings, name=name, data=data)
    save_panel(panel, store)
    return panel


def named_panel(name: str) -> Panel:
    """A panel that was kept; its images are in the image store afterwards."""
    return read_panel(name, store=ImageStore())


def evaluate_model(
    ref: ModelRef,
    config: RunConfig,
    panel: Panel,
    *,
    functions: Sequence[Callable[..., Any]] = (),
    root: Path | None = None,
    say: Say = lambda text: None,
) -> Evaluated:
    """Answers `panel` with the model of `ref` under the engine, precision and rewards of `config`, and keeps it.

    root: where it is kept; the run that the model is of, or mmrl's home, if not given.
    Raises ConfigError for a config without rewards, ModelError for a model that cannot be loaded,
    DataError for a checkpoint that is damaged.
    """
    if not config.reward and not functions:
        raise ConfigError(
            "reward: an evaluation needs at least one reward to grade by (got none), such as `reward: [{type: exact}]`"
        )
    check_model(ref)
    settings, store = panel.settings, ImageStore()
    config = _under(config, ref, settings)
    engine = config.rollout.engine
    say(f"evaluating {ref.label} on {len(panel.samples)} prompts of panel {panel.name} with engine {engine}")
    with RewardRunner(config.reward, config.reward_runner, functions=functions) as rewards:
        with _sampler(config, ref, panel, store) as (sampler, prompts):
            answers = answer_all(
                panel.samples,
                sampler,
                rewards,
                config.eval,
                max_response_tokens=settings.max_response_tokens,
                stop=settings.stop,
                seed=settings.seed,
                say=say,
            )
        versions = _versions(prompts, panel, config)
    grading = Grading.of(config.eval, config.reward, answers.groups)
    evaluation = Evaluation(
        panel=panel.name,
        panel_hash=panel.hash,
        data=panel.data,
        settings=settings,
        model=EvaluatedModel(
            path=str(ref.model),
            fingerprint=weights_version(ref.model),
            run=None if ref.run_dir is None else ref.run_dir.name,
            step=ref.step,
        ),
        versions=versions,
        part=grading.part,
        at_least=grading.at_least,
        summary=grading.summary(answers.groups, settings.ks),
        greedy=grading.summary(answers.greedy, ()) if answers.greedy else None,
        engine=config.rollout.engine,
        dtype=config.model.dtype,
    )
    where = root or ref.run_dir or models_root()
    return Evaluated(write_evaluation(evaluation, panel, answers.groups, answers.greedy, root=where), answers)


def _under(config: RunConfig, ref: ModelRef, settings: PanelSettings) -> RunConfig:
    """The config with the model and the settings of the panel in it; no adapter and no frozen part of a training."""
    model = config.model.model_copy(update={"path": str(ref.model), "freeze": ()})
    image = ImageConfig(min_pixels=settings.min_pixels, max_pixels=settings.max_pixels)
    rollout = config.rollout.model_copy(
        update={"max_response_tokens": settings.max_response_tokens, "stop": settings.stop, "tensor_parallel": 1}
    )
    answers = config.eval.model_copy(
        update={
            "samples_per_prompt": settings.samples_per_prompt,
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "top_k": settings.top_k,
            "greedy": settings.greedy,
            "k": settings.ks,
        }
    )
    data = config.data.model_copy(update={"image": image})
    return config.model_copy(update={"model": model, "rollout": rollout, "eval": answers, "data": data})


@contextmanager
def _sampler(
    config: RunConfig, ref: ModelRef, panel: Panel, store: ImageStore
) -> Iterator[tuple[Sampler, PromptProcessor]]:
    """The rollout engine of the config with the weights of the model, alone."""
    sampler: Sampler
    if config.rollout.engine == "vllm":
        from mmrl.engines.vllm_build import build_vllm_rollout

        prompts = load_prompts(config.model.path, config.data.image, store=store)
        needs = needs_of(panel.samples, prompts, config)
        sampler = build_vllm_rollout(config, prompts, needs, model_folder=ref.model)
    else:
        from mmrl.engines.rollout_hf import HfRollout

        policy = load_policy(config.model, config.data.image, store=store, trainable=False)
        prompts = policy.prompts
        sampler = HfRollout(policy, config.rollout)
    try:
        yield sampler, prompts
    finally:
        sampler.close()


def _versions(prompts: PromptProcessor, panel: Panel, config: RunConfig) -> Versions:
    return Versions(
        template=template_version(prompts),
        tokenizer=tokenizer_version(prompts),
        processor=processor_version(prompts),
        prompts=prompts_version(prompts, panel.samples),
        rewards=rewards_version(config.reward),
        mmrl=__version__,
    )
