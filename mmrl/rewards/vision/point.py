"""The reward `point`: the answer points at what was asked for."""

from __future__ import annotations

import math

from mmrl.config.reward import PointRewardConfig
from mmrl.rewards.base import Reward, RewardFailure, RewardItem, Score
from mmrl.rewards.vision.boxes import MAX_MATCHED, Box, Point, answer_region, matched_score, read_boxes, read_points
from mmrl.rewards.vision.frames import framed_image, scales_to_compare, unit_scales


class PointReward(Reward):
    """References that are hit / max(points of the answer, references), each hit by a point of its own.

    A point hits a box that holds it, its edge included, and a reference point that is at most `radius` diagonals of the
    image away.
    """

    def __init__(self, config: PointRewardConfig) -> None:
        self._config = config

    def score(self, item: RewardItem) -> Score:
        boxes = read_boxes(item.answer, self._config.form, pairs=False)
        gold: list[Box | Point] = [*boxes] or [*read_points(item.answer)]
        if not gold:
            raise RewardFailure(f"the reference answer {item.answer!r} has no box or point such as [x, y]")
        points = read_points(answer_region(item.response))
        if not points:
            return Score(0.0, None, "no point such as [x, y] in the response")
        scale, gold_scale = (scales_to_compare if boxes else unit_scales)(self._config, item.sample)
        aspect = (1.0, 1.0) if boxes else self._diagonals(item)
        hits = matched_score(
            [target.scaled(gold_scale) for target in gold],
            [point.scaled(scale) for point in points[:MAX_MATCHED]],
            lambda target, point: float(self._is_hit(target, point, aspect)),
        )
        shown = ", ".join(f"[{point.x:g}, {point.y:g}]" for point in points)
        return Score(hits / max(len(gold), len(points)), shown, f"{hits:g} of {len(gold)} hit by {len(points)} points")

    def _is_hit(self, target: Box | Point, point: Point, aspect: tuple[float, float]) -> bool:
        if isinstance(target, Box):
            return target.holds(point)
        distance = math.hypot((target.x - point.x) * aspect[0], (target.y - point.y) * aspect[1])
        return distance <= self._config.radius

    def _diagonals(self, item: RewardItem) -> tuple[float, float]:
        """Width and height of the image as shares of its diagonal."""
        image = framed_image(self._config, item.sample)
        diagonal = math.hypot(image.width, image.height)
        return image.width / diagonal, image.height / diagonal
