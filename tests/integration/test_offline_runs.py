"""Whole runs of SFT, preferences and reward models: in one process, on ranks, cut and gone on with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from learning import run, warm_model
from marked_digits import marks_config, register_marks

from mmrl.config import RunConfig
from mmrl.config.reward import ModelRewardConfig
from mmrl.config.run import ImageConfig, ModelConfig
from mmrl.data import load_dataset
from mmrl.data.images import ImageStore
from mmrl.data.registry import register
from mmrl.errors import DataError, RunFailedError
from mmrl.models.reward_model import load_reward_model
from mmrl.models.scorers import load_scorer
from mmrl.runs.reader import RunReader
from mmrl.trainer.answers import AnswerBatches
from mmrl.trainer.engines import InlineSource
from mmrl.trainer.replay import replay

RANKS = {"executor": "ray", "pools": {"main": {"workers": 2}}, "deadline_s": 300}
STEPS = 3


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("offline")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MMRL_HOME", str(folder))
        yield folder


@pytest.fixture(scope="module")
def model(home: Path) -> Path:
    found = warm_model(home / "model", "digits-which", steps=10)
    register_marks()
    return found


def preference_config(model: Path, type_: str, **more: Any) -> RunConfig:
    settings = {"preference": {"type": type_, "batch_size": 6}, "optim": {"lr": 5e-4}, **more}
    return small(model, "preference", data_of="digits-judged" if type_ == "kto" else "digits-pairs", **settings)


def reward_config(model: Path, **more: Any) -> RunConfig:
    settings = {"reward_model": {"batch_size": 6}, "optim": {"lr": 1e-3}, **more}
    return small(model, "reward_model", data_of="digits-pairs", **settings)


def small(model: Path, kind: str, *, data_of: str, **more: Any) -> RunConfig:
    config = marks_config(model, kind, steps=STEPS, lr=1e-3, data=data_of, **more)
    return config.model_copy(update={"eval": config.eval.model_copy(update={"max_samples": 20, "at_start": False})})


def with_steps(config: RunConfig, steps: int, **more: Any) -> RunConfig:
    """The config of an earlier stop, a checkpoint at every step."""
    train = config.train.model_copy(update={"steps": steps})
    checkpoint = config.checkpoint.model_copy(update={"every": 1, "keep": 9})
    changed = {name: RunConfig.model_validate({**config.model_dump(), name: value}) for name, value in more.items()}
    placement = changed["placement"].placement if "placement" in changed else config.placement
    return config.model_copy(update={"train": train, "checkpoint": checkpoint, "placement": placement})


def values_of(run_dir: Path) -> list[dict[str, float]]:
    return [row.values for row in RunReader(run_dir).metrics() if row.step > 0]


def check_same(run_dir: Path, expected: Path, names: tuple[str, ...], *, rel: float = 1e-3) -> None:
    mine, theirs = values_of(run_dir), values_of(expected)
    assert len(mine) == len(theirs) == STEPS
    for step, (one, other) in enumerate(zip(mine, theirs, strict=True), start=1):
        for name in names:
            assert one[name] == pytest.approx(other[name], rel=rel, abs=1e-5), (step, name)
    finals = [name for name in theirs[-1] if name.startswith("eval/")]
    assert finals
    for name in finals:
        assert mine[-1][name] == pytest.approx(theirs[-1][name], rel=1e-2, abs=1e-3), name


PREFERENCE = ("preference/loss", "rewards/chosen", "rewards/rejected", "logps/chosen", "actor/grad_norm")
REWARD = ("reward_model/loss", "reward_model/score_chosen", "reward_model/accuracy", "reward_model/grad_norm")


def test_a_cut_run_finds_the_reference_and_is_the_unbroken_one(
    home: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = preference_config(model, "mpo")
    whole = run(config, home / "mpo").run_dir
    run(with_steps(config, 1), home / "mpo-cut")

    opened = []
    earlier = InlineSource.open
    monkeypatch.setattr(
        InlineSource,
        "open",
        lambda self, needs, stack: (opened.append(needs.reference), earlier(self, needs, stack))[1],
    )
    run(with_steps(config, STEPS), home / "mpo-cut")
    assert opened == [False], "everything was found, so no second model is loaded"
    check_same(home / "mpo-cut", whole, (*PREFERENCE, "preference/delta"), rel=1e-6)
    deltas = [values["preference/delta"] for values in values_of(whole)]
    assert deltas[:2] == pytest.approx([0.0, 0.0], abs=1e-6), "the first update's ratios are all one"
    assert abs(deltas[2]) > 1e-4


def test_a_run_that_lost_the_reference_computes_it_with_the_first_model(home: Path, model: Path) -> None:
    config = preference_config(model, "dpo", seed=5)
    whole = run(config, home / "lost-whole").run_dir
    run(with_steps(config, 1), home / "lost")
    for file in (home / "reference-logprobs").glob("*.sqlite"):
        file.unlink()
    run(with_steps(config, STEPS), home / "lost")
    check_same(home / "lost", whole, PREFERENCE, rel=1e-4)


@pytest.mark.ray
@pytest.mark.parametrize("type_", [pytest.param("dpo", marks=pytest.mark.slow), "kto"])
def test_preferences_on_two_ranks_are_those_of_one_process(home: Path, model: Path, type_: str) -> None:
    config = preference_config(model, type_)
    alone = run(config, home / f"{type_}-alone").run_dir
    for file in (home / "reference-logprobs").glob("*.sqlite"):
        file.unlink()
    ranks = run(preference_config(model, type_, placement=RANKS), home / f"{type_}-ranks").run_dir
    check_same(ranks, alone, PREFERENCE)
    assert values_of(alone)[-1]["preference/loss"] != values_of(alone)[0]["preference/loss"]


@pytest.mark.ray
def test_a_reward_model_goes_on_with_another_number_of_ranks_and_scores_as_it_was_trained(
    home: Path, model: Path
) -> None:
    config = reward_config(model)
    alone = run(config, home / "rm-alone")
    folder = home / "rm-moved"
    for step, placement in enumerate((RANKS, {}, RANKS), start=1):
        result = run(with_steps(config, step, placement=placement), folder)
    check_same(folder, alone.run_dir, REWARD)
    samples = list(load_dataset("digits-pairs@validation", limit=6))
    for checkpoint in (alone.checkpoint, result.checkpoint):
        trained = load_reward_model(
            ModelConfig(path=str(checkpoint), dtype="float32", device="cpu"), ImageConfig(), store=ImageStore()
        )
        with torch.no_grad():
            expected = trained(AnswerBatches(trained.body.prompts).pairs(samples)).tolist()
        scorer = load_scorer(ModelRewardConfig(path=str(checkpoint), device="cpu"), ImageStore())
        answers = [sample.meta[name][0]["content"][0]["text"] for sample in samples for name in ("chosen", "rejected")]
        twice = [sample for sample in samples for _ in range(2)]
        assert scorer.score(twice, answers) == pytest.approx(expected, abs=1e-5)
        assert len({round(score, 4) for score in expected}) > 3


@pytest.mark.ray
def test_packed_sft_on_two_ranks_is_that_of_one_process_and_of_padded_rows(home: Path, model: Path) -> None:
    def config(packing: bool = True, **more: Any) -> RunConfig:
        settings = {"sft": {"batch_size": 6, "packing": packing}, "reward": [{"type": "exact"}], **more}
        return small(model, "sft", data_of="digits-which", **settings)

    alone = run(config(), home / "sft-packed").run_dir
    names = ("sft/loss", "actor/grad_norm")
    check_same(run(config(packing=False), home / "sft-padded").run_dir, alone, names, rel=1e-4)
    check_same(run(config(placement=RANKS), home / "sft-ranks").run_dir, alone, names)
    assert values_of(alone)[0]["actor/padding_share"] == 0.0


def test_what_a_kind_cannot_learn_from_is_refused(home: Path, model: Path, tmp_path: Path) -> None:
    cases: list[tuple[Callable[[], RunConfig], str]] = [
        (lambda: small(model, "preference", data_of="digits-which"), "have no pair"),
        (lambda: small(model, "preference", data_of="digits-judged"), "have no pair"),
        (
            lambda: reward_config(model, reward_model={"batch_size": 6, "margin": "gap"}),
            "no number in its column 'gap'",
        ),
    ]
    for number, (make, problem) in enumerate(cases):
        with pytest.raises(DataError, match=problem):
            run(make(), tmp_path / str(number))


@pytest.mark.parametrize("kind", ["preference", "reward_model"])
def test_an_update_that_overflows_is_replayed(home: Path, model: Path, kind: str) -> None:
    """IPO's target is the square of 1/(2 beta); margins near the largest number add up beyond it."""
    if kind == "preference":
        config = preference_config(model, "ipo", preference={"type": "ipo", "batch_size": 6, "beta": 1e-20})
    else:
        rows = [replace(row, meta={**row.meta, "gap": 3e38}) for row in load_dataset("digits-pairs@train", limit=12)]
        register("digits-far", {"train": rows, "validation": rows[:2]}, source="digits-pairs")
        config = small(
            model,
            "reward_model",
            data_of="digits-far",
            reward_model={"batch_size": 6, "margin": "gap"},
            eval={"every": 0},
        )
    folder = home / f"overflow-{kind}"
    with pytest.raises(RunFailedError, match="--replay"):
        run(config, folder)
    found = replay(folder / "attempt-1" / "faults" / "step-000001" / "fault.json")
    assert found.is_reproduced
    assert found.fault.learner == ("actor" if kind == "preference" else "reward_model")
    assert found.places[0].kind == "loss_term"
