"""Each choice of the config in a run of two steps: it ends well and leaves the numbers that it should."""

import math
from pathlib import Path

import pytest
import torch
from learning import run, warm_model
from typer.testing import CliRunner

from mmrl.cli.checkpoint import app as checkpoint_app
from mmrl.config import RunConfig, build_config
from mmrl.errors import DataError
from mmrl.rewards.runner import RewardRunner
from mmrl.runs.reader import RunReader
from mmrl.trainer import train

BASE = {
    "name": "variants",
    "data": {"train": "digits-which@train", "eval": "digits-which@validation", "max_prompt_tokens": 96},
    "model": {"dtype": "float32"},
    "algorithm": {"type": "grpo", "group_size": 4},
    "reward": [{"type": "exact"}],
    "rollout": {"prompts_per_step": 4, "max_response_tokens": 8},
    "optim": {"lr": 1e-3},
    "train": {"steps": 2},
    "eval": {"every": 1, "max_samples": 6},
    "checkpoint": {"every": 0},
}

VARIANTS = {
    "KL in the loss": (["algorithm.kl.coef=0.1", "train.mini_batches=2"], ["actor/kl_reference", "timing_s/reference"]),
    "KL in the reward": (["algorithm.kl={coef: 0.1, where: reward, estimator: k1}"], ["timing_s/reference"]),
    "Dr. GRPO": (["algorithm.type=dr_grpo"], ["actor/policy_loss"]),
    "several epochs": (["train.epochs=2", "train.mini_batches=2"], ["timing_s/old_logprobs", "actor/ratio_max"]),
    "strictly on-policy": ([], ["sync/logprob_gap_max", "sync/image/kl"]),
    "the plain path": (["train.path=plain"], ["sync/logprob_gap_max"]),
    "frozen vision": (["model.freeze=[vision]"], ["perf/update_mfu"]),
    "frozen vision and projector": (["model.freeze=[vision, projector]"], ["actor/grad_norm"]),
    "small micro-batches": (["train.micro_batch_tokens=80"], ["actor/num_micro_batches"]),
    "two images a prompt": (["data.train=digits-sum@train", "data.eval=digits-sum@test"], ["sync/image/kl"]),
    "text only": (
        ["data.train=arithmetic@train", "data.eval=arithmetic@test", "model.freeze=[vision]"],
        ["sync/text/kl"],
    ),
    "several rewards": (
        ["reward=[{type: math}, {type: format, weight: 0.1}]"],
        ["reward/math/mean", "reward/format/mean"],
    ),
    "stop strings": (["rollout.stop=['}']"], ["response/length_mean"]),
    "sampled evaluation": (
        ["eval={every: 1, temperature: 1.0, samples_per_prompt: 2, max_samples: 4}"],
        ["eval/exact"],
    ),
    "trackers": (["track=[tensorboard, wandb]"], ["eval/exact"]),
    "SFT": (["kind=sft", "sft.batch_size=8"], ["sft/loss", "eval/exact"]),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("variants")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MMRL_HOME", str(folder))
        patch.setenv("WANDB_MODE", "offline")
        yield folder


@pytest.fixture(scope="module")
def model(home: Path) -> Path:
    return warm_model(home / "model", "digits-which", steps=10)


def config(model: Path, *overrides: str) -> RunConfig:
    return build_config(BASE, [f"model.path={model}", *overrides]).config


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_trains_and_leaves_its_numbers(home: Path, model: Path, name: str):
    overrides, metrics = VARIANTS[name]
    result = run(config(model, *overrides), home / "runs" / name.replace(" ", "-"))

    rows = RunReader(result.run_dir).metrics()
    assert [row.step for row in rows] == [0, 1, 2]
    for metric in metrics:
        assert math.isfinite(rows[-1].values[metric]), metric
    warnings = [event.fields["message"] for event in RunReader(result.run_dir).events() if event.kind == "warning"]
    assert warnings == []


def test_bfloat16_trains_within_the_canary(home: Path, model: Path):
    result = run(config(model, "model.dtype=bfloat16"), home / "runs" / "bfloat16")
    assert RunReader(result.run_dir).metrics()[-1].values["sync/kl"] < 0.05


def test_a_function_passed_from_python_is_a_reward_by_itself(home: Path, model: Path):
    def short(response: str) -> float:
        return -float(len(response))

    result = train(config(model, "reward=[]"), run_dir=home / "runs" / "function", reward_functions=[short])
    assert result.metrics["reward/mean"] < 0


def test_a_stage_that_drops_every_group_skips_the_update_and_leaves_the_weights(home: Path, model: Path):
    stage = home / "nothing.py"
    stage.write_text("class Nothing:\n    def __call__(self, groups, context):\n        return []\n")
    result = run(config(model, f"stages=[{{after: filter, path: {stage}, name: Nothing}}]"), home / "runs" / "nothing")
    reader = RunReader(result.run_dir)
    assert [row.values["update/skipped"] for row in reader.metrics() if row.step] == [1.0, 1.0]
    assert sum(event.kind == "warning" for event in reader.events()) == 2
    before, after = weights_of(model), weights_of(result.checkpoint)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_an_exported_checkpoint_loads_with_transformers_alone(home: Path, model: Path):
    from transformers import AutoModelForImageTextToText, AutoProcessor

    result = run(config(model), home / "runs" / "export")
    out = home / "exported"
    done = CliRunner().invoke(checkpoint_app, ["export", str(result.run_dir), "--step", "2", "--out", str(out)])
    assert done.exit_code == 0, done.output

    loaded = AutoModelForImageTextToText.from_pretrained(out)
    AutoProcessor.from_pretrained(out)
    ours = weights_of(result.checkpoint)
    assert set(ours) <= set(loaded.state_dict()) | set(weights_of(out))
    assert all(torch.equal(ours[name], weight) for name, weight in weights_of(out).items())


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def test_sft_rows_without_anything_to_learn_are_refused_before_the_run(home: Path, model: Path):
    rows = home / "partly.jsonl"
    rows.write_text('{"prompt": "1 + 1?", "answer": "2"}\n{"prompt": "2 + 2?"}\n')
    with pytest.raises(DataError, match="1 of 2 samples"):
        run(config(model, "kind=sft", "sft.batch_size=2", f"data.train={rows}", "data.eval="), home / "runs" / "partly")
    assert not (home / "runs" / "partly").exists()


def test_a_secret_that_a_reward_raises_reaches_no_file(home: Path, model: Path):
    reward = home / "leaky.py"
    reward.write_text("def score(response, api_key):\n    raise RuntimeError('refused: ' + api_key)\n")
    overrides = [
        f"reward=[{{type: function, path: {reward}, arguments: {{api_key: verysecret123}}}}]",
        "reward_runner.max_failure_rate=1.0",
        "track=[tensorboard, wandb]",
    ]
    folder = run(config(model, *overrides), home / "runs" / "leaky").run_dir
    (group, *_) = RunReader(folder).sample_groups(1, "train")
    assert "refused: <redacted>" in group.responses[0].parts[0].error
    for path in folder.rglob("*"):
        assert not path.is_file() or b"verysecret123" not in path.read_bytes(), path


def test_speed_is_that_of_the_step_and_not_of_the_evaluation_after_it(home: Path, model: Path):
    result = run(config(model, "eval.max_samples=200"), home / "runs" / "speed")
    values = RunReader(result.run_dir).metrics()[-1].values
    expected = values["response/num_tokens"] / values["timing_s/rollout"]
    assert values["perf/rollout_tokens_per_s"] == pytest.approx(expected)


def test_scoring_while_others_are_sampled_gives_the_same_run(
    home: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waves of one group: the reward of the first is computed while the others are sampled, or all at the end."""
    both = "reward=[{type: math, normalise: running}, {type: format, pattern: '.*4.*', weight: 0.5, normalise: group}]"
    settings = config(model, both, "rollout.max_batch_rows=4", "rollout.temperature=1.3")
    streamed = run(settings, home / "runs" / "streamed")
    monkeypatch.setattr(RewardRunner, "start", lambda self, group: None)
    waited = run(settings, home / "runs" / "waited")

    def kept(run_dir: Path) -> list[tuple[float | None, float | None, list[float | None]]]:
        reader = RunReader(run_dir)
        groups = [group for step in reader.steps("train") for group in reader.sample_groups(step, "train")]
        rows = [response for group in groups for response in group.responses]
        return [(row.reward, row.advantage, [part.scaled for part in row.parts]) for row in rows]

    assert kept(streamed.run_dir) == kept(waited.run_dir)
    assert len(kept(streamed.run_dir)) == 2 * 4 * 4
    assert any(scaled[0] is not None for _, _, scaled in kept(streamed.run_dir))
