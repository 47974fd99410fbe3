"""Runs of the algorithms with a critic, greedy responses or dynamic sampling: what they leave, and how they go on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from learning import run, warm_model
from safetensors.torch import load_file

from mmrl.config import RunConfig, build_config
from mmrl.runs.reader import RunReader

BASE = {
    "name": "critic",
    "data": {"train": "digits-which@train", "max_prompt_tokens": 96},
    "model": {"dtype": "float32"},
    "algorithm": {"type": "ppo"},
    "reward": [{"type": "function", "path": "${MMRL_HOME}/half_flat.py"}],
    "rollout": {"prompts_per_step": 4, "max_response_tokens": 8},
    "optim": {"lr": 1e-3},
    "train": {"steps": 2},
    "eval": {"every": 0, "at_start": False},
    "checkpoint": {"every": 0},
}

# Long responses earn less, but to about every second prompt all responses score the same.
HALF_FLAT = """
def score(sample, response, num_tokens):
    return 1.0 if int(sample.id, 16) % 2 else 1.0 / (1 + num_tokens) + len(set(response)) / 100


def variety(response):
    return float(len(set(response)))
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("critic")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MMRL_HOME", str(folder))
        (folder / "half_flat.py").write_text(HALF_FLAT)
        yield folder


@pytest.fixture(scope="module")
def model(home: Path) -> Path:
    return warm_model(home / "model", "digits-which", steps=10)


def config(model: Path, *overrides: str) -> RunConfig:
    return build_config(BASE, [f"model.path={model}", *overrides]).config


def weights(run_dir: Path, step: int) -> dict[str, torch.Tensor]:
    return load_file(run_dir / "checkpoints" / f"step-{step:06d}" / "model" / "model.safetensors")


def critic_state(run_dir: Path, step: int) -> dict[str, torch.Tensor]:
    state = torch.load(run_dir / "checkpoints" / f"step-{step:06d}" / "trainer.pt", weights_only=True)
    return state["critic"]["weights"]


def values_of(run_dir: Path) -> list[dict[str, float]]:
    return [row.values for row in RunReader(run_dir).metrics() if row.step > 0]


def test_ppo_leaves_the_numbers_of_its_critic(home: Path, model: Path):
    result = run(config(model, "train={steps: 3, mini_batches: 2}"), home / "runs" / "ppo")
    for values in values_of(result.run_dir):
        assert {"timing_s/values", "timing_s/update_critic", "critic/loss", "critic/value_mean"} <= values.keys()
        assert values["sync/logprob_gap_max"] < 1e-3
        assert values["critic/flops"] > 0
        assert 0 < values["perf/critic_mfu"] < 1
    assert "critic/explained_variance" in values_of(result.run_dir)[-1]


def test_only_the_critic_learns_while_it_warms_up_and_the_canary_watches_all_the_same(home: Path, model: Path):
    overrides = ["critic={warmup_steps: 2, optim: {lr: 1e-3}}", "train.steps=3", "checkpoint={every: 1, keep: 9}"]
    folder = run(config(model, *overrides, "optim={lr: 1e-3, warmup_steps: 2}"), home / "runs" / "warmup").run_dir
    begun, warmed, moved = (weights(folder, step) for step in (1, 2, 3))
    assert all(torch.equal(begun[name], warmed[name]) for name in begun)
    assert any(not torch.equal(begun[name], moved[name]) for name in begun)
    assert any(
        not torch.equal(a, b)
        for a, b in zip(critic_state(folder, 1).values(), critic_state(folder, 2).values(), strict=True)
    )
    steps = values_of(folder)
    assert ["actor/lr" in values for values in steps] == [False, False, True]
    assert all(values["sync/logprob_gap_max"] < 1e-3 for values in steps)
    assert steps[2]["actor/lr"] == pytest.approx(5e-4), "the warm-up of the rate begins with the policy's first step"


def test_a_critic_run_that_was_cut_goes_on_exactly(home: Path, model: Path):
    overrides = ["critic={optim: {lr: 1e-3}}", "checkpoint={every: 2, keep: 9}", "model.freeze=[vision]"]
    run(config(model, *overrides, "train.steps=4"), home / "runs" / "unbroken")
    run(config(model, *overrides, "train.steps=2"), home / "runs" / "cut")
    run(config(model, *overrides, "train.steps=4"), home / "runs" / "cut")
    for read in (weights, critic_state):
        unbroken, cut = read(home / "runs" / "unbroken", 4), read(home / "runs" / "cut", 4)
        assert unbroken.keys() == cut.keys()
        assert all(torch.equal(tensor, cut[name]) for name, tensor in unbroken.items())


def test_another_model_may_be_the_critic(home: Path, model: Path):
    folder = run(config(model, f"critic.model={model.parents[3] / 'base'}"), home / "runs" / "other").run_dir
    assert values_of(folder)[-1]["critic/loss"] >= 0


