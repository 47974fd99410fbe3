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
TESTS = ROOT / "tests" / "unit"
OF_ALL = ("config", "defaults", "docs", "outcome", "pairs", "ppo", "settings", "sppo")
"""Tests that find an algorithm by its registry line, and those that they take parts of."""
TAKEN = {
    ("config", "test_config_tags_equal_registry_names"),
    ("config", "test_every_algorithm_is_built_from_the_defaults_of_its_type"),
    ("config", "test_every_field_of_every_algorithm_says_what_it_means"),
    ("defaults", "test_no_paper_is_left_out"),
    ("docs", "test_every_algorithm_has_its_source_defaults_and_use_in_the_manual_or_at_the_top_of_its_file"),
    ("docs", "test_every_algorithm_in_the_table_of_the_manual_exists_and_has_its_section"),
    ("median_baseline", "test_loss_and_gradient_equal_the_plain_version_on_random_batches"),
    ("median_baseline", "test_nothing_depends_on_micro_batches_padding_or_order"),
    ("median_baseline", "test_one_outlier_does_not_move_the_baseline"),
    ("pairs", "test_every_algorithm_has_a_plain_version_to_be_compared_with"),
    ("pairs", "test_every_pair_of_parts_is_in_a_case_or_refused"),
    ("pairs", "test_two_steps_of_each_case_are_those_of_the_plain_version"),
    ("settings", "test_no_argument_is_accepted_that_the_advantages_of_another_do_not_read"),
    ("settings", "test_no_setting_is_accepted_that_the_chosen_parts_do_not_read"),
}
"""What must have looked at the new algorithm."""


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
    (copy / "docs").mkdir()
    for name in (
        *(f"test_algorithms_{name}" for name in OF_ALL),
        *(path.stem for path in TESTS.glob("algorithms_*.py")),
    ):
        shutil.copy(TESTS / f"{name}.py", copy / "tests" / "unit")
    shutil.copytree(TESTS / "recorded", copy / "tests" / "unit" / "recorded")
    for page in (ROOT / "docs").glob("algorithm*.md"):
        shutil.copy(page, copy / "docs")
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


def test_the_new_algorithm_passes_its_test_and_all_that_find_it_by_its_registry_line(copy: Path) -> None:
    """Nothing else is touched for it: pairs of parts, settings, the manual and its own test take it as it is."""
    chosen = ["-k", "median_baseline or tags or built or every_field or every_pair or left_out or section"]
    done = run_python(copy, "-m", "pytest", "-v", "-p", "no:cacheprovider", *chosen, "tests/unit")
    assert done.returncode == 0, done.stdout + done.stderr
    found = set(re.findall(r"test_algorithms_(\w+)\.py::(test_\w+)", done.stdout))
    assert found >= TAKEN, "each of them ran, and the exit code says that it passed"
    assert len(re.findall(r"two_steps_of_each_case_are_those_of_the_plain_version\[median_baseline", done.stdout)) > 5


def test_an_algorithm_without_a_plain_version_fails_the_tests_of_pairs(copy: Path) -> None:
    own = copy / "tests" / "unit" / "test_algorithms_median_baseline.py"
    text = own.read_text()
    own.write_text(text.replace("def plain_advantages(", "def another_name("))
    try:
        chosen = ["-k", "plain_version_to and median_baseline"]
        pairs = "tests/unit/test_algorithms_pairs.py"
        done = run_python(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen, pairs)
    finally:
        own.write_text(text)
    assert done.returncode == 1
    assert "plain_advantages" in done.stdout


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
