"""`run_mark`: pairs of responses for reward models and preference training, chosen by a reward as by a person."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mmrl.config.dump import dump_yaml
from mmrl.config.mark import MarkConfig, MarkSettings
from mmrl.data.images import ImageStore
from mmrl.data.normalise import make_sample
from mmrl.data.preference import PAIR
from mmrl.data.registry import register
from mmrl.data.serialise import messages_to_json
from mmrl.errors import DataError
from mmrl.runs.layout import new_run_dir
from mmrl.runs.mirror import MIRROR_EVERY_S, mirrored
from mmrl.runs.ownership import AttemptClaim
from mmrl.runs.progress import ProgressReporter, make_progress
from mmrl.runs.stopping import StopRequest
from mmrl.runs.writer import RunWriter
from mmrl.trainer.ending import TrainResult, ending, last_values
from mmrl.trainer.evaluate import evaluate_model, make_panel
from mmrl.trainer.evaluation_run import STEP, model_of
from mmrl.trainer.recorder import Recorder
from mmrl.types import Message, Sample, ScoredGroup, TextPart


def run_mark(
    config: MarkConfig,
    *,
    run_dir: Path | str | None = None,
    resume: str | Path = "auto",
    progress: ProgressReporter | None = None,
) -> TrainResult:
    """Samples, compares and registers the pairs.

    run_dir: as `mmrl.trainer.train` takes it; a later attempt begins anew.
    Raises DataError where no prompt has responses of different worth.
    """
    progress = progress or make_progress()
    where = run_dir if run_dir is not None else new_run_dir(config.name)
    with mirrored(where, every_s=MIRROR_EVERY_S, say=progress.message) as folder:
        return _run(config, folder, resume, progress)


def _run(config: MarkConfig, folder: Path, resume: str | Path, progress: ProgressReporter) -> TrainResult:
    claim = AttemptClaim.from_environment()
    ref = model_of(config.model.path)
    writer = RunWriter.create(folder, config_yaml=dump_yaml(config), resume=str(resume) != "never", claim=claim)
    recorder = Recorder(writer, progress=progress, store=ImageStore())
    with ending(writer, progress, stop=StopRequest(writer.attempt_dir)):
        writer.begin(STEP, total_steps=STEP)
        progress.start(1)
        recorder.begin(STEP)
        evaluation = config.as_evaluation()
        settings = evaluation.as_run()
        assert evaluation.data.eval is not None
        panel = make_panel(
            settings, answers=evaluation.eval, data=evaluation.data.eval, limit=evaluation.eval.max_samples
        )
        with recorder.stage("rollout"):
            groups = evaluate_model(ref, settings, panel, root=writer.run_dir, say=recorder.say).answers.groups
        recorder.samples("mark", groups)
        recorder.add(_register(groups, config))
        recorder.end()
        recorder.say(f"pairs are registered as {config.mark.dataset}@train and {config.mark.dataset}@test")
    values = last_values(writer.run_dir)
    progress.finish(values)
    return TrainResult(writer.run_dir, STEP, values)


def pairs_of(group: ScoredGroup, settings: MarkSettings) -> list[Sample]:
    """The best response of a prompt with each that is worse, as samples with `chosen` and `rejected`: the worst first,
    each text once."""
    scored = {
        rollout.text: reward.total
        for rollout, reward in zip(group.group.rollouts, group.rewards, strict=True)
        if reward.total is not None
    }
    if not scored:
        return []
    chosen, best = max(scored.items(), key=_worth)
    worse = sorted(
        ((text, value) for text, value in scored.items() if text != chosen and best - value > settings.margin),
        key=_worth,
    )
    return [
        _sample(group.group.sample, (chosen, text), best - value, settings)
        for text, value in worse[: settings.pairs_per_prompt]
    ]


def _worth(scored: tuple[str, float]) -> float:
    return scored[1]


def _sample(sample: Sample, answers: tuple[str, str], difference: float, settings: MarkSettings) -> Sample:
    meta: dict[str, Any] = dict(sample.meta)
    for name, text in zip(PAIR, answers, strict=True):
        meta[name] = messages_to_json([Message("assistant", (TextPart(text),))])
    if settings.margin_column is not None:
        meta[settings.margin_column] = difference
    return make_sample(sample.messages, sample.answer, meta)


def _register(groups: Sequence[ScoredGroup], config: MarkConfig) -> dict[str, float]:
    """Registers the pairs; those of one prompt are all in one split. Returns what is worth knowing of them."""
    by_prompt = [pairs for pairs in (pairs_of(group, config.mark) for group in groups) if pairs]
    random.Random(config.seed).shuffle(by_prompt)
    num_test = round(len(by_prompt) * config.mark.test_share)
    parts = {"test": by_prompt[:num_test], "train": by_prompt[num_test:]}
    splits = {name: [pair for pairs in part for pair in pairs] for name, part in parts.items() if part}
    if "train" not in splits:
        raise DataError(
            f"{len(groups)} prompts gave {len(by_prompt)} with a pair whose rewards differ by more than "
            f"{config.mark.margin:g}; sample more responses (mark.responses), raise rollout.temperature, or choose "
            "another reward"
        )
    register(config.mark.dataset, splits, source=f"marked by {config.name}")
    return {
        "mark/num_prompts": float(len(groups)),
        "mark/share": len(by_prompt) / len(groups),
        "mark/num_pairs": float(sum(map(len, splits.values()))),
        "mark/num_test": float(len(splits.get("test", ()))),
    }
