"""Which responses become pairs."""

from __future__ import annotations

import pytest
from runs_builders import group

from mmrl.config.mark import MarkSettings
from mmrl.trainer.marking import pairs_of

SETTINGS = MarkSettings(dataset="marks", pairs_per_prompt=2, margin_column="by")


def texts(pairs: list[object]) -> list[tuple[str, str, float]]:
    return [
        (pair.meta["chosen"][0]["content"][0]["text"], pair.meta["rejected"][0]["content"][0]["text"], pair.meta["by"])  # type: ignore[attr-defined]
        for pair in pairs
    ]


def test_the_best_stands_against_the_worst_first_each_text_once() -> None:
    found = pairs_of(group([("a", 0.5), ("b", 1.0), ("c", 0.0), ("c", 0.0), ("d", 0.25), ("b", 1.0)]), SETTINGS)
    assert texts(found) == [("b", "c", 1.0), ("b", "d", 0.75)]
    assert len({pair.id for pair in found}) == 2
    assert found[0].meta["source"] == "test"
    assert found[0].answer == "7"


def test_what_does_not_differ_enough_is_no_pair() -> None:
    settings = SETTINGS.model_copy(update={"margin": 0.5})
    assert pairs_of(group([("a", 0.5), ("b", 1.0)]), settings) == []
    assert pairs_of(group([("a", 1.0), ("b", 1.0)]), SETTINGS) == []
    assert texts(pairs_of(group([("a", 0.25), ("b", 1.0)]), settings)) == [("b", "a", 0.75)]


@pytest.mark.parametrize("rewards", [[None, None], [None, 1.0]])
def test_a_response_without_a_reward_is_in_no_pair(rewards: list[float | None]) -> None:
    assert pairs_of(group(list(zip("ab", rewards, strict=True))), SETTINGS) == []