def test_vapo_pretrains_its_critic_and_imitates(home: Path, model: Path):
    overrides = ["algorithm={type: vapo, group_size: 4}", "critic.warmup_steps=1"]
    steps = values_of(run(config(model, *overrides), home / "runs" / "vapo").run_dir)
    assert ["actor/imitation_loss" in values for values in steps] == [False, True]


def test_remax_scores_a_greedy_response_and_does_not_learn_from_it(home: Path, model: Path):
    result = run(config(model, "algorithm={type: remax, group_size: 2}"), home / "runs" / "remax")
    values = values_of(result.run_dir)[-1]
    assert 0 <= values["reward/greedy_mean"] <= 1
    assert values["response/num_sequences"] == 8
    for group in RunReader(result.run_dir).sample_groups(1, "train"):
        assert len(group.responses) == 2
        assert group.greedy is not None
        assert (group.greedy.text is not None, group.greedy.advantage) == (True, None)
        baseline = [response.reward - group.greedy.reward for response in group.responses]
        assert [response.advantage for response in group.responses] == pytest.approx(baseline, abs=1e-6)


def test_dapo_samples_more_prompts_in_place_of_groups_without_spread(home: Path, model: Path):
    overrides = ["algorithm={type: dapo, group_size: 4, sampling_rounds: 8}"]
    folder = run(config(model, *overrides), home / "runs" / "dapo").run_dir
    reader = RunReader(folder)
    for step, values in enumerate(values_of(folder), start=1):
        assert values["groups/kept"] == 4
        assert values["groups/extra_prompts"] == values["groups/dropped"] > 0
        assert 1 < values["groups/sampling_rounds"] <= 8
        assert len(list(reader.sample_groups(step, "train"))) == 4 + values["groups/extra_prompts"]
        assert values["response/num_sequences"] == 4 * (4 + values["groups/extra_prompts"])


def test_a_run_with_dynamic_sampling_goes_on_at_the_right_prompt(home: Path, model: Path):
    overrides = [
        "algorithm={type: dapo, group_size: 2, sampling_rounds: 8}",
        "checkpoint={every: 2, keep: 9}",
    ]
    run(config(model, *overrides, "train.steps=4"), home / "runs" / "dapo-unbroken")
    run(config(model, *overrides, "train.steps=2"), home / "runs" / "dapo-cut")
    run(config(model, *overrides, "train.steps=4"), home / "runs" / "dapo-cut")
    prompts = [
        [group.prompt_id for step in (1, 2, 3, 4) for group in reader.sample_groups(step, "train")]
        for reader in (RunReader(home / "runs" / name) for name in ("dapo-unbroken", "dapo-cut"))
    ]
    assert prompts[0] == prompts[1]
    assert len(set(prompts[0])) == len(prompts[0]), "no prompt comes twice in an epoch"
    unbroken, cut = weights(home / "runs" / "dapo-unbroken", 4), weights(home / "runs" / "dapo-cut", 4)
    assert all(torch.equal(tensor, cut[name]) for name, tensor in unbroken.items())


def test_dynamic_sampling_is_bounded_and_says_when_it_found_too_little(home: Path, model: Path):
    flat = home / "flat.py"
    flat.write_text("def score(response):\n    return 1.0\n")
    overrides = [
        "algorithm={type: dapo, group_size: 2, sampling_rounds: 3}",
        f"reward=[{{type: function, path: {flat}}}]",
        "train.steps=1",
    ]
    folder = run(config(model, *overrides), home / "runs" / "bounded").run_dir
    (values,) = values_of(folder)
    assert (values["groups/sampling_rounds"], values["groups/extra_prompts"]) == (3, 8)
    assert values["update/skipped"] == 1
    warnings = [event.fields["message"] for event in RunReader(folder).events() if event.kind == "warning"]
    assert sum("no group is left to learn from" in warning for warning in warnings) == 1


def test_gdpo_learns_from_two_rewards(home: Path, model: Path):
    path = home / "half_flat.py"
    rewards = f"reward=[{{type: function, path: {path}}}, {{type: function, path: {path}, name: variety, weight: 0.5}}]"
    folder = run(config(model, "algorithm={type: gdpo, group_size: 4}", rewards), home / "runs" / "gdpo").run_dir
    assert values_of(folder)[-1]["actor/grad_norm"] > 0


def test_reinforce_plus_plus_takes_its_penalty_from_the_reward(home: Path, model: Path):
    folder = run(config(model, "algorithm={type: reinforce_plus_plus}"), home / "runs" / "rpp").run_dir
    values = values_of(folder)[-1]
    assert "timing_s/reference" in values
    assert "actor/kl_loss" not in values
