"""Evaluations made by hand: a panel, and what checkpoints answered to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mmrl.evaluation.outcomes import outcome_of
from mmrl.evaluation.panels import Panel, PanelSettings
from mmrl.evaluation.records import EvaluatedModel, Evaluation, write_evaluation
from mmrl.evaluation.summary import summarise
from mmrl.evaluation.versions import Versions
from mmrl.types import RewardPart, RewardResult, Rollout, RolloutGroup, Sample, ScoredGroup

SETTINGS = PanelSettings(max_response_tokens=8, samples_per_prompt=2, temperature=1.0, ks=(1, 2), stop=("\n",))
VERSIONS = Versions("t", "k", "p", "i", "r", "0.1.0")


def scored(sample: Sample, *texts: str) -> ScoredGroup:
    rollouts = tuple(Rollout("s", i, (1, i), (1, 1), (0.0, 0.0), "stop", text, 5, i) for i, text in enumerate(texts))
    rewards = tuple(
        RewardResult(float(text == sample.answer), (RewardPart("exact", float(text == sample.answer), 1.0, text),))
        for text in texts
    )
    return ScoredGroup(RolloutGroup(sample, rollouts), rewards)


def evaluated(panel: Panel, step: int, *answers: tuple[str, ...], run: Path, **changes: object) -> Evaluation:
    groups = [scored(sample, *texts) for sample, texts in zip(panel.samples, answers, strict=True)]
    outcomes = [outcome_of(group, part="exact", at_least=1.0) for group in groups]
    evaluation = Evaluation(
        panel=panel.name,
        panel_hash=panel.hash,
        data=panel.data,
        settings=panel.settings,
        model=EvaluatedModel(str(run / f"checkpoints/step-{step:06d}/model"), "f", run.name, step),
        versions=VERSIONS,
        part="exact",
        at_least=1.0,
        summary=summarise(outcomes, ks=panel.settings.ks),
        greedy=None,
        engine="hf",
        dtype="float32",
    )
    return write_evaluation(replace(evaluation, **changes), panel, groups, [], root=run)  # type: ignore[arg-type]
