"""The reward `iou`: how well the boxes of an answer cover those of the reference."""

from __future__ import annotations

from mmrl.config.reward import IouRewardConfig
from mmrl.rewards.base import Reward, RewardFailure, RewardItem, Score
from mmrl.rewards.vision.boxes import MAX_MATCHED, ROUNDING, Box, answer_region, matched_score, read_boxes, says_none
from mmrl.rewards.vision.frames import scales_to_compare


class IouReward(Reward):
    """Σ overlap of matched pairs / max(boxes of the answer, boxes of the reference), from 0 to 1.

    Pairs are matched one to one so that the sum is largest, so a missing box and one too many cost alike. A reference
    of `[]` has no boxes: then an answer without any scores 1.
    """

    def __init__(self, config: IouRewardConfig) -> None:
        self._config = config

    def score(self, item: RewardItem) -> Score:
        gold = read_boxes(item.answer, self._config.reference_form)
        if not gold and not says_none(item.answer):
            raise RewardFailure(f"the reference answer {item.answer!r} has no box such as [x1, y1, x2, y2]")
        if not item.response.strip():
            return Score(0.0, None, "the response is empty")
        boxes = read_boxes(answer_region(item.response), self._config.form)
        shown = _shown(boxes) if boxes else None
        if not gold or not boxes:
            is_right = not gold and not boxes
            return Score(float(is_right), shown, f"{len(boxes)} boxes for {len(gold)}")
        scale, gold_scale = scales_to_compare(self._config, item.sample)
        total = matched_score(
            [box.scaled(gold_scale) for box in gold],
            [box.scaled(scale) for box in boxes[:MAX_MATCHED]],
            self._pair_score,
        )
        value = total / max(len(gold), len(boxes))
        return Score(value, shown, f"{len(boxes)} boxes for {len(gold)}, matched overlap {total:.3g}")

    def _pair_score(self, gold: Box, box: Box) -> float:
        overlap = gold.overlap(box)
        return overlap if self._config.threshold is None else float(overlap >= self._config.threshold - ROUNDING)


def _shown(boxes: list[Box]) -> str:
    return ", ".join(f"[{box.x1:g}, {box.y1:g}, {box.x2:g}, {box.y2:g}]" for box in boxes)
