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


@pytest.mark.parametrize(("data", "warm_steps"), [("digits-sum", 150), ("arithmetic", 150)])
def test_reward_rises_and_does_not_when_advantages_are_shuffled(home: Path, data: str, warm_steps: int):
    model = warm_model(home / data, data, steps=warm_steps)
    stage = home / "shuffle.py"
    stage.write_text(SHUFFLE_STAGE)
    shuffle = [{"after": "advantages", "path": str(stage), "name": "ShuffleAdvantages"}]

    learned = run(run_config(model, f"{data}@train", steps=60, lr=5e-4), home / data / "learned")
    shuffled = run(run_config(model, f"{data}@train", steps=60, lr=5e-4, stages=shuffle), home / data / "shuffled")

    assert rise_in_standard_errors(learned.run_dir) > 3
    assert rise_in_standard_errors(shuffled.run_dir) < 3
    clipped = [row.values["actor/clip_fraction_high"] for row in RunReader(learned.run_dir).metrics()]
    assert max(clipped) > 0, "two mini-batches a step must clip at times"
