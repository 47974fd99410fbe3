from pathlib import Path

import pytest
from learning import SHUFFLE_STAGE, rise_in_standard_errors, run, run_config, warm_model

from mmrl.runs.reader import RunReader


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("learning")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MMRL_HOME", str(folder))
        yield folder


NEAR = """
import re


def score(response, answer):
    found = re.findall(r"boxed.([0-9]+)", response)
    return 1 / (1 + abs(int(found[-1]) - int(answer))) if found else 0.0
"""
"""Few sums are right by chance, so the text-only task is paid for coming near."""


def settings(home: Path, data: str) -> dict[str, object]:
    if data != "arithmetic":
        return {"rollout": {"prompts_per_step": 32, "max_response_tokens": 12}}
    reward = home / "near.py"
    reward.write_text(NEAR)
    return {
        "reward": [{"type": "function", "path": str(reward)}],
        "rollout": {"prompts_per_step": 32, "max_response_tokens": 12},
        "algorithm": {"type": "grpo", "group_size": 8, "loss_aggregation": "token_mean", "entropy_coef": 0.01},
    }


@pytest.mark.parametrize(
    ("data", "steps"), [pytest.param("digits-sum", 60, marks=pytest.mark.slow), ("arithmetic", 60)]
)
def test_reward_rises_and_does_not_when_advantages_are_shuffled(home: Path, data: str, steps: int):
    model = warm_model(home / data, data, steps=150)
    stage = home / "shuffle.py"
    stage.write_text(SHUFFLE_STAGE)
    shuffle = [{"after": "advantages", "path": str(stage), "name": "ShuffleAdvantages"}]
    more = settings(home, data)

    settled = run_config(model, f"{data}@train", steps=steps, lr=5e-4, **more)
    learned = run(settled, home / data / "learned")
    control = run_config(model, f"{data}@train", steps=steps, lr=5e-4, stages=shuffle, **more)
    shuffled = run(control, home / data / "shuffled")

    assert rise_in_standard_errors(learned.run_dir) > 3
    assert rise_in_standard_errors(shuffled.run_dir) < 3
    clipped = [row.values["actor/clip_fraction_high"] for row in RunReader(learned.run_dir).metrics()]
    assert max(clipped) > 0, "two mini-batches a step must clip at times"
