"""A rescoring as people look at it: bins, rank correlation and moved groups, worked by hand."""

from __future__ import annotations

import pytest

from mmrl.runs.rescore import Rescored
from mmrl.runs.rescore_views import distribution, moved_groups, rank_correlation
from mmrl.types import RewardResult


def _group(*totals: tuple[float | None, float | None], group_id: int = 0) -> list[Rescored]:
    return [
        Rescored(1, group_id, index, "", RewardResult(before, ()), RewardResult(after, ()), None, None)
        for index, (before, after) in enumerate(totals)
    ]


def test_totals_lie_in_equal_bins_and_the_greatest_in_the_last() -> None:
    found = distribution([_group((0.0, 1.0), (0.5, 0.5), (None, 0.74))], bins=4)
    assert found is not None
    assert found.edges == (0.0, 0.25, 0.5, 0.75, 1.0)
    assert (found.before, found.after) == ((1, 0, 1, 0), (0, 0, 2, 1))
    assert distribution([_group((None, None))]) is None
    same = distribution([_group((1.0, 1.0), (1.0, 1.0))], bins=2)
    assert same is not None
    assert same.before == (2, 0)


def test_ranks_are_correlated_with_equal_totals_at_their_mean_rank() -> None:
    # before 1, 2, 3, 4 and after 1, 3, 2, 4: rho = 1 - 6·2 / (4·15) = 0.8
    assert rank_correlation([_group((1, 1), (2, 3)), _group((3, 2), (4, 4))]) == pytest.approx(0.8)
    # ranks before 0.5, 0.5, 2 and after 0, 1, 2: covariance 1.5, spreads 1.5 and 2: 1.5 / sqrt(3)
    assert rank_correlation([_group((0, 0), (0, 5), (1, 6))]) == pytest.approx(1.5 / 3**0.5)
    assert rank_correlation([_group((0, 1), (0, 2))]) is None
    assert rank_correlation([_group((0, 1), (None, 2))]) is None


def test_groups_that_moved_come_by_how_many_pairs_turned() -> None:
    swapped = _group((0, 3), (1, 2), (2, 1), group_id=0)
    level = _group((1, 1), (1, 1), group_id=1)
    gained = _group((1, 0), (1, 1), group_id=2)
    lost = _group((0, 1), (1, 1), group_id=3)
    found = moved_groups([level, lost, gained, swapped])
    assert [(each.group_id, each.swapped, each.pairs, each.is_best_changed, each.spread) for each in found] == [
        (0, 3, 3, True, None),
        (2, 0, 0, False, "gained"),
        (3, 0, 0, False, "lost"),
    ]
