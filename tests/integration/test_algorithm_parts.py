"""Parts of algorithms in real runs: what they leave in the metrics, through a resume, and where nothing is to learn."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from learning import run, run_config, warm_model
from safetensors.torch import load_file

from mmrl.config import RunConfig
from mmrl.runs.reader import RunReader

NEAR = """
def digits(response):
    return sum(letter.isdigit() for letter in response) / max(len(response), 1)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("parts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MMRL_HOME", str(folder))
        (folder / "digits.py").write_text(NEAR)
        yield folder


@pytest.fixture(scope="module")
def model(home: Path) -> Path:
    return warm_model(home, "arithmetic", steps=5)


def config(home: Path, model: Path, algorithm: dict[str, object], *, steps: int = 2, **more: object) -> RunConfig:
    settings: dict[str, object] = {
        "reward": [{"type": "function", "path": str(home / "digits.py"), "name": "digits"}],
        "rollout": {"prompts_per_step": 4, "max_response_tokens": 6},
        **more,
    }
    return run_config(model, "arithmetic@train", steps=steps, algorithm={"group_size": 4, **algorithm}, **settings)


def rows(run_dir: Path) -> list[dict[str, float]]:
    return [dict(row.values) for row in RunReader(run_dir).metrics() if row.step > 0]


def test_parts_of_all_kinds_leave_their_numbers(home: Path, model: Path) -> None:
    algorithm = {
        "type": "grpo",
        "advantage": "rloo",
        "policy_loss": {"type": "gspo", "clip_low": 0.1, "clip_high": 0.1},
        "correction": {"weight": "tis", "sequence_mask": 4.0},
        "kl": {"coef": 0.1, "target": 0.001, "horizon": 40},
        "entropy_target": {"entropy": 9.0, "step": 0.01},
        "entropy_top_share": 0.5,
    }
    first, second = rows(run(config(home, model, algorithm), home / "all").run_dir)
    # The sampler is the actor itself, so weights are 1 and nothing is left out.
    assert first["correction/effective_sample_size"] == pytest.approx(1, abs=1e-4)
    assert first["correction/weight_mean"] == pytest.approx(1, abs=1e-3)
    assert first["correction/dropped_responses"] == 0
    assert first["update/learning_share"] == pytest.approx(0.5, abs=0.02)
    assert (first["actor/entropy_coef"], second["actor/entropy_coef"]) == (0.0, 0.01)
    assert (first["actor/kl_coef"], second["actor/kl_coef"]) == (0.1, pytest.approx(0.1 * (1 + 0.2 * 16 / 40)))
    assert all(math.isfinite(value) for row in (first, second) for value in row.values())


def test_steered_weights_go_on_where_a_resumed_run_left_them(home: Path, model: Path) -> None:
    algorithm = {
        "type": "grpo",
        "kl": {"coef": 0.1, "target": 0.001, "horizon": 40},
        "entropy_target": {"entropy": 9.0},
    }
    straight = rows(run(config(home, model, algorithm, steps=4), home / "straight").run_dir)
    checkpoint = {"every": 2, "keep": 3}
    run(config(home, model, algorithm, steps=2, checkpoint=checkpoint), home / "resumed")
    resumed = rows(run(config(home, model, algorithm, steps=4, checkpoint=checkpoint), home / "resumed").run_dir)
    for name in ("actor/kl_coef", "actor/entropy_coef"):
        assert [row[name] for row in resumed] == pytest.approx([row[name] for row in straight], rel=1e-5)
    assert resumed[3]["actor/entropy_coef"] == pytest.approx(0.015)


def test_t13_a_run_whose_responses_are_all_cut_and_masked_skips_its_step_and_keeps_the_weights(
    home: Path, model: Path
) -> None:
    untrained = home / "base"  # what `model` began as: it does not know yet how to end
    rollout = {"prompts_per_step": 4, "max_response_tokens": 2}
    settings = config(home, untrained, {"type": "grpo", "mask_truncated": True}, steps=1, rollout=rollout)
    result = run(settings, home / "cut")
    (row,) = rows(result.run_dir)
    assert row["update/skipped"] == 1
    assert row["groups/masked_truncated"] == 16
    assert all(math.isfinite(value) for value in row.values())
    warnings = [event for event in RunReader(result.run_dir).events() if event.kind == "warning"]
    assert len(warnings) == 1
    before, after = (load_file(folder / "model.safetensors") for folder in (untrained, result.checkpoint))
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_user_function_gives_the_advantages_of_a_run(home: Path, model: Path) -> None:
    (home / "mine.py").write_text(
        "def advantages(group, level):\n    return group.lengths * 0 + group.returns + level\n"
    )
    mine = {"path": str(home / "mine.py"), "arguments": {"level": 7.0}}
    result = run(config(home, model, {"type": "grpo", "advantage": mine}), home / "mine")
    groups = [group for step in (1, 2) for group in RunReader(result.run_dir).sample_groups(step, "train")]
    responses = [response for group in groups for response in group.responses]
    assert len(responses) == 2 * 4 * 4
    for response in responses:
        assert response.reward is not None
        assert response.advantage == pytest.approx(response.reward + 7.0, rel=1e-5)
    assert len({response.advantage for response in responses}) > 1
