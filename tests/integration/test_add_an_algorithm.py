"""The walk-through in docs/add-an-algorithm.md, followed step by step in a copy of the code."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "add-an-algorithm.md").read_text(encoding="utf-8")
HELPERS = ("algorithms_oracle.py", "algorithms_checks.py", "test_algorithms_config.py")


@pytest.fixture(scope="module")
def steps() -> dict[str, str]:
    """The code of the page by the place that its first line names."""
    blocks = re.findall(r"^```python\n# (.*?)\n(.*?)^```", PAGE, re.M | re.S)
    return dict(blocks)


@pytest.fixture(scope="module")
def copy(steps: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package and the tests of its algorithms after the steps of the page."""
    copy = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "mmrl", copy / "mmrl", ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "tests" / "unit").mkdir(parents=True)
    for name in HELPERS:
        shutil.copy(ROOT / "tests" / "unit" / name, copy / "tests" / "unit" / name)
    insert(copy / "mmrl/config/algorithm.py", "AlgorithmConfig = Annotated[", steps, ", before AlgorithmConfig", "\n\n")
    insert(copy / "mmrl/config/algorithm.py", "    | OpoConfig\n", steps, ", in AlgorithmConfig")
    insert(copy / "mmrl/algorithms/registry.py", '    "opo": ', steps, ", in ALGORITHMS")
    insert(copy / "mmrl/algorithms/registry.py", "from mmrl.algorithms.opo ", steps, ", imports")
    for path in ("mmrl/algorithms/median_baseline.py", "tests/unit/test_algorithms_median_baseline.py"):
        (copy / path).write_text(steps[path])
    return copy


def insert(path: Path, before: str, steps: dict[str, str], place: str, gap: str = "") -> None:
    (key,) = [key for key in steps if key.endswith(place) and path.as_posix().endswith(key.removesuffix(place))]
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, steps[key] + gap + before))


def test_the_page_names_six_places_of_four_files(steps: dict[str, str]) -> None:
    assert {place.split(",")[0] for place in steps} == {
        "mmrl/config/algorithm.py",
        "mmrl/algorithms/median_baseline.py",
        "mmrl/algorithms/registry.py",
        "tests/unit/test_algorithms_median_baseline.py",
    }
    assert len(steps) == 6


def test_the_new_algorithm_passes_its_test_and_those_of_every_config(copy: Path) -> None:
    chosen = ["-k", "median_baseline or tags or built or every_field"]
    done = run_python(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen, "tests/unit")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_new_algorithm_goes_with_the_parts_of_others(copy: Path) -> None:
    program = """
import mmrl
from mmrl.algorithms import build_algorithm
from mmrl.config import build_config
run = {"name": "x", "model": {"path": "m"}, "data": {"train": "d"}, "reward": [{"type": "exact"}]}
for settings in (["algorithm={type: median_baseline, policy_loss: gspo}"], ["algorithm.advantage=median_baseline"]):
    algorithm = build_algorithm(build_config(run, settings).config.algorithm)
    print(mmrl.__file__, algorithm.config.type, algorithm.config.advantage_type)
"""
    done = run_python(copy, "-c", program)
    assert done.returncode == 0, done.stderr
    own, other = (line.split() for line in done.stdout.splitlines())
    assert own == [str(copy / "mmrl/__init__.py"), "median_baseline", "median_baseline"]
    assert other[1:] == ["grpo", "median_baseline"]


def run_python(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python in the copy, which comes before the installed package."""
    environment = {**os.environ, "PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
