"""A run that is killed with SIGKILL, saving included, is in the end the run that was never killed."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
import torch
from killing import (
    NUM_SAMPLES,
    PROMPTS_PER_STEP,
    in_a_save,
    kill_at,
    numbers_of_line,
    prompts_of_line,
    random_moment,
    small_config,
    start,
)
from safetensors.torch import load_file

from mmrl.runs.progress import make_progress
from mmrl.runs.reader import RunReader
from mmrl.trainer import train
from mmrl.trainer.checkpoint_folder import find_fault


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("killed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MMRL_HOME", str(folder))
        yield folder


def killed_run(home: Path, *, steps: int, kills: int, seed: int) -> Path:
    """Every third kill falls into a save, the others anywhere; after the last one the run goes on to its end."""
    config, run_dir, draw = small_config(home, steps=steps), home / "run", random.Random(seed)
    num_killed, leftovers = 0, 0
    while num_killed < kills:
        saving = num_killed % 3 == 1
        moment = in_a_save(run_dir) if saving else random_moment(run_dir, draw)
        kill_at(start(config, run_dir), moment)
        num_killed += 1
        leftovers += bool(list(run_dir.glob("checkpoints/.step-*.tmp")))
    assert leftovers > 0, "no kill fell into a save"
    process = start(config, run_dir)
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == 0, stderr
    return run_dir


def check_that_nothing_shows(home: Path, run_dir: Path, *, steps: int, kills: int) -> None:
    unbroken = home / "unbroken"
    train(small_config(home, steps=steps), run_dir=unbroken, progress=make_progress("quiet"))

    assert RunReader(run_dir).attempts() == list(range(1, kills + 2))
    prompts = prompts_of_line(run_dir)
    assert prompts == prompts_of_line(unbroken)
    assert len(prompts) == steps * PROMPTS_PER_STEP
    for first in range(0, len(prompts), NUM_SAMPLES):
        assert set(Counter(prompts[first : first + NUM_SAMPLES]).values()) == {1}, "a prompt came twice in an epoch"

    found, expected = numbers_of_line(run_dir), numbers_of_line(unbroken)
    assert list(found) == list(range(1, steps + 1))
    for step, values in expected.items():
        assert found[step].keys() == values.keys()
        for name, value in values.items():
            assert found[step][name] == pytest.approx(value, rel=1e-12, abs=1e-12), (step, name)
    assert any(values["actor/grad_norm"] for values in expected.values()), "there was something to learn"

    last = Path("checkpoints") / f"step-{steps:06d}"
    assert find_fault(run_dir / last) is None
    before, after = (load_file(folder / last / "model" / "model.safetensors") for folder in (unbroken, run_dir))
    assert {weight.dtype for weight in before.values()} == {torch.float64}
    for name, weight in before.items():
        torch.testing.assert_close(after[name], weight, rtol=1e-12, atol=1e-12)


def test_a_run_killed_three_times_is_the_run_that_was_never_killed(home: Path) -> None:
    run_dir = killed_run(home, steps=24, kills=3, seed=0)
    check_that_nothing_shows(home, run_dir, steps=24, kills=3)


@pytest.mark.slow
def test_a_run_killed_twenty_times_is_the_run_that_was_never_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path))
    run_dir = killed_run(tmp_path, steps=120, kills=20, seed=1)
    check_that_nothing_shows(tmp_path, run_dir, steps=120, kills=20)
