"""The rewards iou, point, count and ocr on tables of answers."""

from __future__ import annotations

import pytest
from rewards_builders import item
from vision_tables import BOXES, COUNTS, POINTS, TEXTS

from mmrl.config.reward import CountRewardConfig, IouRewardConfig, OcrRewardConfig, PointRewardConfig
from mmrl.rewards.vision.count import CountReward
from mmrl.rewards.vision.iou import IouReward
from mmrl.rewards.vision.ocr import OcrReward
from mmrl.rewards.vision.point import PointReward


@pytest.mark.parametrize("table", [BOXES, COUNTS, TEXTS])
def test_a_table_has_fifty_rows_each_once(table: list[tuple[str, str, float]]) -> None:
    assert len({(reference, response) for reference, response, _ in table}) == len(table) == 50


@pytest.mark.parametrize(("reference", "response", "value"), BOXES)
def test_boxes(reference: str, response: str, value: float) -> None:
    assert IouReward(IouRewardConfig()).score(item(response, reference)).value == pytest.approx(value)


@pytest.mark.parametrize(("reference", "response", "value"), POINTS)
def test_points(reference: str, response: str, value: float) -> None:
    assert PointReward(PointRewardConfig()).score(item(response, reference)).value == pytest.approx(value)


@pytest.mark.parametrize(("reference", "response", "is_right"), COUNTS)
def test_counts(reference: str, response: str, is_right: bool) -> None:
    assert CountReward(CountRewardConfig()).score(item(response, reference)).value == float(is_right)


@pytest.mark.parametrize(("reference", "response", "value"), TEXTS)
def test_texts(reference: str, response: str, value: float) -> None:
    assert OcrReward(OcrRewardConfig()).score(item(response, reference)).value == pytest.approx(value)
