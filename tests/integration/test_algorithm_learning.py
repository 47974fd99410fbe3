"""Every algorithm learns, and only from its advantages. The full set writes docs/algorithm-checks.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from learning import warm_model
from learning_checks import CHECKS, SETTINGS, Learning, assert_learned, check_learning, page

from mmrl.algorithms import ALGORITHMS

PAGE = Path(__file__).parents[2] / "docs" / "algorithm-checks.md"
IN_CI = ("gspo", "ppo", "rloo")
"""One whose ratio is of a whole response, one with a critic, and one that sums what others average; grpo has checks of
its own."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("algorithms")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MMRL_HOME", str(folder))
        yield folder


@pytest.fixture(scope="module")
def model(home: Path) -> Path:
    return warm_model(home, "arithmetic", steps=15)


@pytest.fixture(scope="module")
def results() -> Iterator[dict[str, Learning]]:
    """What the checks of this session found; written to the manual when all are there."""
    found: dict[str, Learning] = {}
    yield found
    if found.keys() == CHECKS.keys():
        PAGE.write_text(page(list(found.values())), encoding="utf-8")


def test_every_check_is_of_an_algorithm_that_there_is() -> None:
    assert CHECKS.keys() == ALGORITHMS.keys()


def test_the_page_has_a_row_of_every_check() -> None:
    """One that is new in the registry has no settings yet and gets its row from the next `make test-all`."""
    rows = re.findall(r"^\| `(\w+)`", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert SETTINGS.keys() <= set(rows) <= ALGORITHMS.keys()


@pytest.mark.parametrize("name", IN_CI)
def test_a_few_learn_and_do_not_when_advantages_are_shuffled(home: Path, model: Path, name: str) -> None:
    assert_learned(check_learning(name, model, home))


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKS)
def test_each_learns_and_does_not_when_advantages_are_shuffled(
    home: Path, model: Path, results: dict[str, Learning], name: str
) -> None:
    results[name] = check_learning(name, model, home)
    assert_learned(results[name])
