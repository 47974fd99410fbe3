"""What marks made by a rule teach: a reward model tells right digits from wrong ones, and DPO names more of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from learning import run, warm_model
from marked_digits import marks_config, register_marks

from mmrl.runs.reader import RunReader

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("marks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MMRL_HOME", str(folder))
        yield folder


@pytest.fixture(scope="module")
def model(home: Path) -> Path:
    """Names about half of the digits."""
    found = warm_model(home / "model", "digits-which", steps=120)
    register_marks()
    return found


def first_and_last(run_dir: Path, name: str) -> tuple[float, float]:
    values = [row.values[name] for row in RunReader(run_dir).metrics([name]) if row.values.get(name) is not None]
    return values[0], values[-1]


def test_a_reward_model_orders_nine_of_ten_held_out_pairs(home: Path, model: Path) -> None:
    optim = {"lr": 1e-3, "warmup_steps": 10, "schedule": "cosine"}
    config = marks_config(model, "reward_model", steps=400, lr=1e-3, optim=optim, reward_model={"batch_size": 64})
    done = run(config, home / "reward-model").run_dir
    before, after = first_and_last(done, "eval/accuracy")
    assert before == 0.5, "a new head prefers nothing"
    assert after >= 0.9
    assert first_and_last(done, "eval/ece")[1] < 0.1
    assert first_and_last(done, "eval/brier")[1] < 0.1


def test_dpo_on_the_same_marks_orders_pairs_and_names_more_digits(home: Path, model: Path) -> None:
    settings = {"preference": {"type": "dpo", "beta": 1.0, "batch_size": 32}, "reward": [{"type": "exact"}]}
    optim = {"lr": 3e-4, "warmup_steps": 5, "schedule": "cosine"}
    done = run(marks_config(model, "preference", steps=80, lr=3e-4, optim=optim, **settings), home / "dpo").run_dir
    before, after = first_and_last(done, "eval/exact")
    assert after - before >= 0.1, (before, after)
    assert first_and_last(done, "eval/rewards/accuracies")[1] >= 0.85
    assert first_and_last(done, "eval/rewards/margins")[1] > 1.0
