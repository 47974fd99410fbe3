"""The walk-through in docs/add-a-reward.md, followed step by step in a copy of the code."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "add-a-reward.md").read_text(encoding="utf-8")
HELPERS = ("rewards_builders.py", "test_rewards_registry.py")
NEW_FILES = ("mmrl/rewards/answers/palindrome.py", "tests/unit/test_rewards_palindrome.py")
ANCHORS = {
    "mmrl/config/reward.py, before RewardConfig": ("RewardConfig = Annotated[", "\n\n"),
    "mmrl/config/reward.py, in RewardConfig": ("    | FunctionRewardConfig,\n", ""),
    "mmrl/rewards/registry.py, in REWARDS": ('    "function": ', ""),
}


@pytest.fixture(scope="module")
def steps() -> dict[str, str]:
    """The code of the page by the place that its first line names."""
    return dict(re.findall(r"^```python\n# (.*?)\n(.*?)^```", PAGE, re.M | re.S))


@pytest.fixture(scope="module")
def copy(steps: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package and the tests of its registry after the steps of the page."""
    copy = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "mmrl", copy / "mmrl", ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "tests" / "unit").mkdir(parents=True)
    for name in HELPERS:
        shutil.copy(ROOT / "tests" / "unit" / name, copy / "tests" / "unit" / name)
    for place, (before, gap) in ANCHORS.items():
        path = copy / place.partition(",")[0]
        text = path.read_text()
        assert len(re.findall(f"^{re.escape(before)}", text, re.M)) == 1, before
        path.write_text(re.sub(f"^{re.escape(before)}", lambda _, s=steps[place] + gap + before: s, text, flags=re.M))
    for path in NEW_FILES:
        (copy / path).write_text(steps[path])
    return copy


def test_the_page_touches_its_file_its_config_class_the_registry_and_its_test(steps: dict[str, str]) -> None:
    assert set(steps) == {*ANCHORS, *NEW_FILES}


def test_the_new_reward_passes_its_test_and_those_of_every_reward(copy: Path) -> None:
    done = run_python(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/unit")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_new_reward_is_listed_and_runs(copy: Path) -> None:
    program = """
import mmrl
from mmrl.config.loading import build_config
from mmrl.config.run import RewardRunnerConfig
from mmrl.rewards import RewardRunner
from mmrl.rewards.catalogue import reward_types
from mmrl.types import Sample
run = {"name": "x", "model": {"path": "m"}, "data": {"train": "d"}, "reward": [{"type": "palindrome"}]}
with RewardRunner(build_config(run).config.reward, RewardRunnerConfig()) as runner:
    (result,) = runner.score_texts([(Sample("s", ()), "Anna")])
listed = next(one for one in reward_types() if one.type == "palindrome")
print(mmrl.__file__, result.total, "ignore_case" in [field.name for field in listed.fields])
"""
    done = run_python(copy, "-c", program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(copy / "mmrl/__init__.py"), "1.0", "True"]


def run_python(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python in the copy, which comes before the installed package."""
    environment = {**os.environ, "PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
